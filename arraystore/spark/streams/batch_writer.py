"""Writing a stream of rows into arrays, each batch once: a function for ``foreachBatch``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from arraystore._commit.solvers import ConflictDetector, ConflictSolver
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, InvalidInputError
from arraystore.spark.cluster import classic_context
from arraystore.spark.errors import marked_text
from arraystore.spark.report import WriteReport
from arraystore.spark.snapshots import open_repository
from arraystore.spark.streams.batches import Batch, BatchCommit, OnCommit
from arraystore.spark.streams.progress import stream_key
from arraystore.spark.streams.query_id import query_of_checkpoint, query_of_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from arraystore.spark.writing.planning import DimensionColumnNames


@dataclass(frozen=True)
class BatchWriter:
    """Function for ``foreachBatch`` that `batch_writer` returns; it is pickled for a Spark Connect server."""

    repo: Repository
    """The repository."""
    path: str | None
    """Group or array; see `write_dataframe`."""
    stream: str | None
    """Id of the stream; None for that of the query."""
    checkpoint: str | None
    """Checkpoint of the query, for its id where Spark does not provide it."""
    restarted: bool
    """Whether the stream may restart under its old id."""
    commit: BatchCommit
    """Settings for the commits of batches."""
    options: Mapping[str, Any]
    """Options of `write_dataframe`."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch and commit it, unless it is in the history."""
        try:
            self._write(frame, batch_id)
        except ArrayStoreError as error:
            error.add_note(marked_text(error))  # Spark keeps nothing but the text, notes included
            raise

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        from arraystore.spark.writing.write_dataframe import write_dataframe

        spark = frame.sparkSession

        def write(session: Session) -> WriteReport:
            return write_dataframe(frame, session, self.path, **self.options)

        self._commit(spark).write_once(self.repo, self._batch(spark, batch_id), write)

    def _batch(self, spark: SparkSession, number: int) -> Batch:
        query = query_of_thread()
        if query is None and self.checkpoint is not None:
            query = query_of_checkpoint(spark, self.checkpoint)
        if query is None and classic_context(spark) is None:
            raise InvalidInputError(
                "Spark Connect does not provide the id of the streaming query, by which batches of a new checkpoint "
                "are told from those of the old one: pass checkpoint= to batch_writer, the checkpointLocation of the "
                "query"
            )
        stream = self.stream or query
        if stream is None:
            raise InvalidInputError(
                "this is not a batch of a streaming query: pass a stream_id to batch_writer, a name that no other "
                "stream of the branch has"
            )
        return Batch(stream, number, query, self.restarted)

    def _commit(self, spark: SparkSession) -> BatchCommit:
        """Return how to commit, with metadata of Spark and of the report."""
        context, base = classic_context(spark), self.commit.metadata
        app = {} if context is None else {"spark.app_id": context.applicationId}

        def metadata(report: WriteReport) -> dict[str, Any]:
            own = base(report) if callable(base) else base
            return {**own, **app, "spark.rows": report.rows, "spark.tasks": report.tasks}

        return replace(self.commit, metadata=metadata)


def batch_writer(
    repo: Repository | str | os.PathLike[str],
    path: str | None,
    *,
    dims: DimensionColumnNames | None = None,
    stream_id: str | None = None,
    checkpoint: str | None = None,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    rebase_with: ConflictSolver | None = None,
    restarted: bool = False,
    on_commit: OnCommit | None = None,
    **options: Any,
) -> BatchWriter:
    """Return a function for ``foreachBatch`` that writes each batch into arrays, in a commit of its own, once.

    Each snapshot holds the progress of the stream, so a batch that Spark repeats after a crash is recognized, whether
    the crash was before or after the commit. If concurrent commits change the same chunks, the batch is written again
    on top of them. Batches without rows make no commit.

    Parameters
    ----------
    repo
        The repository, its path or its URL.
    path
        Group or array to write to; see `write_dataframe`.
    dims
        Dimension columns; see `write_dataframe`.
    stream_id
        Name of the stream, which no other stream of the branch has.  By default it is the id that Spark gives to the
        query and keeps in its checkpoint.
    checkpoint
        The ``checkpointLocation`` of the query.  Needed under Spark Connect, which does not provide the id of the
        query; it is read from there.
    branch
        Where to commit.
    message, metadata
        Message and metadata of the commits. Number of the batch, stream, rows and tasks are always in the metadata.
    rebase_with
        Resolves conflicts of a batch with concurrent commits; by default the batch is written again.
    restarted
        Whether a query without the old checkpoint may continue under the same `stream_id`: its batches are written on
        top of the existing data. By default that is an error, because its first batches would pass for those that are
        written.
    on_commit
        Called on the driver with the `WriteReport` and the id of the snapshot, after each commit.
    **options
        As `write_dataframe` has them.

    Raises
    ------
    RepositoryNotFoundError, RefNotFoundError
        If there is no such repository or branch.
    InvalidInputError
        If an argument cannot be used.

    Examples
    --------
    >>> write = batch_writer(repo, "temperature", dims=["t", "y", "x"], value="v")  # doctest: +SKIP
    >>> rows.writeStream.foreachBatch(write).option("checkpointLocation", place).start()  # doctest: +SKIP
    """
    from arraystore.spark.writing.write_dataframe import write_dataframe

    parameters = inspect.signature(write_dataframe).parameters
    unknown = sorted(name for name in options if name not in parameters or name in ("df", "session", "path"))
    if unknown:
        raise InvalidInputError(
            f"batch_writer and write_dataframe have no option {', '.join(map(repr, unknown))}; the options are "
            f"{', '.join(sorted(parameters.keys() - {'df', 'session', 'path'}))}"
        )
    if stream_id is not None:
        stream_key(stream_id)
    opened = open_repository(repo)
    opened.lookup_branch(branch)
    commit = BatchCommit(branch, message, dict(metadata or {}), rebase_with or ConflictDetector(), on_commit)
    return BatchWriter(opened, path, stream_id, checkpoint, restarted, commit, {"dims": dims, **options})
