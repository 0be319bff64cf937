"""Saving a DataFrame through the data source.

Spark creates the writer where it plans; a copy runs in each task, and another one commits in a separate process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from arraystore._commit.solvers import ConflictDetector
from arraystore._runtime import run
from arraystore._session.handoff import SessionHandoff, hand_off
from arraystore.errors import ConflictError, InvalidInputError
from arraystore.spark.creation.create import reserved_values
from arraystore.spark.errors import marked_errors
from arraystore.spark.fork_job import Attempt, Outcome, merge_outcomes, pickle_new_fork
from arraystore.spark.source.messages import message_of, outcomes_of
from arraystore.spark.source.options import RepositoryLocation, WriteOptions
from arraystore.spark.source.staged_write import StagedWrite, prepare_staged
from arraystore.spark.streams.batches import Batch, commit_batch, commit_repeatedly
from arraystore.spark.writing.planning import plan_write, with_region
from arraystore.spark.writing.rejected_rows import rejected_rows_in
from arraystore.spark.writing.replaced_region import Erasure, erase_here
from arraystore.spark.writing.write_plan import WritePlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from arraystore._repository.repository import Repository
    from arraystore._session.session import Session

JOB = "spark.job"
"""Key of the id of a batch write in the metadata of its commit, by which a repeated commit detects its success."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedWrite:
    """Plan of a save."""

    options: WriteOptions
    """Options of the save."""
    plan: WritePlan
    """Plan of the write."""
    attempt: Attempt
    """Work of a task, in batch and in a stream."""
    handoff: SessionHandoff
    """Session that merges the changes of the tasks."""
    overwrite: bool
    """Whether earlier values of the arrays are deleted."""

    def run(self, batches: Iterator[pa.RecordBatch], query: str | None = None) -> WriterCommitMessage:
        """Write the rows of one task."""
        return message_of(self.attempt.outcome(iter(batches)), self.handoff, query)

    def merge(self, session: Session, outcomes: Sequence[Outcome]) -> tuple[str, dict[str, Any]]:
        """Merge the changes of tasks, and return message and metadata for the commit."""
        rejected = rejected_rows_in([outcome.report for outcome in outcomes])
        self.plan.refuse(rejected)
        region = self.plan.region
        erased = (
            ()
            if region is None
            else erase_here(session, Erasure.of(session, region, self.plan.arrays, self.plan.fills))
        )
        merge_outcomes(session, outcomes, self.plan.arrays if self.overwrite else (), erased)
        what = ", ".join("/" + path.strip("/") for path in self.plan.arrays)
        text = f"{'overwrite' if self.overwrite else 'write'} {what} with {rejected.rows:,} rows from Spark"
        message = text if self.options.message is None else self.options.message
        return message, {"spark.rows": rejected.rows, "spark.tasks": len(outcomes)}


def prepare_write(options: WriteOptions, schema: StructType, overwrite: bool) -> PreparedWrite | StagedWrite:
    """Plan a save."""
    session = options.location.repository().writable_session(options.branch)
    arguments = dict(options.arguments)
    if overwrite:
        if arguments.get("partial") == "merge":
            raise InvalidInputError(
                "option 'partial' is 'merge', but a save with mode 'overwrite' keeps no values to merge with: "
                "leave it out, or save with mode 'append'"
            )
        arguments["partial"] = "fill"
    if options.replace_where is not None:
        if not overwrite:
            raise InvalidInputError(
                "option 'replaceWhere' empties a region, which mode 'append' and INSERT INTO must not: save with mode "
                "'overwrite', or INSERT OVERWRITE"
            )
        return _replacing(session, options, schema)
    if (staged := prepare_staged(session, options, schema, overwrite)) is not None:
        return staged
    plan = plan_write(session, schema, options.path, dims=options.dims, **arguments)
    if options.create is not None:  # as in the save that made the arrays
        plan = replace(plan, reserved=reserved_values(session, plan.arrays))
    return PreparedWrite(options, plan, Attempt(pickle_new_fork(session), plan.work), hand_off(session), overwrite)


def _replacing(session: Session, options: WriteOptions, schema: StructType) -> PreparedWrite:
    """Plan a save whose rows replace a region."""
    if options.create is not None or options.append_dim is not None:
        raise InvalidInputError("option 'replace_where' replaces what there is: leave out 'create' and 'append_dim'")
    plan = plan_write(session, schema, options.path, dims=options.dims, **options.arguments)
    partial = options.arguments.get("partial", "merge")
    plan = with_region(session, plan, options.dims, options.replace_where or {}, partial)
    return PreparedWrite(options, plan, Attempt(pickle_new_fork(session), plan.work), hand_off(session), False)


class ArrowRowWriter(DataSourceArrowWriter):
    """Saves a DataFrame in one commit."""

    def __init__(self, prepared: PreparedWrite | StagedWrite) -> None:
        self._prepared = prepared
        self._job = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self._prepared.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the writes of all tasks, once."""
        with marked_errors():
            session = self._prepared.handoff.open()
            batch = _batch_of(self._prepared.options)
            if batch is not None and batch.is_written(session):
                _log.info("batch %d of stream %s is committed already", batch.number, batch.stream)
                return
            message, metadata = self._prepared.merge(session, outcomes_of(messages))
            if batch is None:
                commit_job(session, self._prepared.options.location, self._job, message, metadata)
            elif session.has_uncommitted_changes:
                repo = self._prepared.options.location.repository()
                commit_batch(session, repo, batch, message, metadata)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete nothing.

        Spark calls this also after a commit whose success it has not seen. Garbage collection deletes what no snapshot
        references.
        """
        note_abort(len(messages))


def _batch_of(options: WriteOptions) -> Batch | None:
    """Return the batch of a stream that a save of a DataFrame is."""
    if options.stream is None or options.batch is None:
        return None
    return Batch(options.stream, options.batch)


def commit_job(
    session: Session, location: RepositoryLocation, job: str, message: str, metadata: dict[str, Any]
) -> None:
    """Commit a batch write, unless it is committed already."""
    branch, base = session.branch, session.snapshot_id
    assert branch is not None
    if not session.has_uncommitted_changes or _is_committed(session, location, branch, base, job):
        return
    try:
        commit_repeatedly(session, message, metadata | {JOB: job}, ConflictDetector())
    except ConflictError:
        # It may conflict with another call of this very commit.
        if not _is_in_history(location.repository(), branch, base, job):
            raise


def _is_committed(session: Session, location: RepositoryLocation, branch: str, base: str, job: str) -> bool:
    tip = run(session.context.tip(branch))
    if tip.state.snapshot == session.base_tip.state.snapshot:
        return False  # nothing was committed since
    return _is_in_history(location.repository(), branch, base, job)


def _is_in_history(repo: Repository, branch: str, base: str, job: str) -> bool:
    for snapshot in repo.ancestry(branch=branch):
        if snapshot.id == base:
            return False
        if snapshot.metadata.get(JOB) == job:
            return True
    return False


def note_abort(tasks: int) -> None:
    """Log that a write was aborted."""
    _log.warning("a write of %d tasks was aborted; the next garbage collection deletes its unreferenced objects", tasks)
