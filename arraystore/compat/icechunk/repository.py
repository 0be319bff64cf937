"""`Repository` under Icechunk's names, over the one of arraystore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

import arraystore
from arraystore._runtime import run
from arraystore.compat.icechunk import _opening as opening
from arraystore.compat.icechunk._containers import warn_of_no_credentials
from arraystore.compat.icechunk._display import html_of, shown
from arraystore.compat.icechunk._forward import forwarded, refining
from arraystore.compat.icechunk._history import HistoryMethods
from arraystore.compat.icechunk._maintenance import MaintenanceMethods
from arraystore.compat.icechunk._metadata import plain
from arraystore.compat.icechunk.config import Attribution, RepositoryConfig
from arraystore.compat.icechunk.conflicts import ConflictSolver
from arraystore.compat.icechunk.session import Session
from arraystore.compat.icechunk.storage import Storage, StorageSettings
from arraystore.compat.icechunk.store import IcechunkStore
from arraystore.compat.icechunk.types import SessionMode, SpecVersion
from arraystore.errors import ReadOnlyError

__all__ = ["Repository"]

_Access = Mapping[str, Any]


class Repository(HistoryMethods, MaintenanceMethods):
    """A repository of arraystore under Icechunk's names."""

    # -- creating, opening ----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: _Access | None = None,
        spec_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
    ) -> Self:
        """Create a repository."""
        warn_of_no_credentials(authorize_virtual_chunk_access)
        return run(
            cls.create_async(
                storage, config, authorize_virtual_chunk_access, spec_version, check_clean_root, attribution
            )
        )

    @classmethod
    async def create_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: _Access | None = None,
        spec_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
    ) -> Self:
        """Asynchronous twin of `create`."""
        with refining():
            return cls(
                await opening.create(
                    storage, config, authorize_virtual_chunk_access, spec_version, check_clean_root, attribution
                )
            )

    @classmethod
    def open(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: _Access | None = None,
        attribution: Attribution | None = None,
    ) -> Self:
        """Open a repository; what the configuration does not say is as it was saved."""
        warn_of_no_credentials(authorize_virtual_chunk_access)
        return run(cls.open_async(storage, config, authorize_virtual_chunk_access, attribution))

    @classmethod
    async def open_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: _Access | None = None,
        attribution: Attribution | None = None,
    ) -> Self:
        """Asynchronous twin of `open`."""
        with refining():
            return cls(await opening.open_(storage, config, authorize_virtual_chunk_access, attribution))

    @classmethod
    def open_or_create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: _Access | None = None,
        create_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
    ) -> Self:
        """Open a repository, or create it where there is none."""
        warn_of_no_credentials(authorize_virtual_chunk_access)
        return run(
            cls.open_or_create_async(
                storage, config, authorize_virtual_chunk_access, create_version, check_clean_root, attribution
            )
        )

    @classmethod
    async def open_or_create_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: _Access | None = None,
        create_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
        attribution: Attribution | None = None,
    ) -> Self:
        """Asynchronous twin of `open_or_create`."""
        access = authorize_virtual_chunk_access
        with refining():
            return cls(
                await opening.open_or_create(storage, config, access, create_version, check_clean_root, attribution)
            )

    @staticmethod
    def exists(storage: Storage, storage_settings: StorageSettings | None = None) -> bool:
        """Tell whether there is a repository."""
        return run(Repository.exists_async(storage, storage_settings))

    @staticmethod
    async def exists_async(storage: Storage, storage_settings: StorageSettings | None = None) -> bool:
        """Asynchronous twin of `exists`."""
        with refining():
            return await arraystore.Repository.exists_async(opening.core_storage(storage, storage_settings))

    @staticmethod
    def fetch_spec_version(storage: Storage, storage_settings: StorageSettings | None = None) -> SpecVersion | None:
        """Return the version that a repository was created with; None if there is none."""
        return run(Repository.fetch_spec_version_async(storage, storage_settings))

    @staticmethod
    async def fetch_spec_version_async(
        storage: Storage, storage_settings: StorageSettings | None = None
    ) -> SpecVersion | None:
        """Asynchronous twin of `fetch_spec_version`."""
        with refining():
            return await opening.fetch_spec_version(storage, storage_settings)

    def reopen(
        self, config: RepositoryConfig | None = None, authorize_virtual_chunk_access: _Access | None = None
    ) -> Self:
        """Open the repository again, with another configuration or other credentials."""
        return run(self.reopen_async(config, authorize_virtual_chunk_access))

    async def reopen_async(
        self, config: RepositoryConfig | None = None, authorize_virtual_chunk_access: _Access | None = None
    ) -> Self:
        """Asynchronous twin of `reopen`."""
        with refining():
            opened = await opening.reopen(self._opened, config, authorize_virtual_chunk_access)
        again = type(self)(opened)
        again.set_default_commit_metadata(self.default_commit_metadata())
        return again

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._opened,)

    def __repr__(self) -> str:
        storage = "\n".join("    " + line for line in shown(self.storage).rstrip().split("\n"))
        return (
            f"<icechunk.Repository (v{int(self.spec_version)})>\nstorage:\n{storage}\nconfig: <RepositoryConfig ...>\n"
        )

    def _repr_html_(self) -> str:
        return html_of("icechunk.Repository", {"storage": self.storage, "config": self.config})

    # -- configuration --------------------------------------------------------------------------------------------

    @staticmethod
    def fetch_config(storage: Storage) -> RepositoryConfig | None:
        """Return the configuration that is saved in a repository."""
        return run(Repository.fetch_config_async(storage))

    @staticmethod
    async def fetch_config_async(storage: Storage) -> RepositoryConfig | None:
        """Asynchronous twin of `fetch_config`."""
        with refining():
            return await opening.fetch_config(storage)

    def save_config(self) -> None:
        """Save the configuration that the repository was opened with."""
        run(self.save_config_async())

    async def save_config_async(self) -> None:
        """Asynchronous twin of `save_config`."""
        with refining():
            await opening.save_config(self._opened)

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the configuration that the repository was opened with."""
        return opening.copied(self._opened.config)

    @property
    def attribution(self) -> Attribution:
        """Labels of this program; they are in the user agent of each request."""
        return self._opened.attribution

    @property
    def storage(self) -> Storage:
        """Storage that the repository is on."""
        return self._opened.storage

    @property
    def spec_version(self) -> SpecVersion:
        """Version of Icechunk's format that was asked for at the creation."""
        return self._opened.spec_version

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """URL prefixes that virtual chunks may be read from."""
        return set(self._opened.access or ())

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Set metadata that all commits have, unless they say otherwise."""
        with refining():
            self._core.set_default_commit_metadata(plain(metadata))

    default_commit_metadata = forwarded(arraystore.Repository.default_commit_metadata)

    # -- sessions -------------------------------------------------------------------------------------------------

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """Open a session that reads one snapshot."""
        return run(self.readonly_session_async(branch, tag=tag, snapshot_id=snapshot_id, as_of=as_of))

    async def readonly_session_async(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """Asynchronous twin of `readonly_session`."""
        opening.check_ref(branch, tag, snapshot_id, as_of)
        with refining():
            known = None if snapshot_id is None else await self._known_id(snapshot_id)
            session = await self._core.readonly_session_async(branch, tag=tag, snapshot_id=known, as_of=as_of)
        return Session(session, SessionMode.readonly, self._opened)

    def writable_session(self, branch: str) -> Session:
        """Open a session that can change a branch."""
        return run(self.writable_session_async(branch))

    async def writable_session_async(self, branch: str) -> Session:
        """Asynchronous twin of `writable_session`."""
        return await self._changing(branch, SessionMode.writable)

    def rearrange_session(self, branch: str) -> Session:
        """Open a session that moves nodes of a branch."""
        return run(self.rearrange_session_async(branch))

    async def rearrange_session_async(self, branch: str) -> Session:
        """Asynchronous twin of `rearrange_session`."""
        return await self._changing(branch, SessionMode.rearrange)

    async def _changing(self, branch: str, mode: SessionMode) -> Session:
        with refining():
            session = await self._core.writable_session_async(branch)
            if session.base_tip.state.life.read_only:
                raise ReadOnlyError("repository status is read-only: set it to online first", "read-only-repository")
        return Session(session, mode, self._opened)

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: dict[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
    ) -> Iterator[IcechunkStore]:
        """Write through a store, and commit when the block ends without an error."""
        session = self.writable_session(branch)
        yield session.store
        session.commit(message, metadata, rebase_with=rebase_with, rebase_tries=rebase_tries)
