"""Storage of dry runs: what is written is seen by this object, and by nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from arraystore.errors import ObjectNotFoundError
from arraystore.storage.memory import MemoryStorage
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage

__all__ = ["DiscardingStorage"]


class DiscardingStorage(Storage):
    """A storage over another one, which is only read: it keeps what is written in memory, and deletes nothing."""

    shared = False

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self._written = MemoryStorage()
        self.cheap_probes = inner.cheap_probes
        self.listing_lag = inner.listing_lag

    @property
    def location(self) -> str:
        """URL of the inner storage."""
        return self._inner.location

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        try:
            return await self._written.get(key)
        except ObjectNotFoundError:
            return await self._inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        try:
            return await self._written.get_ranges(key, ranges)
        except ObjectNotFoundError:
            return await self._inner.get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        try:
            return await self._written.head(key)
        except ObjectNotFoundError:
            return await self._inner.head(key)

    async def put(self, key: str, data: BytesLike) -> None:
        """Keep an object in memory."""
        await self._written.put(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Keep an object in memory unless there is one of this key."""
        try:
            await self._inner.head(key)
        except ObjectNotFoundError:
            return await self._written.put_if_absent(key, data)
        return False

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects that were written to memory."""
        return await self._written.delete(keys)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects of both, in order of their keys."""
        own = [info async for page in self._written.list(prefix, start_after) for info in page]
        async for page in self._inner.list(prefix, start_after):
            last = page[-1].key
            merged = {info.key: info for info in (*page, *(info for info in own if info.key <= last))}
            own = [info for info in own if info.key > last]
            yield [merged[key] for key in sorted(merged)]
        if own:
            yield own
