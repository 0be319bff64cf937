"""What a frame costs on its way into an array, beside the same frame shuffled and written as Parquet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import arraystore.spark as asp
from benchmarks.process_cpu import tree_cpu_seconds
from benchmarks.results import Bar, CaseResult, Table
from benchmarks.setup import Setup
from benchmarks.spark_cluster import SLOTS, running_spark
from benchmarks.spark_cube import Cube
from benchmarks.spark_pairs import PATH, Load, Rate, measured, median_ratio
from benchmarks.timing import Stopwatch, note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run"]

_SMALL = Cube((20, 20, 20), (10, 10, 10))
_WHOLE = Cube((256, 256, 256), (32, 64, 64))
"""16.8 million rows in 128 chunks of 512 KiB."""

_BAR = 1.2
_PARQUET, _FUNCTION, _SOURCE = "shuffle and Parquet", "write_dataframe", "df.write"
_REST = 'write_dataframe(shuffle="rest")'
_DIMS = ["t", "y", "x"]


def _spent(watch: Stopwatch, action: Callable[[], object]) -> Stopwatch:
    before = tree_cpu_seconds()
    action()
    watch.add("total", tree_cpu_seconds() - before)
    return watch


def _parquet(frame: DataFrame, cube: Cube) -> Stopwatch:
    """Write the frame as Parquet, with the rows of a chunk in one partition."""
    with tempfile.TemporaryDirectory() as folder:
        shuffled = frame.repartition(SLOTS, cube.chunk_column())
        return _spent(Stopwatch(), lambda: shuffled.write.parquet(str(Path(folder) / "rows")))


def _function(load: Load, setup: Setup, frame: DataFrame, shuffle: bool | Literal["rest"] = True) -> Stopwatch:
    with load.prepared(setup.ours) as (_, handle):

        def write() -> None:
            session = handle.writable_session("main")
            asp.write_dataframe(frame, session, PATH, dims=_DIMS, value="value", shuffle=shuffle)
            session.commit("benchmark")

        return _spent(Stopwatch(), write)


def _source(load: Load, setup: Setup, frame: DataFrame) -> Stopwatch:
    """Save the frame by the data source, after the shuffle that its users have to ask for."""
    with load.prepared(setup.ours) as (place, handle):

        def write() -> None:
            session = handle.readonly_session("main")
            rows = asp.repartition_by_chunk(frame, session, PATH, dims=_DIMS, sort=False)
            options = {"array": PATH, "dims": ",".join(_DIMS), "value": "value"}
            rows.write.format("arraystore").mode("append").options(**options).save(str(place.path))

        return _spent(Stopwatch(), write)


def run(setup: Setup) -> CaseResult:
    """Ways of the same rows to a disk."""
    result = CaseResult("spark-frames", "Spark: what rows cost on their way into arrays")
    cube = _SMALL if setup.quick else _WHOLE
    rate = Rate(cube.rows, "M rows a CPU second")
    with running_spark() as spark:
        asp.register(spark)
        load = Load(cube, setup.quickest_place)
        rows: list[list[str]] = []
        for kind in ("in order", "in any order"):
            frame = cube.frame(spark, shuffled=kind != "in order")
            note(f"spark-frames: {cube.rows} rows {kind}")
            ways = {
                _PARQUET: partial(_parquet, frame, cube),
                _FUNCTION: partial(_function, load, setup, frame),
                _SOURCE: partial(_source, load, setup, frame),
            }
            pairs = [(_FUNCTION, _PARQUET), (_SOURCE, _FUNCTION)]
            if kind == "in order":
                ways[_REST] = partial(_function, load, setup, frame, "rest")
                pairs.append((_REST, _PARQUET))
            found = measured(ways, setup)
            for ours, peer in pairs:
                ratio = median_ratio(found[ours], found[peer])
                what = f"{ours} beside {peer}: CPU seconds of {cube.rows:,} rows {kind}"
                shown = (f"{found[name].median('total'):.2f} s" for name in (ours, peer))
                result.bars.append(Bar(what, *shown, f"{ratio:.2f}", f"≤ {_BAR}", ratio <= _BAR))
            for name, samples in found.items():
                least, greatest = samples.spread("total")
                middle = samples.median("total")
                rows.append([f"{name} / {kind}", f"{middle:.2f}", f"{least:.2f} to {greatest:.2f}", rate(middle)])
    header = ["contender / rows", "median, CPU s", "least to greatest, CPU s", "rate"]
    result.tables.append(Table("CPU seconds of driver, virtual machine and workers", header, rows))
    result.notes.append(
        "CPU seconds of all processes together, in turns, warm; ratios are medians of the ratios within each round. "
        "The frame is made anew in each run, for all contenders alike. Parquet gets the rows of a chunk in one file, "
        "which is the shuffle that an array needs, and no commit."
    )
    return result
