"""Committing a batch once, however often it comes: after crashes, to two writers at a time, with a lost answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arraystore._commit.solvers import ConflictDetector, ConflictSolver, check_solver
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import ConflictError, SessionExpiredError, SessionStateError, StorageError
from arraystore.spark.snapshots import open_repository
from arraystore.spark.streams.progress import is_written, note_batch

__all__ = ["Batch", "Committing", "OnCommit", "exactly_once"]

OnCommit = Callable[[Any, str], None]
"""Called after a commit with what the write returned and the id of the snapshot."""

_TRIES = 10
"""Sessions in which a batch is written, if others keep changing the same things."""
_COMMITS = 3
"""Calls of commit, if the storage fails while one is on its way."""


@dataclass(frozen=True)
class Batch:
    """A batch of a stream.

    Parameters
    ----------
    stream
        Id of the stream.
    number
        Of the batch, from 0 on.
    run
        What numbers the batches (Spark: the id of the query); None if that is not known.
    restarted
        Whether the batches of a stream that begins anew under its old id are to be written.
    """

    stream: str
    number: int
    run: str | None = None
    restarted: bool = False

    def is_written(self, session: Session) -> bool:
        """Tell whether it is in what a session shows; see `arraystore.spark.streams.progress.is_written`."""
        return is_written(session, self.stream, self.number, run=self.run, restarted=self.restarted)

    def note(self, session: Session) -> None:
        """Write down in a session that it holds the batch."""
        note_batch(session, self.stream, self.number, run=self.run, restarted=self.restarted)


@dataclass(frozen=True)
class Committing:
    """How batches are committed.

    Parameters
    ----------
    branch
        Where to.
    message
        For the history; None for one that names batch and stream.
    metadata
        For the history: JSON values, or a function that makes them of what the write returned.
    rebase_with
        Decides where the changes collide with what others have committed meanwhile; None for not rebasing.
    on_commit
        Told what was committed.  If it raises, the batch is committed all the same.
    """

    branch: str = "main"
    message: str | None = None
    metadata: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = field(default_factory=dict)
    rebase_with: ConflictSolver | None = field(default_factory=ConflictDetector)
    on_commit: OnCommit | None = None

    def __post_init__(self) -> None:
        check_solver(self.rebase_with)

    def carry_out(self, repo: Repository, batch: Batch, write: Callable[[Session], Any]) -> str | None:
        """Write a batch and commit it, unless it is in the history; see `exactly_once`."""
        for left in reversed(range(_TRIES)):
            session = repo.writable_session(self.branch)
            if batch.is_written(session):
                return None
            result = write(session)
            if session.read_only:
                raise SessionStateError(
                    f"what writes batch {batch.number} of stream {batch.stream!r} has committed the session by itself: "
                    "that this batch is in the history is noted nowhere, and it would be written again. Leave the "
                    "commit out"
                )
            if not session.has_uncommitted_changes:
                return None  # nothing to repeat, so nothing to write down
            batch.note(session)
            try:
                snapshot = self._commit(session, batch, result)
            except (ConflictError, SessionExpiredError):
                # Somebody has written this batch, which the next look shows, or something that it changes, too: it is
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
        given = self.metadata(result) if callable(self.metadata) else self.metadata
        metadata = {**given, "spark.stream": batch.stream, "spark.batch": batch.number}
        for left in reversed(range(_COMMITS)):
            try:
                return session.commit(message, metadata, rebase_with=self.rebase_with)
            except StorageError:  # the answer may be lost: the same commit, called again, finds that out first
                if not left:
                    raise
        raise AssertionError("unreachable")


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
        Names the stream; others of the same branch have other names.
    batch_id
        Number of the batch.  A later one has a greater number, and the same number means the same data.
    write
        Writes the batch through a session that is new; it does not commit.  It is called again with another session
        if others have changed the same things meanwhile, so it must be able to write the batch again.
    branch
        Where to commit.
    message, metadata
        For the history.  Metadata may be a function that makes it of what `write` returned.
    rebase_with
        Decides where the batch collides with what others have committed meanwhile.  By default nobody does, and the
        batch is written again on top of it.
    run
        What numbers the batches.  A batch of another run under the same id is an error, as its number says nothing.
    restarted
        Whether it is none: what comes is then written on top of what is there.
    on_commit
        Called with what `write` returned and the id of the snapshot.

    Returns
    -------
    str or None
        Id of the snapshot; None if the batch was there, or if nothing was written.

    Raises
    ------
    StreamRestartedError
        If the stream begins anew under its old id.
    RebaseFailedError
        If others keep changing what the batch changes.
    SessionStateError
        If `write` has committed the session.
    """
    committing = Committing(branch, message, metadata or {}, rebase_with or ConflictDetector(), on_commit)
    return committing.carry_out(open_repository(repo), Batch(stream_id, batch_id, run, restarted), write)
