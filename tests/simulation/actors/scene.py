"""What all actors of a run share: the clock, their notes, what they are to do, and what draws chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from arraystore.simulation.world import Process
from tests.simulation.actors.workload import Workload
from tests.simulation.observations import Observations

__all__ = ["Scene", "draw", "stream"]


@dataclass(eq=False)
class Scene:
    """What all actors of a run share.

    Parameters
    ----------
    seed
        Of the run.
    workload
        What it is to consist of.
    clock
        Virtual seconds.
    hire
        Starts a process under a name, for the forks of an actor.
    peace
        When nothing fails any more: from then on no error of the storage is expected, and nobody has to give up.
    notes
        What actors mean, do and see.
    branches
        Other branches than main that are known to be there.
    tags
        Tags that are known to be there.
    snapshots
        Snapshots that are known to be there: told by commits.
    referred
        Ranges of versions of sources that chunks refer to.
    errors
        What went wrong in a way that nobody expects: process, what it did, and the error.
    """

    seed: int
    workload: Workload
    clock: Callable[[], float]
    hire: Callable[[str], Process]
    peace: float
    notes: Observations = field(default_factory=Observations)
    branches: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    errors: list[tuple[str, str, BaseException]] = field(default_factory=list)
    referred: set[tuple[str, str | None, int, int]] = field(default_factory=set)

    def faulty(self) -> bool:
        """Tell whether requests may fail now."""
        return self.clock() < self.peace

    def lingers(self, rng: random.Random) -> bool:
        """Tell whether a session is to be held open for long."""
        share = self.workload.lingering
        return share > 0 and rng.random() < share

    def random(self, *names: object) -> random.Random:
        """Return a stream of random numbers that depends on the seed and its own name only.

        Leaving out an actor, a turn or a step changes nothing of what is drawn for the others.
        """
        return stream(self.seed, *names)


def stream(seed: int, *names: object) -> random.Random:
    """Return a stream of random numbers that depends on a seed and on its own name only."""
    return random.Random("/".join(map(str, (seed, *names))))


def draw(rng: random.Random, weights: Mapping[str, float]) -> str:
    """Return one of several names, each as often as its weight says."""
    return rng.choices(list(weights), list(weights.values()))[0]
