"""Looking for a run, and for an order of effects, that notices a mutation."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.simulation.checker.violations import Violation
from tests.simulation.exploration.configurations import by_name
from tests.simulation.exploration.explore import explore
from tests.simulation.mutations import MUTATIONS
from tests.simulation.mutations.patching import Mutation, patched
from tests.simulation.runs import run
from tests.simulation.runs.run import simulate

__all__ = ["Catch", "Hunt", "add_commands", "explored", "hunt", "known", "table"]

_BUDGET = 30.0
_MOST_STEPS = 50_000
"""Callbacks after which a run never ends: those of right code take a few thousand."""


@dataclass(frozen=True)
class Catch:
    """How a mutation was noticed, or what was tried in vain.

    Parameters
    ----------
    where
        Profile and seed of the run, or name of the configuration that was explored.  Empty if nothing noticed it.
    what
        How it was noticed: the rule that was broken first, and how.
    rules
        All rules that were broken.
    runs, events
        What it took: runs, or executions, and events in them, or points at which there was a choice.
    seconds
        How long it took.
    """

    where: str
    what: str
    rules: frozenset[str]
    runs: int
    events: int
    seconds: float

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
        """Whether all that looked for it noticed it."""
        looked = [each for each in (self.simulated, self.explored) if each is not None and each.runs]
        return bool(looked) and all(each.where for each in looked)


def known(mutation: Mutation) -> Catch:
    """Run the seeds that are known to notice a mutation, until one does."""
    return _first(mutation, mutation.runs)


def hunt(mutation: Mutation, budget: float = _BUDGET, first_seed: int = 0) -> Catch:
    """Run new seeds until one notices a mutation which without it finds nothing wrong; none if it has no profiles.

    Parameters
    ----------
    mutation
        What is to be noticed.
    budget
        Seconds of the processor after which it has survived.
    first_seed
        Of the runs.
    """
    seeds = itertools.count(first_seed) if mutation.profiles else ()
    return _first(mutation, ((profile, seed) for seed in seeds for profile in mutation.profiles), budget)


def _first(mutation: Mutation, runs: Iterable[tuple[str, int]], budget: float = float("inf")) -> Catch:
    """Run seeds until one notices a mutation, and finds nothing wrong without it."""
    began = time.process_time()
    count = events = 0
    for profile, seed in runs:
        found, size = _noticed(mutation, seed, profile)
        count, events = count + 1, events + size
        if found and _is_right(mutation, seed, profile):
            rules = frozenset(each.rule for each in found)
            return Catch(f"{profile} {seed}", str(found[0]), rules, count, events, time.process_time() - began)
        if time.process_time() - began > budget:
            break
    return Catch("", "", frozenset(), count, events, time.process_time() - began)


def _noticed(mutation: Mutation, seed: int, profile: str) -> tuple[list[Violation], int]:
    """Run a seed with a mutation; returns what was noticed, and the number of events."""
    plan = mutation.plan(seed, profile)
    with patched((run, "_MOST_STEPS", _MOST_STEPS)), mutation.applied():
        try:
            report = simulate(seed, plan=plan)
        except Exception as error:  # noqa: BLE001 - however wrong code fails, it is noticed
            return [Violation("liveness", f"{type(error).__name__}: {error}", "the run itself")], 0
    # Rather what the checker found than an error of the wrong code.
    return sorted(report.violations, key=lambda violation: violation.rule == "liveness"), report.events


def _is_right(mutation: Mutation, seed: int, profile: str) -> bool:
    """Tell whether a run without the mutation finds nothing wrong."""
    with patched(*mutation.settings()):
        return simulate(seed, plan=mutation.plan(seed, profile)).ok


def explored(mutation: Mutation) -> Catch | None:
    """Explore configurations with a mutation until an execution ends badly; None where there are none for it."""
    if not mutation.explored:
        return None
    began = time.process_time()
    runs = events = 0
    for name in mutation.explored:
        with mutation.applied():
            found = explore(by_name(name))
        runs, events = runs + found.executions, events + found.states
        if found.failures:
            problems = found.failures[0].problems
            rules = frozenset(map(_rule_of, problems))
            return Catch(name, problems[0], rules, runs, events, time.process_time() - began)
    return Catch("", "", frozenset(), runs, events, time.process_time() - began)


def _rule_of(problem: str) -> str:
    """Return the rule that a problem names; anything else is an error, or that an execution never ends."""
    return problem[1:].partition("]")[0] if problem.startswith("[") else "liveness"


# -- the command line -------------------------------------------------------------------------------------------------

_HEAD = [
    "| mutation | what is done wrong | rule | run | events | exploration | executions | choices |",
    "| --- | --- | --- | --- | ---: | --- | ---: | ---: |",
]


def table(hunts: Iterable[Hunt]) -> str:
    """Return what noticed each mutation, and after how much, as a table in Markdown."""
    return "\n".join([*_HEAD, *(f"| {' | '.join(_row(each))} |" for each in hunts)])


def _row(each: Hunt) -> list[str]:
    run_of, explored_in = each.simulated, each.explored
    cells = [each.mutation.name, each.mutation.says, each.mutation.breaks]
    cells += [run_of.where or "none", str(run_of.events)] if run_of.runs else ["", ""]
    if explored_in is None:
        return [*cells, "", "", ""]
    return [*cells, explored_in.where or "none", str(explored_in.runs), str(explored_in.events)]


def _run(arguments: argparse.Namespace) -> int:
    found: list[Hunt] = []
    for name in arguments.only or [name for name, each in MUTATIONS.items() if each.profiles or not arguments.hunt]:
        one = _look_for(MUTATIONS[name], arguments)
        found.append(one)
        _say(f"{name}{'' if one.caught else ' SURVIVES'}")
        if one.simulated.runs:
            _say(f"    runs: {one.simulated}")
        if one.explored is not None:
            _say(f"    exploration: {one.explored}")
    _say("\n" + table(found))
    survivors = [each.mutation.name for each in found if not each.caught]
    _say(f"\n{len(found) - len(survivors)} of {len(found)} mutations were noticed")
    if survivors:
        _say(f"nothing noticed: {', '.join(survivors)}")
    return 1 if survivors else 0


def _look_for(mutation: Mutation, arguments: argparse.Namespace) -> Hunt:
    if arguments.hunt:
        return Hunt(mutation, hunt(mutation, arguments.budget, arguments.start), None)
    return Hunt(mutation, known(mutation), explored(mutation))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this module to a command line."""
    found = commands.add_parser("mutations", help="break the protocol in each of many ways, and see it noticed")
    found.add_argument("--only", action="append", choices=list(MUTATIONS), help="only this one; may be repeated")
    found.add_argument("--hunt", action="store_true", help="look for new seeds that notice it")
    found.add_argument("--budget", type=float, default=_BUDGET, help="seconds of a hunt for each (default: 30)")
    found.add_argument("--start", type=int, default=0, help="first seed of a hunt (default: 0)")
    found.set_defaults(do=_run)
