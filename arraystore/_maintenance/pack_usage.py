"""Pack usage: the bytes of each pack that the newest snapshot of a branch references, and the sizes of packs.

Packs are counted in sorted columns of ids, never chunk by chunk. A chunk that is an object of its own is live as a
whole or not at all, so these are only counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np

from arraystore._chunks.layer_lookup import find_visible
from arraystore._chunks.pack_writer import pack_key
from arraystore._chunks.reader import ChunkReader
from arraystore._format.ids import find_ids, id_at, ids_of
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.pack import padded_size
from arraystore._format.types import IdColumn, Int64s
from arraystore._log.state import SnapshotState
from arraystore._maintenance.object_table import columns_of
from arraystore._runtime.concurrency import bounded
from arraystore.errors import ObjectNotFoundError
from arraystore.storage.protocol import Storage

_AT_ONCE = 16
_FEW = 32
"""Objects up to which each is requested by itself; more are listed, a thousand to a request."""

_MANIFESTS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class PackUse:
    """Packs that a snapshot references, with the referenced bytes of each."""

    ids: IdColumn
    """Ids of the packs, ascending, without chunks that are objects of their own."""
    used: Int64s
    """Referenced bytes per pack, checksums included."""
    single: int
    """Number of chunks that are objects of their own."""


async def manifests_of(reader: ChunkReader, layers: Sequence[Layer]) -> AsyncIterator[Manifest]:
    """Yield the manifests of layers, loading some at a time."""
    for start in range(0, len(layers), _MANIFESTS_AT_ONCE):
        some = layers[start : start + _MANIFESTS_AT_ONCE]
        for manifest in await asyncio.gather(*(reader.manifests.load(layer) for layer in some)):
            yield manifest


async def pack_use(reader: ChunkReader, state: SnapshotState, own_object: int) -> PackUse:
    """Sum the bytes that a snapshot references of each pack.

    A pack of one chunk of at least `own_object` bytes is an object of its own.
    """
    parts: list[PackUse] = []
    placed = [(node.layers, number) for node in state.nodes.values() for number in range(len(node.layers))]
    manifests = manifests_of(reader, [layers[number] for layers, number in placed])
    for layers, number in placed:
        manifest = await anext(manifests)
        shown = await find_visible(reader.manifests, layers[number], manifest, layers[number + 1 :])
        at = np.flatnonzero(shown & (manifest.source < manifest.pack_count))
        parts.append(_use_of(manifest, at, own_object))
        if len(parts) >= _MANIFESTS_AT_ONCE:
            parts = [_summed(parts)]
    return _summed(parts)


def _use_of(manifest: Manifest, at: Int64s, own_object: int) -> PackUse:
    count = manifest.pack_count
    source = manifest.source[at].astype(np.int64)
    length = manifest.length[at].astype(np.int64)
    used = np.bincount(source, padded_size(length), minlength=count).astype(np.int64)
    chunks = np.bincount(source, minlength=count)
    single = (chunks == 1) & (used >= padded_size(own_object)) & (manifest.extents == used)
    rest = (chunks > 0) & ~single
    return PackUse(ids_of(manifest.packs)[rest], used[rest], int(single.sum()))


def _summed(parts: Sequence[PackUse]) -> PackUse:
    """Merge parts, summing the bytes of each id."""
    if not parts:
        return PackUse(ids_of(b""), np.empty(0, dtype=np.int64), 0)
    ids, which = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    used = np.bincount(which, np.concatenate([part.used for part in parts]), minlength=len(ids)).astype(np.int64)
    return PackUse(ids, used, sum(part.single for part in parts))


async def pack_sizes(storage: Storage, ids: IdColumn) -> Int64s:
    """Load the sizes of packs with ascending ids; 0 for a missing one."""
    if len(ids) <= _FEW:
        return await _asked(storage, ids)
    sizes = np.zeros(len(ids), dtype=np.int64)
    first, last = pack_key(id_at(ids, 0)), pack_key(id_at(ids, len(ids) - 1))
    async for page in storage.list("chunks/", first[:-1]):
        there = columns_of(page, "chunks/")
        at = np.where(there.valid, find_ids(ids, there.ids), -1)
        sizes[at[at >= 0]] = there.sizes[at >= 0]
        if page and page[-1].key >= last:
            break
    return sizes


async def _asked(storage: Storage, ids: IdColumn) -> Int64s:
    async def size(position: int) -> int:
        try:
            return (await storage.head(pack_key(id_at(ids, position)))).size
        except ObjectNotFoundError:
            return 0

    return np.array(await bounded(size, range(len(ids)), _AT_ONCE), dtype=np.int64)
