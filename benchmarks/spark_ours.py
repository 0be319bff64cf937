"""arraystore on Spark: what its users write, and the same work without Spark."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import zarr

import arraystore
from benchmarks.spark_cube import Cube, Field, share

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_frame", "write_alone", "write_frame", "write_in_processes", "write_regions"]


def write_frame(frame: DataFrame, session: arraystore.Session, path: str, cube: Cube, tasks: int) -> None:
    """Write rows and merge; the caller commits."""
    import arraystore.spark as asp

    asp.write_dataframe(frame, session, path, dims=["t", "y", "x"], value="value", tasks=tasks)


def write_regions(spark: SparkSession, session: arraystore.Session, path: str, field: Field, tasks: int) -> None:
    """Write all regions of an array, and merge; the caller commits."""
    import arraystore.spark as asp

    asp.write_regions(session, path, field.regions(), field.values, spark=spark, tasks=tasks)


def read_frame(spark: SparkSession, session: arraystore.Session, path: str, cube: Cube, tasks: int) -> DataFrame:
    """One row for each cell."""
    import arraystore.spark as asp

    frame: DataFrame = asp.read_dataframe(spark, session, {"value": path}, tasks=tasks)
    return frame


def write_alone(session: arraystore.Session, path: str, field: Field) -> None:
    """Write all regions in this process, through a fork as well."""
    session.merge(_write(pickle.dumps(session.fork()), path, field, 0, 1))


def write_in_processes(
    pool: ProcessPoolExecutor, session: arraystore.Session, path: str, field: Field, tasks: int
) -> None:
    """Write all regions in processes that run already, and merge; the caller commits."""
    sent = pickle.dumps(session.fork())
    session.merge([done.result() for done in [pool.submit(_write, sent, path, field, n, tasks) for n in range(tasks)]])


def _write(sent: bytes, path: str, field: Field, task: int, tasks: int) -> bytes:
    fork: arraystore.ForkSession = pickle.loads(sent)
    array = zarr.open_array(fork.store, path=path, mode="r+")
    for region in share(field.regions(), task, tasks):
        array[region] = field.values(region)
    return fork.changes()
