"""Interleaved rounds: what is compared is measured in turns, so that a slow minute of the machine hits all alike."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Samples", "Stopwatch", "interleaved", "note"]


def note(text: str) -> None:
    """Tell on the terminal what is being measured."""
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True)
class Stopwatch:
    """Times of the named parts of one run, in seconds."""

    parts: dict[str, float] = field(default_factory=dict)
    _started: float = 0.0

    def start(self) -> None:
        """Begin a part; what the previous one left to the garbage collector is cleared first."""
        gc.collect()
        self._started = time.perf_counter()

    def stop(self, part: str) -> None:
        """End the part that was begun last."""
        self.parts[part] = time.perf_counter() - self._started

    def add(self, part: str, seconds: float) -> None:
        """Record a time that was measured elsewhere."""
        self.parts[part] = seconds


@dataclass(frozen=True, slots=True)
class Samples:
    """What several rounds gave for one contender: part -> one figure a round."""

    parts: Mapping[str, list[float]]

    def median(self, part: str) -> float:
        """The middle figure of a part."""
        return statistics.median(self.parts[part])

    def spread(self, part: str) -> tuple[float, float]:
        """The least and the greatest figure of a part."""
        return min(self.parts[part]), max(self.parts[part])


def interleaved(runs: Mapping[str, Callable[[], Stopwatch]], rounds: int, *, warmup: bool = True) -> dict[str, Samples]:
    """Run every contender once a round, starting each round with another one.

    Parameters
    ----------
    runs
        Contender -> one complete run of it, which sets up and clears away for itself.
    rounds
        How many measured rounds.
    warmup
        Whether a round that is thrown away goes first (imports, caches of code).
    """
    names = list(runs)
    collected: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    if warmup:
        for name in names:
            runs[name]()
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            for part, seconds in runs[name]().parts.items():
                collected[name].setdefault(part, []).append(seconds)
    return {name: Samples(parts) for name, parts in collected.items()}
