"""Commits of writes of the data source, in a separate process that has only the messages of the tasks.

Commits are idempotent, whatever Spark repeats: a batch write carries an id that the commit writes into its metadata, a
stream the number of its batch, which is kept in the hierarchy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arraystore._commit.solvers import ConflictDetector
from arraystore._runtime import run
from arraystore.errors import ConflictError
from arraystore.spark.streams.batches import Batch, commit_repeatedly

if TYPE_CHECKING:
    from arraystore._repository.repository import Repository
    from arraystore._session.session import Session
    from arraystore.spark.source.options import RepositoryLocation

JOB = "spark.job"
"""Key of the id of a batch write in the metadata of its commit."""


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


def commit_stream_batch(
    session: Session, repo: Repository, batch: Batch, message: str, metadata: dict[str, Any]
) -> None:
    """Commit a batch of a stream, and its number."""
    assert session.branch is not None
    batch.note(session)
    try:
        commit_repeatedly(session, message, metadata | batch.metadata, ConflictDetector())
    except ConflictError:
        # Another driver may have committed this very batch.
        if not batch.is_written(repo.readonly_session(session.branch)):
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
