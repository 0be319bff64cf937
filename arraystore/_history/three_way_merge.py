"""Three-way merge of snapshots, which undoes a snapshot, or repeats one on another branch.

Going from `base` to `ours` changes something, and the same change is to be made to `tip`. Where `tip` is as `base` is,
it gets what `ours` has; where it is as `ours` is, nothing is to be done; anywhere else is a conflict. References are
put into a change set. Chunks are read only where their references would be a conflict, which equal bytes are not: those
that a compaction copied, that both wrote, or that were written and put back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.layer_lookup import references_at
from arraystore._commit.rebase_changes import put_nodes, put_references
from arraystore._conflicts import Conflict, ConflictType
from arraystore._context.context import Context
from arraystore._format.box import bounding_box
from arraystore._format.ids import NodeId
from arraystore._format.layer import Layer
from arraystore._format.node import Documents, Node, NodeKind, node_key
from arraystore._format.references import VIRTUAL, References
from arraystore._format.reserved_keys import is_hidden, visible
from arraystore._format.transaction import NodeChange, Operation
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_changes import alike, reads_alike
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import Comparison, compare
from arraystore._history.equal_chunks import equal_chunks
from arraystore._history.node_placement import misplaced
from arraystore._log.state import SnapshotState

_REQUESTS = 32
"""Manifests that are read at a time."""


@dataclass(eq=False)
class Transplant:
    """Changes to make to a snapshot."""

    nodes: list[NodeChange] = field(default_factory=list)
    chunks: dict[NodeId, References] = field(default_factory=dict)
    """References by node id, deletions included."""
    conflicts: list[Conflict] = field(default_factory=list)
    """Conflicts, with which no change is to be made."""

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to change."""
        return not (self.nodes or self.chunks or self.conflicts)

    @property
    def borrows(self) -> bool:
        """Tell whether it refers to packs of the snapshot that it comes from."""
        return any(bool(((r.source >= 0) & (r.source < VIRTUAL)).any()) for r in self.chunks.values())

    def put_into(self, changes: ChangeSet) -> None:
        """Add the changes to a change set over the snapshot."""
        final = put_nodes(changes, self.nodes)
        for identifier, references in self.chunks.items():
            put_references(changes, final.nodes[final.keys[identifier]], references, known=True)


async def transplant(base: SnapshotState, ours: SnapshotState, tip: SnapshotState, context: Context) -> Transplant:
    """Compute the changes that make the difference of `base` and `ours` to `tip`."""
    manifests = context.manifests
    wanted = _visible(await compare(base, ours, manifests, context.log))
    merge = _Merge(base, ours, tip, wanted, context.environment.new_id)
    first, second = merge.pair(base, merge.interesting())
    theirs = await compare(first, second, manifests, context.log, whole=(base, tip))
    first, second = merge.pair(ours, merge.doubtful(theirs))
    other = await compare(first, second, manifests, context.log, whole=(ours, tip))
    merge.compared(theirs, other)
    for possible in merge.possible_conflicts():
        merge.note_equal(
            possible, await equal_chunks(context.reader, possible.tip, (possible.base, possible.ours), possible.coords)
        )
    merged = Transplant()
    for step in (merge.deletions, merge.moves, merge.creations, merge.updates):
        step(merged)
    cells = merge.cells(merged)
    if not merged.conflicts:
        merged.conflicts = misplaced(merged.nodes, ours, tip)
    if merged.conflicts:
        return merged
    bound = asyncio.Semaphore(_REQUESTS)
    reading = [references_at(manifests, each.source.layers, each.coords, bound) for each in cells]
    for each, references in zip(cells, await asyncio.gather(*reading), strict=True):
        merged.chunks[each.target] = references
    return merged


def _visible(wanted: Comparison) -> Comparison:
    """Leave out reserved keys: the progress of streams belongs to their branch, not to a change."""
    moved = tuple(move for move in wanted.moved if not is_hidden(move.before) and not is_hidden(move.after))
    chunks = tuple((node, coords) for node, coords in wanted.chunks if not is_hidden(node.path))
    created, deleted, updated = (tuple(visible(p, "")) for p in (wanted.created, wanted.deleted, wanted.updated))
    return Comparison(created, deleted, updated, moved, chunks)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Chunks that a node of the tip gets."""

    target: NodeId
    """Node of the tip."""
    source: Node
    """Node of ours whose chunks they are."""
    coords: Int64s


@dataclass(frozen=True, eq=False)
class _PossibleConflict:
    """Chunks of an array of the tip whose references are those of neither snapshot, with the layers of all three."""

    identifier: NodeId
    base: tuple[Layer, ...]
    ours: tuple[Layer, ...]
    tip: tuple[Layer, ...]
    coords: Int64s


@dataclass(eq=False)
class _Merge:
    """Merge of three snapshots, with the comparison of the first two."""

    base: SnapshotState
    ours: SnapshotState
    tip: SnapshotState
    wanted: Comparison
    new_id: Callable[[], bytes]

    def __post_init__(self) -> None:
        self._cells = {node.id: coords for node, coords in self.wanted.chunks}
        self._theirs: dict[NodeId, Int64s] = {}
        self._other: dict[NodeId, Int64s] = {}
        self._made: dict[NodeId, NodeId] = {}

    # -- which node of the tip is meant ---------------------------------------------------------------------

    def twin(self, node: Node) -> Node | None:
        """Return the node of the tip that is, or takes the place of, a node of the other two."""
        same = self.tip.by_id(node.id)
        if same is not None:
            return same
        candidate = self.tip.nodes.get((self.base.by_id(node.id) or node).key)
        if (
            candidate is None
            or candidate.kind != node.kind
            or candidate.id in self.base.keys
            or candidate.id in self.ours.keys
        ):
            return None
        return candidate if _dimensions(candidate) == _dimensions(node) else None

    def pair(self, state: SnapshotState, identifiers: Iterable[NodeId]) -> tuple[SnapshotState, SnapshotState]:
        """Return some nodes of a snapshot, and their twins under the same ids."""
        first: dict[str, Node] = {}
        second: dict[str, Node] = {}
        for identifier in sorted(identifiers):
            node = state.by_id(identifier)
            twin = None if node is None else self.twin(node)
            if node is not None and twin is not None:
                first[node.key] = node
                second[twin.key] = replace(twin, id=identifier)
        return _only(state, first), _only(self.tip, second)

    def interesting(self) -> set[NodeId]:
        """Return nodes of the base whose chunks in the tip matter."""
        nodes = (*self.wanted.deleted, *self.wanted.updated)
        return {node.id for node in nodes} | {i for i in self._cells if i in self.base.keys}

    def doubtful(self, theirs: Comparison) -> set[NodeId]:
        """Return nodes of ours of which the tip may have the same chunks already."""
        return {node.id for node, _ in theirs.chunks} | {node.id for node in self.wanted.created}

    def compared(self, theirs: Comparison, other: Comparison) -> None:
        """Note the chunks of the tip that differ from those of the base, and from ours."""
        self._theirs = {node.id: coords for node, coords in theirs.chunks}
        self._other = {node.id: coords for node, coords in other.chunks}

    def possible_conflicts(self) -> Iterator[_PossibleConflict]:
        """Yield the chunks that are a conflict if their bytes differ, as their references do."""
        created = {node.id for node in self.wanted.created}
        for identifier in sorted({*self._theirs, *self._other}):
            base, ours = self.base.by_id(identifier), self.ours.by_id(identifier)
            if identifier in created:
                coords = self._other.get(identifier)
            elif base is None or ours is None or not reads_alike(base.documents, ours.documents):
                coords = self._theirs.get(identifier)
            else:
                coords = self._collisions(identifier)
            node = ours or base
            twin = None if node is None else self.twin(node)
            if coords is not None and len(coords) and twin is not None:
                yield _PossibleConflict(identifier, _layers(base), _layers(ours), twin.layers, coords)

    def note_equal(self, possible: _PossibleConflict, equal: Sequence[Bools]) -> None:
        """Note which chunks of the tip have the bytes of the base, and of ours."""
        for differing, same in zip((self._theirs, self._other), equal, strict=True):
            rest = differing.get(possible.identifier)
            if rest is not None and same.any():
                rest = rest[~_among(rest, possible.coords[same])]
                differing[possible.identifier] = rest
                if not len(rest):
                    del differing[possible.identifier]

    def _collisions(self, identifier: NodeId) -> Int64s:
        """Return the chunks to change that in the tip are as in neither of the two."""
        coords = self._cells.get(identifier, np.empty((0, 0), dtype=np.int64))
        return coords[self._taken(identifier, coords) & _among(coords, self._other.get(identifier))]

    def _taken(self, identifier: NodeId, coords: Int64s) -> Bools:
        return _among(coords, self._theirs.get(identifier))

    # -- nodes ----------------------------------------------------------------------------------------------

    def deletions(self, merged: Transplant) -> None:
        """Delete nodes that ours does not have."""
        coming = {node.key: node for node in self.wanted.created}
        for node in sorted(self.wanted.deleted, key=lambda node: node.path, reverse=True):
            twin, successor = self.twin(node), coming.get(node.key)
            if twin is None or (twin.id != node.id and successor is not None and self._settled(successor)):
                continue
            cells = self._theirs.get(node.id)
            if twin.path != node.path or not alike(twin.documents, node.documents) or cells is not None:
                group = node.kind == NodeKind.GROUP
                kind = ConflictType.DeleteOfUpdatedGroup if group else ConflictType.DeleteOfUpdatedArray
                merged.conflicts.append(_conflict(kind, twin, "ours deletes it, theirs changed or moved it", cells))
            else:
                merged.nodes.append(NodeChange(Operation.DELETED, twin.id, twin.path, twin.kind, {}))

    def moves(self, merged: Transplant) -> None:
        """Move nodes that ours has elsewhere."""
        kind = ConflictType.MoveOperationCannotBeRebased
        for move in self.wanted.moved:
            was, now = move.before, move.after
            node = self.base.nodes[node_key(was, move.kind)]
            twin = self.twin(node)
            if twin is None:
                merged.conflicts.append(_conflict(kind, node, f"ours moves it to {'/' + now!r}, theirs deleted it"))
            elif twin.path == was:
                merged.nodes.append(NodeChange(Operation.MOVED, twin.id, was, move.kind, {}, now))
            elif twin.path != now:
                merged.conflicts.append(_conflict(kind, twin, f"ours moves it from {'/' + was!r} to {'/' + now!r}"))

    def creations(self, merged: Transplant) -> None:
        """Create nodes that only ours has, with new ids, so that writers to deleted ones get a conflict."""
        gone = {change.id for change in merged.nodes if change.operation == Operation.DELETED}
        for node in sorted(self.wanted.created, key=lambda node: node.path):
            twin = self.twin(node)
            if twin is None or twin.id in gone:
                identifier = self._made[node.id] = NodeId(self.new_id())
                documents: dict[str, bytes | None] = dict(node.documents)
                merged.nodes.append(NodeChange(Operation.CREATED, identifier, node.path, node.kind, documents))
            elif not self._settled(node):
                kind = ConflictType.NewNodeConflictsWithExistingNode
                detail = f"ours creates it, theirs has a different {twin.kind.name.lower()} in its place"
                merged.conflicts.append(_conflict(kind, twin, detail))

    def _settled(self, node: Node) -> bool:
        """Tell whether the tip has a node of ours as it is there."""
        twin = self.twin(node)
        if twin is None or twin.path != node.path or node.id in self._other:
            return False
        return alike(twin.documents, node.documents)

    def updates(self, merged: Transplant) -> None:
        """Set the metadata that ours has."""
        for node in self.wanted.updated:
            before, twin = self.base.nodes[self.base.keys[node.id]], self.twin(node)
            if alike(before.documents, node.documents):
                continue
            if twin is None:
                of_array = node.kind == NodeKind.ARRAY
                kinds = ConflictType.ZarrMetadataUpdateOfDeletedArray, ConflictType.ZarrMetadataUpdateOfDeletedGroup
                detail = "ours changes its metadata, theirs deleted it"
                merged.conflicts.append(_conflict(kinds[0] if of_array else kinds[1], before, detail))
            elif alike(twin.documents, before.documents):
                merged.nodes.append(_updated(twin, node.documents))
                merged.conflicts += self._misread(before, node, twin)
            elif not alike(twin.documents, node.documents):
                kind = ConflictType.ZarrMetadataDoubleUpdate
                merged.conflicts.append(_conflict(kind, twin, "both changed its metadata"))

    def _misread(self, before: Node, node: Node, twin: Node) -> Iterator[Conflict]:
        """Yield conflicts of chunks of the tip that cannot be read correctly with the metadata that ours has."""
        theirs = self._theirs.get(node.id)
        if node.kind != NodeKind.ARRAY or theirs is None or reads_alike(before.documents, node.documents):
            return
        same = _among(theirs, self._cells.get(node.id)) & ~_among(theirs, self._other.get(node.id))
        if not bool(same.all()):
            detail = "ours changes how its chunks are read, theirs wrote chunks as they were read before"
            yield _conflict(ConflictType.ZarrMetadataUpdateOfUpdatedChunks, twin, detail, theirs[~same])

    # -- chunks ---------------------------------------------------------------------------------------------

    def cells(self, merged: Transplant) -> list[_Cells]:
        """Return the chunks that nodes of the tip get."""
        wanted: list[_Cells] = []
        for node, coords in self.wanted.chunks:
            if node.id in self._made:
                wanted.append(_Cells(self._made[node.id], node, coords))
            before, twin = self.base.by_id(node.id), self.twin(node)
            if before is None:
                continue
            if twin is None:
                kind, detail = ConflictType.ChunksUpdatedInDeletedArray, "ours changes its chunks, theirs deleted it"
                merged.conflicts.append(_conflict(kind, before, detail, coords))
            elif alike(before.documents, node.documents) and not reads_alike(before.documents, twin.documents):
                detail = "ours changes its chunks, theirs how chunks are read"
                merged.conflicts.append(_conflict(ConflictType.ChunksUpdatedInUpdatedArray, twin, detail, coords))
            elif len(collisions := self._collisions(node.id)):
                detail = "both changed these chunks"
                merged.conflicts.append(_conflict(ConflictType.ChunkDoubleUpdate, twin, detail, collisions))
            elif len(free := coords[~self._taken(node.id, coords)]):
                wanted.append(_Cells(twin.id, node, free))
        return wanted


def _only(state: SnapshotState, nodes: dict[str, Node]) -> SnapshotState:
    return replace(state, nodes=nodes, keys={node.id: key for key, node in nodes.items()})


def _layers(node: Node | None) -> tuple[Layer, ...]:
    return () if node is None else node.layers


def _dimensions(node: Node) -> int:
    return len(array_info(node.documents).grid) if node.kind == NodeKind.ARRAY else 0


def _updated(twin: Node, documents: Documents) -> NodeChange:
    changed: dict[str, bytes | None] = {n: d for n, d in documents.items() if twin.documents.get(n) != d}
    changed.update(dict.fromkeys(twin.documents.keys() - documents.keys()))
    return NodeChange(Operation.UPDATED, twin.id, twin.path, twin.kind, changed)


def _conflict(kind: ConflictType, node: Node, detail: str, cells: Int64s | None = None) -> Conflict:
    return Conflict(kind, "/" + node.path, cells, "", detail, node.id)


def _among(coords: Int64s, others: Int64s | None) -> Bools:
    """Tell which cells are among others."""
    if others is None or not len(others) or not len(coords):
        return np.zeros(len(coords), dtype=bool)
    box = bounding_box(np.concatenate([coords, others]))
    return np.isin(box.numbers(coords), box.numbers(others))
