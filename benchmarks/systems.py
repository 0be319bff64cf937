"""The systems under measurement behind one small face: create, write and commit, open and read."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any

import icechunk
from zarr.abc.store import Store
from zarr.storage import LocalStore, MemoryStore, ObjectStore

from benchmarks.floor import DictStore
from benchmarks.places import Place

__all__ = ["FloorSystem", "IcechunkSystem", "System", "Writer", "ZarrSystem"]


class Writer(abc.ABC):
    """One open writable session."""

    @property
    @abc.abstractmethod
    def store(self) -> Store:
        """The store to write to."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Make what was written visible to new readers."""


class System(abc.ABC):
    """A way of keeping arrays; stateless, so that one object serves many places."""

    name: str

    def takes_over(self, place: Place) -> bool:
        """Whether a write is complete when it returns: the source may change then, and what was written does not."""
        return True

    @abc.abstractmethod
    def create(self, place: Place) -> Any:
        """Make an empty repository (or whatever stands for it) and return its handle."""

    @abc.abstractmethod
    def open(self, place: Place, handle: Any) -> Any:
        """Open what `create` made anew, as another process would; `handle` helps where that cannot be."""

    @abc.abstractmethod
    def writer(self, handle: Any) -> Writer:
        """Open a session for writing."""

    @abc.abstractmethod
    def reader(self, handle: Any) -> Store:
        """Open a read-only store of what is committed."""


@dataclass(frozen=True, slots=True)
class _PlainWriter(Writer):
    plain: Store

    @property
    def store(self) -> Store:
        return self.plain

    def commit(self) -> None:
        """Plain zarr has no commit: what is written is visible."""


def _plain_store(place: Place) -> Store:
    if place.kind == "local":
        return LocalStore(place.directory)
    if place.server is None:
        return MemoryStore()
    from obstore.store import S3Store

    server = place.server
    return ObjectStore(
        S3Store(
            server.bucket,
            prefix=place.prefix,
            endpoint=server.endpoint_url,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            region=server.region,
            client_options={"allow_http": True},
        )
    )


@dataclass(frozen=True, slots=True)
class ZarrSystem(System):
    """Plain zarr: one file or object a chunk, no versions."""

    name: str = "zarr"

    def create(self, place: Place) -> Store:
        return _plain_store(place)

    def open(self, place: Place, handle: Store) -> Store:
        return handle if place.kind == "memory" else _plain_store(place)

    def writer(self, handle: Store) -> Writer:
        return _PlainWriter(handle)

    def reader(self, handle: Store) -> Store:
        return handle


@dataclass(frozen=True, slots=True)
class FloorSystem(System):
    """A dict: what is left of the time is zarr's own."""

    name: str = "floor (a dict)"

    def takes_over(self, place: Place) -> bool:
        return False

    def create(self, place: Place) -> Store:
        return DictStore()

    def open(self, place: Place, handle: Store) -> Store:
        return handle

    def writer(self, handle: Store) -> Writer:
        return _PlainWriter(handle)

    def reader(self, handle: Store) -> Store:
        return handle


@dataclass(frozen=True, slots=True)
class _IcechunkWriter(Writer):
    session: icechunk.Session

    @property
    def store(self) -> Store:
        return self.session.store

    def commit(self) -> None:
        self.session.commit("benchmark")


@dataclass(frozen=True, slots=True)
class IcechunkSystem(System):
    """The peer.

    Parameters
    ----------
    name
        For tables.
    settings
        Fields of `icechunk.RepositoryConfig` that differ from its defaults.
    keep_open
        Read through the very repository object that wrote, so that its caches may help.
    """

    name: str = "icechunk"
    settings: dict[str, Any] = field(default_factory=dict)
    keep_open: bool = False

    def takes_over(self, place: Place) -> bool:
        # What it keeps in memory, inlined chunks above all, shares the bytes of the caller's array until the commit.
        return place.kind != "memory" and "inline_chunk_threshold_bytes" not in self.settings

    def storage(self, place: Place) -> icechunk.Storage:
        """Its storage for a place."""
        if place.kind == "local":
            return icechunk.local_filesystem_storage(str(place.directory))
        if place.server is None:
            return icechunk.in_memory_storage()
        server = place.server
        return icechunk.s3_storage(
            bucket=server.bucket,
            prefix=place.prefix,
            endpoint_url=server.endpoint_url,
            allow_http=True,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            region=server.region,
            force_path_style=True,
        )

    def config(self) -> icechunk.RepositoryConfig:
        """Its configuration: the defaults and what `settings` changes."""
        config = icechunk.RepositoryConfig.default()
        for key, value in self.settings.items():
            setattr(config, key, value)
        return config

    def create(self, place: Place) -> icechunk.Repository:
        return icechunk.Repository.create(self.storage(place), config=self.config())

    def open(self, place: Place, handle: icechunk.Repository) -> icechunk.Repository:
        if self.keep_open or place.kind == "memory":
            return handle
        return icechunk.Repository.open(self.storage(place), config=self.config())

    def writer(self, handle: icechunk.Repository) -> Writer:
        return _IcechunkWriter(handle.writable_session("main"))

    def reader(self, handle: icechunk.Repository) -> Store:
        return handle.readonly_session("main").store
