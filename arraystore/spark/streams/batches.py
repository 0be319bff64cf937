"""Committing a batch exactly once: after crashes, from two writers at a time, after a lost acknowledgement."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arraystore._commit.solvers import ConflictDetector, ConflictSolver, check_solver
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import ConflictError, InvalidInputError, SessionExpiredError, SessionStateError, StorageError
from arraystore.spark.snapshots import open_repository
from arraystore.spark.streams.progress import is_written, note_batch
from arraystore.spark.streams.query_id import query_of_thread

OnCommit = Callable[[Any, str], None]
"""Called after a commit with what the write returned and the id of the snapshot."""

_TRIES = 10
"""Sessions in which a batch is written before giving up, if concurrent commits keep changing the same chunks."""
_COMMITS = 3
"""Calls of commit, if the storage fails during one."""


@dataclass(frozen=True)
class Batch:
    """A batch of a stream."""

    stream: str
    """Id of the stream."""
    number: int
    """Number of the batch, from 0 on."""
    run: str | None = None
    """Id of the run that numbers the batches (Spark: of the query); None if it is unknown."""
    restarted: bool = False
    """Whether the batches of a stream that restarts under its old id are to be written."""

    def __post_init__(self) -> None:
        if self.restarted and self.run is None:
            raise InvalidInputError(
                f"restarted=True needs the run that numbers the batches of stream {self.stream!r}: otherwise a batch "
                "that comes again after a crash cannot be told from another one with its number. Pass run=, an id that "
                "changes whenever the numbers begin anew, or choose a new stream_id"
            )

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of its commit."""
        return {"spark.stream": self.stream, "spark.batch": self.number}

    def is_written(self, session: Session) -> bool:
        """Return whether the session's snapshot holds the batch; see `arraystore.spark.streams.progress.is_written`."""
        return is_written(session, self.stream, self.number, run=self.run, restarted=self.restarted)

    def note(self, session: Session) -> None:
        """Record in a session that it holds the batch."""
        note_batch(session, self.stream, self.number, run=self.run, restarted=self.restarted)


@dataclass(frozen=True)
class BatchCommit:
    """Settings for the commits of batches."""

    branch: str = "main"
    """Branch to commit to."""
    message: str | None = None
    """Message of the commit; None for one that names batch and stream."""
    metadata: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = field(default_factory=dict)
    """Metadata of the commit: JSON values, or a function that returns them for the result of the write."""
    rebase_with: ConflictSolver | None = field(default_factory=ConflictDetector)
    """Resolves conflicts with concurrent commits; None for not rebasing."""
    on_commit: OnCommit | None = None
    """Called after a commit; the batch is committed even if it raises."""

    def __post_init__(self) -> None:
        check_solver(self.rebase_with)

    def write_once(self, repo: Repository, batch: Batch, write: Callable[[Session], Any]) -> str | None:
        """Write a batch and commit it, unless it is in the history; see `exactly_once`."""
        for left in reversed(range(_TRIES)):
            session = repo.writable_session(self.branch)
            if batch.is_written(session):
                return None
            result = write(session)
            if session.read_only:
                raise SessionStateError(
                    f"the function that writes batch {batch.number} of stream {batch.stream!r} committed the session, "
                    "without recording the batch, which would be written again. Leave the "
                    "commit out"
                )
            if not session.has_uncommitted_changes:
                return None  # nothing to repeat, so nothing to record
            batch.note(session)
            try:
                snapshot = self._commit(session, batch, result)
            except (ConflictError, SessionExpiredError):
                # Another writer has committed this batch, which the next session shows, or the same chunks: it is
                # written again on top of that.
                if not left:
                    raise
                continue
            if self.on_commit is not None:
                self.on_commit(result, snapshot)
            return snapshot
        raise AssertionError("unreachable")

    def _commit(self, session: Session, batch: Batch, result: Any) -> str:
        message = f"batch {batch.number} of stream {batch.stream}" if self.message is None else self.message
        own = self.metadata(result) if callable(self.metadata) else self.metadata
        return commit_repeatedly(session, message, {**own, **batch.metadata}, self.rebase_with)


def commit_repeatedly(
    session: Session, message: str, metadata: dict[str, Any], rebase_with: ConflictSolver | None
) -> str:
    """Commit a session, again if the acknowledgement may be lost: the same commit detects its success first."""
    for _ in range(_COMMITS - 1):
        with contextlib.suppress(StorageError):
            return session.commit(message, metadata, rebase_with=rebase_with)
    return session.commit(message, metadata, rebase_with=rebase_with)


def commit_batch(session: Session, repo: Repository, batch: Batch, message: str, metadata: dict[str, Any]) -> None:
    """Commit a session with a batch and its number; a batch that another driver has committed meanwhile is well."""
    assert session.branch is not None
    batch.note(session)
    try:
        commit_repeatedly(session, message, metadata | batch.metadata, ConflictDetector())
    except ConflictError:
        if not batch.is_written(repo.readonly_session(session.branch)):
            raise


def exactly_once(
    repo: Repository | str | os.PathLike[str],
    stream_id: str,
    batch_id: int,
    write: Callable[[Session], Any],
    *,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None = None,
    rebase_with: ConflictSolver | None = None,
    run: str | None = None,
    restarted: bool = False,
    on_commit: OnCommit | None = None,
) -> str | None:
    """Write a batch of a stream and commit it, unless it is in the history already.

    Call it again after a crash, or from two processes: one commit holds the batch.  It does not need Spark.

    Parameters
    ----------
    repo
        The repository, its path or its URL.
    stream_id
        Id of the stream, unique on the branch.
    batch_id
        Number of the batch.  A later one has a greater number, and the same number means the same data.
    write
        Writes the batch through a new session, without committing. It is called again with another session if
        concurrent commits change the same chunks, so it must be able to repeat the batch.
    branch
        Where to commit.
    message, metadata
        Message and metadata of the commit. Metadata may be a function of the result of `write`.
    rebase_with
        Resolves conflicts with concurrent commits. By default the batch is written again, after them.
    run
        Id of the run that numbers the batches. A batch of another run under the same stream is an error, as its number
        is not comparable. In a function for ``foreachBatch`` it is the id of the query by default, which Spark Connect
        does not provide. Where no run is known, a batch with the number of the last one is the last one.
    restarted
        Whether a batch of another run is written on top of the existing data instead. It needs `run`.
    on_commit
        Called with what `write` returned and the id of the snapshot.

    Returns
    -------
    str or None
        Id of the snapshot; None if the batch was committed before, or if nothing was written.

    Raises
    ------
    StreamRestartedError
        If the stream restarts under its old id.
    InvalidInputError
        If an argument cannot be used, or if `restarted` is passed and no run is known.
    RebaseFailedError
        If concurrent commits keep changing the same chunks.
    SessionStateError
        If `write` has committed the session.
    """
    commit = BatchCommit(branch, message, metadata or {}, rebase_with or ConflictDetector(), on_commit)
    batch = Batch(stream_id, batch_id, query_of_thread() if run is None else run, restarted)
    return commit.write_once(open_repository(repo), batch, write)
