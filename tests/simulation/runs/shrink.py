"""Making a failing run short: leaving out actors, turns, steps and faults as long as it still fails the same way.

First, runs of other seeds are tried which have less to do from the start: that is where most is to be had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from arraystore.simulation.faults import Faults
from tests.simulation.actors.script import Part, Script, script_of
from tests.simulation.actors.workload import Workload
from tests.simulation.checker.violations import Violation
from tests.simulation.runs.run import Plan, Report, simulate

__all__ = ["Shrunk", "kinds_of", "shrink"]


@dataclass(frozen=True)
class Shrunk:
    """A short run that fails as a long one did.

    Parameters
    ----------
    report
        Of the short run.
    before
        Of the long one.
    runs
        How many were tried.
    """

    report: Report
    before: Report
    runs: int


def kinds_of(report: Report) -> frozenset[tuple[str, str]]:
    """Return what kinds of violations there are: the rule, and the error or what the text says."""
    return frozenset((each.rule, _kind(each)) for each in report.violations)


_PARTICULAR = re.compile(r"b?'[^']*'|b?\"[^\"]*\"|\([^)]*\)|\[[^]]*\]|\S*\d\S*")
"""What differs between two violations of a kind: what is quoted or in brackets, and all with a digit."""


def _kind(violation: Violation) -> str:
    first = violation.what.split(maxsplit=1)[0] if violation.what else ""
    if first.endswith(("Error", "Exception")):
        return first
    return " ".join(_PARTICULAR.sub(" ", violation.what).split()[:8])


def shrink(plan: Plan, *, most_runs: int = 500, run: Callable[[Plan], Report] | None = None) -> Shrunk:
    """Shorten a run that violates something.

    Parameters
    ----------
    plan
        The run.
    most_runs
        How many shorter ones are tried at most.
    run
        Runs a plan; `simulate` by default.

    Raises
    ------
    ValueError
        If nothing is violated.
    """
    run = run or (lambda each: simulate(each.seed, plan=each))
    before = run(plan)
    wanted = kinds_of(before)
    if not wanted:
        raise ValueError(f"seed {plan.seed} violates nothing, so there is nothing to shrink")
    best, runs = before, 0
    for smaller in _smaller(plan):
        if runs >= most_runs // 2:
            break
        runs += 1
        report = run(smaller)
        if kinds_of(report) & wanted:
            best = report
            break
    progress = True
    while progress and runs < most_runs:
        progress = False
        for candidate in _shorter(best):
            if runs >= most_runs:
                break
            runs += 1
            report = run(candidate(best.plan))
            if kinds_of(report) & wanted and report.plan != best.plan:
                best, progress = report, True
    return Shrunk(best, before, runs)


_SMALLER = ((2, (1, 2), (1, 2)), (2, (2, 3), (1, 3)), (3, (2, 3), (1, 3)))
_TRIES = 40


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Return runs of other seeds with less to do: often one of them shows the same."""
    for writers, turns, steps in _SMALLER:
        if writers >= plan.workload.writers:
            continue
        workload = replace(plan.workload, writers=writers, turns=turns, steps=steps)
        for number in range(1, 1 + _TRIES):
            seed = plan.seed * 1000 + number
            yield Plan(seed, workload, plan.faults, script_of(seed, workload))


Cut = Callable[[Plan], Plan]
"""Leaves something out of a plan; out of one that lacks it, nothing."""


def _shorter(report: Report) -> Iterator[Cut]:
    """Return what may be left out: the largest pieces first."""
    plan = report.plan
    parts = plan.script.parts
    for part in parts:
        yield _without_part(part.name)
    for part in parts:
        if len(part.turns) > 1:
            yield _some_turns(part.name, slice(0, len(part.turns) // 2))
            yield _some_turns(part.name, slice(len(part.turns) // 2, None))
    yield from map(_without_fault, _present(plan.faults))
    yield from _simpler(plan.workload)
    for part in parts:
        for turn in reversed(part.turns):
            yield _without_turn(part.name, turn.number)
    for part in parts:
        for turn in part.turns:
            for step in reversed(turn.steps):
                yield _without_step(part.name, turn.number, step)


def _edit(plan: Plan, change: Callable[[Part], Part | None]) -> Plan:
    parts = tuple(changed for part in plan.script.parts if (changed := change(part)) is not None)
    return replace(plan, script=Script(parts))


def _without_part(name: str) -> Cut:
    return lambda plan: _edit(plan, lambda part: None if part.name == name else part)


def _some_turns(name: str, some: slice) -> Cut:
    return lambda plan: _edit(plan, lambda part: replace(part, turns=part.turns[some]) if part.name == name else part)


def _without_turn(name: str, number: int) -> Cut:
    def change(part: Part) -> Part:
        if part.name != name:
            return part
        return replace(part, turns=tuple(turn for turn in part.turns if turn.number != number))

    return lambda plan: _edit(plan, change)


def _without_step(name: str, number: int, step: int) -> Cut:
    def change(part: Part) -> Part:
        if part.name != name:
            return part
        turns = tuple(
            replace(turn, steps=tuple(each for each in turn.steps if each != step)) if turn.number == number else turn
            for turn in part.turns
        )
        return replace(part, turns=turns)

    return lambda plan: _edit(plan, change)


_FAULTS = tuple(
    field.name
    for field in fields(Faults)
    if field.default == 0.0 and field.name not in ("timeout", "tries", "lateness", "downtime", "until")
)


def _present(faults: Faults) -> list[str]:
    return [name for name in _FAULTS if getattr(faults, name)]


def _without_fault(name: str) -> Cut:
    return lambda plan: replace(plan, faults=replace(plan.faults, **cast(Any, {name: 0.0})))


def _simpler(workload: Workload) -> Iterator[Cut]:
    changes: tuple[Mapping[str, Any], ...] = (
        {"redo": 0},
        {"second_solver": 0.0},
        {"impatient": 0.0},
        {"serializable": 0.0},
        {"groups": 0},
        {"arrays": 1},
        {"think": 0.02},
    )
    for change in changes:
        if any(getattr(workload, name) != value for name, value in change.items()):
            yield _with_workload(change)


def _with_workload(change: Mapping[str, Any]) -> Cut:
    return lambda plan: replace(plan, workload=replace(plan.workload, **change))
