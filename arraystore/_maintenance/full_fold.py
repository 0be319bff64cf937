"""Folding of all layers of an array into the fewest manifests that hold its references, in bounded memory.

The result depends on the references alone: manifests that cover fixed tiles of the grid. Existing ones are reused, so
folding twice changes nothing, and small layers above a large array rewrite only the manifests of their tiles.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import numpy as np

from arraystore._chunks.reader import ChunkReader
from arraystore._chunks.statistics_objects import load_known
from arraystore._commit.prepare import upload
from arraystore._environment import Environment
from arraystore._format.box import Box
from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.envelope import pack_body
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.node import Node
from arraystore._format.references import References, overlay, tile_shape, to_manifests
from arraystore._format.types import IdColumn, Int64s
from arraystore._maintenance.rewrite import LARGEST_EXCHANGE, Exchange, delete_leftovers, place

_IN_WINDOW = 6 << 20
"""References that are folded together: their manifests, some 190 at most, fit one record."""

_AT_ONCE = 1 << 20
"""References in memory at a time, some 200 bytes each while they are sorted."""

_UPLOAD_AT = 32 << 20

_HEADER = 128
"""Bytes of a replacement besides the layers that it adds."""


@dataclass
class FullFold:
    """Result of folding an array fully."""

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    """Exchanges of its layers."""
    bytes_written: int = 0
    """Bytes of manifests."""
    scattered: bool = False
    """True if layers were left because their replacements need more manifests than a record can name."""


async def fold_fully(reader: ChunkReader, environment: Environment, node: Node, *, write: bool = True) -> FullFold:
    """Fold the layers of an array or a file, and write the new manifests, which no record names yet.

    Without `write`, only the exchanges are computed.
    """
    fold = FullFold()
    for start, stop in _windows(node.layers):
        window = node.layers[start:stop]
        if len(window) == 1 and (start or not window[0].deletions):
            continue
        folder = _Folder(reader, environment, node, window, write)
        added = await folder.run(keep_deleted=start > 0)
        if added is None:
            fold.scattered = True
            continue
        fold.bytes_written += folder.bytes_written
        if {layer.id for layer in added} != {layer.id for layer in window}:
            fold.exchanges.append(Exchange(node.id, window, tuple(added)))
    return fold


def _windows(layers: tuple[Layer, ...]) -> Iterator[tuple[int, int]]:
    """Cut layers into runs to fold separately, more than one only for arrays of many millions of chunks."""
    start = total = 0
    for at, layer in enumerate(layers):
        if at > start and total + layer.count > _IN_WINDOW:
            yield start, at
            start, total = at, 0
        total += layer.count
    if layers:
        yield start, len(layers)


class _Folder:
    """Folds one run of layers."""

    def __init__(
        self, reader: ChunkReader, environment: Environment, node: Node, layers: tuple[Layer, ...], write: bool
    ) -> None:
        self.reader = reader
        self._node = node
        self._known: ChunkStatistics | None = None
        self.environment = environment
        self.layers = layers
        self.bytes_written = 0
        self._write = write
        self._waiting: list[tuple[str, bytes]] = []
        self._written: list[str] = []
        self._existing: dict[tuple[Box, int], list[Layer]] = {}
        for layer in layers:
            if not any(layer.shift or ()):
                self._existing.setdefault((layer.box, layer.count), []).append(layer)

    async def run(self, *, keep_deleted: bool) -> list[Layer] | None:
        """Write layers with the same content; None, with none of them left, if they are too many for one record."""
        added: list[Layer] = []
        weight = 0
        if self.reader.statistics and self._write:
            self._known = await load_known(self.reader.storage, self._node, self.layers)
        async for parts in self._parts():
            for manifest in to_manifests(overlay(parts, keep_deleted=keep_deleted)):
                added.append(await self._placed(manifest))
                weight += len(pack_body(added[-1].to_wire()))
                if weight > LARGEST_EXCHANGE - _HEADER:
                    await delete_leftovers(self.reader.storage, self._written)
                    return None
                if sum(len(data) for _, data in self._waiting) > _UPLOAD_AT:
                    await self._flush()
        await self._flush()
        return added

    async def _placed(self, manifest: Manifest) -> Layer:
        """Return the existing layer of an equal manifest, or a new one."""
        for existing in self._existing.get((manifest.box, manifest.count), ()):
            if _alike(await self.reader.manifests.load(existing), manifest):
                return existing
        return place(self.environment, [manifest], self._waiting, self._known)[0]

    async def _flush(self) -> None:
        self.bytes_written += sum(len(data) for _, data in self._waiting)
        if self._waiting and self._write:
            await upload(self.reader.storage, self._waiting)
            self._written += [key for key, _ in self._waiting]
        self._waiting = []

    async def _parts(self) -> AsyncIterator[list[References]]:
        """Yield the content of the layers in parts of the grid, each of which fits into memory."""
        total = sum(layer.count for layer in self.layers)
        if total <= _AT_ONCE:
            yield await self.reader.references(self.layers)
            return
        shape, slabs = _slabs(self.layers, total)
        within: list[Int64s] = []
        for layer in self.layers:
            (refs,) = await self.reader.references([layer])
            within.append(np.unique(_slab_numbers(refs, shape, slabs)))
        for slab in np.unique(np.concatenate(within)).tolist():
            parts: list[References] = []
            for layer, occupied in zip(self.layers, within, strict=True):
                if _holds(occupied, slab):
                    (refs,) = await self.reader.references([layer])
                    parts.append(refs.take(_slab_numbers(refs, shape, slabs) == slab))
            yield parts


def _slabs(layers: tuple[Layer, ...], total: int) -> tuple[Int64s, Box]:
    """Return the shape of parts of the grid that hold about `_AT_ONCE` references, and their number."""
    high = tuple(max(layer.box.high[axis] for layer in layers) for axis in range(len(layers[0].box.high)))
    spread = max(1, Box((0,) * len(high), high).volume // total)
    shape = tile_shape(high, _AT_ONCE << (spread.bit_length() - 1))
    counts = tuple(-(-side // step) for side, step in zip(high, shape, strict=True))
    return np.array(shape, dtype=np.int64), Box((0,) * len(high), counts)


def _slab_numbers(references: References, shape: Int64s, slabs: Box) -> Int64s:
    return slabs.numbers(references.coords // shape)


def _holds(occupied: Int64s, slab: int) -> bool:
    at = int(np.searchsorted(occupied, slab))
    return at < len(occupied) and int(occupied[at]) == slab


def _alike(one: Manifest, other: Manifest) -> bool:
    """Tell whether two manifests of the same box have the same content, in whatever order of their packs."""
    if not (
        np.array_equal(one.numbers(), other.numbers())
        and np.array_equal(one.offset, other.offset)
        and np.array_equal(one.length, other.length)
        and one.inline == other.inline
        and one.locations.to_wire() == other.locations.to_wire()
    ):
        return False
    return np.array_equal(_origins(one), _origins(other))


def _origins(manifest: Manifest) -> IdColumn:
    """Return the pack id, or other kind of source, of each reference."""
    others = [b"virtual %d" % i for i in range(len(manifest.locations))] + [b"inline", b"deleted"]
    table = np.array([*(manifest.pack_id(i) for i in range(manifest.pack_count)), *others], dtype="S20")
    return table[manifest.source]
