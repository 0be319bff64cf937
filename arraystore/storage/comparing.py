"""Comparing the object that is there with one's own bytes: what settles a refused put-if-absent."""

from __future__ import annotations

from arraystore.storage.protocol import BytesLike, Storage

__all__ = ["holds"]


async def holds(storage: Storage, key: str, data: BytesLike) -> bool:
    """Tell whether the object of a key has certain bytes.

    A refusal says only that there is an object.  It may be the caller's own: what is between it and the storage may
    have sent its request twice, and given it the answer to the second.

    Raises
    ------
    ObjectNotFoundError
        If there is none.
    """
    return memoryview(await storage.get(key)) == memoryview(data)
