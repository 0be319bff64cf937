"""Saving a stream through the data source: a commit for each batch, and each batch once.

Spark makes a writer for the tasks of each batch, and another one for its commit in another process, which gets nothing
but the messages of the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.reading.arrow_schema import arrow_schema
from arraystore.spark.source.commit import commit_stream_batch
from arraystore.spark.source.messages import handoff_in, outcomes_of, query_of
from arraystore.spark.source.options import WriteOptions
from arraystore.spark.source.write import PreparedWrite, commit_message, merge_tasks, note_abort
from arraystore.spark.streams.progress import is_written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["RowStreamWriter", "StreamWriting"]

_log = logging.getLogger(__name__)


class StreamWriting:
    """Shared part of the writers of streams."""

    def __init__(self, prepared: PreparedWrite) -> None:
        self._prepared = prepared

    def write_batches(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        return self._prepared.task.run(batches, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch, unless it is committed already."""
        with marked_errors():
            if messages:
                self._commit(messages, batchId)

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        prepared, options = self._prepared, self._prepared.options
        repo = options.location.repository()
        stream, query = _stream_of(options, messages)
        session = handoff_in(messages, repo.context, options.branch).open()
        if is_written(session, stream, batch, run=query, restarted=options.restarted):
            _log.info("batch %d of stream %s is committed already", batch, stream)
            return
        metadata = merge_tasks(prepared, session, outcomes_of(messages))
        if session.has_uncommitted_changes:
            text = commit_message(prepared, metadata)
            commit_stream_batch(
                session, repo, stream, batch, query, text, metadata, restarted=options.restarted
            )  # fmt: skip

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete nothing: the batch may be committed, or be tried again."""
        note_abort(len(messages))


class RowStreamWriter(StreamWriting, DataSourceStreamWriter):
    """Saves a stream of rows, which is what Spark 4.0 passes."""

    def __init__(self, prepared: PreparedWrite, schema: StructType) -> None:
        super().__init__(prepared)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self.write_batches(_batches(iterator, self._schema))


def _stream_of(options: WriteOptions, messages: Sequence[object]) -> tuple[str, str | None]:
    """Return the id of a stream, and that of the query, if Spark provides it."""
    query = query_of(messages)
    stream = options.stream or query
    if stream is None:
        raise InvalidInputError(
            "Spark does not provide the id of the query, so this batch could be committed twice: name the stream "
            "with option 'stream'"
        )
    return stream, query


_ROWS = 10_000
"""Rows of an Arrow batch."""


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches."""
    import pyarrow as pa

    target = arrow_schema(schema)
    while some := [schema.toInternal(row) for row in islice(rows, _ROWS)]:
        columns = [pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), target, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
