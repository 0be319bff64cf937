"""What arrives: transactions at exponential intervals, light and heavy, each busy for a while before it commits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

__all__ = ["MIXES", "STUDY_ARRIVALS_MS", "Arrival", "Spread", "Workload"]

STUDY_ARRIVALS_MS = (20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000)
MIXES = (1.0, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1, 0.0)
"""Shares of light transactions."""

_RUN_SIGMA = 1.5
_SHORTEST_OF_RUNTIME = 1 / 6
"""Run times spread so in the study's simulator, and are at least 30 s of 180 s."""

_ARRIVAL_SIGMA = 0.5


class Spread(Enum):
    """How times are drawn.

    The study describes exponential arrivals and run times of a mean; what its published simulator draws for them is
    lognormal, with the given value as the median.  Fewer transactions come to commit in an hour that way: the mean
    between two arrivals is 1.13 times the value, and half of the transactions run for longer than it, some past the
    end.
    """

    DRAWN = "as drawn"
    DESCRIBED = "as described"


@dataclass(frozen=True)
class Arrival:
    """A transaction; times in seconds."""

    number: int
    at: float
    runtime: float
    heavy: bool


@dataclass(frozen=True)
class Workload:
    """A stream of transactions.

    Parameters
    ----------
    mean_ms
        Time between two arrivals.
    light
        Share of those that append; the others overwrite and validate.
    runtime
        Seconds that a transaction runs before it commits.
    duration
        Seconds in which transactions arrive.
    margin
        Seconds at either end that are not counted.
    spread
        Distribution of arrivals and of run times.
    """

    mean_ms: float
    light: float = 1.0
    runtime: float = 180.0
    duration: float = 3600.0
    margin: float = 900.0
    spread: Spread = Spread.DESCRIBED

    @property
    def window(self) -> tuple[float, float]:
        """First and last second that count."""
        return self.margin, self.duration - self.margin

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """All transactions, in order; the same ones for the same seed, whoever asks."""
        rng = random.Random(f"arrivals {seed} {self.mean_ms} {self.light}")
        at, number = 0.0, 0
        while True:
            at += self._interval(rng)
            if at >= self.duration:
                return
            yield Arrival(number, at, self._runtime(rng), rng.random() >= self.light)
            number += 1

    def _interval(self, rng: random.Random) -> float:
        if self.spread is Spread.DESCRIBED:
            return rng.expovariate(1000 / self.mean_ms)
        return rng.lognormvariate(math.log(self.mean_ms / 1000), _ARRIVAL_SIGMA)

    def _runtime(self, rng: random.Random) -> float:
        if not self.runtime:
            return 0.0
        if self.spread is Spread.DESCRIBED:
            return rng.expovariate(1 / self.runtime)
        drawn = rng.lognormvariate(math.log(self.runtime), _RUN_SIGMA)
        return max(drawn, self.runtime * _SHORTEST_OF_RUNTIME)
