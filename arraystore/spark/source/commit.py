"""Commits of writes of the data source, in a separate process that has only the messages of the tasks.

Commits are idempotent, whatever Spark repeats: a batch write carries an id that the commit writes into its metadata, a
stream the number of its batch, which is kept in the hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from arraystore._commit.solvers import ConflictDetector
from arraystore._runtime import run
from arraystore._session.rearrange import DELETE
from arraystore.distributed import merge_sessions
from arraystore.errors import ConflictError, MergeConflictError, StorageError
from arraystore.spark.change_set_transfer import receive_change_sets
from arraystore.spark.fork_job import Outcome, merge_outcomes
from arraystore.spark.streams.progress import is_written, note_batch

if TYPE_CHECKING:
    from arraystore._repository.repository import Repository
    from arraystore._session.session import Session
    from arraystore.spark.source.options import RepositoryLocation

__all__ = ["commit_job", "commit_stream_batch", "merge_all"]

JOB = "spark.job"
"""Key of the id of a batch write in the metadata of its commit."""

_TRIES = 3
"""Attempts of a commit whose acknowledgement was lost; each one detects an earlier success first."""


def merge_all(session: Session, outcomes: Sequence[Outcome], arrays: Sequence[str], *, overwrite: bool) -> None:
    """Merge the changes of tasks; with `overwrite` all earlier chunks of the arrays are deleted."""
    if not overwrite:
        merge_outcomes(session, outcomes)
        return
    payloads = receive_change_sets(session.context, [outcome.change_set for outcome in outcomes])
    together = None
    if payloads:
        with _remedy():
            together = merge_sessions(payloads)
    for path in arrays:
        session.reindex_array(path, lambda _: DELETE, vectorized=True)
    if together is not None:
        session.merge(together, on_overlap="last")


@contextmanager
def _remedy() -> Iterator[None]:
    try:
        yield
    except MergeConflictError as error:
        remedy = f"{error.message}. With Spark: let one task own each chunk (repartition_by_chunk), nothing was merged"
        raise MergeConflictError(remedy, error.path, error.chunks) from error


def commit_job(
    session: Session, location: RepositoryLocation, job: str, message: str, metadata: dict[str, Any]
) -> None:
    """Commit a batch write, unless it is committed already."""
    branch, base = session.branch, session.snapshot_id
    assert branch is not None
    if not session.has_uncommitted_changes or _is_committed(session, location, branch, base, job):
        return
    try:
        _commit(session, message, metadata | {JOB: job})
    except ConflictError:
        # It may conflict with another call of this very commit.
        if not _is_in_history(location.repository(), branch, base, job):
            raise


def commit_stream_batch(
    session: Session,
    repo: Repository,
    stream: str,
    batch: int,
    run_id: str | None,
    message: str,
    metadata: dict[str, Any],
    *,
    restarted: bool,
) -> None:
    """Commit a batch of a stream, and its number."""
    branch = session.branch
    assert branch is not None
    note_batch(session, stream, batch, run=run_id, restarted=restarted)
    try:
        _commit(session, message, metadata | {"spark.stream": stream, "spark.batch": batch})
    except ConflictError:
        # Another driver may have committed this very batch.
        if not is_written(repo.readonly_session(branch), stream, batch, run=run_id):
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


def _commit(session: Session, message: str, metadata: dict[str, Any]) -> None:
    for left in reversed(range(_TRIES)):
        try:
            session.commit(message, metadata, rebase_with=ConflictDetector())
        except StorageError:
            if not left:
                raise
        else:
            return
