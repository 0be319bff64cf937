"""Ids of streaming queries, which their checkpoints keep: two queries with one name are told apart by them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "sql.streaming.queryId"
"""Local property of the threads and tasks of a query."""


def query_of_thread() -> str | None:
    """Return the id of the query whose batch this thread handles; None outside of one, and under Spark Connect."""
    if "pyspark.core.context" not in sys.modules:  # which pyspark-client does not have, nor py4j
        return None
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.core.context import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    try:
        return context.getLocalProperty(_PROPERTY)
    except Py4JError:  # the Java process has ended, and all queries with it
        return None


def query_of_task() -> str | None:
    """Return the id of the query that this task belongs to; None outside of one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_PROPERTY)


def query_of_checkpoint(spark: SparkSession, checkpoint: str) -> str:
    """Return the id in a checkpoint, read by Spark, which has access to it."""
    from pyspark.errors import PySparkException

    try:
        lines = spark.read.text(checkpoint.rstrip("/") + "/metadata").head(2)
        found = json.loads(lines[0].value)["id"]
    except (PySparkException, IndexError, KeyError, TypeError, ValueError) as error:
        raise _no_checkpoint(checkpoint) from error
    if not isinstance(found, str) or not found:
        raise _no_checkpoint(checkpoint)
    return found


def _no_checkpoint(checkpoint: str) -> InvalidInputError:
    return InvalidInputError(
        f"checkpoint {checkpoint[:200]!r} holds no id of a streaming query: it must be the checkpointLocation of the "
        "query, a path or a URL that Spark's server can read"
    )
