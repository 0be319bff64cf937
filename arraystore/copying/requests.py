"""Counting the requests of a clone in constant memory, as they may be millions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from arraystore.storage.protocol import ByteRange, BytesLike, ObjectInfo, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["RequestCounter"]


class RequestCounter(WrapperStorage):
    """Storage that counts requests."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.requests = 0

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        self.requests += 1
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        self.requests += 1
        return await super().get_ranges(key, ranges)

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object."""
        self.requests += 1
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        self.requests += 1
        return await super().put_if_absent(key, data)

    async def head(self, key: str) -> ObjectInfo:
        """Return size and version of an object."""
        self.requests += 1
        return await super().head(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys; each page is a request."""
        self.requests += 1
        first = True
        async for page in self._inner.list(prefix, start_after):
            self.requests += not first
            first = False
            yield page
