"""Places where plain Zarr hierarchies are: directories, URLs, storages, and any store of zarr's."""

from __future__ import annotations

import abc
import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, ZipStore

from arraystore.copying.errors import CopyError
from arraystore.errors import InvalidInputError, ObjectNotFoundError
from arraystore.storage.protocol import BytesLike, Storage
from arraystore.storage.urls import fsspec_storage, storage_from_url

__all__ = ["Place", "ZarrPlace", "open_source", "open_target"]

T = TypeVar("T")

ZarrPlace = str | os.PathLike[str] | Storage | Store | zarr.Group
"""What users name a place with."""

_UNKNOWN = 1 << 20
"""Bytes that a value is taken to have where a listing does not tell."""

_BATCH = 1000


class Place(abc.ABC):
    """Keys and values.

    Parameters
    ----------
    name
        For people.
    listable
        Whether keys can be listed.
    deletes
        Whether keys can be deleted.
    """

    def __init__(self, name: str, *, listable: bool = True, deletes: bool = True) -> None:
        self.name = name
        self.listable = listable
        self.deletes = deletes

    @abc.abstractmethod
    def entries(self) -> AsyncIterator[tuple[str, int]]:
        """List all keys, with the sizes of their values where these are known."""

    @abc.abstractmethod
    async def get(self, key: str) -> BytesLike | None:
        """Return a value, None if there is none."""

    @abc.abstractmethod
    async def size(self, key: str) -> int | None:
        """Return the length of a value, None if there is none."""

    @abc.abstractmethod
    async def put(self, key: str, data: BytesLike) -> None:
        """Set a value."""

    @abc.abstractmethod
    async def delete(self, keys: list[str]) -> None:
        """Delete values."""

    async def finish(self) -> None:  # noqa: B027 - most places have nothing to finish
        """Make what was written durable."""


class _StoragePlace(Place):
    """A place in a storage."""

    def __init__(self, storage: Storage, *, listable: bool = True) -> None:
        super().__init__(storage.location, listable=listable)
        self._storage = storage

    async def entries(self) -> AsyncIterator[tuple[str, int]]:
        """List all keys."""
        async for page in self._storage.list(""):
            for info in page:
                if not info.key.endswith("/"):  # what some tools leave to stand for a directory
                    yield info.key, info.size

    async def get(self, key: str) -> BytesLike | None:
        """Return a value."""
        try:
            return await self._storage.get(key)
        except ObjectNotFoundError:
            return None

    async def size(self, key: str) -> int | None:
        """Return the length of a value."""
        try:
            return (await self._storage.head(key)).size
        except ObjectNotFoundError:
            return None

    async def put(self, key: str, data: BytesLike) -> None:
        """Set a value."""
        await self._storage.put(key, data)

    async def delete(self, keys: list[str]) -> None:
        """Delete values."""
        for start in range(0, len(keys), _BATCH):
            failures = await self._storage.delete(keys[start : start + _BATCH])
            if failures:
                raise CopyError(f"{self.name}: {failures[0].key!r} cannot be deleted: {failures[0].reason}")

    async def finish(self) -> None:
        """Make what was written durable."""
        await self._storage.sync()


class _StorePlace(Place):
    """A place in a store of zarr's, which may be bound to zarr's own event loop."""

    def __init__(self, store: Store, path: str = "") -> None:
        deletes, listable = bool(store.supports_deletes), bool(store.supports_listing)
        super().__init__(f"{store}/{path}".rstrip("/"), listable=listable, deletes=deletes)
        self._store = store
        self._prefix = f"{path}/" if path else ""

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.to_thread(sync, work)

    async def entries(self) -> AsyncIterator[tuple[str, int]]:
        """List all keys."""

        async def listed() -> list[str]:
            return [key async for key in self._store.list_prefix(self._prefix)]

        for key in sorted(await self._run(listed())):
            if key.endswith("/"):  # a directory in a zip file
                continue
            yield key.removeprefix(self._prefix), _UNKNOWN

    async def get(self, key: str) -> BytesLike | None:
        """Return a value."""
        value = await self._run(self._store.get(self._prefix + key, default_buffer_prototype()))
        return None if value is None else value.to_bytes()

    async def size(self, key: str) -> int | None:
        """Return the length of a value."""
        try:
            return await self._run(self._store.getsize(self._prefix + key))
        except FileNotFoundError:
            return None

    async def put(self, key: str, data: BytesLike) -> None:
        """Set a value."""
        value = default_buffer_prototype().buffer.from_bytes(bytes(data))
        await self._run(self._store.set(self._prefix + key, value))

    async def delete(self, keys: list[str]) -> None:
        """Delete values."""

        async def all_of_them() -> None:
            for key in keys:
                await self._store.delete(self._prefix + key)

        await self._run(all_of_them())


def open_source(place: ZarrPlace) -> Place:
    """Return a place to read from.

    Raises
    ------
    InvalidInputError
        If it is none, or there is nothing at a path.
    """
    if not isinstance(place, str | os.PathLike):
        return _open(place)
    text = os.fspath(place)
    if text.startswith(("http://", "https://")):
        return _StoragePlace(fsspec_storage(text), listable=False)
    if "://" not in text:
        if not os.path.exists(text):
            raise InvalidInputError(f"there is nothing at {text}")
        if text.endswith(".zip"):
            return _StorePlace(ZipStore(text, mode="r"))
    return _StoragePlace(storage_from_url(text))


def open_target(place: ZarrPlace) -> Place:
    """Return a place to write to; raises `InvalidInputError` if it is none."""
    if not isinstance(place, str | os.PathLike):
        return _open(place)
    text = os.fspath(place)
    if text.startswith(("http://", "https://")) or text.endswith(".zip"):
        raise InvalidInputError(f"{text}: an export goes to a directory, an object store or a zarr store")
    if "://" in text:
        return _StoragePlace(storage_from_url(text))
    return _StorePlace(LocalStore(text))  # it leaves no directory of temporary files


def _open(place: Storage | Store | zarr.Group) -> Place:
    if isinstance(place, Storage):
        return _StoragePlace(place)
    if isinstance(place, Store):
        return _StorePlace(place)
    if isinstance(place, zarr.Group):
        return _StorePlace(place.store, place.path)
    raise InvalidInputError(
        f"a Zarr hierarchy is at a path, a URL, on a storage or in a store of zarr's, not in a {type(place).__name__}"
    )
