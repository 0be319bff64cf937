"""`Repository`: creating and opening one, and its sessions; its other methods are in `methods`, by topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from arraystore._chunks.virtual_chunk_container import ContainerAccess
from arraystore._commit.note import check_note
from arraystore._context.config import RepositoryConfig
from arraystore._repository.creation import create_repository, find_repository, repository_exists
from arraystore._repository.methods.history import HistoryMethods
from arraystore._repository.methods.maintenance import MaintenanceMethods
from arraystore._repository.methods.refs import RefMethods
from arraystore._repository.methods.settings import SettingMethods
from arraystore._runtime import lazy_module, run
from arraystore._session.base import isolation_number
from arraystore._session.session import Session
from arraystore._session.store import ArrayStore
from arraystore.errors import AlreadyExistsError, RepositoryNotFoundError
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    from arraystore._commit.solvers import ConflictSolver
    from arraystore._repository import snapshots
else:
    snapshots = lazy_module("arraystore._repository.snapshots")


class Repository(RefMethods, SettingMethods, HistoryMethods, MaintenanceMethods):
    """A versioned store of Zarr hierarchies.

    Use `Repository.create`, `open` or `open_or_create`.
    """

    # -- creating, opening ----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, ContainerAccess] | None = None,
        check_clean_root: bool = True,
    ) -> Repository:
        """Create a repository, with a branch ``main`` and an empty first snapshot.

        Parameters
        ----------
        storage
            Storage, which must be empty.
        config
            Configuration, which is saved in the repository.
        authorize_virtual_chunk_access
            What virtual chunks may be read from, by URL prefix: a storage; credentials, a callable that returns some or
            a mapping of arguments of its storage; or None for credentials of the environment.  Options but those are
            taken from the container that is saved under the prefix.
        check_clean_root
            Whether to refuse a storage with other objects.

        Raises
        ------
        AlreadyExistsError
            If there is one.
        InvalidInputError
            If there are other objects.
        UnsupportedStorageError
            If the storage does not honour put-if-absent, which is tested.
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
        authorize_virtual_chunk_access: Mapping[str, ContainerAccess] | None = None,
        check_clean_root: bool = True,
    ) -> Repository:
        """Asynchronous twin of `create`."""
        return cls(
            *await create_repository(
                storage, config or RepositoryConfig(), authorize_virtual_chunk_access, check_clean_root=check_clean_root
            )
        )

    @classmethod
    def open(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, ContainerAccess] | None = None,
    ) -> Repository:
        """Open a repository.

        Parameters
        ----------
        storage
            Where it is.
        config
            Configuration to use instead of the one saved in the repository.
        authorize_virtual_chunk_access
            What virtual chunks may be read from, by URL prefix: a storage; credentials, a callable that returns some or
            a mapping of arguments of its storage; or None for credentials of the environment.  Options but those are
            taken from the container that is saved under the prefix.

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
        authorize_virtual_chunk_access: Mapping[str, ContainerAccess] | None = None,
    ) -> Repository:
        """Asynchronous twin of `open`."""
        return cls(*await find_repository(storage, config, authorize_virtual_chunk_access))

    @classmethod
    def open_or_create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        *,
        authorize_virtual_chunk_access: Mapping[str, ContainerAccess] | None = None,
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
        authorize_virtual_chunk_access: Mapping[str, ContainerAccess] | None = None,
    ) -> Repository:
        """Asynchronous twin of `open_or_create`."""
        access = authorize_virtual_chunk_access
        try:
            return await cls.open_async(storage, config, authorize_virtual_chunk_access=access)
        except RepositoryNotFoundError:
            pass
        try:
            return await cls.create_async(storage, config, authorize_virtual_chunk_access=access)
        except AlreadyExistsError:  # another process was faster
            return await cls.open_async(storage, config, authorize_virtual_chunk_access=access)

    @staticmethod
    def exists(storage: Storage) -> bool:
        """Tell whether there is a repository."""
        return run(Repository.exists_async(storage))

    @staticmethod
    async def exists_async(storage: Storage) -> bool:
        """Asynchronous twin of `exists`."""
        return await repository_exists(storage)

    # -- sessions -------------------------------------------------------------------------------------------

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
        verify_chunks: bool | Literal["config"] = "config",
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
        as_of
            With a branch: its newest snapshot that was written at this time, which needs a time zone, or before.  It
            costs a request for some 64 newer snapshots, or for 4096 where they are old.
        verify_chunks
            Whether chunks that are read are checked against their checksums; ``"config"``: as the configuration says.

        Raises
        ------
        InvalidInputError
            If not exactly one of branch, tag and snapshot is passed, or the time has no time zone.
        RefNotFoundError, SnapshotNotFoundError
            If it does not exist.
        """
        return run(
            self.readonly_session_async(
                branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of, verify_chunks=verify_chunks
            )
        )

    async def readonly_session_async(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
        verify_chunks: bool | Literal["config"] = "config",
    ) -> Session:
        """Asynchronous twin of `readonly_session`."""
        if as_of is None:
            tip = await snapshots.load_snapshot(self._context, branch=branch, tag=tag, snapshot_id=snapshot_id)
        else:
            tip = await snapshots.load_snapshot_as_of(
                self._context, as_of, branch=branch, tag=tag, snapshot_id=snapshot_id
            )
        return Session(self._context, tip, None, verify_chunks=verify_chunks)

    def writable_session(
        self,
        branch: str,
        *,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
        verify_chunks: bool | Literal["config"] = "config",
    ) -> Session:
        """Open a session that can change a branch.

        Parameters
        ----------
        branch
            Its name.
        isolation
            ``"snapshot"``: a commit collides with changes of what it changes itself.  ``"serializable"``: also with
            changes of what the session has read.
        verify_chunks
            Whether chunks that are read are checked against their checksums; ``"config"``: as the configuration says.
            What is written gets checksums in any case.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.writable_session_async(branch, isolation=isolation, verify_chunks=verify_chunks))

    async def writable_session_async(
        self,
        branch: str,
        *,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
        verify_chunks: bool | Literal["config"] = "config",
    ) -> Session:
        """Asynchronous twin of `writable_session`."""
        isolation_number(isolation)
        session = Session(self._context, await self._context.tip(branch), branch, isolation, verify_chunks)
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

        Without changes nothing is committed; forks that were written to and not merged are reported all the same.

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
        else:
            session._warn_of_unmerged_forks()

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
