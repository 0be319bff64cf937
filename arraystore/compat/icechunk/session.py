"""`Session` and `ForkSession` under Icechunk's names, over those of arraystore."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import arraystore
from arraystore._runtime import run
from arraystore._session import fork as core_fork
from arraystore._session import rearrange
from arraystore._session.base import SessionBase
from arraystore._session.fork import PickledFork
from arraystore._session.pickling import live_session
from arraystore._session.unavailable import UnavailableSession
from arraystore.compat.icechunk import _chunks as chunks
from arraystore.compat.icechunk._base import first_snapshot
from arraystore.compat.icechunk._display import html_of, lines_of
from arraystore.compat.icechunk._exceptions import CommitNotAllowedError
from arraystore.compat.icechunk._forward import forwarded, refining
from arraystore.compat.icechunk._lineage import uncommitted_diff
from arraystore.compat.icechunk._merging import merge_forks
from arraystore.compat.icechunk._metadata import plain
from arraystore.compat.icechunk._opening import Opened, check_version, copied
from arraystore.compat.icechunk.config import RepositoryConfig
from arraystore.compat.icechunk.conflicts import ConflictSolver
from arraystore.compat.icechunk.snapshots import FIRST_SNAPSHOT, Diff
from arraystore.compat.icechunk.store import IcechunkStore
from arraystore.compat.icechunk.types import ChunkType, SessionMode
from arraystore.errors import SessionStateError

__all__ = ["ForkSession", "Session", "SessionMode"]

_Function = Callable[[Iterable[int]], Iterable[int] | None]

_NOT_PICKLED = (
    "You must opt-in to pickle writable sessions in a distributed context using Session.fork(). "
    "To write dask arrays of a dataset, use to_icechunk; to read in workers, pass a session of "
    "Repository.readonly_session."
)


class Session:
    """A session of arraystore under Icechunk's names."""

    def __init__(self, session: Any, mode: SessionMode, opened: Opened) -> None:
        self._core: arraystore.Session = session
        self._moved = False  # moves that undo each other can be committed in Icechunk
        session.rebase_metadata = _rebase_metadata
        session.records_appends = False  # in Icechunk the second of two appends conflicts: a job that ran twice fails
        self._mode = mode
        self._opened = opened

    # -- identity -------------------------------------------------------------------------------------------------

    @property
    def _session(self) -> Any:
        """The session of arraystore, under the name that Icechunk has for what it wraps."""
        return self._core

    def _rows(self) -> dict[str, Any]:
        if isinstance(self._session, UnavailableSession):
            return {"read_only": True, "state": self._session.describe()}
        rows: dict[str, Any] = {"read_only": self.read_only, "snapshot_id": self.snapshot_id}
        if not self.read_only:
            rows |= {"branch": self.branch, "has_uncommitted_changes": self.has_uncommitted_changes}
        return rows

    def __repr__(self) -> str:
        return lines_of("icechunk.session.Session", self._rows())

    def _repr_html_(self) -> str:
        return html_of("icechunk.session.Session", self._rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and self._core is other._core  # a copy is another session

    def __hash__(self) -> int:
        return hash(self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.read_only:
            raise ValueError(_NOT_PICKLED)
        return type(self), (self._core, self._mode, self._opened)

    def for_store(self) -> Any:
        """Return what is pickled with a store: the session."""
        return self

    async def _known_id(self, snapshot_id: Any) -> Any:
        return await first_snapshot(self._opened.core) if snapshot_id == FIRST_SNAPSHOT else snapshot_id

    @property
    def read_only(self) -> bool:
        """True if writes are refused."""
        return self._core.read_only

    @property
    def mode(self) -> SessionMode:
        """Return what the session may change."""
        return SessionMode.readonly if self.read_only else self._mode

    @property
    def snapshot_id(self) -> str:
        """Id of the base snapshot; after a commit, of the snapshot committed."""
        return FIRST_SNAPSHOT if self._core.base_tip.state.parent is None else self._core.snapshot_id

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to; None if it does not commit."""
        return None if self.read_only else self._core.branch

    @property
    def has_uncommitted_changes(self) -> bool:
        """True if the session has changes to commit."""
        return self._core.has_uncommitted_changes

    @property
    def store(self) -> IcechunkStore:
        """The Zarr store of the session."""
        return IcechunkStore(self)

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration that the repository was opened with."""
        return copied(self._opened.config)

    # -- changes --------------------------------------------------------------------------------------------------

    def status(self) -> Diff:
        """Return the uncommitted changes."""
        return uncommitted_diff(self._core)

    def discard_changes(self) -> None:
        """Forget the changes."""
        with refining():
            self._core.discard_changes()
        self._moved = False

    def move(self, from_path: str, to_path: str) -> None:
        """Move an array or a group to another path."""
        with refining():
            self._core.move(from_path, to_path)
        self._moved = True

    async def move_async(self, from_path: str, to_path: str) -> None:
        """Asynchronous twin of `move`."""
        self.move(from_path, to_path)

    shift_array = forwarded(SessionBase.shift_array)

    def reindex_array(self, array_path: str, forward: _Function, backward: _Function | None = None) -> None:
        """Move chunks of an array to where a function says; one of which it returns None is not moved.

        Cells that chunks have left, and none has come to, keep their old chunks, unless there is a `backward`, which
        is not asked.
        """
        with refining():
            core = self._core
            core.check_writable()
            places = run(rearrange.load_places(core.hierarchy, array_path))
            plan = rearrange.plan_reindex(places, _dropping(forward), None, vectorized=False)
            vacate = backward is not None
            run(rearrange.rearrange(core.hierarchy, places, plan, core._keep_snapshot, vacate=vacate))

    # -- look-ups -------------------------------------------------------------------------------------------------

    get_node_id = forwarded(SessionBase.get_node_id)

    async def get_node_id_async(self, path: str) -> str:
        """Asynchronous twin of `get_node_id`."""
        return self.get_node_id(path)

    async def chunk_coordinates(self, array_path: str, batch_size: int = 1000) -> AsyncIterator[tuple[int, ...]]:
        """Yield the coordinates of all chunks of an array."""
        with refining():
            references = await chunks.load_references(self._core, array_path)
        for row in references.coords.tolist():
            yield tuple(row)

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Return where the bytes of a chunk are."""
        return run(self.chunk_type_async(array_path, chunk_coordinates))

    async def chunk_type_async(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Asynchronous twin of `chunk_type`."""
        with refining():
            return await chunks.chunk_type(self._core, array_path, tuple(chunk_coordinates))

    def all_virtual_chunk_locations(self) -> list[str]:
        """Return the URLs of all virtual chunks."""
        return run(self.all_virtual_chunk_locations_async())

    async def all_virtual_chunk_locations_async(self) -> list[str]:
        """Asynchronous twin of `all_virtual_chunk_locations`."""
        with refining():
            return await chunks.virtual_locations(self._core)

    # -- committing -----------------------------------------------------------------------------------------------

    def commit(
        self,
        message: str,
        metadata: dict[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
    ) -> str:
        """Commit the changes, and return the id of the snapshot."""
        return run(
            self.commit_async(
                message, metadata, rebase_with=rebase_with, rebase_tries=rebase_tries, allow_empty=allow_empty
            )
        )

    async def commit_async(
        self,
        message: str,
        metadata: dict[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
    ) -> str:
        """Asynchronous twin of `commit`."""
        self._check_commits()
        with refining():
            return await self._core.commit_async(
                message,
                plain(metadata),
                rebase_with=rebase_with,
                rebase_tries=rebase_tries,
                allow_empty=allow_empty or self._moved,
            )

    def amend(self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False) -> str:
        """Replace the newest snapshot of the branch by one with these changes added."""
        return run(self.amend_async(message, metadata=metadata, allow_empty=allow_empty))

    async def amend_async(
        self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False
    ) -> str:
        """Asynchronous twin of `amend`."""
        check_version(self._opened, "amend")
        self._check_commits()
        with refining():
            allow_empty = allow_empty or self._moved
            return await self._core.amend_async(message, metadata=plain(metadata), allow_empty=allow_empty)

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Write the changes as a snapshot on no branch, and return its id."""
        return run(self.flush_async(message, metadata=metadata))

    async def flush_async(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Asynchronous twin of `flush`."""
        with refining():
            return await self._core.flush_async(message, metadata=plain(metadata))

    def rebase(self, solver: ConflictSolver) -> None:
        """Rebase the changes onto the newest snapshot of the branch."""
        run(self.rebase_async(solver))

    async def rebase_async(self, solver: ConflictSolver) -> None:
        """Asynchronous twin of `rebase`."""
        self._check_commits()
        with refining():
            await self._core.rebase_async(solver)

    def _check_commits(self) -> None:
        if self.read_only:
            raise CommitNotAllowedError("commits are not allowed on read-only sessions: open a writable session")

    # -- forks ----------------------------------------------------------------------------------------------------

    def fork(self) -> ForkSession:
        """Return a fork, which may be pickled, written to in any process, and merged back."""
        if self.read_only:
            raise SessionStateError("cannot fork a read-only session", "cannot-fork-read-only-session")
        with refining():
            return ForkSession(self._core.fork(), SessionMode.writable, self._opened)

    def merge(self, *others: ForkSession) -> None:
        """Merge the changes of forks."""
        run(self.merge_async(*others))

    async def merge_async(self, *others: ForkSession) -> None:
        """Asynchronous twin of `merge`."""
        forks: list[Any] = [other._core for other in others if other._core is not self._core]
        with refining():
            await merge_forks(self._core, forks)


class ForkSession(Session):
    """A fork of a session, whose changes are merged back into it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._core, self._mode, self._opened)

    def for_store(self) -> Any:
        """Return what is pickled with a store: in this process the fork itself, elsewhere one of its own."""
        return _ForkOfStore(self)

    @property
    def branch(self) -> str | None:
        """None: a fork does not commit."""
        return None

    @property
    def snapshot_id(self) -> str:
        """Id of the base snapshot."""
        return self._core.snapshot_id

    async def commit_async(self, message: str, metadata: dict[str, Any] | None = None, **_options: Any) -> str:
        """Refuse: a fork is merged into its session."""
        raise CommitNotAllowedError("commits are not allowed in a fork: merge it into its session, and commit that")

    async def flush_async(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Refuse: a fork is merged into its session."""
        raise SessionStateError("cannot flush a forked session: merge it into its session, and flush that")

    async def amend_async(
        self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False
    ) -> str:
        """Refuse: a fork is merged into its session."""
        raise CommitNotAllowedError("commits are not allowed in a fork: merge it into its session, and amend there")

    async def rebase_async(self, solver: ConflictSolver) -> None:
        """Refuse: a fork is merged into its session."""
        raise CommitNotAllowedError("a fork is not rebased: merge it into its session, and rebase that")


def _rebase_metadata(rebases: int) -> dict[str, Any]:
    return {"__icechunk": {"rebase_attempts": rebases}}


def _dropping(function: _Function) -> Any:
    """Return a function that drops a chunk where the other one says None, which keeps it in arraystore."""

    def moved(coordinates: tuple[int, ...]) -> Any:
        target = function(coordinates)
        return arraystore.DELETE if target is None else tuple(target)

    return moved


class _ForkOfStore:
    """The fork of a store that is pickled."""

    def __init__(self, fork: ForkSession) -> None:
        self._fork = fork

    def __reduce__(self) -> tuple[Any, ...]:
        fork, core = self._fork, self._fork._session
        return _open_fork_of_store, (core._id, run(core.parts_async()), fork._mode, fork._opened)


def _open_fork_of_store(identifier: bytes, parts: PickledFork, mode: SessionMode, opened: Opened) -> ForkSession:
    live = live_session(identifier)
    return ForkSession(live if isinstance(live, core_fork.ForkSession) else parts.open(), mode, opened)
