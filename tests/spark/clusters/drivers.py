"""What driver processes do in these tests; see `tests.spark.clusters.processes.running_driver`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import arraystore.spark as asp
from arraystore import Repository, Storage
from tests.spark.clusters.model import Region, Values, regions, storage_at
from tests.spark.clusters.work import KillsExecutorAt, WaitsForCopyAt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("arraystore cluster tests").config(map=dict(settings)).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _write(spark: SparkSession, storage: Storage, function: Callable[[Region], Values]) -> dict[str, int]:
    """Write the whole cube with two tasks in one commit; returns what the report says."""
    session = Repository.open(storage).writable_session("main")
    report = asp.write_regions(session, "cube", regions(), function, spark=spark, tasks=2)
    session.commit("the cube")
    return {"chunks": report.chunks, "tasks": report.tasks, "wasted": report.attempts_wasted}


def lose_an_executor(settings: dict[str, str], repository: str, row: int) -> dict[str, int]:
    """Write, and lose the executor of the task that comes to a row."""
    with spark_session(settings) as spark:
        return _write(spark, storage_at(repository), KillsExecutorAt(row))


def write_with_copies(settings: dict[str, str], repository: str, row: int, notes: str) -> dict[str, int]:
    """Write, and let the task that comes to a row wait until Spark has started a copy of it."""
    with spark_session(settings) as spark:
        return _write(spark, storage_at(repository), WaitsForCopyAt(row, notes))
