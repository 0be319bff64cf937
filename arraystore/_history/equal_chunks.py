"""Chunks of snapshots compared by their bytes, where their references differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np

from arraystore._chunks.layer_lookup import references_at
from arraystore._chunks.reader import ChunkReader, whole_chunk
from arraystore._format.layer import Layer
from arraystore._format.references import DELETED, VIRTUAL, References
from arraystore._format.types import Bools, Int64s

_REQUESTS = 32
"""Chunks and manifests that are read at a time."""
_BATCH_NBYTES = 32 << 20
"""Bytes of chunks of one snapshot that are in memory at a time, or one chunk."""

Layers = Sequence[Layer]


async def equal_chunks(reader: ChunkReader, tip: Layers, others: Sequence[Layers], coords: Int64s) -> list[Bools]:
    """Tell which chunks of a snapshot, in row-major order, have the same bytes in the first of others that has them.

    Only chunks in packs and manifests are compared, and only until one has other bytes in all of the others: it and all
    that follow count as different.
    """
    gate = asyncio.Semaphore(_REQUESTS)
    references = [references_at(reader.manifests, layers, coords, gate) for layers in (tip, *others)]
    stored, *rest = await asyncio.gather(*references)
    comparable = np.array([_comparable(stored, each) for each in rest])
    equal = np.zeros_like(comparable)
    if not bool(comparable.any(axis=0).all()):
        return list(equal)

    async def read(layers: Layers, cell: tuple[int, ...]) -> bytes:
        async with gate:
            position = await reader.find(layers, cell)
            assert position is not None
            return bytes(await reader.read(position, whole_chunk))

    async def compare(row: int) -> bool:
        cell = tuple(coords[row].tolist())
        chunk = await read(tip, cell)
        for number in np.flatnonzero(comparable[:, row]).tolist():
            if await read(others[number], cell) == chunk:
                equal[number, row] = True
                return True
        return False

    for rows in batches(stored.length):
        if not all(await asyncio.gather(*map(compare, rows))):
            break
    return list(equal)


def _comparable(ours: References, theirs: References) -> Bools:
    """Tell which chunks may have the same bytes, and can be read to see whether they have."""
    stored = [(each.source != DELETED) & (each.source < VIRTUAL) for each in (ours, theirs)]
    comparable: Bools = stored[0] & stored[1] & (ours.length == theirs.length)
    return comparable


def batches(lengths: Int64s) -> Iterator[range]:
    """Yield rows of chunks: one, so that a difference costs little, and from then on as many as are read at a time.

    A chunk that is longer than a batch is in one of its own.
    """
    total, start = np.cumsum(lengths), 0
    while start < len(lengths):
        done = total[start - 1] if start else 0
        stop = int(np.searchsorted(total, done + _BATCH_NBYTES, side="right"))
        most = start + (_REQUESTS if start else 1)
        yield range(start, start := max(start + 1, min(stop, most)))
