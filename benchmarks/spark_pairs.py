"""Two contenders on one Spark, in turns: each run starts with an empty array and ends with a look at all cells."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from benchmarks import spark_ours, spark_peer
from benchmarks.pipelines import FUSED, configured
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import Bar, human
from benchmarks.setup import Setup
from benchmarks.spark_cube import Field
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import Samples, Stopwatch, interleaved

__all__ = [
    "PATH",
    "TIMED",
    "Load",
    "Rate",
    "Run",
    "Side",
    "check",
    "faster",
    "measured",
    "median_ratio",
    "sides_of",
    "timed",
]

PATH = "group/data"

TIMED = ["median, s", "least to greatest, s", "rate"]
"""What `timed` returns."""

_TOTAL = "total"
_WARM_UPS = 3
"""Runs of each contender that are thrown away: the virtual machine compiles what is used often."""

Run = Callable[[], Stopwatch]


@dataclass(frozen=True, slots=True)
class Side:
    """A contender and the module that has its way of using Spark."""

    system: System
    way: Any

    @property
    def name(self) -> str:
        return self.system.name


def sides_of(setup: Setup) -> tuple[Side, Side]:
    """Ours and the peer."""
    return Side(setup.ours, spark_ours), Side(IcechunkSystem(), spark_peer)


@dataclass(frozen=True, slots=True)
class Load:
    """What a run writes, and where.

    Parameters
    ----------
    array
        What is written.
    places
        Where each run writes to a fresh place.
    options
        For `zarr.create_array`.
    """

    array: Field
    places: PlaceMaker
    options: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def prepared(self, system: System) -> Iterator[tuple[Place, Any]]:
        """A fresh place, and the handle of a repository there, in which the array is, empty."""
        with self.places.fresh() as place:
            handle = system.create(place)
            writer = system.writer(handle)
            zarr.create_array(
                writer.store,
                name=PATH,
                shape=self.array.shape,
                chunks=self.array.chunks,
                dtype=self.array.dtype,
                dimension_names=("t", "y", "x")[-len(self.array.shape) :],
                **self.options,
            )
            writer.commit()
            yield place, handle

    def write_once(self, system: System, write: Callable[[Any], None]) -> Stopwatch:
        """Open a session, give it to `write`, commit: the time of all of it."""
        watch = Stopwatch()
        with self.prepared(system) as (_, handle):
            watch.start()
            session = handle.writable_session("main")
            write(session)
            session.commit("benchmark")
            watch.stop(_TOTAL)
            check(system, handle, self.array)
        return watch


def check(system: System, handle: Any, written: Field) -> None:
    """Compare all that is committed with what numpy says."""
    with configured(FUSED):  # reads small chunks in a tenth of the time
        array = zarr.open_array(system.reader(handle), path=PATH, mode="r")
        for region in written.regions():
            if not np.array_equal(np.asarray(array[region]), written.values(region)):
                raise AssertionError(f"{system.name} did not keep what was written to {region}")


def measured(runs: Mapping[str, Run], setup: Setup) -> dict[str, Samples]:
    """Rounds in turns, after some that are thrown away."""
    for _ in range(0 if setup.quick else _WARM_UPS):
        for run in runs.values():
            run()
    return interleaved(runs, setup.rounds if setup.quick else 3 * setup.rounds, warmup=setup.quick)


@dataclass(frozen=True, slots=True)
class Rate:
    """Shows seconds as a rate: millions of `unit` in a second, of which a run has `amount` single ones."""

    amount: int
    unit: str

    def __call__(self, seconds: float) -> str:
        return f"{human(self.amount / 1e6 / seconds)} {self.unit}"


def median_ratio(over: Samples, under: Samples) -> float:
    """The median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(over.parts[_TOTAL], under.parts[_TOTAL], strict=True))


def faster(what: str, found: Mapping[str, Samples], sides: tuple[Side, Side], factor: float, rate: Rate) -> Bar:
    """A bar on being `factor` times as fast as the peer, by the median of the ratios within each round."""
    ours, peer = (found[side.name] for side in sides)
    ratio = median_ratio(peer, ours)
    own, other = rate(ours.median(_TOTAL)), rate(peer.median(_TOTAL))
    return Bar(what, own, other, f"{ratio:.2f}", f"≥ {human(factor)}", ratio >= factor)


def timed(samples: Samples, rate: Rate) -> list[str]:
    """Cells of a table."""
    least, greatest = samples.spread(_TOTAL)
    middle = samples.median(_TOTAL)
    return [f"{middle:.3f}", f"{least:.3f} to {greatest:.3f}", rate(middle)]
