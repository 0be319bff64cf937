"""Looking for a run, and for an order of effects, that notices a mutation."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.simulation.checker.violations import Violation
from tests.simulation.exploration.configurations import by_name
from tests.simulation.exploration.explore import explore
from tests.simulation.mutations import MUTATIONS
from tests.simulation.mutations.patching import Mutation, patched
from tests.simulation.runs import run
from tests.simulation.runs.run import simulate

__all__ = ["Catch", "Hunt", "add_commands", "explored", "hunt", "hunted", "table"]

_BUDGET = 30.0
_MOST_STEPS = 50_000
"""Callbacks after which a run goes on for ever: those of right code take a few thousand."""


@dataclass(frozen=True)
class Catch:
    """How a mutation was noticed, or what was tried in vain.

    Parameters
    ----------
    where
        Profile and seed of the run, or name of the configuration that was explored.  Empty if nothing noticed it.
    what
        How it was noticed: the rule that was broken, and how.
    runs, events
        What it took: runs, or executions, and events in them, or points at which there was a choice.
    seconds
        How long it took.
    """

    where: str
    what: str
    runs: int
    events: int
    seconds: float

    @property
    def rule(self) -> str:
        """The rule that was broken."""
        return self.what[1:].partition("]")[0] if self.what.startswith("[") else ""

    def __str__(self) -> str:
        if not self.where:
            return f"not noticed in {self.runs} runs, {self.events} events, {self.seconds:.1f} s"
        first = (self.what.splitlines() or [""])[0][:160]
        return f"{self.where}: {first} ({self.runs} runs, {self.events} events, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Hunt:
    """What came of looking for a mutation.

    Parameters
    ----------
    mutation
        Which one.
    simulated, explored
        What simulation and exploration made of it; None where it was not explored.
    """

    mutation: Mutation
    simulated: Catch
    explored: Catch | None

    @property
    def caught(self) -> bool:
        """Whether anything noticed it."""
        return bool(self.simulated.where or (self.explored and self.explored.where))


def hunted(mutation: Mutation, budget: float = _BUDGET, first_seed: int = 0) -> Hunt:
    """Look for a mutation in every way that promises something; see `hunt`."""
    return Hunt(mutation, hunt(mutation, budget, first_seed), explored(mutation, budget))


def hunt(mutation: Mutation, budget: float = _BUDGET, first_seed: int = 0) -> Catch:
    """Run seeds until one notices a mutation which without it finds nothing wrong; none if it has no profiles.

    Parameters
    ----------
    mutation
        What is to be noticed.
    budget
        Seconds after which it has survived.
    first_seed
        Of the runs.
    """
    began = time.perf_counter()
    runs = events = 0
    for seed, profile in _runs(mutation, first_seed):
        found, size = _noticed(mutation, seed, profile)
        runs, events = runs + 1, events + size
        seconds = time.perf_counter() - began
        if found is not None and _is_right(mutation, seed, profile):
            return Catch(f"{profile} {seed}", str(found), runs, events, seconds)
        if seconds > budget:
            break
    return Catch("", "", runs, events, time.perf_counter() - began)


def _runs(mutation: Mutation, first_seed: int) -> Iterator[tuple[int, str]]:
    seeds = itertools.count(first_seed) if mutation.profiles else ()
    return ((seed, profile) for seed in seeds for profile in mutation.profiles)


def _noticed(mutation: Mutation, seed: int, profile: str) -> tuple[Violation | None, int]:
    """Run a seed with a mutation; returns what was noticed, and the number of events."""
    plan = mutation.plan(seed, profile)
    with patched((run, "_MOST_STEPS", _MOST_STEPS)), mutation.applied():
        try:
            report = simulate(seed, plan=plan)
        except Exception as error:  # noqa: BLE001 - however wrong code fails, it is noticed
            return Violation("liveness", f"{type(error).__name__}: {error}", "the run itself"), 0
    found = sorted(report.violations, key=lambda violation: violation.rule == "liveness")
    return next(iter(found), None), report.events  # rather what the checker found than an error of the wrong code


def _is_right(mutation: Mutation, seed: int, profile: str) -> bool:
    """Tell whether a run without the mutation finds nothing wrong."""
    with patched(*mutation.settings()):
        return simulate(seed, plan=mutation.plan(seed, profile)).ok


def explored(mutation: Mutation, budget: float = _BUDGET) -> Catch | None:
    """Explore configurations with a mutation until an execution ends badly; None where there are none for it."""
    if not mutation.explored:
        return None
    began = time.perf_counter()
    runs = events = 0
    for name in mutation.explored:
        with mutation.applied():
            found = explore(by_name(name), budget=budget)
        runs, events = runs + found.executions, events + found.states
        if found.failures:
            problem = found.failures[0].problems[0]
            return Catch(name, problem, runs, events, time.perf_counter() - began)
    return Catch("", "", runs, events, time.perf_counter() - began)


# -- the command line -------------------------------------------------------------------------------------------------

_HEAD = [
    "| mutation | what is done wrong | run | rule | runs | events | exploration | executions | choices |",
    "| --- | --- | --- | --- | ---: | ---: | --- | ---: | ---: |",
]


def table(hunts: Iterable[Hunt]) -> str:
    """Return what noticed each mutation, and after how much, as a table in Markdown."""
    return "\n".join([*_HEAD, *(f"| {' | '.join(_row(each))} |" for each in hunts)])


def _row(each: Hunt) -> list[str]:
    run_of, explored_in = each.simulated, each.explored
    cells = [each.mutation.name, each.mutation.says]
    if each.mutation.profiles:
        cells += [run_of.where or "none", run_of.rule, str(run_of.runs), str(run_of.events)]
    else:
        cells += ["", (explored_in and explored_in.rule) or "liveness", "", ""]
    if explored_in is None:
        return [*cells, "", "", ""]
    return [*cells, explored_in.where or "none", str(explored_in.runs), str(explored_in.events)]


def _run(arguments: argparse.Namespace) -> int:
    found: list[Hunt] = []
    for name in arguments.only or list(MUTATIONS):
        one = hunted(MUTATIONS[name], arguments.budget, arguments.start)
        found.append(one)
        _say(f"{name}{'' if one.caught else ' SURVIVES'}\n    runs: {one.simulated}")
        if one.explored is not None:
            _say(f"    exploration: {one.explored}")
    _say("\n" + table(found))
    survivors = [each.mutation.name for each in found if not each.caught]
    _say(f"\n{len(found) - len(survivors)} of {len(found)} mutations were noticed")
    if survivors:
        _say(f"nothing noticed: {', '.join(survivors)}")
    return 1 if survivors else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this module to a command line."""
    found = commands.add_parser("mutations", help="break the protocol in each of many ways, and see it noticed")
    found.add_argument("--budget", type=float, default=_BUDGET, help="seconds for each (default: 30)")
    found.add_argument("--only", action="append", choices=list(MUTATIONS), help="only this one; may be repeated")
    found.add_argument("--start", type=int, default=0, help="first seed (default: 0)")
    found.set_defaults(do=_run)
