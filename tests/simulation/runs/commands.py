"""What the command line does: runs of many seeds, a replay, a shrunk run, and endless runs."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.simulation.runs.profiles import PROFILES
from tests.simulation.runs.run import Report, plan_of, simulate
from tests.simulation.runs.schedule import schedule
from tests.simulation.runs.shrink import shrink

__all__ = ["Summary", "add_commands", "run_seeds"]

_BATCH = 200
"""Runs after which the endless mode says how it goes."""


@dataclass
class Summary:
    """What came of many runs of one profile."""

    runs: int = 0
    commits: int = 0
    refusals: int = 0
    unknown: int = 0
    requests: int = 0
    events: int = 0
    virtual: float = 0.0
    seconds: float = 0.0
    checking: float = 0.0
    failed: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Count a run."""
        self.runs += 1
        for name in ("commits", "refusals", "unknown", "requests", "events", "virtual", "seconds", "checking"):
            setattr(self, name, getattr(self, name) + getattr(report, name))
        if not report.ok:
            self.failed.append((report.plan.seed, tuple(map(str, report.violations))))

    def merge(self, other: Summary) -> None:
        """Count those of another summary."""
        for name in ("runs", "commits", "refusals", "unknown", "requests", "events", "virtual", "seconds", "checking"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed += other.failed

    def row(self) -> list[str]:
        """Return it as cells of a table."""
        minute = 60 * self.commits / self.seconds if self.seconds else 0.0
        each = self.requests / self.commits if self.commits else 0.0
        return [
            *map(str, (self.runs, self.commits, self.refusals, self.unknown, self.requests)),
            f"{each:.1f}",
            f"{self.virtual:.0f}",
            f"{self.seconds:.1f}",
            f"{100 * self.checking / self.seconds if self.seconds else 0:.0f} %",
            f"{minute:.0f}",
            str(len(self.failed)),
        ]


_HEAD = [
    "profile",
    "runs",
    "commits",
    "refused",
    "unknown",
    "requests",
    "a commit",
    "virtual s",
    "s",
    "checking",
    "commits/min",
    "failed",
]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _table(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _one(job: tuple[int, str]) -> tuple[str, Summary]:
    found = Summary()
    found.add(simulate(job[0], profile=job[1]))
    return job[1], found


def _results(jobs: Iterable[tuple[int, str]], processes: int) -> Iterator[tuple[str, Summary]]:
    if processes <= 1:
        yield from map(_one, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_one, jobs, chunksize=4)


def run_seeds(seeds: Iterable[int], profiles: list[str], processes: int = 1) -> dict[str, Summary]:
    """Run seeds of some profiles; says at once which of them fail.

    Parameters
    ----------
    seeds
        Of the runs.
    profiles
        Their names.
    processes
        How many run at a time.
    """
    found = {profile: Summary() for profile in profiles}
    for profile, one in _results(itertools.product(seeds, profiles), processes):
        found[profile].merge(one)
        for seed, violations in one.failed:
            _say(f"seed {seed} of profile {profile} fails:")
            for violation in violations[:3]:
                _say("    " + violation.replace("\n", "\n    "))
            _say(f"    again: python -m tests.simulation replay {seed} --profile {profile}")
            _say(f"    short: python -m tests.simulation shrink {seed} --profile {profile}")
    return found


def _report(found: dict[str, Summary]) -> int:
    total = Summary()
    for one in found.values():
        total.merge(one)
    rows = [_HEAD, *([name, *one.row()] for name, one in found.items())]
    if len(found) > 1:
        rows.append(["all", *total.row()])
    _say(_table(rows))
    return 1 if total.failed else 0


# -- commands ---------------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    return _report(run_seeds(seeds, _profiles(arguments), arguments.jobs))


def _loop(arguments: argparse.Namespace) -> int:
    """Run until something fails, or without end."""
    ends = time.monotonic() + arguments.minutes * 60 if arguments.minutes else float("inf")
    found = {profile: Summary() for profile in _profiles(arguments)}
    for start in itertools.count(arguments.start, _BATCH):
        for profile, one in run_seeds(range(start, start + _BATCH), list(found), arguments.jobs).items():
            found[profile].merge(one)
        _say(f"seeds up to {start + _BATCH - 1}:")
        if _report(found) and not arguments.keep_going:
            return 1
        if time.monotonic() > ends:
            break
    return 1 if any(one.failed for one in found.values()) else 0


def _replay(arguments: argparse.Namespace) -> int:
    report = simulate(arguments.seed, profile=arguments.profile[0])
    _say(schedule(report, requests=not arguments.short))
    _say(f"seed {arguments.seed} of profile {arguments.profile[0]}: trace {report.digest}")
    _say(f"{report.plan.workload}\n{report.plan.faults}")
    return 0 if report.ok else 1


def _shrink(arguments: argparse.Namespace) -> int:
    profile = arguments.profile[0]
    try:
        found = shrink(plan_of(arguments.seed, profile), most_runs=arguments.runs)
    except ValueError as error:
        _say(str(error))
        return 0
    _say(schedule(found.report, requests=not arguments.short))
    before, after = found.before, found.report
    _say(
        f"from {before.events} events and {before.plan.script.size} steps to {after.events} and "
        f"{after.plan.script.size}, in {found.runs} runs; what is left:"
    )
    _say(f"{after.plan.script}\n{after.plan.workload}\n{after.plan.faults}")
    return 1


def _profiles(arguments: argparse.Namespace) -> list[str]:
    return list(PROFILES) if "all" in arguments.profile else list(arguments.profile)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this module to a command line."""
    run = commands.add_parser("run", help="run some seeds")
    run.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    run.set_defaults(do=_run)
    loop = commands.add_parser("loop", help="run seeds until one fails")
    loop.add_argument("--minutes", type=float, default=0.0, help="stop after about that time (default: never)")
    loop.add_argument("--keep-going", action="store_true", help="go on after a failure")
    loop.set_defaults(do=_loop)
    run.add_argument("--start", type=int, default=0, help="first seed (default: 0)")
    loop.add_argument("--start", type=int, default=int(time.time()), help="first seed (default: from the clock)")
    for each in (run, loop):
        each.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    replay = commands.add_parser("replay", help="run one seed, and print what happens")
    replay.set_defaults(do=_replay)
    shorter = commands.add_parser("shrink", help="make the run of a failing seed short, and print it")
    shorter.add_argument("--runs", type=int, default=500, help="most runs to try (default: 500)")
    shorter.set_defaults(do=_shrink)
    for each in (replay, shorter):
        each.add_argument("seed", type=int)
        each.add_argument("--short", action="store_true", help="leave out requests")
    for each in (run, loop, replay, shorter):
        several = each in (run, loop)
        each.add_argument(
            "--profile",
            nargs="+" if several else 1,
            default=["mixed"],
            choices=[*PROFILES, "all"] if several else [*PROFILES],
            help="kind of runs: " + "; ".join(f"{name}: {profile.says}" for name, profile in PROFILES.items()),
        )
