"""Parallel reading and writing with Spark: executors read and write chunks, the driver commits once.

Importing this package imports neither PySpark nor PyArrow; using its members does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names
from arraystore._runtime.extras import check_extra

check_extra(__name__, "spark", "pyspark")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore._runtime.progress": "Progress",
            "arraystore.spark.cluster": "start_session",
            "arraystore.spark.creation.new_arrays": "CreatedArray NewArrays",
            "arraystore.spark.errors": "SparkUnavailableError TaskFailedError translate_error",
            "arraystore.spark.partition_writer": "PartitionWriter map_partitions_writer",
            "arraystore.spark.reading.map_chunks": "map_chunks",
            "arraystore.spark.reading.read_dataframe": "create_view read_dataframe",
            "arraystore.spark.regions.write_regions": "chunk_regions write_regions",
            "arraystore.spark.report": "WriteReport",
            "arraystore.spark.source.registration": "activate register",
            "arraystore.spark.spark_engine": "SparkEngine engine",
            "arraystore.spark.streams.batch_writer": "batch_writer",
            "arraystore.spark.streams.batches": "exactly_once",
            "arraystore.spark.streams.change_feed": "read_changes",
            "arraystore.spark.writing.repartition": "repartition_by_chunk",
            "arraystore.spark.writing.write_dataframe": "write_dataframe",
        },
    )
else:
    from arraystore._runtime.progress import Progress
    from arraystore.spark.cluster import start_session
    from arraystore.spark.creation.new_arrays import CreatedArray, NewArrays
    from arraystore.spark.errors import SparkUnavailableError, TaskFailedError, translate_error
    from arraystore.spark.partition_writer import PartitionWriter, map_partitions_writer
    from arraystore.spark.reading.map_chunks import map_chunks
    from arraystore.spark.reading.read_dataframe import create_view, read_dataframe
    from arraystore.spark.regions.write_regions import chunk_regions, write_regions
    from arraystore.spark.report import WriteReport
    from arraystore.spark.source.registration import activate, register
    from arraystore.spark.spark_engine import SparkEngine, engine
    from arraystore.spark.streams.batch_writer import batch_writer
    from arraystore.spark.streams.batches import exactly_once
    from arraystore.spark.streams.change_feed import read_changes
    from arraystore.spark.writing.repartition import repartition_by_chunk
    from arraystore.spark.writing.write_dataframe import write_dataframe

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
