"""Repositories: creating, opening, and what leads to sessions: branches, tags, history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from arraystore.commit.branch import Tip, load_checkpoint, load_tip
from arraystore.commit.history import Place, ancestry, find_snapshot, list_branches
from arraystore.commit.log import put_surely
from arraystore.commit.prepare import check_note, upload
from arraystore.commit.solvers import ConflictSolver
from arraystore.config import RepositoryConfig
from arraystore.containers import VirtualContainers
from arraystore.context import Context
from arraystore.creation import MAIN, create_repository, find_repository, repository_exists
from arraystore.errors import (
    AlreadyExistsError,
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
)
from arraystore.format.history import SnapshotRow
from arraystore.format.ids import id_from_text, id_to_text
from arraystore.format.record import Birth, Origin, Record, decode_note, encode_body
from arraystore.format.refs import (
    RepositoryInfo,
    Tag,
    decode_tag,
    encode_tag,
    name_from_key,
    tag_key,
)
from arraystore.format.snapshot import checkpoint_key, encode_checkpoint
from arraystore.runtime import run
from arraystore.session import Session, isolation_number
from arraystore.storage.protocol import Storage
from arraystore.store import ArrayStore

__all__ = ["MAIN", "Repository", "SnapshotInfo"]


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot in the history.

    Parameters
    ----------
    id, parent_id
        Of the snapshot and of the one before it.
    written_at
        When it was committed, by the writer's clock, in UTC.
    message, metadata
        What the writer said of it.
    """

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any] = field(default_factory=dict)


def _info(row: SnapshotRow) -> SnapshotInfo:
    message, metadata = decode_note(f"note of snapshot {id_to_text(row.id)}", row.note)
    parent = None if row.parent is None else id_to_text(row.parent)
    written = datetime.fromtimestamp(row.time / 1_000_000, UTC)
    return SnapshotInfo(id_to_text(row.id), parent, written, message, metadata)


class Repository:
    """A versioned store of Zarr hierarchies.

    Use `Repository.create`, `open` or `open_or_create`.
    """

    def __init__(self, context: Context, info: RepositoryInfo) -> None:
        self._context = context
        self._info = info
        self._default_metadata: dict[str, Any] = {}

    # -- creating, opening ----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, Storage] | None = None,
        check_clean_root: bool = True,
    ) -> Repository:
        """Create a repository, with a branch ``main`` and an empty first snapshot.

        Parameters
        ----------
        storage
            Where; it must be empty.
        config
            Kept in the repository.
        authorize_virtual_chunk_access
            Storages that virtual chunks may be read from, by URL prefix.
        check_clean_root
            Whether to refuse a place where other objects are.

        Raises
        ------
        AlreadyExistsError
            If there is one.
        InvalidInputError
            If other objects are there.
        UnsupportedStorageError
            If the storage does not honour put-if-absent; this is tried, not believed.
        """
        return run(
            cls.create_async(
                storage,
                config,
                authorize_virtual_chunk_access=authorize_virtual_chunk_access,
                check_clean_root=check_clean_root,
            )
        )

    @classmethod
    async def create_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, Storage] | None = None,
        check_clean_root: bool = True,
    ) -> Repository:
        """Asynchronous twin of `create`."""
        containers = VirtualContainers(authorize_virtual_chunk_access)
        return cls(
            *await create_repository(
                storage, config or RepositoryConfig(), containers, check_clean_root=check_clean_root
            )
        )

    @classmethod
    def open(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, Storage] | None = None,
    ) -> Repository:
        """Open a repository.

        Parameters
        ----------
        storage
            Where it is.
        config
            Used instead of the one that the repository keeps.
        authorize_virtual_chunk_access
            Storages that virtual chunks may be read from, by URL prefix.

        Raises
        ------
        RepositoryNotFoundError
            If there is none.
        FormatError
            If it was written in a format that this release does not know.
        """
        return run(cls.open_async(storage, config, authorize_virtual_chunk_access=authorize_virtual_chunk_access))

    @classmethod
    async def open_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, Storage] | None = None,
    ) -> Repository:
        """Asynchronous twin of `open`."""
        return cls(*await find_repository(storage, config, VirtualContainers(authorize_virtual_chunk_access)))

    @classmethod
    def open_or_create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, Storage] | None = None,
    ) -> Repository:
        """Open a repository, or create it where there is none."""
        return run(
            cls.open_or_create_async(storage, config, authorize_virtual_chunk_access=authorize_virtual_chunk_access)
        )

    @classmethod
    async def open_or_create_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, Storage] | None = None,
    ) -> Repository:
        """Asynchronous twin of `open_or_create`."""
        access = authorize_virtual_chunk_access
        try:
            return await cls.open_async(storage, config, authorize_virtual_chunk_access=access)
        except RepositoryNotFoundError:
            pass
        try:
            return await cls.create_async(storage, config, authorize_virtual_chunk_access=access)
        except AlreadyExistsError:  # somebody else was faster
            return await cls.open_async(storage, config, authorize_virtual_chunk_access=access)

    @staticmethod
    def exists(storage: Storage) -> bool:
        """Tell whether there is a repository."""
        return run(Repository.exists_async(storage))

    @staticmethod
    async def exists_async(storage: Storage) -> bool:
        """Asynchronous twin of `exists`."""
        return await repository_exists(storage)

    # -- what it is -----------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Id of the repository."""
        return id_to_text(self._info.id)

    @property
    def storage(self) -> Storage:
        """Where it is."""
        return self._context.storage

    @property
    def config(self) -> RepositoryConfig:
        """Its configuration."""
        return self._context.config

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """URL prefixes that virtual chunks may be read from."""
        return set(self._context.containers.prefixes)

    def __repr__(self) -> str:
        return f"<Repository {self.storage.location}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Repository):
            return NotImplemented
        return self._info.id == other._info.id and self.storage.location == other.storage.location

    def __hash__(self) -> int:
        return hash(self._info.id)

    # -- sessions -------------------------------------------------------------------------------------------

    def readonly_session(
        self, branch: str | None = None, *, tag: str | None = None, snapshot_id: str | None = None
    ) -> Session:
        """Open a session that reads one snapshot.

        Parameters
        ----------
        branch
            Its newest snapshot.
        tag
            The snapshot that it names.
        snapshot_id
            That snapshot.

        Raises
        ------
        InvalidInputError
            If not exactly one of them is given.
        RefNotFoundError, SnapshotNotFoundError
            If it does not exist.
        """
        return run(self.readonly_session_async(branch, tag=tag, snapshot_id=snapshot_id))

    async def readonly_session_async(
        self, branch: str | None = None, *, tag: str | None = None, snapshot_id: str | None = None
    ) -> Session:
        """Asynchronous twin of `readonly_session`."""
        return Session(self._context, await self._tip_of(branch, tag, snapshot_id), None)

    def writable_session(self, branch: str, *, isolation: Literal["snapshot", "serializable"] = "snapshot") -> Session:
        """Open a session that can change a branch.

        Parameters
        ----------
        branch
            Its name.
        isolation
            ``"snapshot"``: a commit collides with changes of what it changes itself.  ``"serializable"``: also with
            changes of what the session has read.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.writable_session_async(branch, isolation=isolation))

    async def writable_session_async(
        self, branch: str, *, isolation: Literal["snapshot", "serializable"] = "snapshot"
    ) -> Session:
        """Asynchronous twin of `writable_session`."""
        isolation_number(isolation)
        session = Session(self._context, await self._context.tip(branch), branch, isolation)
        session.default_metadata = dict(self._default_metadata)
        return session

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: dict[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
    ) -> Iterator[ArrayStore]:
        """Write through a store, and commit when the block ends without an error.

        Parameters
        ----------
        branch
            To commit to.
        message, metadata
            For the history.
        rebase_with, rebase_tries
            See `Session.commit`.
        isolation
            See `writable_session`.
        """
        session = self.writable_session(branch, isolation=isolation)
        yield session.store
        if session.has_uncommitted_changes:
            session.commit(message, metadata, rebase_with=rebase_with, rebase_tries=rebase_tries)

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Set metadata that every commit through this object gets, under what the commit itself says.

        Raises
        ------
        InvalidInputError
            If it cannot be stored.
        """
        check_note("", metadata)
        self._default_metadata = dict(metadata)

    def default_commit_metadata(self) -> dict[str, Any]:
        """Return metadata that every commit through this object gets."""
        return dict(self._default_metadata)

    # -- history --------------------------------------------------------------------------------------------

    async def _tip_of(self, branch: str | None, tag: str | None, snapshot_id: str | None) -> Tip:
        given = [value for value in (branch, tag, snapshot_id) if value is not None]
        if len(given) != 1:
            raise InvalidInputError("give exactly one of branch, tag and snapshot_id")
        if branch is not None:
            return await self._context.tip(branch)
        if tag is not None:
            found = await self._tag(tag)
            return Tip(await load_checkpoint(self.storage, found.checkpoint), {})
        assert snapshot_id is not None
        place = await self._find(id_from_text(snapshot_id))
        log = self._context.log(place.branch)
        return await load_tip(log, place.hint, at=place.row.sequence, snapshot=place.row.id)

    async def _find(self, snapshot: bytes) -> Place:
        """Find a snapshot on any branch; on main, which always exists, without asking for the others."""
        branches = [MAIN]
        for branch in branches:
            place = await find_snapshot(self._context.log(branch), await self._context.tip(branch), snapshot)
            if place is not None:
                return place
            if branch == MAIN:
                branches += sorted({name_from_key(name) for name in await list_branches(self.storage)} - {MAIN})
        raise SnapshotNotFoundError(
            f"there is no snapshot {id_to_text(snapshot)} on any of the branches {', '.join(branches)}"
        )

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Iterator[SnapshotInfo]:
        """List a snapshot and those before it, newest first; read as far as it is iterated.

        Parameters
        ----------
        branch, tag, snapshot_id
            Where to start; exactly one.
        """
        pages = self._pages(branch, tag, snapshot_id)
        while True:
            rows = run(_next(pages))
            if rows is None:
                return
            yield from map(_info, rows)

    async def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Asynchronous twin of `ancestry`."""
        async for rows in self._pages(branch, tag, snapshot_id):
            for row in rows:
                yield _info(row)

    async def _pages(
        self, branch: str | None, tag: str | None, snapshot_id: str | None
    ) -> AsyncIterator[list[SnapshotRow]]:
        tip = await self._tip_of(branch, tag, snapshot_id)
        async for rows in ancestry(self._context.log(tip.state.branch), tip):
            yield rows

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return what the history says of a snapshot.

        Raises
        ------
        SnapshotNotFoundError
            If there is none.
        """
        return run(self.lookup_snapshot_async(snapshot_id))

    async def lookup_snapshot_async(self, snapshot_id: str) -> SnapshotInfo:
        """Asynchronous twin of `lookup_snapshot`."""
        return _info((await self._find(id_from_text(snapshot_id))).row)

    # -- branches and tags ----------------------------------------------------------------------------------

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return run(self.list_branches_async())

    async def list_branches_async(self) -> set[str]:
        """Asynchronous twin of `list_branches`."""
        return {name_from_key(name) for name in await list_branches(self.storage)}

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the newest snapshot of a branch.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.lookup_branch_async(branch))

    async def lookup_branch_async(self, branch: str) -> str:
        """Asynchronous twin of `lookup_branch`."""
        return id_to_text((await self._context.tip(branch)).state.snapshot)

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch that starts at a snapshot.

        Raises
        ------
        AlreadyExistsError
            If there is a branch of this name.
        SnapshotNotFoundError
            If there is no such snapshot.
        """
        run(self.create_branch_async(branch, snapshot_id))

    async def create_branch_async(self, branch: str, snapshot_id: str) -> None:
        """Asynchronous twin of `create_branch`."""
        log = self._context.log(branch)
        if await log.exists(0):
            raise AlreadyExistsError(f"there is a branch {branch!r} already")
        tip, checkpoint = await self._pinned(snapshot_id)
        state = tip.state
        origin = Origin(state.branch, state.sequence, checkpoint)
        birth = Birth(state.snapshot, state.parent, self._context.environment.now_us(), origin)
        if not await log.append(Record(branch, 0, encode_body(0, birth, branch))):
            raise AlreadyExistsError(f"there is a branch {branch!r} already")

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return run(self.list_tags_async())

    async def list_tags_async(self) -> set[str]:
        """Asynchronous twin of `list_tags`."""
        prefix = "refs/tag/"
        return {name_from_key(info.key[len(prefix) :]) async for page in self.storage.list(prefix) for info in page}

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names.

        Raises
        ------
        RefNotFoundError
            If there is no such tag.
        """
        return run(self.lookup_tag_async(tag))

    async def lookup_tag_async(self, tag: str) -> str:
        """Asynchronous twin of `lookup_tag`."""
        return id_to_text((await self._tag(tag)).snapshot)

    async def _tag(self, tag: str) -> Tag:
        key = tag_key(tag)
        try:
            return decode_tag(key, await self.storage.get(key))
        except ObjectNotFoundError:
            raise RefNotFoundError(f"there is no tag {tag!r}") from None

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Name a snapshot, for ever.

        Raises
        ------
        AlreadyExistsError
            If there is a tag of this name.
        SnapshotNotFoundError
            If there is no such snapshot.
        """
        run(self.create_tag_async(tag, snapshot_id))

    async def create_tag_async(self, tag: str, snapshot_id: str) -> None:
        """Asynchronous twin of `create_tag`."""
        key = tag_key(tag)
        tip, checkpoint = await self._pinned(snapshot_id)
        state = tip.state
        now = self._context.environment.now_us()
        encoded = encode_tag(Tag(tag, state.snapshot, state.branch, state.sequence, checkpoint, now))
        if not await put_surely(self.storage, self._context.environment, key, encoded):
            raise AlreadyExistsError(f"there is a tag {tag!r} already; tags never change")

    async def _pinned(self, snapshot_id: str) -> tuple[Tip, bytes]:
        """Load a snapshot and write a checkpoint of exactly it."""
        tip = await self._tip_of(None, None, snapshot_id)
        identifier = self._context.environment.new_id()
        checkpoint = encode_checkpoint(tip.state.to_checkpoint(tip.state.pages))
        await upload(self.storage, [(checkpoint_key(identifier), checkpoint)])
        return tip, identifier

    # -- maintenance ----------------------------------------------------------------------------------------

    def wait_for_maintenance(self) -> None:
        """Wait until the background work that commits of this process left (checkpoints, folding) is done."""
        run(self.wait_for_maintenance_async())

    async def wait_for_maintenance_async(self) -> None:
        """Asynchronous twin of `wait_for_maintenance`."""
        await self._context.idle()


async def _next(pages: AsyncIterator[list[SnapshotRow]]) -> list[SnapshotRow] | None:
    return await anext(pages, None)
