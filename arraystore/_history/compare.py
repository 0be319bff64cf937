"""Comparison of two snapshots, related or not: nodes by their ids, chunks by their references.

Only layers that the snapshots do not share are read: layers at the bottom of an array that both have are left alone, so
the cost follows from the changes, and not from the number of commits between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from arraystore._chunks.cells import Cells, shared
from arraystore._chunks.layer_lookup import references_at
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.box import Box, bounding_box
from arraystore._format.equality import equal_references
from arraystore._format.ids import LayerId, NodeId, id_time
from arraystore._format.layer import Layer
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import DELETED, INLINE, VIRTUAL, References, overlay
from arraystore._format.types import Bools, Int64s
from arraystore._history.touched_chunks import LogOf, cells_touched
from arraystore._log.state import SnapshotState, taken_along

_REQUESTS = 32
"""Manifests that are read at a time."""

_NODES = 8
"""Nodes whose references are in memory at a time."""

_CLOCKS_DIFFER = 30 * 60 * 1000
"""Milliseconds between two clocks at most: object stores refuse requests whose clock is a quarter of an hour off."""


@dataclass(frozen=True)
class NodeMove:
    """Move of a node."""

    before: str
    """Path in the first snapshot."""
    after: str
    """Path in the second one."""
    kind: NodeKind


@dataclass(frozen=True, eq=False)
class Comparison:
    """Changes that lead from one snapshot to another."""

    created: tuple[Node, ...]
    """Nodes that only the second one has."""
    deleted: tuple[Node, ...]
    """Nodes that only the first one has."""
    updated: tuple[Node, ...]
    """Nodes that both have with different metadata, as the second one has them."""
    moved: tuple[NodeMove, ...]
    """Moved nodes, without those that only moved along with a group.

    A node that stays while a group above it moves is listed with one path twice.
    """
    chunks: tuple[tuple[Node, Int64s], ...]
    """Nodes of the second snapshot with the coordinates of chunks that differ, shape (n, d), in row-major order."""


@dataclass(frozen=True, eq=False)
class _Changed:
    """Cells whose references differ, in row-major order, and which of them a compaction may have moved."""

    coords: Int64s
    doubtful: Bools

    def without_moved(self, touched: list[Cells]) -> Int64s:
        """Return the cells that changed: of the doubtful ones those that were written."""
        rows = np.flatnonzero(self.doubtful)
        if not len(rows):
            return self.coords
        keep = ~self.doubtful
        box = bounding_box(self.coords)
        written = shared([Cells.of(self.coords[rows])], touched)
        keep[rows] = np.isin(box.numbers(self.coords[rows]), box.numbers(written))
        changed: Int64s = self.coords[keep]
        return changed


async def compare(
    before: SnapshotState,
    after: SnapshotState,
    manifests: ManifestCache,
    log_of: LogOf,
    *,
    whole: tuple[SnapshotState, SnapshotState] | None = None,
) -> Comparison:
    """Compare two snapshots of any branches, in any order, or nodes of two `whole` snapshots.

    Change logs are read only where references differ as they do after a compaction.
    """
    kept = [(before.nodes[before.keys[i]], after.nodes[key]) for i, key in after.keys.items() if i in before.keys]
    created = [after.nodes[key] for i, key in after.keys.items() if i not in before.keys]
    deleted = [before.nodes[key] for i, key in before.keys.items() if i not in after.keys]
    parts = await _changed(before, after, manifests)
    touched: dict[NodeId, list[Cells]] = {}
    if any(part.doubtful.any() for _, part in parts):
        touched = await cells_touched(log_of, *(whole or (before, after)), partial(_own_cells, manifests))
    chunks = [
        (node, part.without_moved(touched[node.id]) if node.id in touched else part.coords) for node, part in parts
    ]
    return Comparison(
        tuple(created),
        tuple(deleted),
        tuple(now for was, now in kept if was.documents != now.documents),
        tuple(_moves(kept)),
        tuple((node, coords) for node, coords in chunks if len(coords)),
    )


async def _changed(
    before: SnapshotState, after: SnapshotState, manifests: ManifestCache
) -> list[tuple[Node, _Changed]]:
    """Return the nodes of a snapshot whose layers are not those of another one, each with the cells that differ."""
    chunks = _Chunks(manifests)
    nodes = [after.nodes[key] for key in after.keys.values()]
    pairs = [(layers, node) for node in nodes if (layers := _layers(before, node)) != node.layers]
    await chunks.fetch([(layers, node.layers) for layers, node in pairs])
    parts = await asyncio.gather(*(chunks.changed(layers, node.layers) for layers, node in pairs))
    return [(node, part) for (_, node), part in zip(pairs, parts, strict=True)]


def _layers(state: SnapshotState, node: Node) -> tuple[Layer, ...]:
    """Return the layers that a node has in another snapshot."""
    other = state.by_id(node.id)
    return () if other is None else other.layers


async def _own_cells(manifests: ManifestCache, base: SnapshotState, made: SnapshotState) -> dict[NodeId, Cells]:
    """Return the cells that a snapshot changed, by node, given the one that it was made on, with the same layers."""
    parts = await _changed(base, made, manifests)
    return {node.id: Cells.of(part.coords) for node, part in parts if len(part.coords)}


def _moves(kept: Sequence[tuple[Node, Node]]) -> Iterator[NodeMove]:
    """Yield the moves that lead from one hierarchy to the other, as a transaction would have them."""
    if all(was.path == now.path for was, now in kept):
        return
    groups: dict[str, str] = {}
    for was, now in sorted(kept, key=lambda pair: (pair[0].path.count("/"), pair[0].path)):
        along = taken_along(was.path, groups) if groups else None
        if now.path != (was.path if along is None else along):
            yield NodeMove(was.path, now.path, now.kind)
            if now.kind == NodeKind.GROUP:
                groups[was.path] = now.path


class _Chunks:
    """Compares the chunks of nodes, with a bound on requests and memory."""

    def __init__(self, manifests: ManifestCache) -> None:
        self._manifests = manifests
        self._requests = asyncio.Semaphore(_REQUESTS)
        self._nodes = asyncio.Semaphore(_NODES)

    async def fetch(self, pairs: Iterable[tuple[Sequence[Layer], Sequence[Layer]]]) -> None:
        """Read records that several of the required manifests are attached to, each once."""
        records: dict[tuple[str, int], dict[LayerId, Layer]] = {}
        for before, after in pairs:
            common = _common(before, after)
            for layer in (*_visible(before[common:]), *_visible(after[common:])):
                if layer.attachment is not None:
                    place = layer.attachment.branch, layer.attachment.sequence
                    records.setdefault(place, {})[layer.id] = layer
        await asyncio.gather(*(self._fetch_record(list(layers.values())) for layers in records.values()))

    async def _fetch_record(self, layers: Sequence[Layer]) -> None:
        if len(layers) > 1:
            async with self._requests:
                await self._manifests.load_attached(layers)

    async def changed(self, before: Sequence[Layer], after: Sequence[Layer]) -> _Changed:
        """Return the cells that look up differently in two lists of layers, oldest first."""
        common = _common(before, after)
        base = before[:common]
        async with self._nodes:
            ours, theirs = await asyncio.gather(self._spoken(before[common:]), self._spoken(after[common:]))
            if ours is None or theirs is None:
                alone = theirs if ours is None else ours
                coords = _empty(before or after) if alone is None else await self._unlike(base, alone)
                return _Changed(coords, np.zeros(len(coords), dtype=bool))
            box = bounding_box(np.concatenate([ours.coords, theirs.coords]))
            first, second = box.numbers(ours.coords), box.numbers(theirs.coords)
            both, i, j = np.intersect1d(first, second, assume_unique=True, return_indices=True)
            differ = ~equal_references(ours.take(i), theirs.take(j))
            parts = [ours.coords[i[differ]]]
            doubtful = [_perhaps_copied(ours.take(i[differ]), theirs.take(j[differ]))]
            for references, numbers in ((ours, first), (theirs, second)):
                alone = references.take(~np.isin(numbers, both, assume_unique=True))
                parts.append(await self._unlike(base, alone))
                doubtful.append(np.zeros(len(parts[-1]), dtype=bool))
        coords = np.concatenate(parts)
        order = np.argsort(box.numbers(coords))
        return _Changed(coords[order], np.concatenate(doubtful)[order])

    async def _spoken(self, layers: Sequence[Layer]) -> References | None:
        """Return the references of layers, deletions included; None if there are none."""
        parts = await self._read(_visible(layers))
        return overlay(parts, keep_deleted=True) if parts else None

    async def _read(self, layers: Sequence[Layer]) -> list[References]:
        return list(await asyncio.gather(*map(self._references, layers)))

    async def _references(self, layer: Layer) -> References:
        async with self._requests:
            return References.from_manifest(await self._manifests.load(layer), layer.shift)

    async def _unlike(self, base: Sequence[Layer], references: References) -> Int64s:
        """Return the cells missing on the other side whose references differ from those of a common base."""
        deleted = references.source == DELETED
        changed = ~deleted
        asked = np.flatnonzero(~_later_than(base, references)) if base else np.empty(0, dtype=np.int64)
        if len(asked):
            changed[asked] = await self._unlike_base(base, references.take(asked))
        cells: Int64s = references.coords[changed]
        return cells

    async def _unlike_base(self, base: Sequence[Layer], references: References) -> Bools:
        below = await references_at(self._manifests, base, references.coords, self._requests)
        both_deleted = (references.source == DELETED) & (below.source == DELETED)
        changed: Bools = ~equal_references(references, below) & ~both_deleted
        return changed


def _common(before: Sequence[Layer], after: Sequence[Layer]) -> int:
    """Return the number of equal layers at the bottom."""
    for at, (was, now) in enumerate(zip(before, after, strict=False)):
        if was.id != now.id or was.shift != now.shift:
            return at
    return min(len(before), len(after))


def _perhaps_copied(ours: References, theirs: References) -> Bools:
    """Tell which pairs of references may name the same bytes in two packs, as a compaction leaves them."""
    owned = (ours.source != DELETED) & (ours.source < VIRTUAL) & (theirs.source != DELETED) & (theirs.source < VIRTUAL)
    both_inline = (ours.source == INLINE) & (theirs.source == INLINE)
    copied: Bools = owned & ~both_inline & (ours.length == theirs.length)
    return copied


def _visible(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers that are not wholly hidden by a newer one without gaps."""
    covers: list[Box] = []
    visible: list[Layer] = []
    for layer in reversed(layers):
        if not any(cover.encloses(layer.box) for cover in covers):
            visible.append(layer)
            if layer.dense:
                covers.append(layer.box)
    return visible[::-1]


def _later_than(base: Sequence[Layer], references: References) -> Bools:
    """Tell which chunks are in packs so much younger than all of some layers that none of these can reference them.

    A manifest gets its id after the packs that it references first.
    """
    newest = max(id_time(layer.id) for layer in base) + _CLOCKS_DIFFER
    later = np.array([id_time(pack) > newest for pack in references.packs], dtype=bool)
    native = (references.source >= 0) & (references.source < VIRTUAL)
    result = np.zeros(len(references), dtype=bool)
    result[native] = later[references.source[native]]
    return result


def _empty(layers: Sequence[Layer]) -> Int64s:
    return np.empty((0, len(layers[0].box.low) if layers else 0), dtype=np.int64)
