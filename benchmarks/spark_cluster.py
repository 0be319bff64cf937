"""Spark on this machine, for the cases: two slots, and workers that can import the benchmarks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["SLOTS", "running_spark", "seconds_of_nothing"]

SLOTS = 2

_ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def running_spark() -> Iterator[SparkSession]:
    """A Spark of `SLOTS` slots, stopped afterwards."""
    import arraystore.spark as asp

    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [path])])
    try:
        spark = asp.start_session(f"local[{SLOTS}]")
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        os.environ["PYTHONPATH"] = path


def seconds_of_nothing(spark: SparkSession, tasks: int) -> float:
    """How long a job takes whose tasks do nothing."""
    work: Any = _nothing
    started = time.perf_counter()
    spark.range(0, tasks, 1, tasks).mapInArrow(work, "rows long").collect()
    return time.perf_counter() - started


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})
