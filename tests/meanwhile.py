"""A storage during whose requests something else happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from arraystore import MemoryStorage
from arraystore.storage import BytesLike, ObjectInfo, WrapperStorage


class Meanwhile(WrapperStorage):
    """Does something before one request, or after a page of a listing."""

    def __init__(self, inner: MemoryStorage, at: int, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self._left = at
        self._act = act

    async def get(self, key: str) -> BytesLike:
        await self._count()
        return await super().get(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        await self._count()
        async for page in super().list(prefix, start_after):
            yield page
            await self._count()

    async def _count(self) -> None:
        self._left -= 1
        if not self._left:
            await asyncio.to_thread(self._act)

    @property
    def acted(self) -> bool:
        return self._left <= 0
