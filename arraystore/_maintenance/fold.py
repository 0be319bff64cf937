"""Folding: the merging of many small layers of an array into one, by a rewrite record.

Layers are folded by size, as in an LSM tree: a run of the newest layers grows backwards over any layer that is not much
larger than the run. So an array of n references has O(log n) layers, and each reference is rewritten O(log n) times.
"""

from __future__ import annotations

from arraystore._chunks.reader import ChunkReader
from arraystore._chunks.statistics_objects import load_known
from arraystore._commit.prepare import upload
from arraystore._format.layer import Layer
from arraystore._format.node import Node
from arraystore._format.record import MAX_BODY
from arraystore._format.references import REFERENCES_PER_MANIFEST, overlay, to_manifests
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore._log.status import check_open
from arraystore._maintenance.rewrite import Exchange, exchange, in_batches, place

_SHORTEST_RUN = 8
"""Layers below which reading all of them is faster than rewriting them."""

_LARGEST_LAYER = REFERENCES_PER_MANIFEST // 2
"""References above which a layer is nearly a full tile, so that folding it rewrites much for little gain."""

_LARGEST_IN_PASSING = MAX_BODY // 2
"""Bytes that one array may take in a record; a more scattered array is left to compaction."""

_ARRAYS_AT_ONCE = 256
"""Arrays whose new manifests are written before the records that name them."""


def foldable(layers: tuple[Layer, ...]) -> tuple[int, int] | None:
    """Return the run of layers worth folding as (first, past the last), None if there is none."""
    total = 0
    at = len(layers)
    while at and layers[at - 1].count <= _LARGEST_LAYER and (not total or layers[at - 1].count <= 2 * total):
        at -= 1
        total += layers[at].count
    return (at, len(layers)) if len(layers) - at >= _SHORTEST_RUN else None


async def fold(log: BranchLog, tip: Tip, reader: ChunkReader) -> Tip:
    """Fold the arrays with runs worth folding by rewrite records; returns the newest tip."""
    if check_open(tip.state) is not None:
        return tip
    nodes = [node for node in tip.state.nodes.values() if foldable(node.layers)]
    for start in range(0, len(nodes), _ARRAYS_AT_ONCE):
        prepared: list[tuple[Exchange, list[tuple[str, bytes]]]] = []
        for node in nodes[start : start + _ARRAYS_AT_ONCE]:
            item, objects = await _folded(log, reader, node)
            if item.weight <= _LARGEST_IN_PASSING:
                prepared.append((item, objects))
        written = dict(prepared_object for _, objects in prepared for prepared_object in objects)
        for batch in in_batches(item for item, _ in prepared):
            keys = [key for item in batch for key in (*item.manifest_keys, *item.statistics_keys) if key in written]
            await upload(log.storage, [(key, written.pop(key)) for key in keys])
            tip = (await exchange(log, tip, batch)).tip
            reader.manifests.forget_inlined([layer for item in batch for layer in item.replaced])
    return tip


async def _folded(log: BranchLog, reader: ChunkReader, node: Node) -> tuple[Exchange, list[tuple[str, bytes]]]:
    """Load the exchange that folds an array's run, and the objects to write before it."""
    run = foldable(node.layers)
    assert run is not None
    first, end = run
    folded = node.layers[first:end]
    merged = overlay(await reader.references(folded), keep_deleted=first > 0)
    objects: list[tuple[str, bytes]] = []
    known = await load_known(log.storage, node, folded) if reader.statistics else None
    added = place(log.environment, to_manifests(merged), objects, known)
    return Exchange(node.id, folded, tuple(added)), objects
