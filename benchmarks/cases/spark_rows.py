"""Rows of Spark into arrays, and arrays into rows."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import zarr

from benchmarks.results import CaseResult, Table
from benchmarks.setup import Setup
from benchmarks.spark_cluster import SLOTS, running_spark
from benchmarks.spark_cube import Cube
from benchmarks.spark_pairs import PATH, TIMED, Load, Rate, Side, faster, measured, sides_of, timed
from benchmarks.timing import Stopwatch, note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run"]

_SMALL = Cube((20, 20, 20), (10, 10, 10))
_WRITTEN = Cube((100, 100, 100), (10, 50, 50))
_READ = Cube((100, 200, 200), (20, 50, 50))


def _write(load: Load, side: Side, frame: DataFrame) -> Stopwatch:
    def write(session: Any) -> None:
        side.way.write_frame(frame, session, PATH, load.array, SLOTS)

    return load.write_once(side.system, write)


def _into_arrays(setup: Setup, spark: SparkSession, result: CaseResult) -> None:
    cube = _SMALL if setup.quick else _WRITTEN
    rate, sides = Rate(cube.rows, "M rows/s"), sides_of(setup)
    rows: list[list[str]] = []
    for kind in ("in order", "in any order"):
        frame = cube.frame(spark, shuffled=kind != "in order").cache()  # making the rows is not what is measured
        frame.count()
        for name, places in setup.places.items():
            note(f"spark-rows: {cube.rows} rows {kind} into an array on {name}")
            load = Load(cube, places)
            found = measured({side.name: partial(_write, load, side, frame) for side in sides}, setup)
            what = f"write_dataframe: {cube.rows:,} rows {kind}, {len(cube.regions())} chunks, {name}"
            result.bars.append(faster(what, found, sides, 1.5, rate))
            rows += [[f"{who} / {kind} / {name}", *timed(samples, rate)] for who, samples in found.items()]
        frame.unpersist()
    title = "Rows into an array: shuffle, chunks, merge and commit"
    result.tables.append(Table(title, ["contender / rows / place", *TIMED], rows))


def _read(spark: SparkSession, side: Side, handle: Any, cube: Cube, expected: tuple[int, ...]) -> Stopwatch:
    watch = Stopwatch()
    watch.start()
    session = handle.readonly_session("main")
    sums = cube.sums(side.way.read_frame(spark, session, PATH, cube, SLOTS))
    watch.stop("total")
    if sums != expected:
        raise AssertionError(f"{side.name} read rows that sum up to {sums}, not to {expected}")
    return watch


def _out_of_arrays(setup: Setup, spark: SparkSession, result: CaseResult) -> None:
    cube = _SMALL if setup.quick else _READ
    rate, sides, expected = Rate(cube.rows, "M rows/s"), sides_of(setup), cube.expected_sums()
    note(f"spark-rows: {cube.rows} rows out of an array")
    load = Load(cube, setup.quickest_place)
    with ExitStack() as stack:
        runs = {}
        for side in sides:
            _, handle = stack.enter_context(load.prepared(side.system))
            writer = side.system.writer(handle)
            zarr.open_array(writer.store, path=PATH, mode="r+")[:] = cube.whole()
            writer.commit()
            runs[side.name] = partial(_read, spark, side, handle, cube, expected)
        found = measured(runs, setup)
    what = f"read_dataframe: {cube.rows:,} rows, {len(cube.regions())} chunks"
    result.bars.append(faster(what, found, sides, 1.3, rate))
    rows = [[who, *timed(samples, rate)] for who, samples in found.items()]
    result.tables.append(Table("An array into rows, and four sums over all of them", ["contender", *TIMED], rows))


def run(setup: Setup) -> CaseResult:
    """Both directions, against the same route by hand with the peer."""
    result = CaseResult("spark-rows", "Spark: rows into arrays and out of them")
    with running_spark() as spark:
        _into_arrays(setup, spark, result)
        _out_of_arrays(setup, spark, result)
    result.notes.append(
        f"One Spark with {SLOTS} slots runs both contenders, in turns, warm; ratios are medians of the ratios within "
        "each round. The peer stands for what its user writes by hand: `repartition` by the number of the chunk, "
        "`mapInArrow`, every chunk put together in numpy and written whole, pickled forks merged on the driver; it "
        "checks neither nulls nor bounds nor duplicates, and keeps an array of all cells in each task. Rows *in any "
        "order* come permuted. After each run the array is compared with numpy's; of rows that are read, the number "
        "and three sums are, which tell of each value in which cell it is."
    )
    return result
