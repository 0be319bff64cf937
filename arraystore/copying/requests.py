"""Counting the requests of a clone, which may be millions: nothing else is kept of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from arraystore.storage.protocol import ByteRange, BytesLike, ObjectInfo, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["RequestCounter"]


class RequestCounter(WrapperStorage):
    """Counts requests, and keeps nothing else of them.

    Parameters
    ----------
    inner
        The storage that does the work.
    """

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
        """Tell about one object."""
        self.requests += 1
        return await super().head(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys; each page a request."""
        self.requests += 1
        first = True
        async for page in self._inner.list(prefix, start_after):
            self.requests += not first
            first = False
            yield page
