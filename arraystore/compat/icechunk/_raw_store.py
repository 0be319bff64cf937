"""The inner store of an `IcechunkStore`: plain bytes by key, without buffers of zarr."""

from __future__ import annotations

from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.buffer.cpu import Buffer

from arraystore._session.store import ArrayStore
from arraystore.compat.icechunk._forward import refining
from arraystore.errors import NotFoundError

__all__ = ["RawStore"]


class RawStore:
    """Reads and writes bytes through a store."""

    def __init__(self, store: ArrayStore) -> None:
        self._over = store

    async def get(self, key: str, byte_range: tuple[int | None, int | None] | None = None) -> bytes:
        """Return a value, or a range of it; raises `NotFoundError`."""
        with refining():
            found = await self._over.get(key, default_buffer_prototype(), _request(byte_range))
        if found is None:
            raise NotFoundError(f"there is no key {key!r}", "key-not-found")
        return found.to_bytes()

    async def set(self, key: str, value: Any) -> None:
        """Set a value."""
        with refining():
            await self._over.set(key, Buffer.from_bytes(bytes(value)))


def _request(byte_range: tuple[int | None, int | None] | None) -> Any:
    start, end = byte_range or (None, None)
    if start is not None:
        return OffsetByteRequest(start) if end is None else RangeByteRequest(start, end)
    return None if end is None else SuffixByteRequest(end)
