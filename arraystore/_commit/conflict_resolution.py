"""Applying solutions of conflicts: a transaction is rewritten as its writer would have written it, knowing theirs.

What is dropped or merged is in the new log; a solution that would leave the hierarchy invalid, or chunks that cannot
be read, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arraystore._chunks.cells import Cells, shared
from arraystore._chunks.chunk_table import ChunkReference
from arraystore._chunks.pack_writer import PackSettings, PackWriter
from arraystore._chunks.reader import ChunkReader
from arraystore._commit.append_adaptation import adapt_node_change
from arraystore._commit.conflict_detection import Ours, keeps_shape
from arraystore._commit.edge_chunks import RefusedError
from arraystore._commit.prepared import Prepared
from arraystore._commit.rewrite import rewrite_transaction
from arraystore._commit.solvers import Solution
from arraystore._conflicts import Conflict, ConflictType, VersionSelection
from arraystore._environment import Environment
from arraystore._format.ids import NodeId
from arraystore._format.manifest import Manifest, decode_manifest
from arraystore._format.node import Documents, Node, NodeKind, ancestors, node_key
from arraystore._format.references import INLINE, References, to_manifests
from arraystore._format.transaction import Append, ChunkChange, NodeChange, Operation
from arraystore._format.types import Int64s
from arraystore._format.zarr_changes import dimension_of, reads_alike, same_shape, with_length
from arraystore._format.zarr_metadata import node_type
from arraystore._log.state import SnapshotState, taken_along

T = ConflictType
_METADATA = (T.ZarrMetadataDoubleUpdate, T.ZarrMetadataUpdateOfUpdatedChunks)
_OF_DELETED = (
    T.ZarrMetadataUpdateOfDeletedArray,
    T.ZarrMetadataUpdateOfDeletedGroup,
    T.ChunksUpdatedInDeletedArray,
)
_MAKE_NODES = {"zarr.json", ".zarray", ".zgroup"}
_DELETES = (T.DeleteOfUpdatedArray, T.DeleteOfUpdatedGroup, T.DeleteOfDeletedNode)


@dataclass(frozen=True)
class RewriteContext:
    """Everything needed to write manifests and chunks anew."""

    reader: ChunkReader
    environment: Environment
    settings: PackSettings


@dataclass
class _Plan:
    """Decisions about a transaction."""

    ours: Ours
    without: set[tuple[Operation, NodeId]] = field(default_factory=set)
    """Dropped operations on nodes."""
    without_chunks: set[NodeId] = field(default_factory=set)
    """Arrays whose chunk changes are dropped."""
    cells: dict[NodeId, list[Int64s]] = field(default_factory=dict)
    """Dropped cells, by array."""
    merged: dict[NodeId, dict[tuple[int, ...], bytes]] = field(default_factory=dict)
    """Chunks that are put on top, by array."""
    cut: dict[NodeId, Int64s] = field(default_factory=dict)
    """Cells that are deleted unless ours writes them, by array."""
    deleted: dict[NodeId, Node] = field(default_factory=dict)
    """Nodes of theirs that are deleted, too."""
    documents: dict[NodeId, Documents] = field(default_factory=dict)
    """Metadata documents that replace those of ours."""


async def resolve(
    prepared: Prepared,
    solved: Sequence[tuple[Conflict, Solution]],
    before: SnapshotState,
    after: SnapshotState,
    rewriting: RewriteContext,
) -> Prepared:
    """Rewrite a transaction as the solutions of its conflicts ask for; merged chunks are bytes.

    Raises `RefusedError`, with the conflict and the reason, for a solution that cannot be put into effect.
    """
    plan = _Plan(Ours.of(prepared))
    for conflict, solution in solved:
        _decide(plan, prepared, conflict, solution, before, after)
    nodes = _kept_nodes(plan, prepared, after)
    resolved = await _rewrite(plan, prepared, nodes, rewriting)
    return replace(resolved, swept=prepared.swept | plan.deleted.keys())


def saved_by_others(prepared: Prepared, after: SnapshotState) -> set[NodeId]:
    """Return what was to be deleted only with the place where others had put it, and has left that place since."""
    if not prepared.swept:
        return set()
    ours = Ours.of(prepared)
    created = ours.changes(Operation.CREATED)
    places = {node_key(change.path, change.kind) for change in created}
    below = {change.path for change in created if change.kind != NodeKind.FILE} | {
        node.path
        for change in ours.changes(Operation.DELETED)
        if change.kind == NodeKind.GROUP and change.id not in prepared.swept
        if (node := after.by_id(change.id)) is not None
    }
    groups = ours.moved_groups(after)
    swept = [node for identifier in prepared.swept if (node := after.by_id(identifier)) is not None]
    return {n.id for n in swept if not _in_the_way(n, taken_along(n.path, groups) or n.path, places, below)}


def _in_the_way(node: Node, path: str, places: set[str], below: set[str]) -> bool:
    """Tell whether a node that gets to a path is at the place of a node of ours, or below or above one."""
    above = node.kind == NodeKind.ARRAY and any(place.startswith(path + "/") for place in places)
    return above or node_key(path, node.kind) in places or not below.isdisjoint(ancestors(path))


def _decide(
    plan: _Plan, prepared: Prepared, conflict: Conflict, solution: Solution, before: SnapshotState, after: SnapshotState
) -> None:
    kind, node = conflict.conflict_type, NodeId(conflict.node)
    ours = solution.selection is VersionSelection.UseOurs
    if solution.chunks and kind is not T.ChunkDoubleUpdate:
        raise RefusedError(conflict, "merged chunks solve nothing but a ChunkDoubleUpdate")
    if solution.metadata and kind is not T.ZarrMetadataDoubleUpdate:
        raise RefusedError(conflict, "merged metadata solves nothing but a ZarrMetadataDoubleUpdate")
    if kind is T.ChunkDoubleUpdate:
        _decide_chunks(plan, prepared, conflict, solution)
    elif kind in _METADATA:
        _decide_metadata(plan, prepared, conflict, solution, before, after)
    elif kind in _DELETES:
        _decide_deletion(plan, prepared, conflict, ours, after)
    elif kind is T.ReadConflict and ours:
        return  # whoever solves it vouches for what it decided on
    elif kind is T.NewNodeConflictsWithExistingNode and ours:
        _take_place(plan, prepared, conflict, after)
    elif ours or kind in (T.ReadConflict, T.UnalignedAppend, T.DuplicateAppend):
        raise RefusedError(conflict, "it cannot be solved by choosing a side")
    elif kind in _OF_DELETED:
        plan.without |= {(operation, node) for operation in (Operation.UPDATED, Operation.APPENDED)}
        plan.without_chunks.add(node)
    elif kind is T.ChunksUpdatedInUpdatedArray:
        plan.without_chunks.add(node)
    elif kind in (T.NewNodeConflictsWithExistingNode, T.NewNodeInInvalidGroup):
        plan.without.add((Operation.CREATED, node))
        plan.without_chunks.add(node)
    else:
        plan.without.add((Operation.MOVED, node))


def _decide_chunks(plan: _Plan, prepared: Prepared, conflict: Conflict, solution: Solution) -> None:
    node = NodeId(conflict.node)
    coords = conflict.conflicted_chunks
    assert coords is not None
    collided = set(map(tuple, coords.tolist())) if solution.chunks else set()
    if unknown := [c for c in solution.chunks if c not in collided]:
        raise RefusedError(conflict, f"the solver merged chunk {unknown[0]}, which is not among those that collide")
    merged = {c: bytes(value) for c, value in solution.chunks.items()}
    plan.merged.setdefault(node, {}).update(merged)
    if solution.selection is VersionSelection.UseTheirs:
        rest = [c for c in collided if c not in merged] if merged else coords
        plan.cells.setdefault(node, []).append(np.array(rest, dtype=np.int64).reshape(len(rest), coords.shape[1]))
    elif node in prepared.cuts:
        outside = coords[(coords >= np.array(prepared.cuts[node], dtype=np.int64)).any(axis=1)]
        plan.cut[node] = np.array([row for row in outside.tolist() if tuple(row) not in merged], np.int64)


def _decide_metadata(
    plan: _Plan, prepared: Prepared, conflict: Conflict, solution: Solution, before: SnapshotState, after: SnapshotState
) -> None:
    node = NodeId(conflict.node)
    now = after.by_id(node)
    change = next((c for c in prepared.log.nodes if c.id == node and c.operation == Operation.UPDATED), None)
    if now is None or change is None:
        raise RefusedError(conflict, "it cannot be solved by choosing a side")
    of_array = now.kind == NodeKind.ARRAY
    append = next((c.append for c in prepared.log.nodes if c.id == node and c.append is not None), None)
    if append is not None and not _accepts_append(append, before.nodes[before.keys[node]], now):
        raise RefusedError(conflict, "ours appends to it, and theirs changed its shape or how its chunks are read")
    if solution.metadata:
        documents = {name: json.dumps(value, indent=2).encode() for name, value in solution.metadata.items()}
        merged = {**now.documents, **documents}
        kind = now.kind.name.lower()
        if any(node_type(name, documents[name]) != kind for name in _MAKE_NODES & documents.keys()):
            raise RefusedError(conflict, f"the merged metadata does not make the {kind} that it is for")
        if documents.keys() - now.documents.keys() or (of_array and not _fits(now.documents, merged)):
            raise RefusedError(
                conflict, "the merged metadata has another shape or reads chunks differently than theirs"
            )
        plan.documents[node] = documents
    elif solution.selection is VersionSelection.UseTheirs:
        if of_array and not keeps_shape(plan.ours, before, change):
            raise RefusedError(conflict, "ours changes shape or chunks, and may have written chunks that need it")
        plan.without.add((Operation.UPDATED, node))
    elif of_array:
        merged = adapt_node_change(plan.ours, change, before, after).applied_to(now.documents)
        if not _fits(now.documents, merged) and conflict.conflict_type is T.ZarrMetadataDoubleUpdate:
            raise RefusedError(conflict, "ours would change the shape that theirs gave it, or how its chunks are read")
        if not same_shape(now.documents, merged):
            raise RefusedError(conflict, "ours changes the shape, and theirs may have written chunks that it cuts off")


def _accepts_append(append: Append, was: Node, now: Node) -> bool:
    """Tell whether an array still accepts an append: at the end of a chunk, and as wide as it was."""
    if not reads_alike(was.documents, now.documents):
        return False
    end = dimension_of(now.documents, append.axis)
    grown = with_length(was.documents, append.axis, end.length)
    return end.length >= append.start and end.length % append.chunk == 0 and same_shape(grown, now.documents)


def _fits(now: Documents, merged: Documents) -> bool:
    return same_shape(now, merged) and reads_alike(now, merged)


def _decide_deletion(plan: _Plan, prepared: Prepared, conflict: Conflict, ours: bool, after: SnapshotState) -> None:
    node = NodeId(conflict.node)
    if not ours or conflict.conflict_type is T.DeleteOfDeletedNode:
        plan.without.add((Operation.DELETED, node))
        return
    if conflict.conflict_type is T.DeleteOfUpdatedGroup:
        change = next(c for c in prepared.log.nodes if c.id == node)
        now = after.by_id(node)
        there = after.nodes.get(change.path)
        paths = {change.path} if there is None or there.id == change.id else set[str]()
        for path in sorted(paths | ({now.path} if now is not None else set())):
            plan.deleted |= {node.id: node for node in _staying_below(plan.ours, after, path)}
        _check_untouched(plan, prepared, conflict)


def _staying_below(ours: Ours, after: SnapshotState, path: str) -> list[Node]:
    """Return what is below a path and neither leaves by itself nor along with a group that ours moves out of there."""
    prefix = path + "/" if path else ""
    below = [node for node in after.nodes.values() if node.path.startswith(prefix) and node.path != path]
    moves = {change.id: change.target or "" for change in ours.changes(Operation.MOVED)}
    groups = {node.path: moves[node.id] for node in below if node.id in moves and node.kind == NodeKind.GROUP}
    return [n for n in below if n.id not in ours.leaving and taken_along(n.path, groups) is None]


def _take_place(plan: _Plan, prepared: Prepared, conflict: Conflict, after: SnapshotState) -> None:
    change = next(c for c in prepared.log.nodes if c.id == conflict.node)
    occupant = after.nodes.get(node_key(change.path, change.kind))
    if occupant is not None and not plan.ours.takes_away(occupant, plan.ours.moved_groups(after)):
        plan.deleted[occupant.id] = occupant
    if change.kind != NodeKind.FILE:
        plan.deleted |= {node.id: node for node in _staying_below(plan.ours, after, change.path)}
    plan.deleted |= {node.id: node for node in _carried_to(plan.ours, after, change)}
    _check_untouched(plan, prepared, conflict)


def _carried_to(ours: Ours, after: SnapshotState, change: NodeChange) -> Iterator[Node]:
    """Yield what groups that ours moves would bring to the place of a node that ours creates, or below or above it."""
    groups = ours.moved_groups(after)
    for node in after.nodes.values() if groups else ():
        path = taken_along(node.path, groups)
        if path is None or node.id in ours.leaving:
            continue
        below = change.kind != NodeKind.FILE and path.startswith(change.path + "/")
        above = node.kind == NodeKind.ARRAY and change.kind != NodeKind.FILE and change.path.startswith(path + "/")
        if below or above or node_key(path, node.kind) == node_key(change.path, change.kind):
            yield node


def _check_untouched(plan: _Plan, prepared: Prepared, conflict: Conflict) -> None:
    """Check that nothing is deleted, because theirs has moved it there, to which ours has written."""
    changed = {c.id for c in prepared.log.nodes if c.operation != Operation.DELETED}
    changed |= {c.node for c in prepared.log.chunks}
    for node in plan.deleted.values():
        if node.id in changed:
            raise RefusedError(
                conflict, f"it would delete {'/' + node.path!r}, which theirs moved there and ours changed"
            )


def _kept_nodes(plan: _Plan, prepared: Prepared, after: SnapshotState) -> list[NodeChange]:
    """Return the changes of nodes that are left, with those that solutions add."""
    kept_paths = {
        after.nodes[after.keys[node]].path
        for operation, node in plan.without
        if operation in (Operation.DELETED, Operation.MOVED) and node in after.keys
    }
    alive = {above for path in kept_paths for above in ancestors(path)}
    known = {change.id for change in prepared.log.nodes if change.operation == Operation.DELETED}
    going = [n for i, n in plan.deleted.items() if i not in known and n.key not in alive]
    deleted = sorted(going, key=lambda n: n.key, reverse=True)
    nodes = [NodeChange(Operation.DELETED, node.id, node.path, node.kind, {}) for node in deleted]
    for change in prepared.log.nodes:
        if (change.operation, change.id) in plan.without:
            continue
        is_group = change.operation == Operation.DELETED and change.kind == NodeKind.GROUP
        if is_group and after.keys.get(change.id) in alive:
            continue  # something in it stays
        documents = plan.documents.get(change.id)
        if documents is not None and change.operation == Operation.UPDATED:
            nodes.append(replace(change, documents=dict(documents)))
        else:
            nodes.append(change)
    return nodes


async def _rewrite(plan: _Plan, prepared: Prepared, nodes: list[NodeChange], rewriting: RewriteContext) -> Prepared:
    appends = {change.id for change in nodes if change.append is not None}
    kept: list[ChunkChange] = []
    added: list[tuple[NodeId, Manifest]] = []
    anew: set[NodeId] = set()  # arrays with a layer that is written anew: those that were above it have to stay so
    for change in prepared.log.chunks:
        if change.node in plan.without_chunks or (change.appended and change.node not in appends):
            continue
        coords = [part for part in plan.cells.get(change.node, ()) if len(part)]
        if change.appended or not (coords or change.node in anew):
            kept.append(change)
            continue
        references = References.from_manifest(await _load_manifest(prepared, change, rewriting))
        rest = _without(references, np.concatenate(coords)) if coords else references
        if len(rest) == len(references) and change.node not in anew:
            kept.append(change)
        else:
            anew.add(change.node)
            added += [(change.node, manifest) for manifest in to_manifests(rest)]
    for node, cut in plan.cut.items():
        gone = _deletions(cut, plan.ours.cells.get(node, []))
        added += [(node, manifest) for manifest in to_manifests(gone)]
    storage = rewriting.reader.storage
    packs = PackWriter(storage, rewriting.environment, rewriting.settings)
    for node, chunks in plan.merged.items():
        if chunks:
            added += [(node, manifest) for manifest in to_manifests(_write_chunks(packs, chunks))]
    await packs.flush()
    return await rewrite_transaction(prepared, nodes, kept, added, storage, rewriting.environment)


async def _load_manifest(prepared: Prepared, change: ChunkChange, rewriting: RewriteContext) -> Manifest:
    encoded = prepared.manifest(change)
    if encoded is not None:
        return decode_manifest("manifest of this session", encoded)
    return await rewriting.reader.manifests.load(change.layer)


def _without(references: References, coords: Int64s) -> References:
    """Return references without those of some cells."""
    both = shared([Cells.of(references.coords)], [Cells.of(coords)])
    if not len(both):
        return references
    gone = {tuple(row) for row in both.tolist()}
    keep = np.fromiter((tuple(row) not in gone for row in references.coords.tolist()), np.bool_, len(references))
    return references.take(keep)


def _deletions(coords: Int64s, written: Sequence[Cells]) -> References:
    """Return deletions of cells that are not written."""
    deleted = References.deletions(coords)
    own = shared([Cells.of(coords)], written) if len(coords) and written else coords[:0]
    return _without(deleted, own) if len(own) else deleted


def _write_chunks(packs: PackWriter, chunks: dict[tuple[int, ...], bytes]) -> References:
    inline = bytearray()
    entries: list[ChunkReference] = []
    cells = sorted(chunks)
    for cell in cells:
        data = chunks[cell]
        if len(data) <= packs.settings.inline:
            entries.append(ChunkReference(INLINE, len(inline), len(data)))
            inline += data
        else:
            entries.append(packs.add(memoryview(data)))
    coords = np.array(cells, dtype=np.int64).reshape(len(cells), -1)
    source, offset, length = np.array(entries, dtype=np.int64).T
    return References(coords, source, offset, length, tuple(packs.packs), inline=bytes(inline))
