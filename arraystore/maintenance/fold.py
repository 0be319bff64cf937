"""Folding: many small layers of an array become one, through a rewrite record that changes no data.

Layers are folded by size, as in an LSM tree: a run of the newest layers grows backwards over any layer that is not
much larger than what it has gathered.  So an array of n references has O(log n) layers, and each reference is
rewritten O(log n) times.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from arraystore.commit.branch import Tip, refresh
from arraystore.commit.committer import append_entry
from arraystore.commit.log import BranchLog
from arraystore.commit.prepare import upload
from arraystore.commit.reader import ChunkReader
from arraystore.commit.state import State, replaced_layers
from arraystore.format.ids import id_to_text
from arraystore.format.layer import Layer
from arraystore.format.manifest import encode_manifest
from arraystore.format.node import Node
from arraystore.format.record import MAX_BODY, MAX_MANIFEST_IN_BODY, Replacement, Rewrite
from arraystore.format.references import REFERENCES_PER_MANIFEST, overlay, to_manifests

__all__ = ["fold", "foldable"]

_logger = logging.getLogger("arraystore")

_SHORTEST_RUN = 8
"""Fewer layers than this are looked through faster than they are rewritten."""

_LARGEST_LAYER = REFERENCES_PER_MANIFEST // 2
"""Layers above this are full tiles, or nearly; folding them would rewrite much and gain little."""

_MOST_BYTES = MAX_BODY // 4
"""Of replacements in one rewrite record: its body is repeated some eight times by its successors."""

_TRIES = 200
"""Attempts of one rewrite: of ten writers each wins one race in ten, and who gives up leaves its manifests behind."""


def foldable(layers: tuple[Layer, ...]) -> tuple[int, int] | None:
    """Return the run of layers (first, past the last) that is worth folding, None if there is none."""
    total = 0
    at = len(layers)
    while at and layers[at - 1].count <= _LARGEST_LAYER and (not total or layers[at - 1].count <= 2 * total):
        at -= 1
        total += layers[at].count
    return (at, len(layers)) if len(layers) - at >= _SHORTEST_RUN else None


async def fold(log: BranchLog, tip: Tip, reader: ChunkReader) -> Tip:
    """Fold what is worth it, and append the records that say so.

    Returns
    -------
    Tip
        The tip afterwards; the one given if there was nothing to do, or others were faster every time.
    """
    nodes = [node for node in tip.state.nodes.values() if foldable(node.layers)]
    batch: list[Replacement] = []
    objects: list[tuple[str, bytes]] = []
    size = 0
    for node in nodes:
        item, manifests = await _folded(log, reader, node)
        weight = _weight(item)
        if weight > MAX_BODY // 2:
            continue  # scattered over so many manifests that no record can name them
        if batch and size + weight > _MOST_BYTES:
            tip = await _append(log, tip, batch, objects)
            batch, objects, size = [], [], 0
        batch.append(item)
        objects += manifests
        size += weight
    return await _append(log, tip, batch, objects) if batch else tip


async def _append(log: BranchLog, tip: Tip, replacements: list[Replacement], objects: list[tuple[str, bytes]]) -> Tip:
    await upload(log.storage, objects)
    for _ in range(_TRIES):
        left = [item for item in replacements if _fits(tip.state, item)]
        await _discard(log, [item for item in replacements if item not in left])
        replacements = left
        if not replacements:
            return tip
        body = await append_entry(log, tip, Rewrite(tuple(replacements)))
        if body is not None:
            sequence = tip.sequence + 1
            return tip.followed_by(tip.state.rewritten(sequence, replacements), body)
        tip = await refresh(log, tip)
    await _discard(log, replacements)
    return tip


async def _discard(log: BranchLog, replacements: list[Replacement]) -> None:
    """Delete the manifests of replacements that no record names, and that none ever will: nobody else knows them."""
    keys = [layer.key for item in replacements for layer in item.added if layer.inline is None]
    if keys:
        for failure in await log.storage.delete(keys):
            _logger.info("%s is left behind: %s", failure.key, failure.reason)


def _fits(state: State, item: Replacement) -> bool:
    key = state.keys.get(item.node)
    return key is not None and replaced_layers(state.nodes[key].layers, item) is not None


def _weight(item: Replacement) -> int:
    """Return about how many bytes of a body a replacement takes."""
    return 48 + sum(48 + len(layer.inline or b"") + 16 * len(layer.box.low) for layer in item.added)


async def _folded(log: BranchLog, reader: ChunkReader, node: Node) -> tuple[Replacement, list[tuple[str, bytes]]]:
    """Return what replaces an array's layers, and the objects to write before."""
    run = foldable(node.layers)
    assert run is not None
    first, end = run
    folded = node.layers[first:end]
    merged = overlay(await reader.references(folded), keep_deleted=first > 0)
    added: list[Layer] = []
    objects: list[tuple[str, bytes]] = []
    for manifest in to_manifests(merged):
        identifier = log.environment.new_id()
        encoded = encode_manifest(manifest)
        layer = Layer(identifier, manifest.box, manifest.count, manifest.has_deletions)
        if len(encoded) <= MAX_MANIFEST_IN_BODY:
            layer = replace(layer, inline=encoded)
        else:
            objects.append(("manifests/" + id_to_text(identifier), encoded))
        added.append(layer)
    return Replacement(node.id, folded[0].id, folded[-1].id, len(folded), tuple(added)), objects
