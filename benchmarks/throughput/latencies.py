"""How long requests take, by object store: lognormal figures as published, and where they come from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

__all__ = ["PROVIDERS", "S3", "Provider", "Stream", "Timing"]

_MIB = 1 << 20
_BLOCK = 4096


@dataclass(frozen=True)
class Timing:
    """What one kind of request takes: lognormal, longer for more bytes, never shorter than a floor; milliseconds."""

    median_ms: float
    sigma: float
    per_mib_ms: float = 0.0
    floor_ms: float = 0.0

    def median_of(self, size: int) -> float:
        """Median for a number of bytes."""
        return self.median_ms + self.per_mib_ms * size / _MIB

    def slower(self, factor: float) -> Timing:
        """The same, all of it longer."""
        return Timing(self.median_ms * factor, self.sigma, self.per_mib_ms * factor, self.floor_ms * factor)

    def many(self, rng: np.random.Generator, size: int, count: int) -> npt.NDArray[np.float64]:
        """Seconds of some requests."""
        drawn = self.median_of(size) * np.exp(rng.standard_normal(count) * self.sigma)
        return np.maximum(drawn, self.floor_ms) / 1000

    def moments(self, size: int) -> tuple[float, float]:
        """Mean and standard deviation, in seconds."""
        median, floor = self.median_of(size), self.floor_ms
        if not self.sigma:
            return max(median, floor) / 1000, 0.0
        below = (math.log(floor / median) / self.sigma) if floor else -math.inf
        share = NormalDist().cdf
        mean, square = (
            floor**power * share(below)
            + median**power * math.exp((power * self.sigma) ** 2 / 2) * share(power * self.sigma - below)
            for power in (1, 2)
        )
        return mean / 1000, math.sqrt(square - mean**2) / 1000


@dataclass(frozen=True)
class Provider:
    """An object store.

    Parameters
    ----------
    name, title
        For the command line, and for people.
    get, put
        Unconditional requests.
    conditional_put
        A PUT that takes effect only if nothing is there, or only on the version that is expected.
    source
        Where the figures come from.
    """

    name: str
    title: str
    get: Timing
    put: Timing
    conditional_put: Timing
    source: str

    def slower(self, factor: float) -> Provider:
        """The same, every request longer."""
        return replace(
            self,
            get=self.get.slower(factor),
            put=self.put.slower(factor),
            conditional_put=self.conditional_put.slower(factor),
        )


_STUDY = "the parameters of the single-table study"
_SEQUEL = "the provider profiles published with the simulator of the multi-table study"

S3 = Provider(
    "s3",
    "S3 Standard",
    Timing(27, 0.62, floor_ms=10),
    Timing(60, 0.29, 20, 10),
    Timing(60, 0.29, 20, 10),
    f"{_STUDY}; its compare-and-set on S3, 61 ms in the median, is a PUT like any other",
)

PROVIDERS = {
    each.name: each
    for each in (
        S3,
        Provider(
            "s3-express",
            "S3 Express One Zone",
            Timing(2.5, 0.57, floor_ms=1),
            Timing(6.5, 0.24, 10, 1),
            Timing(22, 0.22, 10, 1),
            f"{_SEQUEL}; its PUT is an estimate, its compare-and-set was measured",
        ),
        Provider(
            "azure-premium",
            "Azure Premium Block Blob",
            Timing(35, 0.08, floor_ms=20),
            Timing(41, 0.10, 15, 20),
            Timing(64, 0.73, 15, 20),
            f"{_SEQUEL}; its PUT is an estimate, its compare-and-set was measured",
        ),
        Provider(
            "azure",
            "Azure Blob Storage",
            Timing(38, 0.66, floor_ms=20),
            Timing(45, 0.50, 25, 20),
            Timing(93, 0.82, 25, 20),
            f"{_SEQUEL}; its PUT is an estimate, its compare-and-set was measured",
        ),
        Provider(
            "gcs",
            "Google Cloud Storage",
            Timing(170, 0.91, floor_ms=118),
            Timing(40, 0.60, 17, 118),
            Timing(170, 0.91, 17, 118),
            f"{_SEQUEL}; its GET is taken to be as slow as the compare-and-set that was measured: none is published",
        ),
    )
}


class Stream:
    """Numbers of one kind, drawn a block at a time: a call for each would dominate a model's run."""

    def __init__(self, draw: Callable[[int], npt.NDArray[np.float64]]) -> None:
        self._draw = draw
        self._left: list[float] = []

    def next(self) -> float:
        """The next number."""
        if not self._left:
            self._left = self._draw(_BLOCK).tolist()
        return self._left.pop()
