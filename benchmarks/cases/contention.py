"""Many writers of one branch at once: how many commits they get through, how long each waits, and what is left over."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks import orphans
from benchmarks.bank import ACCOUNTS, OPENING, Shift, Tally, check_bank, open_bank, run_processes, run_threads
from benchmarks.ours import ArraystoreSystem
from benchmarks.places import PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Samples, Stopwatch, interleaved, note

__all__ = ["figures", "run", "run_local"]

_PROCESSES = 10
_THREADS = 32
_HEADER = [
    "system",
    "commits/s (least – most)",
    "p50",
    "p95",
    "slowest worker of fastest",
    "done again",
    "acknowledged",
    "in history",
]


def figures(tallies: Sequence[Tally], history: int) -> Stopwatch:
    """What one run came to, as parts."""
    latencies = [seconds for tally in tallies for seconds in tally.latencies]
    if len(latencies) < 2:
        raise RuntimeError(
            f"{len(latencies)} commits succeeded: {[error for tally in tallies for error in tally.errors]}"
        )
    per_worker = [len(tally.latencies) for tally in tallies]
    parts = Stopwatch()
    parts.add("rate", len(latencies) / max(tally.wall for tally in tallies))
    hundredths = statistics.quantiles(latencies, n=100, method="inclusive")
    parts.add("p50", hundredths[49])
    parts.add("p95", hundredths[94])
    parts.add("fairness", min(per_worker) / max(per_worker))
    parts.add("again", sum(tally.collisions + len(tally.errors) for tally in tallies))
    parts.add("acknowledged", len(latencies))
    parts.add("history", history)
    return parts


def _bank(system: System, places: PlaceMaker, seconds: float) -> Stopwatch:
    """Ten processes move money between fifty accounts."""
    note(f"bank: {system.name} on {places.kind}")
    with places.fresh() as place:
        handle = open_bank(system, place)
        tallies = run_processes(system, place, _PROCESSES, Shift(seconds))
        history, money = check_bank(system, place, handle)
        found = figures(tallies, history)
        if isinstance(system, ArraystoreSystem) and (history, money) != (_commits(tallies), ACCOUNTS * OPENING):
            raise AssertionError(
                f"{system.name}: {_commits(tallies)} acknowledged, {history} kept, {money} in the bank"
            )
        return found


def _commits(tallies: Sequence[Tally]) -> int:
    """How many commits were acknowledged."""
    return sum(len(tally.latencies) for tally in tallies)


def _disjoint(system: System, places: PlaceMaker, seconds: float) -> Stopwatch:
    """Threads of one repository object overwrite each its own chunk."""
    note(f"disjoint chunks: {system.name} on {places.kind}")
    with places.fresh() as place:
        handle = open_bank(system, place)
        tallies = run_threads(system, handle, _THREADS, Shift(seconds, rule="own"))
        return figures(tallies, check_bank(system, place, handle)[0])


def _row(name: str, samples: Samples) -> list[str]:
    least, most = samples.spread("rate")
    return [
        name,
        f"{human(samples.median('rate'))} ({human(least)} – {human(most)})",
        f"{human(samples.median('p50') * 1e3)} ms",
        f"{human(samples.median('p95') * 1e3)} ms",
        f"{samples.median('fairness'):.2f}",
        human(samples.median("again")),
        human(sum(samples.parts["acknowledged"])),
        human(sum(samples.parts["history"])),
    ]


def _table(title: str, found: Mapping[str, Samples]) -> Table:
    return Table(title, _HEADER, [_row(name, samples) for name, samples in found.items()])


def _rate_bar(what: str, ours: Samples, peer: Samples, factor: float) -> Bar:
    mine, theirs = ours.median("rate"), peer.median("rate")
    ratio = mine / theirs
    return Bar(what, f"{human(mine)}/s", f"{human(theirs)}/s", f"{ratio:.1f}", f"≥ {human(factor)}", ratio >= factor)


def _latency_bar(what: str, ours: Samples, peer: Samples, factor: float) -> Bar:
    mine, theirs = ours.median("p95"), peer.median("p95")
    ratio = theirs / mine
    bar = f"≥ {human(factor)}"
    return Bar(what, f"{human(mine * 1e3)} ms", f"{human(theirs * 1e3)} ms", f"{ratio:.1f}", bar, ratio >= factor)


def _compare(setup: Setup, runs: Mapping[str, Callable[[], Stopwatch]]) -> dict[str, Samples]:
    return interleaved(runs, setup.rounds, warmup=False)


def _left_behind(setup: Setup, places: PlaceMaker, result: CaseResult) -> None:
    """Count what nothing leads to after many contended commits."""
    system, peer = setup.ours, IcechunkSystem()
    commits, peer_commits = setup.scaled(1000, 30), setup.scaled(200, 20)
    assert isinstance(system, ArraystoreSystem)
    note(f"left behind: {commits:,} commits by {system.name}")
    with places.fresh() as place:
        open_bank(system, place)
        made = _commits(run_processes(system, place, _PROCESSES, Shift(600, most=commits // _PROCESSES)))
        left = orphans.ours(system.storage(place))
    note(f"left behind: {peer_commits:,} commits by {peer.name}")
    with places.fresh() as place:
        handle = open_bank(peer, place)
        theirs = _commits(run_processes(peer, place, _PROCESSES, Shift(600, most=peer_commits // _PROCESSES)))
        peer_left = orphans.theirs(handle)
    result.bars.append(
        Bar(
            f"objects that nothing leads to after {made:,} contended commits",
            human(len(left)),
            f"{peer_left:,} (after {theirs:,})",
            "",
            "0",
            not left,
        )
    )


def run(setup: Setup) -> CaseResult:
    """Ten processes and many threads on the S3 server."""
    if setup.server is None:
        raise SystemExit("the case 'contention' needs an S3 server: run it with --storage s3, or all of them")
    places = PlaceMaker("s3", setup.scratch, setup.server)
    result = CaseResult("contention", "Many writers at once, on an S3 server")
    systems: tuple[System, ...] = (setup.ours, IcechunkSystem())
    seconds = setup.scaled(8, 1)
    bank = _compare(setup, {one.name: partial(_bank, one, places, seconds) for one in systems})
    ours, peer = bank[setup.ours.name], bank["icechunk"]
    what = f"bank, {_PROCESSES} processes, rebase: "
    result.bars += [_rate_bar(what + "commits", ours, peer, 5), _latency_bar(what + "p95 latency", ours, peer, 5)]
    own = _compare(setup, {one.name: partial(_disjoint, one, places, seconds) for one in systems})
    ours, peer = own[setup.ours.name], own["icechunk"]
    what = f"{_THREADS} threads, disjoint chunks: "
    result.bars.append(_rate_bar(what + "commits", ours, peer, 10))
    fairness, of_peer = ours.median("fairness"), peer.median("fairness")
    text = what + "commits of the slowest worker over the fastest's"
    result.bars.append(Bar(text, f"{fairness:.2f}", f"{of_peer:.2f}", "", "≥ 0.50", fairness >= 0.5))
    _left_behind(setup, places, result)
    result.tables.append(_table(f"{_PROCESSES} processes move money between {ACCOUNTS} accounts", bank))
    result.tables.append(_table(f"{_THREADS} threads of one repository object, each with a chunk of its own", own))
    result.notes.append(
        f"A worker opens a session, changes two chunks (or its own one), commits with `ConflictDetector()`, and begins "
        f"anew where that fails, for {seconds:,} s. Latency is from the beginning of a transfer to its "
        "acknowledgement, all that was done again included. The server runs on the same machine."
    )
    return result


def run_local(setup: Setup) -> CaseResult:
    """Ten processes on local directories."""
    result = CaseResult("processes", "Many processes at once, on a local directory")
    systems: tuple[System, ...] = (setup.ours, setup.ours_durable, IcechunkSystem())
    seconds = setup.scaled(8, 1)
    for where, places in setup.places.items():
        found = _compare(setup, {one.name: partial(_bank, one, places, seconds) for one in systems})
        ours, peer = found[setup.ours.name], found["icechunk"]
        mine, theirs = ours.median("rate"), peer.median("rate")
        what = f"bank, {_PROCESSES} processes, {where}: "
        result.bars.append(
            Bar(
                what + "commits",
                f"{human(mine)}/s",
                f"{human(theirs)}/s",
                f"{mine / theirs:.1f}",
                "≥ 150/s",
                mine >= 150,
            )
        )
        lost, of_peer = _lost(ours) + _lost(found[setup.ours_durable.name]), _lost(peer)
        told = f"{of_peer:,} of {int(sum(peer.parts['acknowledged'])):,}"
        result.bars.append(Bar(what + "acknowledged commits that are lost", f"{lost:,}", told, "", "0", lost == 0))
        result.tables.append(_table(f"{_PROCESSES} processes move money between {ACCOUNTS} accounts, {where}", found))
    result.notes.append(
        "*In history* are the commits that a fresh reader finds. The peer says of its storage in a local directory "
        "that it is not safe for concurrent commits."
    )
    return result


def _lost(samples: Samples) -> int:
    return int(sum(samples.parts["acknowledged"]) - sum(samples.parts["history"]))
