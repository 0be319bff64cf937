"""Sessions: one snapshot, and the changes that will make the next one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arraystore.commit.branch import Tip
from arraystore.commit.changes import ChangeSet
from arraystore.commit.committer import commit
from arraystore.commit.log import AppendUncertainError
from arraystore.commit.packs import PackWriter
from arraystore.commit.prepare import Prepared, check_note, prepare
from arraystore.config import RepositoryConfig
from arraystore.context import Context
from arraystore.diff import Diff, status_of
from arraystore.errors import ConflictError, NodeNotFoundError, ReadOnlyError, SessionStateError
from arraystore.forks import Merged, apply_payloads, decode_payload, provisional_log
from arraystore.format.ids import id_to_text
from arraystore.format.node import NodeKind
from arraystore.format.transaction import TransactionLog
from arraystore.hierarchy import Hierarchy
from arraystore.listing import present_chunks
from arraystore.runtime import run
from arraystore.session_pickle import forget_live, keep_live, reduce_session
from arraystore.store import ArrayStore

if TYPE_CHECKING:
    from arraystore.fork_session import ForkSession

__all__ = ["Session"]

_ELSEWHERE = (
    "was opened in another process, which would never see what is written here: "
    "take session.fork() there, and merge what its changes() returns"
)


class Session:
    """One snapshot of a repository, and, in a writable session, changes over it.

    Sessions come from `Repository.readonly_session` and `Repository.writable_session`.

    Parameters
    ----------
    context
        What sessions of the repository share.
    tip
        The record that the session is based on.
    branch
        Branch to commit to; None for a session that only reads.
    """

    def __init__(self, context: Context, tip: Tip, branch: str | None) -> None:
        self.context = context
        self._tip = tip
        self._branch = branch
        self._id = context.environment.new_id()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._changes: ChangeSet | None = None
        self._prepared: Prepared | None = None
        self._uncertain = False
        self._busy = False
        self._merged = Merged()
        self.default_metadata: dict[str, Any] = {}
        self.uncommitted: tuple[bytes, bytes] | None = None
        if branch is not None:
            self._changes = ChangeSet(tip.state, pack_writer(context))
            keep_live(self._id, self)
        self.hierarchy = Hierarchy(tip.state, context.reader, self._changes)

    # -- what it is -----------------------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written: opened so, or committed by now."""
        return self._changes is None

    @property
    def is_of_this_process(self) -> bool:
        """Whether the session was made in this process, and not in one that this is a forked child of."""
        return os.getpid() == self._pid

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot that the session is based on; after a commit, of the one that it made."""
        return id_to_text(self._tip.state.snapshot)

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to, None if it only reads."""
        return self._branch

    @property
    def config(self) -> RepositoryConfig:
        """Configuration of the repository."""
        return self.context.config

    @property
    def store(self) -> ArrayStore:
        """The session as a Zarr store."""
        return ArrayStore(self)

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether there is something to commit."""
        return self._changes is not None and not self._changes.empty

    def describe(self) -> str:
        """Return a short text that tells repository, branch and snapshot."""
        place = f"{self.context.storage.location}@{self._branch or ''}{'/' if self._branch else ''}"
        return place + self.snapshot_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}{' read-only' if self.read_only else ''}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        if self is other:
            return True
        same_place = self.context.storage.location == other.context.storage.location
        same_place &= self.uncommitted == other.uncommitted
        return same_place and self.read_only and other.read_only and self.snapshot_id == other.snapshot_id

    def __hash__(self) -> int:
        return hash(self.context.storage.location)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_session(self)

    # -- changing -------------------------------------------------------------------------------------------

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that something may be written now.

        Raises
        ------
        ReadOnlyError
            If the session is read-only.
        SessionStateError
            If it is being committed, or belongs to another process.
        """
        if self.uncommitted is not None:
            raise ReadOnlyError(f"this session is a copy, to read only, of one that {_ELSEWHERE}")
        if self._changes is None:
            raise ReadOnlyError(refusal)
        if self._busy:
            raise SessionStateError("the session is being committed; write before or after, not meanwhile")
        if self._uncertain:
            raise SessionStateError("nobody knows yet whether this session is committed: call commit again to find out")
        if not self.is_of_this_process:
            raise SessionStateError(f"this writable session {_ELSEWHERE}")

    def status(self) -> Diff:
        """Return what is uncommitted."""
        return Diff() if self._changes is None else status_of(self._changes)

    def discard_changes(self) -> None:
        """Forget everything uncommitted."""
        self.check_writable()
        forget_live(self._id)
        self._id = self.context.environment.new_id()  # forks of what is discarded have no home any more
        keep_live(self._id, self)
        self._changes = ChangeSet(self._tip.state, pack_writer(self.context))
        self._merged = Merged()
        self._prepared = None
        self.hierarchy = Hierarchy(self._tip.state, self.context.reader, self._changes)

    def commit(self, message: str, metadata: dict[str, Any] | None = None, *, allow_empty: bool = False) -> str:
        """Make everything that was written visible at once; the session is read-only afterwards.

        Parameters
        ----------
        message
            For the history.
        metadata
            JSON values for the history.
        allow_empty
            Whether a commit may change nothing.

        Returns
        -------
        str
            Id of the new snapshot.

        Raises
        ------
        ConflictError
            If somebody else has committed to the branch meanwhile; nothing was committed.
        SessionStateError
            If there is nothing to commit.
        InvalidInputError
            If message or metadata cannot be stored.
        StorageError
            If the storage failed.  Call commit again: it finds out first whether the commit had arrived.
        """
        return run(self.commit_async(message, metadata, allow_empty=allow_empty))

    async def commit_async(
        self, message: str, metadata: dict[str, Any] | None = None, *, allow_empty: bool = False
    ) -> str:
        """Asynchronous twin of `commit`."""
        if not self._uncertain:
            self.check_writable()
        assert self._changes is not None
        assert self._branch is not None
        note = check_note(message, metadata, self.default_metadata)
        if self._changes.empty and not allow_empty and not self._uncertain:
            raise SessionStateError("there is nothing to commit; pass allow_empty=True to commit all the same")
        with self._lock:
            if self._busy:
                raise SessionStateError("the session is being committed already")
            self._busy = True
        try:
            if self._prepared is None or not self._uncertain:
                self._changes.seal()
                self._prepared = await prepare(self._changes, self.context.reader, self.context.environment, note)
            log = self.context.log(self._branch)
            try:
                outcome = await commit(log, self._tip, self._prepared, self._uncertain)
            except (AppendUncertainError, asyncio.CancelledError):
                self._uncertain = True
                raise
            except ConflictError:
                self._uncertain = False
                raise
            return self._committed(outcome.tip, large=not isinstance(self._prepared.log_place, TransactionLog))
        finally:
            self._busy = False
            if self._changes is not None and not self._uncertain:
                self._changes.unseal()

    def _committed(self, tip: Tip, *, large: bool) -> str:
        self._tip = tip
        self._changes = None
        self._prepared = None
        self._uncertain = False
        self.hierarchy = Hierarchy(tip.state, self.context.reader, None)
        self.context.seen(tip)
        self.context.after_commit(tip, large)
        return self.snapshot_id

    # -- forks ----------------------------------------------------------------------------------------------

    def fork(self) -> ForkSession:
        """Return a fork: a session that may be pickled, written to in any process, and merged back.

        What is uncommitted here (arrays just created, for instance) travels along.
        """
        return run(self.fork_async())

    async def fork_async(self) -> ForkSession:
        """Asynchronous twin of `fork`."""
        self.check_writable()
        assert self._changes is not None
        log = None if self._changes.empty else await provisional_log(self._changes, self.context.reader)
        from arraystore.fork_session import ForkSession  # a kind of session: it imports this module

        return ForkSession(self.context, self._tip, self._id, self._changes.next_epoch(), log)

    def merge(self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes]) -> None:
        """Bring home what forks changed: all of it, or nothing.

        Parameters
        ----------
        forks
            Forks of this session, or what their `changes()` returned, or lists of these.

        Raises
        ------
        MergeConflictError
            If two forks changed the same chunk or node, or a fork is another session's.
        FormatError
            If a payload is damaged.
        """
        from arraystore.fork_session import forks_in

        run(self.merge_async(*forks_in(forks)))  # iterators are the caller's code: they run in the caller's thread

    async def merge_async(self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes]) -> None:
        """Asynchronous twin of `merge`."""
        from arraystore.fork_session import forks_in

        self.check_writable()
        assert self._changes is not None
        payloads = []
        for fork in forks_in(forks):
            data = fork if isinstance(fork, bytes) else await fork.changes_async()
            payloads.append(decode_payload(data, self._id))
        apply_payloads(self._changes, payloads, self._merged)
        self.hierarchy.forget()

    # -- looking --------------------------------------------------------------------------------------------

    def chunk_coordinates(self, path: str) -> npt.NDArray[np.int64]:
        """Return the grid coordinates of all chunks that an array has, shape (n, d), in row-major order.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        """
        node = self.hierarchy.node(path.strip("/"))
        if node is None or node.kind != NodeKind.ARRAY:
            raise NodeNotFoundError(f"there is no array {path!r} in snapshot {self.snapshot_id}")
        return run(present_chunks(self.hierarchy, node)).coords

    def get_node_id(self, path: str) -> str:
        """Return the id of a node, which stays the same when it is moved.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        """
        node = self.hierarchy.node(path.strip("/"))
        if node is None:
            raise NodeNotFoundError(f"there is no node {path!r} in snapshot {self.snapshot_id}")
        return id_to_text(node.id)


def pack_writer(context: Context) -> PackWriter:
    """Return what makes packs of the chunks of one session."""
    return PackWriter(context.storage, context.environment, context.config.pack_settings())
