"""Saving a stream that Spark passes as Arrow batches, from Spark 4.1 on; older releases cannot import this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from arraystore.spark.source.stream import StreamWriting

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowStreamWriter"]


class ArrowStreamWriter(StreamWriting, DataSourceStreamArrowWriter):
    """Saves a stream of Arrow batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self.write_batches(iterator)
