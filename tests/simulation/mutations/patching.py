"""Putting wrong code in the place of right code, for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from arraystore._commit import prepare
from arraystore._maintenance import checkpoints, due
from arraystore.simulation.faults import Faults
from tests.simulation.actors.script import script_of
from tests.simulation.actors.workload import Workload
from tests.simulation.runs.profiles import PROFILES
from tests.simulation.runs.run import Plan

__all__ = ["Change", "Mutation", "all_outside", "everywhere", "folded_often", "patched"]

Change = tuple[object, str, Any]
"""A module or class, the name of something in it, and what to put there."""

_NOT_TOUCHED = ("tests.simulation.checker", "tests.simulation.mutations")
"""The checker has none of the production code; what is here has to keep hold of the right code."""


@dataclass(frozen=True)
class Mutation:
    """One way to break the protocol.

    Parameters
    ----------
    name
        What it is called.
    says
        What is done wrong.
    changes
        Returns what to put where.
    profiles
        Kinds of runs in which it is likely to show, which a hunt tries in turn; empty for none.
    runs
        Profile and seed of runs that are known to notice it; the first one that does is enough.
    breaks
        The rule that is broken there, or in what is explored.
    explored
        Names of configurations of the exhaustive exploration in which it shows; empty for none.
    settings
        Returns what to change without breaking anything, so that small runs get to where it shows.
    tuned
        Makes the workload of a run such that it shows.
    spoiled
        Makes the faults of a run such that it shows.
    """

    name: str
    says: str
    changes: Callable[[], Iterable[Change]]
    profiles: tuple[str, ...] = ("mixed",)
    runs: tuple[tuple[str, int], ...] = ()
    breaks: str = ""
    explored: tuple[str, ...] = ()
    settings: Callable[[], Iterable[Change]] = tuple
    tuned: Callable[[Workload], Workload] = lambda workload: workload
    spoiled: Callable[[Faults], Faults] = lambda faults: faults

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let production code do it wrong meanwhile."""
        with patched(*self.settings(), *self.changes()):
            yield

    def plan(self, seed: int, profile: str) -> Plan:
        """Return the run of a seed in which it is looked for; what actors do besides is a matter of `tuned`."""
        workload, faults = replace(PROFILES[profile], besides=0.0).drawn(seed)
        workload = self.tuned(workload)
        return Plan(seed, workload, self.spoiled(faults), script_of(seed, workload))


def all_outside() -> list[Change]:
    """Keep manifests and change logs in objects of their own, so that each commit is followed by maintenance."""
    return [
        (prepare, "MAX_ATTACHED", 0),
        (prepare, "MAX_MANIFEST_IN_BODY", 0),
        (prepare, "fits_body", lambda log: False),
    ]


def folded_often() -> list[Change]:
    """See to checkpoints and layers after every sixteenth record."""
    return [(module, "last_multiple", lambda tip: tip.sequence // 16 * 16) for module in (due, checkpoints)]


@contextmanager
def patched(*changes: Change) -> Iterator[None]:
    """Put other things in the place of some attributes, and put these back in the end."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def everywhere(function: Callable[..., Any], replacement: Callable[..., Any]) -> list[Change]:
    """Return the changes that replace a function wherever a module of the library has it under its name."""
    name = function.__name__
    return [
        (module, name, replacement)
        for key, module in list(sys.modules.items())
        if key.startswith("arraystore.") and not key.startswith(_NOT_TOUCHED) and vars(module).get(name) is function
    ]
