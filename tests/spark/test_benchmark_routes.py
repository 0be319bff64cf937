"""Both contenders of the benchmarks do the same work on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zarr

from benchmarks import spark_ours, spark_peer
from benchmarks.contenders import OURS
from benchmarks.places import PlaceMaker
from benchmarks.spark_cluster import seconds_of_nothing
from benchmarks.spark_cube import Cube, Line
from benchmarks.spark_pairs import PATH, Load, Side
from benchmarks.systems import IcechunkSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

CUBE = Cube((4, 6, 10), (2, 3, 5))
SIDES = [Side(OURS, spark_ours), Side(IcechunkSystem(), spark_peer)]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_rows_become_the_cube(spark: SparkSession, side: Side, shuffled: bool, tmp_path: Path) -> None:
    frame = CUBE.frame(spark, shuffled=shuffled)
    assert CUBE.sums(frame) == CUBE.expected_sums()
    load = Load(CUBE, PlaceMaker("local", tmp_path))
    load.write_once(side.system, lambda session: side.way.write_frame(frame, session, PATH, CUBE, 2))


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_the_cube_becomes_rows(spark: SparkSession, side: Side, tmp_path: Path) -> None:
    with Load(CUBE, PlaceMaker("local", tmp_path)).prepared(side.system) as (_, handle):
        writer = side.system.writer(handle)
        zarr.open_array(writer.store, path=PATH, mode="r+")[:] = CUBE.whole()
        writer.commit()
        frame = side.way.read_frame(spark, handle.readonly_session("main"), PATH, CUBE, 2)
        assert frame.columns == ["t", "y", "x", "value"]
        assert CUBE.sums(frame) == CUBE.expected_sums()


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_regions_are_written_by_tasks(spark: SparkSession, side: Side, tmp_path: Path) -> None:
    for field in (CUBE, Line(12, 300, parts=5)):
        load = Load(field, PlaceMaker("local", tmp_path), {"compressors": None})

        def write(session: object, field: Cube | Line = field) -> None:
            side.way.write_regions(spark, session, PATH, field, 3)

        load.write_once(side.system, write)


def test_nothing_is_done_by_as_many_tasks_as_are_asked_for(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("nothing", "tasks that do nothing")
    try:
        seconds_of_nothing(spark, 3)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("nothing")]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert [(stage.numTasks, stage.numCompletedTasks) for stage in stages if stage] == [(3, 3)]
