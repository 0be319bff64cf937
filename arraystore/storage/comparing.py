"""Comparison of a stored object with the caller's own bytes, which resolves a refused put-if-absent."""

from __future__ import annotations

from arraystore.storage.protocol import BytesLike, Storage

__all__ = ["holds"]


async def holds(storage: Storage, key: str, data: BytesLike) -> bool:
    """Return whether the object of a key has exactly these bytes; raises `ObjectNotFoundError` without an object.

    A refused put-if-absent only means that an object exists.  It may be the caller's own: an intermediary may have
    sent the request twice, and passed on the response to the second.
    """
    return memoryview(await storage.get(key)) == memoryview(data)
