"""Rebasing uncommitted changes, from which a session goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._chunks.pack_writer import PackWriter
from arraystore._chunks.reader import ChunkReader
from arraystore._commit.prepared import Prepared
from arraystore._format.manifest import decode_manifest
from arraystore._format.node import Node
from arraystore._format.references import INLINE, VIRTUAL, References
from arraystore._format.reserved_keys import has_visible_files
from arraystore._format.transaction import Append, AppendMark, NodeChange, Operation
from arraystore._format.types import Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._log.state import SnapshotState, StateBuilder


async def rebase_changes(
    changes: ChangeSet, prepared: Prepared, base: SnapshotState, reader: ChunkReader, packs: PackWriter
) -> ChangeSet:
    """Rebase the changes of a session onto another snapshot.

    `prepared` are the same changes, prepared and rebased, whose chunks are in the storage; `packs` takes later chunks.
    """
    moved = ChangeSet(base, packs)
    moved.epoch = changes.epoch
    moved.append_mode = changes.append_mode
    final = put_nodes(moved, prepared.log.nodes)
    appends = {change.id: change.append for change in prepared.log.nodes if change.append is not None}
    moved.appends = {i: _mark(base.nodes[base.keys[i]], append) for i, append in appends.items()}
    for identifier, mark in prepared.marks.items():
        if identifier not in appends and identifier in base.keys:
            moved.appends.setdefault(identifier, mark)
    for chunk in prepared.log.chunks:
        encoded = prepared.manifest(chunk)
        layer = chunk.layer
        manifest = await reader.manifests.load(layer) if encoded is None else decode_manifest("own manifest", encoded)
        append = appends.get(chunk.node) if chunk.appended else None
        shift = None if append is None else _shift(base.nodes[base.keys[chunk.node]], append, manifest.box.low)
        node = final.nodes[final.keys[chunk.node]]
        put_references(moved, node, References.from_manifest(manifest, shift))
    for identifier, cut in prepared.cuts.items():
        if identifier in final.keys:
            array = moved.array(final.nodes[final.keys[identifier]])
            if not await _has_more(base.by_id(identifier), cut, array, reader):
                array.visible = cut
    return moved


def put_nodes(changes: ChangeSet, nodes: Sequence[NodeChange]) -> SnapshotState:
    """Put changes of nodes into a change set that has none; returns the state that they lead to."""
    base = changes.base
    builder = StateBuilder(base)
    builder.change_nodes(tuple(nodes))
    final = builder.build()
    for change in nodes:
        if change.operation == Operation.DELETED and change.id in base.keys:
            changes.remove_node(base.nodes[base.keys[change.id]])
    for change in nodes:
        if change.operation == Operation.MOVED and change.id in base.keys:
            changes.nodes[base.keys[change.id]] = None
    _relocate(changes, base, final)
    for change in nodes:
        if change.operation != Operation.DELETED:
            node = final.nodes[final.keys[change.id]]
            changes.nodes[node.key] = node
    changes.has_files = has_visible_files(node.key for node in changes.all_nodes())
    return final


async def _has_more(node: Node | None, cut: tuple[int, ...], array: ArrayChanges, reader: ChunkReader) -> bool:
    """Tell whether an array has chunks where ours had cut it off: those that a solver has left to theirs."""
    bound = np.array(cut, dtype=np.int64)
    layers = [] if node is None else [layer for layer in node.layers if (np.array(layer.box.high) > bound).any()]
    present = await reader.present(layers) if layers else None
    if present is None:
        return False
    coords, _ = array.table.columns()
    gone = set(map(tuple, coords.tolist()))
    beyond = present.coords[(present.coords >= bound).any(axis=1)]
    return any(tuple(row) not in gone for row in beyond.tolist())


def _relocate(moved: ChangeSet, base: SnapshotState, final: SnapshotState) -> None:
    """Note nodes that went along with a group."""
    if not any(node is None for node in moved.nodes.values()):
        return
    for identifier, key in base.keys.items():
        now = final.keys.get(identifier)
        if now is not None and now != key:
            if moved.nodes.get(key) is None:
                moved.nodes[key] = None
            moved.nodes[now] = final.nodes[now]


def _mark(node: Node, append: Append) -> AppendMark:
    return AppendMark(append.axis, dimension_of(node.documents, append.axis).length, append.chunk)


def _shift(node: Node, append: Append, low: tuple[int, ...]) -> tuple[int, ...]:
    steps = (dimension_of(node.documents, append.axis).length - append.start) // append.chunk
    return tuple(steps if axis == append.axis else 0 for axis in range(len(low)))


def put_references(changes: ChangeSet, node: Node, part: References, *, known: bool = False) -> Int64s:
    """Write references into a change set, with their packs, locations and inlined bytes; returns the coordinates.

    `known` tells that what they refer to is committed already.
    """
    first_pack = changes.packs.adopt(part.packs, committed=known)
    source = part.source.copy()
    native = (source >= 0) & (source < VIRTUAL)
    source[native] += first_pack
    offset = part.offset
    if len(part.locations):
        source[part.source >= VIRTUAL] += changes.put_locations(part.locations) - VIRTUAL
    if part.inline:
        _, start, _ = changes.put_inline(memoryview(part.inline))
        offset = np.where(part.source == INLINE, offset + start, offset)
    table = changes.array(node).table
    if len(part.coords):  # chunks that a shrink deletes are outside of the grid
        table.fit(tuple((part.coords.max(axis=0) + 1).tolist()))
    table.put_many(part.coords, source, offset, part.length)
    return part.coords
