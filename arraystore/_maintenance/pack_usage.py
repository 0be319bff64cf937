"""Pack usage: the bytes of each pack that the newest snapshot of a branch references, and the sizes of packs.

Packs are counted in sorted columns of ids, never chunk by chunk. A chunk that is an object of its own is live as a
whole or not at all, so these are only counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np

from arraystore._chunks.pack_writer import pack_key
from arraystore._chunks.reader import ChunkReader
from arraystore._concurrency import bounded
from arraystore._format.ids import ID_BYTES, PackId
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.pack import padded_size
from arraystore._format.types import Bools, IdColumn, Int64s
from arraystore._log.state import SnapshotState
from arraystore.errors import ObjectNotFoundError
from arraystore.storage.protocol import Storage

_ID = np.dtype(f"S{ID_BYTES}")
_AT_ONCE = 16
_FEW = 32
"""Objects up to which each is requested by itself; more are listed, a thousand to a request."""

_MANIFESTS_AT_ONCE = 64


def ids_of(packs: bytes) -> IdColumn:
    """Return concatenated ids as a column."""
    return np.frombuffer(packs, dtype=_ID)


def id_at(ids: IdColumn, position: int) -> PackId:
    """Return one id of a column, with its trailing zeros."""
    return PackId(bytes(ids[position]).ljust(ID_BYTES, b"\0"))


def positions(ids: IdColumn, wanted: IdColumn) -> Int64s:
    """Return the positions of ids in a sorted column, -1 for missing ones."""
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, at, -1).astype(np.int64)


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


async def visible(reader: ChunkReader, layer: Layer, manifest: Manifest, above: Sequence[Layer], at: Int64s) -> Bools:
    """Load the mask of those references of a layer, by position, that no newer layer `above` hides."""
    shown = np.ones(len(at), dtype=np.bool_)
    hiding = [other for other in above if other.box.intersects(layer.box)]
    if not hiding:
        return shown
    coords = manifest.box.coords(manifest.numbers()[at]) + np.array(layer.shift or 0, dtype=np.int64)
    for other in hiding:
        left = np.flatnonzero(shown)
        shown[left[await _spoken_of(reader, other, coords[left])]] = False
    return shown


async def _spoken_of(reader: ChunkReader, layer: Layer, coords: Int64s) -> Bools:
    """Return the cells that a layer has references for."""
    box = layer.box
    within = ((coords >= np.array(box.low)) & (coords < np.array(box.high))).all(axis=1)
    if layer.dense or not bool(within.any()):
        return within
    spoken = (await reader.manifests.load(layer)).numbers()
    numbers = box.numbers(coords[within])  # a shift moves box and cells alike
    at = np.minimum(np.searchsorted(spoken, numbers), len(spoken) - 1)
    within[within] = spoken[at] == numbers
    return within


async def pack_use(reader: ChunkReader, state: SnapshotState, own_object: int) -> PackUse:
    """Sum the bytes that a snapshot references of each pack.

    A pack of one chunk of at least `own_object` bytes is an object of its own.
    """
    tables: list[tuple[IdColumn, Int64s]] = []
    single = 0
    placed = [(node.layers, number) for node in state.nodes.values() for number in range(len(node.layers))]
    manifests = manifests_of(reader, [layers[number] for layers, number in placed])
    for layers, number in placed:
        manifest = await anext(manifests)
        at = np.flatnonzero(manifest.source < manifest.pack_count)
        at = at[await visible(reader, layers[number], manifest, layers[number + 1 :], at)]
        ids, used, alone = _use_of(manifest, at, own_object)
        single += alone
        tables.append((ids, used))
        if len(tables) >= _MANIFESTS_AT_ONCE:
            tables = [_summed(tables)]
    ids, used = _summed(tables)
    return PackUse(ids, used, single)


def _use_of(manifest: Manifest, at: Int64s, own_object: int) -> tuple[IdColumn, Int64s, int]:
    count = manifest.pack_count
    source = manifest.source[at].astype(np.int64)
    length = manifest.length[at].astype(np.int64)
    used = np.bincount(source, padded_size(length), minlength=count).astype(np.int64)
    chunks = np.bincount(source, minlength=count)
    single = (chunks == 1) & (used >= padded_size(own_object)) & (manifest.extents == used)
    rest = (chunks > 0) & ~single
    return ids_of(manifest.packs)[rest], used[rest], int(single.sum())


def _summed(tables: Sequence[tuple[IdColumn, Int64s]]) -> tuple[IdColumn, Int64s]:
    """Merge tables, summing the bytes of each id."""
    if not tables:
        return np.empty(0, dtype=_ID), np.empty(0, dtype=np.int64)
    ids, which = np.unique(np.concatenate([ids for ids, _ in tables]), return_inverse=True)
    used = np.concatenate([used for _, used in tables])
    return ids, np.bincount(which, used, minlength=len(ids)).astype(np.int64)


async def pack_sizes(storage: Storage, ids: IdColumn) -> Int64s:
    """Load the sizes of packs with ascending ids; 0 for a missing one."""
    if len(ids) <= _FEW:
        return await _asked(storage, ids)
    sizes = np.zeros(len(ids), dtype=np.int64)
    keys = [pack_key(id_at(ids, position)) for position in range(len(ids))]
    wanted = np.array([key.encode() for key in keys])  # ascending, as the ids are
    async for page in storage.list("chunks/", keys[0][:-1]):
        at = positions(wanted, np.array([info.key.encode() for info in page]))
        sizes[at[at >= 0]] = np.array([info.size for info in page], dtype=np.int64)[at >= 0]
        if page and page[-1].key >= keys[-1]:
            break
    return sizes


async def _asked(storage: Storage, ids: IdColumn) -> Int64s:
    async def size(position: int) -> int:
        try:
            return (await storage.head(pack_key(id_at(ids, position)))).size
        except ObjectNotFoundError:
            return 0

    return np.array(await bounded(size, range(len(ids)), _AT_ONCE), dtype=np.int64)
