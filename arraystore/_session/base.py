"""The shared half of sessions and forks: a snapshot, perhaps with changes over it."""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.read_set import ReadSet
from arraystore._chunks.pack_writer import PackWriter
from arraystore._config import RepositoryConfig
from arraystore._context import Context
from arraystore._format.ids import id_to_text
from arraystore._format.node import Node, NodeKind
from arraystore._history.diff import Diff, status_of
from arraystore._history.missing_objects import check_not_expired
from arraystore._history.pinning import announce
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.listing import present_chunks
from arraystore._session.pickling import SnapshotLocator
from arraystore._session.rearrange import ChunkFunction, load_places, plan_reindex, plan_shift, rearrange
from arraystore._session.store import ArrayStore
from arraystore.errors import (
    ArrayStoreError,
    InvalidInputError,
    NodeNotFoundError,
    ObjectNotFoundError,
    ReadOnlyError,
    SessionStateError,
)

__all__ = ["Isolation", "SessionBase", "SessionState", "isolation_number", "pack_writer"]

Isolation = Literal["snapshot", "serializable"]
ISOLATIONS: tuple[Isolation, Isolation] = ("snapshot", "serializable")

_ELSEWHERE = (
    "was opened in another process, which would never see what is written here: "
    "take session.fork() there, and merge what its changes() returns"
)


class SessionState(enum.Enum):
    """What can be done with a session."""

    OPEN = "open"
    """It takes changes."""
    COMMITTING = "committing"
    """It takes none meanwhile."""
    UNCERTAIN = "uncertain"
    """Its commit may have arrived: another commit detects whether it has."""
    COMMITTED = "committed"
    """It only reads: it was opened so, or its changes are committed."""
    COPY = "copy"
    """It only reads: it is a copy of a session of another process."""


def isolation_number(name: str) -> int:
    """Return the number of an isolation level; raises `InvalidInputError` for an unknown one."""
    if name not in ISOLATIONS:
        raise InvalidInputError(f"there is no isolation {name!r}; choose one of {', '.join(map(repr, ISOLATIONS))}")
    return ISOLATIONS.index(name)


class SessionBase:
    """A snapshot, with or without changes over it, and what can be asked of it.

    Parameters
    ----------
    context
        What sessions of the repository share.
    tip
        The record that it is based on.
    branch
        Branch that its description names.
    isolation
        ``"serializable"`` notes what is read.
    verify_chunks
        Whether chunks that are read are checked; None for what the configuration says.
    """

    hierarchy: Hierarchy

    def __init__(
        self,
        context: Context,
        tip: Tip,
        *,
        branch: str | None = None,
        isolation: Isolation = "snapshot",
        verify_chunks: bool | None = None,
    ) -> None:
        context.environment.after(tip.state.life.fence)
        self.context = context
        self.verify_chunks = verify_chunks
        self._tip = tip
        self._branch = branch
        self._isolation = isolation_number(isolation)
        self._reader = context.reader.checking(verify_chunks)
        self._id = context.environment.new_id()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state = SessionState.COMMITTED
        self._copied: tuple[bytes, bytes] | None = None
        self._announced: dict[bytes, bytes] = {}
        self._show(None, ReadSet() if self._isolation else None)

    def _show(self, changes: ChangeSet | None, reads: ReadSet | None) -> None:
        """Show the snapshot with these changes over it."""
        hierarchy = Hierarchy(self._tip.state, self._reader, changes)
        hierarchy.reads = reads
        self._changes = changes
        self.hierarchy = hierarchy

    # -- what it is -----------------------------------------------------------------------------------------

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot that the session is based on; after a commit, of the one that it made."""
        return id_to_text(self._tip.state.snapshot)

    @property
    def base_tip(self) -> Tip:
        """The record that the session is based on."""
        return self._tip

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to, None if it commits to none."""
        return None

    @property
    def config(self) -> RepositoryConfig:
        """Configuration of the repository."""
        return self.context.config

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written: opened so, or committed by now."""
        return self._state in (SessionState.COMMITTED, SessionState.COPY)

    @property
    def is_of_this_process(self) -> bool:
        """Whether the session was made in this process, and not in one that this is a forked child of."""
        return os.getpid() == self._pid

    @property
    def isolation(self) -> Isolation:
        """``"snapshot"`` or ``"serializable"``."""
        return ISOLATIONS[self._isolation]

    @property
    def reads(self) -> dict[str, Any]:
        """What a serializable session has noted of its reads, for people; empty for any other."""
        return {} if self.hierarchy.reads is None else self.hierarchy.reads.summary(self.hierarchy.beneath.keys)

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
        if not isinstance(other, SessionBase):
            return NotImplemented
        if self is other:
            return True
        same_place = self.context.storage.location == other.context.storage.location
        same_place &= self._copied == other._copied
        return same_place and self.read_only and other.read_only and self.snapshot_id == other.snapshot_id

    def __hash__(self) -> int:
        return hash(self.context.storage.location)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_reader, (type(self), self._locator())

    def _locator(self) -> SnapshotLocator:
        return SnapshotLocator.of(self.context, self._tip.state, self.verify_chunks)

    # -- looking --------------------------------------------------------------------------------------------

    def chunk_coordinates(self, path: str) -> npt.NDArray[np.int64]:
        """Return the grid coordinates of all chunks that an array has, shape (n, d), in row-major order.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        """
        node = self._looked_up(path)
        if node is None or node.kind != NodeKind.ARRAY:
            raise NodeNotFoundError(f"there is no array {path!r} in snapshot {self.snapshot_id}")
        return run(self._present(node))

    def get_node_id(self, path: str) -> str:
        """Return the id of a node, which stays the same when it is moved.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        """
        node = self._looked_up(path)
        if node is None:
            raise NodeNotFoundError(f"there is no node {path!r} in snapshot {self.snapshot_id}")
        return id_to_text(node.id)

    async def _present(self, node: Node) -> npt.NDArray[np.int64]:
        try:
            return (await present_chunks(self.hierarchy, node)).coords
        except ObjectNotFoundError as error:
            await check_not_expired(self.context, self._tip.state, self.hierarchy.changes, error)
            raise

    def _looked_up(self, path: str) -> Node | None:
        """Return a node, and note that it was looked for."""
        key = path.strip("/")
        if (noted := self.hierarchy.noted) is not None:
            noted.place(key)
        return self.hierarchy.node(key)

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
        if self._state is not SessionState.OPEN:
            raise self._refused(refusal)
        if not self.is_of_this_process:
            raise SessionStateError(f"this writable session {_ELSEWHERE}")

    def _refused(self, refusal: str) -> ArrayStoreError:
        """Return the error of whoever writes to a session that is not open."""
        match self._state:
            case SessionState.COPY:
                return ReadOnlyError(f"this session is a copy, to read only, of one that {_ELSEWHERE}")
            case SessionState.COMMITTING:
                return SessionStateError("the session is being committed; write before or after, not meanwhile")
            case SessionState.UNCERTAIN:
                return SessionStateError(
                    "nobody knows yet whether this session is committed: call commit again to find out"
                )
            case _:
                return ReadOnlyError(refusal)

    def status(self) -> Diff:
        """Return what is uncommitted."""
        return Diff() if self._changes is None else status_of(self._changes)

    # -- giving chunks other places -------------------------------------------------------------------------

    def shift_array(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Move all chunks of an array by a vector; no data is read or written.

        What would leave the grid is dropped: resize the array first to keep it.  Places that nothing moves to become
        empty.  It is committed, and rebased, as a change of the chunks concerned: those that were there, and those
        that are there now.

        Parameters
        ----------
        array_path
            Of the array; its chunks must all be of one shape.
        chunk_offset
            How far to move along each dimension, in chunks (of a sharded array, in shards).

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        InvalidInputError
            If its chunks differ in shape, or the offset does not fit it.
        SessionStateError
            If another thread writes to the array meanwhile; nothing was changed.
        """
        run(self.shift_array_async(array_path, chunk_offset))

    async def shift_array_async(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Asynchronous twin of `shift_array`."""
        self.check_writable()
        places = await load_places(self.hierarchy, array_path)
        await rearrange(self.hierarchy, places, plan_shift(places, chunk_offset), self._keep_snapshot)

    def reindex_array(
        self,
        array_path: str,
        forward: ChunkFunction,
        backward: ChunkFunction | None = None,
        *,
        vectorized: bool = False,
    ) -> None:
        """Give each chunk of an array the place that a function tells; no data is read or written.

        Places that chunks leave, and that nothing goes to, become empty: unlike in other stores, no stale chunk is left
        behind, with `backward` or without.  No chunk is deleted unless the function says so with `arraystore.DELETE`.

        Parameters
        ----------
        array_path
            Of the array; its chunks must all be of one shape.
        forward
            From the grid coordinates of a chunk, a tuple, to those that it gets; None leaves the chunk where it is, and
            `arraystore.DELETE` deletes it.  It is asked for the chunks that there are only.
        backward
            Its inverse.  Nothing depends on it, but where it is given it is checked, for chunks that are not deleted.
        vectorized
            Whether the functions take and return the coordinates of many chunks at once, as integers of shape (n, d); a
            row with `arraystore.DELETE` in it, which is an integer, deletes the chunk, and in place of all rows, all.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        InvalidInputError
            If its chunks differ in shape, two chunks get the same place, what a function returns is no place in the
            grid, or `backward` does not undo `forward`.
        SessionStateError
            If another thread writes to the array meanwhile; nothing was changed.
        """
        self.check_writable()
        places = run(load_places(self.hierarchy, array_path))
        plan = plan_reindex(places, forward, backward, vectorized)  # in the thread that the functions belong to
        run(rearrange(self.hierarchy, places, plan, self._keep_snapshot))

    async def reindex_array_async(
        self,
        array_path: str,
        forward: ChunkFunction,
        backward: ChunkFunction | None = None,
        *,
        vectorized: bool = False,
    ) -> None:
        """Asynchronous twin of `reindex_array`."""
        self.check_writable()
        places = await load_places(self.hierarchy, array_path)
        plan = plan_reindex(places, forward, backward, vectorized)
        await rearrange(self.hierarchy, places, plan, self._keep_snapshot)

    async def _keep_snapshot(self, node: Node) -> None:
        """Let no garbage collection take away what gets another reference now.

        The chunks may be gone from the branch by the time of the commit, rewritten into other packs for instance.
        """
        changes = self.hierarchy.writable()
        snapshot = self._tip.state.snapshot
        if snapshot not in self._announced:
            self._announced[snapshot] = await announce(self.context, self._tip.state)
        if self._announced[snapshot] not in changes.borrowed:
            changes.borrowed.append(self._announced[snapshot])


def rebuild_reader(kind: type[SessionBase], locator: SnapshotLocator) -> SessionBase:
    """Return a session that only reads."""
    return kind(locator.context, locator.load(), verify_chunks=locator.verify_chunks)


def pack_writer(context: Context) -> PackWriter:
    """Return what makes packs of the chunks of one session."""
    return PackWriter(context.storage, context.environment, context.config.pack_settings())
