"""Saving a stream through the data source: a commit for each batch, and each batch once.

Spark makes a writer for the tasks of each batch, and another one for its commit in another process, which gets nothing
but the messages of the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.reading.arrow_columns import arrow_schema
from arraystore.spark.source.messages import handoff_in, outcomes_of, query_of
from arraystore.spark.source.staged_write import StagedWrite
from arraystore.spark.source.write import PreparedWrite, note_abort
from arraystore.spark.streams.batches import Batch, commit_batch
from arraystore.spark.streams.query_id import query_of_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)
_Writer: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


class ArrowStreamWriter(_Writer):  # type: ignore[misc]
    """Saves a stream of Arrow batches, which Spark passes from 4.1 on."""

    def __init__(self, prepared: PreparedWrite | StagedWrite) -> None:
        self._prepared = prepared

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self._prepared.run(iterator, query_of_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch, unless it is committed already."""
        with marked_errors():
            if messages:
                self._commit(messages, batchId)

    def _commit(self, messages: list[WriterCommitMessage | None], number: int) -> None:
        options, query = self._prepared.options, query_of(messages)
        if query is None:
            raise InvalidInputError(
                "Spark does not provide the id of the query, without which batches of a new checkpoint pass for those "
                "of the old one: use foreachBatch with arraystore.spark.batch_writer(checkpoint=...)"
            )
        repo, batch = options.location.repository(), Batch(options.stream or query, number, query, options.restarted)
        session = handoff_in(messages, repo.context, options.branch).open()
        if batch.is_written(session):
            _log.info("batch %d of stream %s is committed already", number, batch.stream)
            return
        message, metadata = self._prepared.merge(session, outcomes_of(messages))
        if session.has_uncommitted_changes:
            commit_batch(session, repo, batch, message, metadata)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete nothing: the batch may be committed, or be tried again."""
        note_abort(len(messages))


class RowStreamWriter(ArrowStreamWriter):
    """Saves a stream of rows, which is what Spark 4.0 passes."""

    def __init__(self, prepared: PreparedWrite | StagedWrite, schema: StructType) -> None:
        super().__init__(prepared)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return super().write(_batches(iterator, self._schema))


_ROWS = 10_000
"""Rows of an Arrow batch."""


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches."""
    target = arrow_schema(schema)
    while some := [schema.toInternal(row) for row in islice(rows, _ROWS)]:
        columns = [pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), target, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
