"""Saving a stream that Spark hands over in batches of Arrow: it does so from 4.1 on; older ones cannot import this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from arraystore.spark.source.stream import StreamWriting

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowStreamWriter"]


class ArrowStreamWriter(StreamWriting, DataSourceStreamArrowWriter):
    """Saves a stream."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self.write_batches(iterator)
