"""Locations of plain Zarr hierarchies: directories, URLs, storages, and any store of zarr's."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore, StorePath, ZipStore

from arraystore._runtime.concurrency import for_each
from arraystore._runtime.engine import Engine
from arraystore.copying.errors import CopyError
from arraystore.errors import InvalidInputError, ObjectNotFoundError
from arraystore.storage.keys import check_key
from arraystore.storage.protocol import BytesLike, Storage
from arraystore.storage.sharing import check_shared
from arraystore.storage.urls import fsspec_storage, storage_from_url

__all__ = ["ZarrLocation", "ZarrPlace", "open_source", "open_target", "place_for"]

T = TypeVar("T")

ZarrPlace = str | os.PathLike[str] | Storage | Store | zarr.Group
"""Types that name a location."""

_UNKNOWN = 1 << 20
"""Bytes that a value is assumed to have where a listing does not show its size."""

_SMALL = 1 << 18
_BATCH = 1000
_PUTS = 8


class ZarrLocation(abc.ABC):
    """A key-value store that holds a plain Zarr hierarchy."""

    def __init__(self, name: str, *, listable: bool = True, deletes: bool = True) -> None:
        self.name = name
        self.listable = listable
        self.deletes = deletes

    @abc.abstractmethod
    def entries(self) -> AsyncIterator[tuple[str, int]]:
        """List all keys, with the sizes of their values where these are known."""

    @abc.abstractmethod
    async def get(self, key: str, size: int = _UNKNOWN) -> BytesLike | None:
        """Return a value, None if there is none; `size` is its size in a listing."""

    @abc.abstractmethod
    async def size(self, key: str) -> int | None:
        """Return the length of a value, None if there is none."""

    @abc.abstractmethod
    async def put(self, key: str, data: BytesLike) -> None:
        """Set a value."""

    async def put_many(self, items: Sequence[tuple[str, BytesLike]]) -> None:
        """Set several values."""
        await for_each(items, lambda item: self.put(*item), _PUTS)

    @abc.abstractmethod
    async def delete(self, keys: list[str]) -> None:
        """Delete values."""

    async def finish(self) -> None:  # noqa: B027 - most places have nothing to finish
        """Make what was written durable."""


class _StorageLocation(ZarrLocation):
    """A location in a storage."""

    def __init__(self, storage: Storage, *, listable: bool = True) -> None:
        super().__init__(storage.location, listable=listable)
        self._storage = storage

    async def entries(self) -> AsyncIterator[tuple[str, int]]:
        async for page in self._storage.list(""):
            for info in page:
                if not info.key.endswith("/"):  # what some tools leave to stand for a directory
                    yield info.key, info.size

    async def get(self, key: str, size: int = _UNKNOWN) -> BytesLike | None:
        try:
            if self._storage.cheap_probes and size <= _SMALL:
                return self._storage.get_sync(key)  # sooner done than another thread begins
            return await self._storage.get(key)
        except ObjectNotFoundError:
            return None

    async def size(self, key: str) -> int | None:
        try:
            return (await self._storage.head(key)).size
        except ObjectNotFoundError:
            return None

    async def put(self, key: str, data: BytesLike) -> None:
        await self._storage.put(key, data)

    async def delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), _BATCH):
            failures = await self._storage.delete(keys[start : start + _BATCH])
            if failures:
                raise CopyError(f"{self.name}: {failures[0].key!r} cannot be deleted: {failures[0].reason}")

    async def finish(self) -> None:
        await self._storage.sync()


class _StoreLocation(ZarrLocation):
    """A location in a store of zarr's, which may be bound to zarr's own event loop."""

    def __init__(self, store: Store, path: str = "") -> None:
        deletes, listable = bool(store.supports_deletes), bool(store.supports_listing)
        super().__init__(f"{store}/{path}".rstrip("/"), listable=listable, deletes=deletes)
        self._store = store
        self._prefix = f"{path}/" if path else ""

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def run() -> T:
            await StorePath.open(self._store, "")  # Zarr 3.1 reads a zip file only once it is opened
            return await work

        return await asyncio.to_thread(sync, run())

    async def entries(self) -> AsyncIterator[tuple[str, int]]:

        async def listed() -> list[str]:
            return [key async for key in self._store.list_prefix(self._prefix)]

        for key in sorted(await self._run(listed())):
            if key.endswith("/"):  # a directory in a zip file
                continue
            yield key.removeprefix(self._prefix), _UNKNOWN

    async def get(self, key: str, size: int = _UNKNOWN) -> BytesLike | None:
        del size
        value = await self._run(self._store.get(self._prefix + key, default_buffer_prototype()))
        return None if value is None else value.to_bytes()

    async def size(self, key: str) -> int | None:
        try:
            return await self._run(self._store.getsize(self._prefix + key))
        except FileNotFoundError:
            return None

    async def put(self, key: str, data: BytesLike) -> None:
        value = default_buffer_prototype().buffer.from_bytes(bytes(data))
        await self._run(self._store.set(self._prefix + key, value))

    async def delete(self, keys: list[str]) -> None:

        async def all_of_them() -> None:
            for key in keys:
                await self._store.delete(self._prefix + key)

        await self._run(all_of_them())


class _DirectoryLocation(ZarrLocation):
    """A directory to write to: one thread writes many small files, without a directory of temporary ones.

    With `atomic`, each file gets its name when it is complete, since attempts of a task may write it at once, and one
    may be killed while another has succeeded.
    """

    def __init__(self, root: str, *, atomic: bool = False) -> None:
        super().__init__(root)
        self._root = Path(root)
        self._write_file = _write_atomically if atomic else Path.write_bytes

    def _path(self, key: str) -> Path:
        check_key(key)  # it stays within the directory
        return self._root / key

    async def entries(self) -> AsyncIterator[tuple[str, int]]:
        for directory, _, names in os.walk(self._root):
            for name in names:
                yield self._entry(Path(directory, name))

    def _entry(self, path: Path) -> tuple[str, int]:
        return path.relative_to(self._root).as_posix(), path.lstat().st_size

    async def get(self, key: str, size: int = _UNKNOWN) -> BytesLike | None:
        del size
        try:
            return await asyncio.to_thread(self._path(key).read_bytes)
        except FileNotFoundError:
            return None

    async def size(self, key: str) -> int | None:
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError:
            return None

    async def put(self, key: str, data: BytesLike) -> None:
        await self.put_many([(key, data)])

    async def put_many(self, items: Sequence[tuple[str, BytesLike]]) -> None:
        await asyncio.to_thread(self._write, items)

    def _write(self, items: Sequence[tuple[str, BytesLike]]) -> None:
        for key, data in items:
            path = self._path(key)
            try:
                self._write_file(path, data)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._write_file(path, data)

    async def delete(self, keys: list[str]) -> None:
        """Delete values, and the directories that become empty."""

        def unlink() -> None:
            for key in keys:
                self._path(key).unlink(missing_ok=True)
            for directory, _, _ in os.walk(self._root, topdown=False):
                with contextlib.suppress(OSError):  # it is not empty
                    os.rmdir(directory)

        await asyncio.to_thread(unlink)


def _write_atomically(path: Path, data: BytesLike) -> None:
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def open_source(place: ZarrPlace) -> ZarrLocation:
    """Return a location to read from."""
    if not isinstance(place, str | os.PathLike):
        return _open(place)
    text = os.fspath(place)
    if text.startswith(("http://", "https://")):
        return _StorageLocation(fsspec_storage(text), listable=False)
    if "://" not in text:
        if not os.path.exists(text):
            raise InvalidInputError(f"there is nothing at {text}")
        if text.endswith(".zip"):
            return _StoreLocation(ZipStore(text, mode="r"))
    return _StorageLocation(storage_from_url(text))


def open_target(place: ZarrPlace, *, atomic: bool = False) -> ZarrLocation:
    """Return a location to write to; raise `InvalidInputError` if `place` does not name one.

    With `atomic`, files of a directory are written as atomically as objects of an object store.
    """
    if not isinstance(place, str | os.PathLike):
        return _open(place)
    text = os.fspath(place)
    if text.startswith(("http://", "https://")) or text.endswith(".zip"):
        raise InvalidInputError(f"{text}: the target of an export must be a directory, an object store or a zarr store")
    if "://" in text:
        return _StorageLocation(storage_from_url(text))
    if os.path.isfile(text):
        raise InvalidInputError(f"{text} is a file: the target of an export must be a directory")
    return _DirectoryLocation(text, atomic=atomic)


def place_for(engine: Engine, place: ZarrPlace) -> ZarrPlace:
    """Return a location as the workers of an engine open it; raise `InvalidInputError` if they cannot."""
    if isinstance(place, str | os.PathLike):
        text = os.fspath(place)
        return text if "://" in text else os.path.abspath(text)
    if isinstance(place, Storage):
        check_shared(place, engine.workers, engine.dumps)
        return place
    store = place.store if isinstance(place, zarr.Group) else place
    if isinstance(store, MemoryStore):
        raise InvalidInputError(
            f"{store} is memory of this process, which {engine.workers} cannot access: name a path, a URL or a storage"
        )
    return place


def _open(place: Storage | Store | zarr.Group) -> ZarrLocation:
    if isinstance(place, Storage):
        return _StorageLocation(place)
    if isinstance(place, Store):
        return _StoreLocation(place)
    if isinstance(place, zarr.Group):
        return _StoreLocation(place.store, place.path)
    raise InvalidInputError(
        f"a Zarr hierarchy must be a path, a URL, a storage or a store of zarr's, not {type(place).__name__}"
    )
