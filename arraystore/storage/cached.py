"""Storage that keeps immutable objects of another one in a directory of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.disk_cache import DiskCache
from arraystore.storage.part_stream import PartStream
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["CachedStorage"]

_IMMUTABLE = ("chunks/", "manifests/", "transactions/")
"""What keys start with whose objects are named by an id: another object never takes the place of one.

Not records of logs, nor checkpoints: one that is missing tells a collection that nobody goes on from there.
"""


class CachedStorage(WrapperStorage):
    """Storage that keeps packs, manifests and change logs that it has read in a local directory.

    Any number of processes may use the directory at once, for any number of repositories.  What is read from it is
    verified; what is damaged is fetched again.  `verify` and `repair` read past it.

    Parameters
    ----------
    inner
        Remote storage that handles all other requests.
    directory
        Directory of the cache, made if it is missing.  Whoever can write to it can serve wrong data.
    max_bytes
        Bytes that the files may take.  Each process may exceed it by a sixteenth before it makes room.
    """

    def __init__(self, inner: Storage, directory: str | os.PathLike[str], max_bytes: int = 10 << 30) -> None:
        if inner.cheap_probes:
            raise InvalidInputError(f"{inner.location} needs no cache on disk: use it as it is")
        if type(max_bytes) is not int or max_bytes <= 0:
            raise InvalidInputError(f"max_bytes={max_bytes!r} must be an integer > 0")
        super().__init__(inner)
        self._cache = DiskCache(Path(directory).expanduser().absolute(), max_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return (CachedStorage, (self._inner, str(self._cache.directory), self._cache.limit))

    @property
    def origin(self) -> Storage:
        """Storage without the cache."""
        return self._inner.origin

    @property
    def disk_usage(self) -> CacheUsage:
        """Return what the cache on disk holds, as of this process, and how often it helped here."""
        counts = self._cache.counts
        return CacheUsage(counts.entries, counts.bytes, self._cache.limit, counts.hits, counts.misses, counts.evictions)

    def forget(self, key: str) -> None:
        """Drop what is kept of an object, which turned out to be damaged."""
        self._cache.forget(self._name(key))

    def _name(self, key: str) -> str:
        return f"{self.location}\n{key}"

    def _look(self, key: str, start: int, stop: int | None) -> bytes | None:
        return self._cache.read(self._name(key), start, stop)

    def _keep(self, key: str, start: int, stop: int | None, data: BytesLike) -> None:
        self._cache.write(self._name(key), start, stop, data)

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        if not key.startswith(_IMMUTABLE):
            return await super().get(key)
        kept = await asyncio.to_thread(self._look, key, 0, None)
        if kept is not None:
            return kept
        data = await super().get(key)
        await asyncio.to_thread(self._keep, key, 0, None, data)
        return data

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        if not key.startswith(_IMMUTABLE):
            return super().get_sync(key)
        kept = self._look(key, 0, None)
        if kept is not None:
            return kept
        data = super().get_sync(key)
        self._keep(key, 0, None, data)
        return data

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object; those that are missing share requests."""
        if not key.startswith(_IMMUTABLE):
            return await super().get_ranges(key, ranges)
        parts = await asyncio.to_thread(lambda: [self._look(key, start, stop) for start, stop in ranges])
        missing = [span for span, part in zip(ranges, parts, strict=True) if part is None]
        if not missing:
            return [part for part in parts if part is not None]
        fetched = await super().get_ranges(key, missing)
        for (start, stop), data in zip(missing, fetched, strict=True):
            await asyncio.to_thread(self._keep, key, start, stop, data)
        left = iter(fetched)
        return [next(left) if part is None else part for part in parts]

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        if not key.startswith(_IMMUTABLE):
            return super().get_range_sync(key, start, stop)
        kept = self._look(key, start, stop)
        if kept is not None:
            return kept
        data = super().get_range_sync(key, start, stop)
        self._keep(key, start, stop, data)
        return data

    # A wrapper would do without what a backend does better in one go.

    async def put_new(self, key: str, data: BytesLike) -> bool:
        """Write a new object."""
        return await self._inner.put_new(key, data)

    async def put_parts(self, key: str, parts: Sequence[BytesLike]) -> None:
        """Write an object that consists of several parts."""
        await self._inner.put_parts(key, parts)

    async def put_stream(self, key: str, parts: PartStream) -> None:
        """Write an object while its parts are made."""
        await self._inner.put_stream(key, parts)

    def put_parts_sync(self, key: str, parts: Iterable[BytesLike]) -> None:
        """Write an object of several parts, synchronously."""
        self._inner.put_parts_sync(key, parts)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects, here as well."""
        for key in keys:
            if key.startswith(_IMMUTABLE):
                await asyncio.to_thread(self.forget, key)
        return await super().delete(keys)
