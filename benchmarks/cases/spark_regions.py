"""Regions that Spark's tasks make and write."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import spark_ours
from benchmarks.results import Bar, CaseResult, Table
from benchmarks.setup import Setup
from benchmarks.spark_cluster import SLOTS, running_spark, seconds_of_nothing
from benchmarks.spark_cube import Cube
from benchmarks.spark_pairs import PATH, TIMED, Load, Rate, Run, Side, faster, measured, sides_of, timed
from benchmarks.timing import Samples, Stopwatch, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run", "speed_beyond"]

_PROCESSES = "arraystore, two processes without Spark"
_ALONE = "arraystore, one process without Spark"
_NOTHING = "a job whose tasks do nothing"


def _by_spark(spark: SparkSession, load: Load, side: Side) -> Stopwatch:
    def write(session: Any) -> None:
        side.way.write_regions(spark, session, PATH, load.array, SLOTS)

    return load.write_once(side.system, write)


def _by_processes(pool: ProcessPoolExecutor, load: Load, side: Side) -> Stopwatch:
    def write(session: Any) -> None:
        spark_ours.write_in_processes(pool, session, PATH, load.array, SLOTS)

    return load.write_once(side.system, write)


def _alone(load: Load, side: Side) -> Stopwatch:
    def write(session: Any) -> None:
        spark_ours.write_alone(session, PATH, load.array)

    return load.write_once(side.system, write)


def _nothing(spark: SparkSession) -> Stopwatch:
    return Stopwatch({"total": seconds_of_nothing(spark, SLOTS)})


def speed_beyond(spark: Samples, nothing: Samples, plain: Samples) -> float:
    """Speed with Spark, less what a job costs that does nothing, as a part of the speed without: by the medians.

    A job that does nothing takes longer at times than one that writes; differences within rounds would go wild.
    """
    beyond = spark.median("total") - nothing.median("total")
    return plain.median("total") / beyond if beyond > 0 else float("inf")


def _runs(spark: SparkSession, pool: ProcessPoolExecutor, load: Load, sides: tuple[Side, Side]) -> dict[str, Run]:
    runs: dict[str, Run] = {side.name: partial(_by_spark, spark, load, side) for side in sides}
    runs[_PROCESSES] = partial(_by_processes, pool, load, sides[0])
    runs[_ALONE] = partial(_alone, load, sides[0])
    runs[_NOTHING] = partial(_nothing, spark)
    return runs


def _bars(what: str, found: dict[str, Samples], sides: tuple[Side, Side], rate: Rate) -> list[Bar]:
    ours = found[sides[0].name]
    part = speed_beyond(ours, found[_NOTHING], found[_PROCESSES])
    beyond = ours.median("total") - found[_NOTHING].median("total")
    return [
        faster(what, found, sides, 1.5, rate),
        Bar(
            f"{what}: speed beyond the overhead of tasks, of that of {SLOTS} processes without Spark",
            f"{beyond:.3f} s",
            f"{found[_PROCESSES].median('total'):.3f} s",
            f"{part:.2f}",
            "≥ 0.7",
            part >= 0.7,
        ),
    ]


def run(setup: Setup) -> CaseResult:
    """Regions by Spark: against the peer, and against the same writes without Spark."""
    result = CaseResult("spark-regions", "Spark: regions that tasks make and write")
    cube = Cube((8, 20, 20), (1, 20, 20)) if setup.quick else Cube((40, 200, 2000), (1, 200, 2000))
    rate, sides = Rate(cube.nbytes, "MB/s"), sides_of(setup)
    rows: list[list[str]] = []
    # A child that is forked from a process with a virtual machine in it would inherit locks that nobody opens.
    children = multiprocessing.get_context("spawn")
    with running_spark() as spark, ProcessPoolExecutor(SLOTS, mp_context=children) as pool:
        for kind, options in (("compressed", {}), ("uncompressed", {"compressors": None})):
            for name, places in setup.places.items():
                note(f"spark-regions: {len(cube.regions())} {kind} regions on {name}")
                load = Load(cube, places, options)
                found = measured(_runs(spark, pool, load, sides), setup)
                rows += [[f"{who} / {kind} / {name}", *timed(samples, rate)] for who, samples in found.items()]
                what = f"write_regions: {cube.nbytes / 1e6:.0f} MB in {len(cube.regions())} {kind} chunks, {name}"
                result.bars += _bars(what, found, sides, rate)
    title = f"{len(cube.regions())} regions of one chunk each, made where they are written, in {SLOTS} tasks"
    result.tables.append(Table(title, ["contender / chunks / place", *TIMED], rows))
    result.notes.append(
        "The peer assigns regions to the array of a fork, one after the other, as two processes without Spark do that "
        "run already and take forks of ours. The overhead of tasks is what a job of as many tasks takes that does "
        "nothing, in the same rounds."
    )
    return result
