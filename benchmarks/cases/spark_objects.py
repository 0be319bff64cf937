"""Objects that Spark's tasks leave behind when they write very many small chunks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.cases.history import stored
from benchmarks.places import PlaceMaker
from benchmarks.results import CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.spark_cluster import running_spark
from benchmarks.spark_cube import Line
from benchmarks.spark_pairs import PATH, Load, Side, check, sides_of
from benchmarks.timing import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run"]

_TASKS = 16
_CELLS = 1024
"""Of four bytes each."""


def _objects(spark: SparkSession, side: Side, line: Line, places: PlaceMaker) -> tuple[int, float]:
    """Objects of the repository after a commit of all chunks, and the seconds that writing took."""
    note(f"spark-objects: {line.count} chunks of 4 KiB by {_TASKS} tasks of {side.name}")
    with Load(line, places, {"compressors": None}).prepared(side.system) as (place, handle):
        started = time.perf_counter()
        session = handle.writable_session("main")
        side.way.write_regions(spark, session, PATH, line, _TASKS)
        session.commit("benchmark")
        seconds = time.perf_counter() - started
        check(side.system, handle, line)
        return stored(place.directory)[1], seconds


def run(setup: Setup) -> CaseResult:
    """Objects for a million chunks."""
    result = CaseResult("spark-objects", "Spark: objects of a million small chunks")
    count, fewer = setup.scaled(1_000_000, 4_000), setup.scaled(20_000, 400)
    ours, peer = sides_of(setup)
    places = setup.main_place
    with running_spark() as spark:
        own, seconds = _objects(spark, ours, Line(count, _CELLS, parts=16 * _TASKS), places)
        other, long = _objects(spark, peer, Line(fewer, _CELLS, parts=_TASKS), places)
    what = f"objects for {count:,} chunks of 4 KiB by {_TASKS} tasks"
    result.bars.append(at_most(what, own, 1000, "objects", peer=f"{other:,} for {fewer:,} chunks"))
    rows = [
        [side.name, f"{chunks:,}", f"{objects:,}", f"{took:.1f}", human(chunks * _CELLS * 4 / 1e6 / took)]
        for side, chunks, objects, took in ((ours, count, own, seconds), (peer, fewer, other, long))
    ]
    header = ["contender", "chunks", "objects in the repository", "write and commit, s", "MB/s"]
    result.tables.append(Table(f"Random chunks of 4 KiB, not compressed, by {_TASKS} tasks", header, rows))
    result.notes.append("Every chunk is read back and compared. The peer writes fewer chunks: an object for each.")
    return result
