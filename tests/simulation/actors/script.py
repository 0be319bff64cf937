"""Who does what in a run, in a form from which parts can be left out."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.actors.scene import stream
from tests.simulation.actors.workload import Workload

__all__ = ["Part", "Script", "Turn", "script_of"]


@dataclass(frozen=True)
class Turn:
    """One transaction of an actor, one round of reading, one branch or tag.

    Parameters
    ----------
    number
        Which one of the actor's it is: what it does is drawn from that.
    steps
        Numbers of its steps: what each does is drawn from that.
    """

    number: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What one actor does.

    Parameters
    ----------
    kind
        One of `tests.simulation.actors.KINDS`.
    name
        Of the actor.
    process
        Of the process in which it lives.
    turns
        One after the other.
    """

    kind: str
    name: str
    process: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Script:
    """What all actors do."""

    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """How much there is of it: what shrinking makes less."""
        return sum(1 + len(turn.steps) for part in self.parts for turn in part.turns) + len(self.parts)


def script_of(seed: int, workload: Workload) -> Script:
    """Return what a seed makes of a workload."""
    parts: list[Part] = []
    for kind, letter, count in _casts(workload):
        for number in range(count):
            name = f"{letter}{number}"
            process = f"p{number // workload.shared}" if kind == "writer" else name
            rng = stream(seed, "script", name)
            turns = tuple(
                Turn(turn, tuple(range(rng.randint(*workload.steps)))) for turn in range(rng.randint(*workload.turns))
            )
            parts.append(Part(kind, name, process, turns))
    return Script(tuple(parts))


def _casts(workload: Workload) -> tuple[tuple[str, str, int], ...]:
    """Return kinds of actors, the letter of their names, and how many there are."""
    return (
        ("writer", "w", workload.writers),
        ("reader", "r", workload.readers),
        ("referrer", "f", workload.referrers),
        ("operator", "o", workload.operators),
        ("expirer", "e", workload.expirers),
        ("collector", "g", workload.collectors),
        ("compactor", "c", workload.compactors),
        ("transplanter", "t", workload.transplanters),
        ("overwriter", "v", workload.overwriters),
    )
