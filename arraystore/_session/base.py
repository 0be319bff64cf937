"""The shared half of sessions and forks: a snapshot, and changes over it if it is writable."""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.pack_writer import PackWriter
from arraystore._chunks.reader import VerifyChunks
from arraystore._context.config import RepositoryConfig
from arraystore._context.context import Context
from arraystore._format.ids import CheckpointId, SnapshotId, id_to_text
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import References
from arraystore._format.types import Int64s
from arraystore._log.loading import Tip
from arraystore._runtime import lazy_module, run
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import node_path
from arraystore._session.listing import present_chunks, untracked_chunks
from arraystore._session.pickling import SnapshotLocator, live_session
from arraystore._session.store import ArrayStore
from arraystore._session.unavailable import UnavailableSession, opened_or_unavailable
from arraystore.errors import (
    ArrayStoreError,
    InvalidInputError,
    NodeNotFoundError,
    ObjectNotFoundError,
    ReadOnlyError,
    SessionStateError,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from arraystore._changes import read_set
    from arraystore._changes.read_set import ReadSet
    from arraystore._forks import uncommitted
    from arraystore._history import diff, missing_objects, pinning
    from arraystore._history.diff import Diff
    from arraystore._session import plots, rearrange, views
    from arraystore._session.rearrange import ChunkFunction
    from arraystore._session.regions import access, many_arrays
else:
    diff = lazy_module("arraystore._history.diff")
    missing_objects = lazy_module("arraystore._history.missing_objects")
    pinning = lazy_module("arraystore._history.pinning")
    read_set = lazy_module("arraystore._changes.read_set")
    uncommitted = lazy_module("arraystore._forks.uncommitted")
    access = lazy_module("arraystore._session.regions.access")
    many_arrays = lazy_module("arraystore._session.regions.many_arrays")
    plots = lazy_module("arraystore._session.plots")
    rearrange = lazy_module("arraystore._session.rearrange")
    views = lazy_module("arraystore._session.views")

Isolation = Literal["snapshot", "serializable"]
ISOLATIONS: tuple[Isolation, Isolation] = ("snapshot", "serializable")

_ELSEWHERE = (
    "was opened in another process, which would never see what is written here: "
    "take session.fork() there, and merge what its changes() returns"
)


class SessionState(enum.Enum):
    """The state of a session."""

    OPEN = "open"
    """Writable."""
    COMMITTING = "committing"
    """Being committed, without further changes."""
    UNCERTAIN = "uncertain"
    """Committed or not: the outcome of a commit is unknown, and another commit detects an earlier success."""
    COMMITTED = "committed"
    """Read-only: opened so, or committed."""
    COPY = "copy"
    """Read-only: a copy of a session of another process."""


def isolation_number(name: str) -> int:
    """Return the number of an isolation level; raises `InvalidInputError` for an unknown one."""
    if name not in ISOLATIONS:
        raise InvalidInputError(f"isolation must be one of {', '.join(map(repr, ISOLATIONS))}, not {name!r}")
    return ISOLATIONS.index(name)


class SessionBase:
    """A snapshot, with or without changes over it, and its read-only operations."""

    hierarchy: Hierarchy
    records_appends: bool = True
    """Whether `to_arraystore` records growth along ``append_dim`` as an append, which is rebased onto others."""

    def __init__(
        self,
        context: Context,
        tip: Tip,
        *,
        branch: str | None = None,
        isolation: Isolation = "snapshot",
        verify_chunks: VerifyChunks = "config",
    ) -> None:
        context.environment.after(tip.state.life.fence)
        self.context = context
        self.verify_chunks: VerifyChunks = verify_chunks
        self._tip = tip
        self._branch = branch
        self._isolation = isolation_number(isolation)
        self._reader = context.reader.checking(verify_chunks)
        self._id = context.environment.new_id()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state = SessionState.COMMITTED
        self._copied: tuple[bytes, bytes] | None = None
        self._announced: dict[SnapshotId, CheckpointId] = {}
        self._show(None, read_set.ReadSet() if self._isolation else None)

    def _show(self, changes: ChangeSet | None, reads: ReadSet | None) -> None:
        """Replace the hierarchy by the snapshot with these changes over it."""
        hierarchy = Hierarchy(self._tip.state, self._reader, changes)
        hierarchy.reads = reads
        self._changes = changes
        self.hierarchy = hierarchy

    # -- properties ----------------------------------------------------------------------------------------

    @property
    def snapshot_id(self) -> str:
        """Id of the base snapshot; after a commit, of the snapshot committed."""
        return id_to_text(self._tip.state.snapshot)

    @property
    def base_tip(self) -> Tip:
        """The record of the base."""
        return self._tip

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to; None if it does not commit."""
        return None

    @property
    def config(self) -> RepositoryConfig:
        """Configuration of the repository."""
        return self.context.config

    @property
    def read_only(self) -> bool:
        """True if writes are refused: the session was opened read-only, or is committed."""
        return self._state in (SessionState.COMMITTED, SessionState.COPY)

    @property
    def is_of_this_process(self) -> bool:
        """True if the session was made in this process, not in a parent that forked it."""
        return os.getpid() == self._pid

    @property
    def isolation(self) -> Isolation:
        """``"snapshot"`` or ``"serializable"``."""
        return ISOLATIONS[self._isolation]

    @property
    def reads(self) -> dict[str, Any]:
        """Summary of the reads of a serializable session; empty for any other."""
        return {} if self.hierarchy.reads is None else self.hierarchy.reads.summary(self.hierarchy.beneath.keys)

    @property
    def store(self) -> ArrayStore:
        """The Zarr store of the session."""
        return ArrayStore(self)

    @property
    def has_uncommitted_changes(self) -> bool:
        """True if the session has changes to commit."""
        return self._changes is not None and not self._changes.empty

    def describe(self) -> str:
        """Return location, branch and snapshot as a short string."""
        place = f"{self.context.storage.location}@{self._branch or ''}{'/' if self._branch else ''}"
        return place + self.snapshot_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}{' read-only' if self.read_only else ''}>"

    def _repr_html_(self) -> str:
        facts = (
            ("snapshot", self.snapshot_id),
            *((("branch", self.branch),) if self.branch is not None else ()),
            ("state", "read-only" if self.read_only else self._state.value),
            *((("isolation", self.isolation),) if self._isolation else ()),
        )
        title = f"{type(self).__name__} of {self.context.storage.location}"
        return views.session_view(title, facts, self.hierarchy).to_html()

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

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Return what names of dask arrays are made of: equal only for what is certain to have equal values."""
        committed = self.read_only and self._copied is None
        return self.context.storage.location, self.snapshot_id if committed else self.context.environment.new_id().hex()

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_reader, (type(self), self._locator())

    def for_store(self) -> Any:
        """Return what is pickled with a store: the session."""
        return self

    def _locator(self) -> SnapshotLocator:
        return SnapshotLocator.of(self.context, self._tip.state, self.verify_chunks)

    # -- look-ups -------------------------------------------------------------------------------------------

    def chunk_coordinates(self, path: str) -> Int64s:
        """Return the grid coordinates of all chunks of an array, shape (n, d), in row-major order.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        """
        node = self._read_node(path)
        if node is None or node.kind != NodeKind.ARRAY:
            raise NodeNotFoundError(f"there is no array {path!r} in snapshot {self.snapshot_id}")
        return run(self._load_chunks(node))

    def get_node_id(self, path: str) -> str:
        """Return the id of a node, which moves do not change.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        """
        node = self._read_node(path)
        if node is None:
            raise NodeNotFoundError(f"there is no node {path!r} in snapshot {self.snapshot_id}")
        return id_to_text(node.id)

    def plot_chunks(self, path: str, *, dims: Sequence[str | int] | None = None, ax: Axes | None = None) -> Axes:
        """Draw the chunk map of an array, by matplotlib (extra ``plot``): which chunks there are, and where they lie.

        Cells of large grids stand for several chunks.  A serializable session does not take this for a read.

        Parameters
        ----------
        path
            Path of the array.
        dims
            One or two dimensions, by name or position, drawn down and across; by default the two with most chunks.
            Chunks are summed up along the others.
        ax
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            What was drawn on.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        InvalidInputError
            If it does not have these dimensions.
        ModuleNotFoundError
            If matplotlib is not installed.
        """
        node = self.hierarchy.node(node_path(path))
        if node is None or node.kind != NodeKind.ARRAY:
            raise NodeNotFoundError(f"there is no array {path!r} in snapshot {self.snapshot_id}")
        references = run(self._load_references(untracked_chunks, node))
        return plots.plot_chunks(node, references, self._changes, dims, ax)

    async def _load_chunks(self, node: Node) -> Int64s:
        return (await self._load_references(present_chunks, node)).coords

    async def _load_references(
        self, load: Callable[[Hierarchy, Node], Awaitable[References]], node: Node
    ) -> References:
        try:
            return await load(self.hierarchy, node)
        except ObjectNotFoundError as error:
            await missing_objects.check_not_expired(self.context, self._tip.state, self.hierarchy.changes, error)
            raise

    def _read_node(self, path: str) -> Node | None:
        """Return a node, adding the look-up to the read set."""
        key = node_path(path)
        if (noted := self.hierarchy.noted) is not None:
            noted.place(key)
        return self.hierarchy.node(key)

    # -- regions --------------------------------------------------------------------------------------------

    def read(self, path: str, selection: Any = ..., *, out: npt.NDArray[Any] | None = None) -> Any:
        """Read a region of an array: what `zarr.Array` returns for the selection, in a fraction of the time.

        Parameters
        ----------
        path
            Path of the array.
        selection
            Integers, slices and an ellipsis, as numpy has them; lists and masks, which zarr reads.
        out
            Array to read into, of the shape and data type of the region.  After an error its items are undefined.

        Returns
        -------
        numpy.ndarray or numpy.generic
            `out`, or a new array; for an integer along each dimension a scalar, or an array without dimensions.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        SelectionError
            If the selection is not valid; also an `IndexError`.
        InvalidInputError
            If `out` has another shape or data type.
        """
        return access.read(self, path, selection, out)

    async def read_async(self, path: str, selection: Any = ..., *, out: npt.NDArray[Any] | None = None) -> Any:
        """Asynchronous twin of `read`."""
        return await access.read_async(self, path, selection, out)

    def read_many(self, requests: Iterable[tuple[str, Any]]) -> list[Any]:
        """Read regions of many arrays together.

        All chunks are looked up before the first is read, and neighbours in a pack are read at once, whichever array
        they belong to.

        Parameters
        ----------
        requests
            Pairs of the path of an array and a selection, as for `read`.

        Returns
        -------
        list
            The regions, in the order of the requests.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        SelectionError
            If a selection is not valid.
        """
        return many_arrays.read_many(self, requests)

    async def read_many_async(self, requests: Iterable[tuple[str, Any]]) -> list[Any]:
        """Asynchronous twin of `read_many`."""
        return await many_arrays.read_many_async(self, requests)

    def write(self, path: str, selection: Any, data: npt.ArrayLike) -> None:
        """Write a region of an array, as an assignment to `zarr.Array` does, in a fraction of the time.

        Parameters
        ----------
        path
            Path of the array.
        selection
            Integers, slices and an ellipsis, as numpy has them; lists and masks, which zarr writes.
        data
            Values of the shape of the region, or that broadcast to it; they are cast to the array's data type.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        SelectionError
            If the selection is not valid; also an `IndexError`.
        InvalidInputError
            If the data have another shape, or cannot be cast.
        ReadOnlyError
            If the session is read-only.
        """
        access.write(self, path, selection, data)

    async def write_async(self, path: str, selection: Any, data: npt.ArrayLike) -> None:
        """Asynchronous twin of `write`."""
        await access.write_async(self, path, selection, data)

    # -- changing -------------------------------------------------------------------------------------------

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that the session is writable: raises `ReadOnlyError`, or `SessionStateError` while it is being
        committed or if it belongs to another process.
        """
        if self._state is not SessionState.OPEN:
            raise self._refused(refusal)
        if not self.is_of_this_process:
            raise SessionStateError(f"this writable session {_ELSEWHERE}")

    def _refused(self, refusal: str) -> ArrayStoreError:
        """Return the error of a write to a session that is not open."""
        match self._state:
            case SessionState.COPY:
                return ReadOnlyError(f"this session is a read-only copy of one that {_ELSEWHERE}")
            case SessionState.COMMITTING:
                return SessionStateError("the session is being committed: write before or after the commit")
            case SessionState.UNCERTAIN:
                return SessionStateError(
                    "the outcome of this session's commit is unknown: call commit again, it detects an earlier success"
                )
            case _:
                return ReadOnlyError(refusal)

    def status(self) -> Diff:
        """Return the uncommitted changes."""
        return diff.Diff() if self._changes is None else diff.status_of(self._changes)

    # -- shifting and reindexing ----------------------------------------------------------------------------

    def shift_array(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Move all chunks of an array by a vector; no data is read or written.

        Chunks that would leave the grid are dropped: resize the array first to keep them.  Cells that no chunk moves to
        become empty.  A shift is committed, and rebased, as a change of all cells that had a chunk or have one now.

        Parameters
        ----------
        array_path
            Path of the array, whose chunks must all have one shape.
        chunk_offset
            Offset along each dimension, in chunks (of a sharded array, in shards).

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        InvalidInputError
            If its chunks differ in shape, or in dimensions from the offset.
        SessionStateError
            If another thread writes to the array meanwhile; the session is unchanged.
        """
        run(self.shift_array_async(array_path, chunk_offset))

    async def shift_array_async(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Asynchronous twin of `shift_array`."""
        self.check_writable()
        places = await rearrange.load_places(self.hierarchy, array_path)
        await rearrange.rearrange(
            self.hierarchy, places, rearrange.plan_shift(places, chunk_offset), self._keep_snapshot
        )

    def reindex_array(
        self,
        array_path: str,
        forward: ChunkFunction,
        backward: ChunkFunction | None = None,
        *,
        vectorized: bool = False,
    ) -> None:
        """Move each chunk of an array to the result of a function; no data is read or written.

        Cells that chunks leave, and that no chunk moves to, become empty: unlike in other stores, no stale chunk is
        left behind, with `backward` or without.  No chunk is deleted unless the function returns `arraystore.DELETE`.

        Parameters
        ----------
        array_path
            Path of the array, whose chunks must all have one shape.
        forward
            Function from the grid coordinates of a chunk, a tuple, to new ones; None leaves the chunk where it is, and
            `arraystore.DELETE` deletes it.  It is called for existing chunks only.
        backward
            Inverse of `forward`, checked for chunks that are not deleted, and not used otherwise.
        vectorized
            Whether the functions take and return the coordinates of many chunks at once, as integers of shape (n, d); a
            row with `arraystore.DELETE` in it, which is an integer, deletes the chunk, and in place of all rows, all.

        Raises
        ------
        NodeNotFoundError
            If there is no such array.
        InvalidInputError
            If its chunks differ in shape, two chunks get the same coordinates, a function returns coordinates outside
            of the grid or no coordinates, or `backward` does not undo `forward`.
        SessionStateError
            If another thread writes to the array meanwhile; the session is unchanged.
        """
        self.check_writable()
        places = run(rearrange.load_places(self.hierarchy, array_path))
        plan = rearrange.plan_reindex(places, forward, backward, vectorized)  # in the caller's thread, as its functions
        run(rearrange.rearrange(self.hierarchy, places, plan, self._keep_snapshot))

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
        places = await rearrange.load_places(self.hierarchy, array_path)
        plan = rearrange.plan_reindex(places, forward, backward, vectorized)
        await rearrange.rearrange(self.hierarchy, places, plan, self._keep_snapshot)

    async def _keep_snapshot(self, node: Node) -> None:
        """Protect the base from garbage collection, since chunks of it get another reference."""
        # By the commit the branch may no longer have the chunks: compaction may have rewritten them into other packs.
        changes = self.hierarchy.writable()
        snapshot = self._tip.state.snapshot
        if snapshot not in self._announced:
            self._announced[snapshot] = await pinning.announce(self.context, self._tip.state)
        if self._announced[snapshot] not in changes.borrowed:
            changes.borrowed.append(self._announced[snapshot])


def rebuild_reader(kind: type[SessionBase], locator: SnapshotLocator) -> SessionBase | UnavailableSession:
    """Return a read-only session of a pickled one."""

    def open_session() -> SessionBase:
        return kind(locator.context, locator.load(), verify_chunks=locator.verify_chunks)

    return opened_or_unavailable(open_session, (rebuild_reader, (kind, locator)))


def rebuild_writer(
    kind: type[SessionBase], locator: SnapshotLocator, identifier: bytes, log: bytes
) -> SessionBase | UnavailableSession:
    """Return the same session in its own process, or a read-only copy with the uncommitted changes in another."""
    live = live_session(identifier)
    if isinstance(live, kind):
        return live

    def open_copy() -> SessionBase:
        tip = Tip(uncommitted.with_uncommitted(locator.load().state, log), {})
        copy = kind(locator.context, tip, verify_chunks=locator.verify_chunks)
        copy._copied = identifier, log
        copy._state = SessionState.COPY
        return copy

    return opened_or_unavailable(open_copy, (rebuild_writer, (kind, locator, identifier, log)))


def pack_writer(context: Context) -> PackWriter:
    """Return a pack writer for the chunks of one session."""
    return PackWriter(context.storage, context.environment, context.config.pack_settings())
