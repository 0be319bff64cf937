"""Listing of candidates and deletion of unreferenced objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import numpy as np

from arraystore._format.ids import id_to_text
from arraystore._format.types import IdColumn, Int64s
from arraystore._maintenance.object_table import ObjectTable, columns_of
from arraystore._runtime.concurrency import bounded
from arraystore.storage.protocol import DeleteFailure, ObjectInfo, Storage

_BATCH = 1000
"""Keys in one deletion, the limit of S3."""

_BATCHES_AT_ONCE = 8
_MOST_FAILURES = 1000
"""Failures kept with their keys; a storage that refuses every deletion is not asked a million times."""


class Listing:
    """Objects of one kind with ids from after one id to below a watermark, listed in passes."""

    def __init__(self, storage: Storage, kind: str, after: bytes | None, before: bytes) -> None:
        self._prefix = kind + "/"
        self._storage = storage
        self._before = np.frombuffer(before, dtype=np.dtype((np.bytes_, len(before))))[0]
        self._at = "" if after is None else self._prefix + _just_before(after)
        self.exhausted = False

    async def take(self, most: int) -> ObjectTable:
        """List the next objects, about as many as requested; fewer only at the end."""
        ids: list[IdColumn] = []
        sizes: list[Int64s] = []
        count = 0
        async for page in self._pages():
            there = columns_of(page, self._prefix)
            below = there.valid & (there.ids < self._before)
            ids.append(there.ids[below])
            sizes.append(there.sizes[below])
            count += len(ids[-1])
            self._at = page[-1].key
            if (there.valid & ~below).any():
                break
            if count >= most:
                return ObjectTable(ids, sizes)
        self.exhausted = True
        return ObjectTable(ids, sizes)

    async def _pages(self) -> AsyncIterator[list[ObjectInfo]]:
        async for page in self._storage.list(self._prefix, self._at):
            if page:
                yield page


def _just_before(identifier: bytes) -> str:
    """Return the key after which a listing begins with an id."""
    number = int.from_bytes(identifier, "big")
    return id_to_text((number - 1).to_bytes(len(identifier), "big")) if number else ""


async def delete_all(storage: Storage, keys: Sequence[str], *, in_order: bool = False) -> list[DeleteFailure]:
    """Delete objects in batches, concurrently unless the order matters; returns the failures."""
    failures: list[DeleteFailure] = []

    async def delete(batch: Sequence[str]) -> None:
        if len(failures) < _MOST_FAILURES:
            failures.extend(await storage.delete(batch))

    batches = (keys[at : at + _BATCH] for at in range(0, len(keys), _BATCH))
    await bounded(delete, batches, 1 if in_order else _BATCHES_AT_ONCE)
    return failures
