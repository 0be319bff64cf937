"""Repositories: creating, opening, and what leads to sessions: branches, tags, history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from arraystore.commit.branch import Tip, load_checkpoint, load_tip
from arraystore.commit.environment import Environment
from arraystore.commit.history import Place, ancestry, find_snapshot, list_branches
from arraystore.commit.log import BranchLog
from arraystore.commit.prepare import upload
from arraystore.config import RepositoryConfig
from arraystore.containers import VirtualContainers
from arraystore.context import Context
from arraystore.errors import (
    AlreadyExistsError,
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
    UnsupportedStorageError,
)
from arraystore.format.history import SnapshotRow
from arraystore.format.ids import id_from_text, id_to_text
from arraystore.format.record import Birth, Origin, Record, decode_note, encode_body, encode_record
from arraystore.format.refs import (
    REPOSITORY_KEY,
    RepositoryInfo,
    Tag,
    branch_prefix,
    decode_repository,
    decode_tag,
    encode_repository,
    encode_tag,
    name_from_key,
    tag_key,
)
from arraystore.format.snapshot import checkpoint_key, encode_checkpoint
from arraystore.runtime import run
from arraystore.session import Session
from arraystore.storage.protocol import Storage
from arraystore.store import ArrayStore

__all__ = ["MAIN", "Repository", "SnapshotInfo"]

MAIN = "main"


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
        config = config or RepositoryConfig()
        containers = VirtualContainers(authorize_virtual_chunk_access)
        environment = Environment()
        first_record = branch_prefix(MAIN) + "000000000000"
        if check_clean_root:
            await _check_clean(storage, first_record)
        elif await cls.exists_async(storage):
            raise _exists(storage)
        birth = Birth(environment.new_id(), None, environment.now_us())
        record = Record(MAIN, 0, encode_body(0, birth, MAIN))
        # The first record goes first: an object "repo" promises a branch.  If it is there already, a creation was
        # interrupted or runs at the same time, and its record serves as well.
        await storage.put_if_absent(first_record, encode_record(record))
        info = RepositoryInfo(environment.new_id(), environment.now_us(), config.to_dict())
        if not await storage.put_if_absent(REPOSITORY_KEY, encode_repository(info)):
            raise _exists(storage)
        await _probe(storage, info, first_record)
        return cls(Context(storage, config, containers, environment), info)

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
        containers = VirtualContainers(authorize_virtual_chunk_access)
        environment = Environment()
        log = BranchLog(storage, MAIN, environment)
        try:
            data, hint = await asyncio.gather(storage.get(REPOSITORY_KEY), log.hint())
        except ObjectNotFoundError:
            raise RepositoryNotFoundError(f"there is no repository at {storage.location}; create one") from None
        info = decode_repository(REPOSITORY_KEY, data)
        config = config or RepositoryConfig.from_dict(info.config)
        return cls(Context(storage, config, containers, environment, {MAIN: hint}), info)

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
        try:
            await storage.head(REPOSITORY_KEY)
        except ObjectNotFoundError:
            return False
        return True

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

    def writable_session(self, branch: str) -> Session:
        """Open a session that can change a branch.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.writable_session_async(branch))

    async def writable_session_async(self, branch: str) -> Session:
        """Asynchronous twin of `writable_session`."""
        session = Session(self._context, await self._context.tip(branch), branch)
        session.default_metadata = dict(self._default_metadata)
        return session

    @contextmanager
    def transaction(self, branch: str, *, message: str, metadata: dict[str, Any] | None = None) -> Iterator[ArrayStore]:
        """Write through a store, and commit when the block ends without an error.

        Parameters
        ----------
        branch
            To commit to.
        message, metadata
            For the history.
        """
        session = self.writable_session(branch)
        yield session.store
        if session.has_uncommitted_changes:
            session.commit(message, metadata)

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Set metadata that every commit through this object gets, under what the commit itself says."""
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
        return await load_tip(self._context.log(place.branch), place.hint, at=place.row.sequence)

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
        return _info(run(self._find(id_from_text(snapshot_id))).row)

    # -- branches and tags ----------------------------------------------------------------------------------

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return {name_from_key(name) for name in run(list_branches(self.storage))}

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the newest snapshot of a branch.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return id_to_text(run(self._context.tip(branch)).state.snapshot)

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
        return run(self._list_tags())

    async def _list_tags(self) -> set[str]:
        prefix = "refs/tag/"
        return {name_from_key(info.key[len(prefix) :]) async for page in self.storage.list(prefix) for info in page}

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names.

        Raises
        ------
        RefNotFoundError
            If there is no such tag.
        """
        return id_to_text(run(self._tag(tag)).snapshot)

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
        if not await self.storage.put_if_absent(key, encoded):
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
        run(self._context.idle())


async def _next(pages: AsyncIterator[list[SnapshotRow]]) -> list[SnapshotRow] | None:
    return await anext(pages, None)


async def _check_clean(storage: Storage, first_record: str) -> None:
    async for page in storage.list(""):
        for found in page:
            if found.key != first_record:
                # a repository's own objects are listed before its "repo"
                if await Repository.exists_async(storage):
                    raise _exists(storage)
                raise InvalidInputError(
                    f"{storage.location} is not empty: it holds {found.key!r}, for instance. A repository wants a "
                    "prefix of its own; choose another one, or pass check_clean_root=False"
                )


def _exists(storage: Storage) -> AlreadyExistsError:
    return AlreadyExistsError(f"there is a repository at {storage.location} already; open it")


async def _probe(storage: Storage, info: RepositoryInfo, first_record: str) -> None:
    """Try to create the same object again, with other bytes: that must fail."""
    other = encode_repository(RepositoryInfo(info.id, info.time + 1, info.config))
    if await storage.put_if_absent(REPOSITORY_KEY, other):
        await storage.delete([REPOSITORY_KEY, first_record])
        raise UnsupportedStorageError(
            f"{storage.location} ({type(storage).__name__}) overwrites an object that was to be created only if "
            "absent. Commits would be lost here. Use a storage with conditional writes: S3, GCS, Azure, MinIO of 2024 or "
            "later, or a local directory"
        )
