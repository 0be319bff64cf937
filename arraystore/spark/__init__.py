"""Parallel reading and writing with Spark: executors read and write chunks, the driver commits once.

Importing this package imports neither PySpark nor PyArrow; using its members does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arraystore._runtime.extras import check_extra

check_extra(__name__, "spark", "pyspark")

if TYPE_CHECKING:
    from arraystore.spark.cluster import start_session
    from arraystore.spark.creation.new_arrays import CreatedArray, NewArrays
    from arraystore.spark.errors import SparkUnavailableError, TaskFailedError, translate_error
    from arraystore.spark.partition_writer import PartitionWriter, map_partitions_writer
    from arraystore.spark.reading.map_chunks import map_chunks
    from arraystore.spark.reading.read_dataframe import create_view, read_dataframe
    from arraystore.spark.regions.write_regions import chunk_regions, write_regions
    from arraystore.spark.report import Progress, WriteReport
    from arraystore.spark.source.registration import activate, register
    from arraystore.spark.spark_engine import SparkEngine, engine
    from arraystore.spark.streams.batch_writer import batch_writer
    from arraystore.spark.streams.batches import exactly_once
    from arraystore.spark.streams.change_feed import read_changes
    from arraystore.spark.writing.repartition import repartition_by_chunk
    from arraystore.spark.writing.write_dataframe import write_dataframe

_WHERE = {
    "CreatedArray": "creation.new_arrays",
    "NewArrays": "creation.new_arrays",
    "PartitionWriter": "partition_writer",
    "Progress": "report",
    "SparkEngine": "spark_engine",
    "SparkUnavailableError": "errors",
    "TaskFailedError": "errors",
    "WriteReport": "report",
    "activate": "source.registration",
    "batch_writer": "streams.batch_writer",
    "chunk_regions": "regions.write_regions",
    "create_view": "reading.read_dataframe",
    "engine": "spark_engine",
    "exactly_once": "streams.batches",
    "map_chunks": "reading.map_chunks",
    "map_partitions_writer": "partition_writer",
    "read_changes": "streams.change_feed",
    "read_dataframe": "reading.read_dataframe",
    "register": "source.registration",
    "repartition_by_chunk": "writing.repartition",
    "start_session": "cluster",
    "translate_error": "errors",
    "write_dataframe": "writing.write_dataframe",
    "write_regions": "regions.write_regions",
}

__all__ = [
    "CreatedArray",
    "NewArrays",
    "PartitionWriter",
    "Progress",
    "SparkEngine",
    "SparkUnavailableError",
    "TaskFailedError",
    "WriteReport",
    "activate",
    "batch_writer",
    "chunk_regions",
    "create_view",
    "engine",
    "exactly_once",
    "map_chunks",
    "map_partitions_writer",
    "read_changes",
    "read_dataframe",
    "register",
    "repartition_by_chunk",
    "start_session",
    "translate_error",
    "write_dataframe",
    "write_regions",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
