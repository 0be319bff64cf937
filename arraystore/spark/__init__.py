"""Arrays and Spark: workers write and read chunks in parallel, the driver commits once.

Importing this package imports neither PySpark nor PyArrow; using what is in it does.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arraystore.spark.batch_writer import batch_writer, exactly_once
    from arraystore.spark.change_feed import read_changes
    from arraystore.spark.cluster import active_session, parallelism, start_session
    from arraystore.spark.errors import SparkUnavailableError, TaskFailedError, code_of, translate_error
    from arraystore.spark.jobs import Outcome, merge_outcomes
    from arraystore.spark.map_chunks import map_chunks
    from arraystore.spark.partition_writer import PartitionWriter, map_partitions_writer
    from arraystore.spark.read_dataframe import create_view, read_dataframe
    from arraystore.spark.registration import register
    from arraystore.spark.repartition import repartition_by_chunk
    from arraystore.spark.report import Progress, WriteReport
    from arraystore.spark.tasks import run_tasks
    from arraystore.spark.write_dataframe import write_dataframe
    from arraystore.spark.write_regions import chunk_regions, write_regions

_WHERE = {
    "PartitionWriter": "partition_writer",
    "Progress": "report",
    "SparkUnavailableError": "errors",
    "TaskFailedError": "errors",
    "WriteReport": "report",
    "active_session": "cluster",
    "batch_writer": "batch_writer",
    "chunk_regions": "write_regions",
    "code_of": "errors",
    "create_view": "read_dataframe",
    "exactly_once": "batch_writer",
    "Outcome": "jobs",
    "map_chunks": "map_chunks",
    "map_partitions_writer": "partition_writer",
    "merge_outcomes": "jobs",
    "parallelism": "cluster",
    "read_changes": "change_feed",
    "read_dataframe": "read_dataframe",
    "register": "registration",
    "repartition_by_chunk": "repartition",
    "run_tasks": "tasks",
    "start_session": "cluster",
    "translate_error": "errors",
    "write_dataframe": "write_dataframe",
    "write_regions": "write_regions",
}

__all__ = [
    "Outcome",
    "PartitionWriter",
    "Progress",
    "SparkUnavailableError",
    "TaskFailedError",
    "WriteReport",
    "active_session",
    "batch_writer",
    "chunk_regions",
    "code_of",
    "create_view",
    "exactly_once",
    "map_chunks",
    "map_partitions_writer",
    "merge_outcomes",
    "parallelism",
    "read_changes",
    "read_dataframe",
    "register",
    "repartition_by_chunk",
    "run_tasks",
    "start_session",
    "translate_error",
    "write_dataframe",
    "write_regions",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{where}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Where a function has the name of its module, the name means the function.

    The import system makes every module that is imported an attribute of its package, whoever imports it, and would
    so put the module in the place of the function.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if _WHERE.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
