"""Detecting conflicts: the changes of one transaction against what others have committed since its base.

"Ours" is the transaction, "theirs" the footprint of all that came in between.  Both sides are columns; nothing is
read from the storage.  An empty result means: applied on top of theirs, ours does what its writer meant, and the
hierarchy stays valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from arraystore._changes.node_changes import dimension_name
from arraystore._chunks.cells import Cells, cells_of, shared
from arraystore._commit.prepared import Prepared
from arraystore._conflicts import DELETES_MOVED, Conflict, ConflictType
from arraystore._format.ids import NodeId, SnapshotId, id_to_text
from arraystore._format.node import Node, NodeKind, ancestors, node_key
from arraystore._format.transaction import AppendMark, NodeChange, Operation, TransactionLog
from arraystore._format.zarr_changes import dimension_of, reads_alike, same_shape
from arraystore._format.zarr_metadata import array_info
from arraystore._log.footprint import Footprint, NodeFootprint
from arraystore._log.state import SnapshotState, moved_groups, taken_along

_MOVE = ConflictType.MoveOperationCannotBeRebased


@dataclass(frozen=True)
class Ours:
    """Changes of one transaction; see `Prepared`."""

    log: TransactionLog
    marks: Mapping[NodeId, AppendMark] = field(default_factory=dict)
    cuts: Mapping[NodeId, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, prepared: Prepared) -> Ours:
        """Return the changes of a prepared transaction."""
        return cls(prepared.log, prepared.marks, prepared.cuts)

    def changes(self, operation: Operation) -> list[NodeChange]:
        """Return its changes of nodes of one kind."""
        return [change for change in self.log.nodes if change.operation == operation]

    @cached_property
    def leaving(self) -> frozenset[NodeId]:
        """Nodes that it deletes or moves: they do not stand in the way of what it puts in their place."""
        gone = (Operation.DELETED, Operation.MOVED)
        return frozenset(change.id for change in self.log.nodes if change.operation in gone)

    def moved_groups(self, after: SnapshotState) -> dict[str, str]:
        """Return the new paths of groups that it moves, by the paths at which others have left them."""
        return moved_groups(self.log.nodes, after)

    def takes_away(self, node: Node | NodeFootprint, groups: dict[str, str]) -> bool:
        """Tell whether it deletes or moves a node, or one of the `moved_groups` takes it along."""
        return node.id in self.leaving or taken_along(node.key.removeprefix("\0"), groups) is not None

    @cached_property
    def places(self) -> dict[str, NodeKind]:
        """Paths at which it puts groups and arrays."""
        created: dict[str, NodeKind] = {
            c.path: c.kind for c in self.changes(Operation.CREATED) if c.kind != NodeKind.FILE
        }
        moved: dict[str, NodeKind] = {c.target or "": c.kind for c in self.changes(Operation.MOVED)}
        return created | {path: kind for path, kind in moved.items() if kind != NodeKind.FILE}

    @cached_property
    def cells(self) -> dict[NodeId, list[Cells]]:
        """Chunks that it writes or deletes in place, by array."""
        by_array: dict[NodeId, list[Cells]] = {}
        for change in self.log.chunks:
            if not change.appended:
                by_array.setdefault(change.node, []).append(cells_of("change log of this session", change))
        return by_array


def detect(ours: Ours, theirs: Footprint, before: SnapshotState, after: SnapshotState) -> list[Conflict]:
    """Return every conflict between a transaction and what was committed between two snapshots.

    `before` is the snapshot on which ours was made, or for which it was checked last; `after` is the one that theirs
    made.
    """
    view = _View(ours, theirs, before, after)
    conflicts = [
        *_creations(view),
        *_moves(view),
        *_carried(view),
        *_updates(view),
        *_appends(view),
        *_chunks(view),
        *_deletions(view),
    ]
    return sorted(conflicts, key=lambda conflict: conflict.conflict_type.value)


@dataclass(frozen=True)
class _RearrangedSnapshot:
    """A snapshot, where ours has moved and deleted nodes."""

    ours: Ours
    state: SnapshotState

    @cached_property
    def groups(self) -> dict[str, str]:
        """New paths of the groups that ours moves, by their paths in the snapshot."""
        return self.ours.moved_groups(self.state)

    @cached_property
    def _origins(self) -> dict[str, str]:
        return {target: source for source, target in self.groups.items()}

    def node_at(self, path: str) -> Node | None:
        """Return the node of the snapshot that is at a path then."""
        moved = next((above for above in ancestors(path) if above in self._origins), None) if self.groups else None
        node = self.state.nodes.get(path if moved is None else self._origins[moved] + path.removeprefix(moved))
        if node is None or node.id in self.ours.leaving or (taken_along(node.path, self.groups) or path) != path:
            return None
        return node


@dataclass(frozen=True)
class _View:
    ours: Ours
    theirs: Footprint
    before: SnapshotState
    after: SnapshotState

    def conflict(
        self,
        kind: ConflictType,
        change: NodeChange | Node | NodeFootprint,
        snapshot: SnapshotId | None,
        detail: str,
        cells: np.ndarray | None = None,
    ) -> Conflict:
        path = "/" + change.path.lstrip("/")
        return Conflict(kind, path, cells, id_to_text(snapshot) if snapshot else "", detail, change.id)

    @cached_property
    def arrivals(self) -> list[NodeFootprint]:
        """Nodes of theirs that have come to the place where they are now."""
        came = [node for node in self.theirs.nodes.values() if node.created or node.moved]
        return [node for node in came if self.after.keys.get(node.id) == node.key]

    @cached_property
    def rearranged_before(self) -> _RearrangedSnapshot:
        return _RearrangedSnapshot(self.ours, self.before)

    @cached_property
    def rearranged_after(self) -> _RearrangedSnapshot:
        return _RearrangedSnapshot(self.ours, self.after)

    @property
    def moved_groups(self) -> dict[str, str]:
        return self.rearranged_after.groups

    def leaves(self, node: Node | NodeFootprint) -> bool:
        return self.ours.takes_away(node, self.moved_groups)

    def key_snapshot(self, key: str) -> SnapshotId | None:
        return self.theirs.keys.get(key)


# -- nodes that come ----------------------------------------------------------------------------------------------


def _creations(view: _View) -> Iterator[Conflict]:
    for change in view.ours.changes(Operation.CREATED):
        occupant = view.after.nodes.get(node_key(change.path, change.kind))
        if occupant is not None and not view.leaves(occupant):
            what = occupant.kind.name.lower()
            yield view.conflict(
                ConflictType.NewNodeConflictsWithExistingNode,
                change,
                view.key_snapshot(occupant.key),
                f"both created it; theirs is a different {what}",
            )
            continue
        problem = _place_problem(view, change.path, change.kind)
        if problem is not None:
            yield view.conflict(ConflictType.NewNodeInInvalidGroup, change, *problem)
    yield from _buried(view, Operation.CREATED, ConflictType.NewNodeConflictsWithExistingNode)


def _place_problem(view: _View, path: str, kind: NodeKind) -> tuple[SnapshotId | None, str] | None:
    """Tell why no node can be at a path by now: its parent is gone, or an array."""
    for above in ancestors(path):
        if above in view.ours.places:
            return None  # ours puts a node there, which is checked for itself
        was, now = view.rearranged_before.node_at(above), view.rearranged_after.node_at(above)
        if now is not None and now.kind == NodeKind.ARRAY and (was is None or was.id != now.id):
            return view.key_snapshot(now.key), f"{'/' + above!r} above it is an array by now"
        if was is None or was.kind != NodeKind.GROUP or kind == NodeKind.FILE:
            continue
        if now is None or (now.id != was.id and view.after.by_id(was.id) is not None):
            return view.key_snapshot(was.key), f"its group {'/' + above!r} was deleted or moved away"
    return None


def _buried(view: _View, operation: Operation, kind: ConflictType) -> Iterator[Conflict]:
    """Find arrays of ours, or groups that ours moves, that would come to stand above something new of theirs."""
    places = {
        (change.target or "") if operation == Operation.MOVED else change.path: change
        for change in view.ours.changes(operation)
        if change.kind == NodeKind.ARRAY or (operation == Operation.MOVED and change.kind == NodeKind.GROUP)
    }
    if not places:
        return
    for node in view.arrivals:
        for above in ancestors(node.key.removeprefix("\0")):
            if above in places and not view.leaves(node):
                detail = f"theirs put {node.path!r} below it"
                yield view.conflict(kind, places[above], node.created or node.moved, detail)
                break


def _moves(view: _View) -> Iterator[Conflict]:
    for change in view.ours.changes(Operation.MOVED):
        theirs = view.theirs.nodes.get(change.id)
        target = change.target or ""
        occupant = view.after.nodes.get(node_key(target, change.kind))
        if theirs is not None and theirs.deleted:
            yield view.conflict(_MOVE, change, theirs.deleted, "ours moves it, theirs deleted it")
        elif theirs is not None and theirs.moved:
            yield view.conflict(_MOVE, change, theirs.moved, f"both moved it; theirs to {theirs.path!r}")
        elif occupant is not None and occupant.id != change.id and not view.leaves(occupant):
            snapshot = view.key_snapshot(occupant.key)
            yield view.conflict(_MOVE, change, snapshot, f"ours moves it to {'/' + target!r}, where theirs has a node")
        elif (problem := _place_problem(view, target, change.kind)) is not None:
            yield view.conflict(_MOVE, change, problem[0], f"ours moves it to {'/' + target!r}, but {problem[1]}")
    yield from _buried(view, Operation.MOVED, _MOVE)


def _carried(view: _View) -> Iterator[Conflict]:
    """Find what theirs put into groups that ours moves, where ours has put something at its new place."""
    moved, groups = view.ours.changes(Operation.MOVED), view.moved_groups
    if not groups:
        return
    taken = {node_key(change.target or "", change.kind): change for change in moved}
    taken |= {node_key(change.path, change.kind): change for change in view.ours.changes(Operation.CREATED)}
    above = {path: change for key, change in taken.items() for path in ancestors(key.removeprefix("\0"))}
    for node in view.arrivals:
        path = taken_along(node.key.removeprefix("\0"), groups)
        if path is None or node.id in view.ours.leaving:
            continue
        rivals = [taken.get(node_key(path, node.kind)), above.get(path) if node.kind == NodeKind.ARRAY else None]
        rivals += [taken[each] for each in ancestors(path) if each in taken and taken[each].kind == NodeKind.ARRAY]
        for change in rivals:
            if change is not None:
                came = change.operation == Operation.CREATED
                kind = ConflictType.NewNodeConflictsWithExistingNode if came else _MOVE
                detail = (
                    f"theirs put {node.path!r} into a group that ours moves, which would bring it to {'/' + path!r}"
                )
                yield view.conflict(kind, change, node.created or node.moved, detail)
                break


# -- metadata -----------------------------------------------------------------------------------------------------


def _updates(view: _View) -> Iterator[Conflict]:
    for change in view.ours.changes(Operation.UPDATED):
        theirs = view.theirs.nodes.get(change.id)
        if theirs is None:
            continue
        if theirs.deleted:
            of_array = change.kind == NodeKind.ARRAY
            kinds = ConflictType.ZarrMetadataUpdateOfDeletedArray, ConflictType.ZarrMetadataUpdateOfDeletedGroup
            detail = "ours changes its metadata, theirs deleted it"
            yield view.conflict(kinds[0] if of_array else kinds[1], change, theirs.deleted, detail)
            continue
        if theirs.updated or (theirs.appended and not keeps_shape(view.ours, view.before, change)):
            yield _double_update(view, change, theirs)
        if change.kind != NodeKind.ARRAY or not theirs.chunks:
            continue
        if _reshapes(view.before, change):
            coords = np.unique(np.concatenate([cells.coords() for cells in theirs.cells()]), axis=0)
            yield view.conflict(
                ConflictType.ZarrMetadataUpdateOfUpdatedChunks,
                change,
                theirs.chunks[-1].snapshot,
                "ours changes how its chunks are read, theirs wrote chunks as they were read before",
                coords,
            )


def _reshapes(before: SnapshotState, change: NodeChange) -> bool:
    """Tell whether an update of an array changes how its chunks are read."""
    node = before.by_id(change.id)
    return node is not None and not reads_alike(node.documents, change.applied_to(node.documents))


def keeps_shape(ours: Ours, before: SnapshotState, change: NodeChange) -> bool:
    """Tell whether an update of an array changes plain attributes only, or nothing but these beside an append.

    Beside an append it is written for the length before that.
    """
    node = before.by_id(change.id)
    if change.id in ours.marks and not any(c.append is not None and c.id == change.id for c in ours.log.nodes):
        return False  # it grew at an end that is not that of a chunk
    if node is None or change.kind != NodeKind.ARRAY:
        return False
    merged = change.applied_to(node.documents)
    return same_shape(node.documents, merged) and reads_alike(node.documents, merged)


def _double_update(view: _View, change: NodeChange, theirs: NodeFootprint) -> Conflict:
    mark = view.ours.marks.get(change.id)
    if mark is not None and not mark.aligned and _grew(view, change.id, mark.axis):
        return view.conflict(ConflictType.UnalignedAppend, change, _newest(theirs), _advice(mark, mark.start))
    if theirs.updated:
        return view.conflict(ConflictType.ZarrMetadataDoubleUpdate, change, theirs.updated, "both changed its metadata")
    detail = "theirs appended to it, ours changes its shape or how its chunks are read"
    return view.conflict(ConflictType.ZarrMetadataDoubleUpdate, change, theirs.appended, detail)


def _grew(view: _View, identifier: NodeId, axis: int) -> bool:
    """Tell whether theirs made an array longer along a dimension: an append, even one that could not be noted so."""
    was, now = view.before.by_id(identifier), view.after.by_id(identifier)
    if was is None or now is None or not reads_alike(was.documents, now.documents):
        return False
    return dimension_of(was.documents, axis).length < dimension_of(now.documents, axis).length


def _advice(mark: AppendMark, end: int) -> str:
    if mark.chunk is None:
        return "both appended to it, and its chunks differ in length: only regular chunks can be moved"
    return (
        f"both appended to it, and its end at {end} is not a multiple of its chunks' length {mark.chunk}: choose "
        f"chunks whose length divides every append (for instance {_divisor(end, mark.chunk)}), or "
        "append in multiples of it"
    )


def _divisor(end: int, chunk: int) -> int:
    return int(np.gcd(end, chunk)) or 1


def _appends(view: _View) -> Iterator[Conflict]:
    lengths: dict[tuple[str, int, str | None], int] = {}
    for change in view.ours.changes(Operation.APPENDED):
        append, theirs = change.append, view.theirs.nodes.get(change.id)
        assert append is not None
        if theirs is not None and theirs.deleted:
            detail = "ours appends to it, theirs deleted it"
            yield view.conflict(ConflictType.ZarrMetadataUpdateOfDeletedArray, change, theirs.deleted, detail)
            continue
        now, was = view.after.by_id(change.id), view.before.by_id(change.id)
        if now is None or was is None:
            continue
        end = dimension_of(now.documents, append.axis)
        together = change.path.rpartition("/")[0], append.start, dimension_name(was.documents, append.axis)
        if theirs is not None and _reshaped_otherwise(theirs, append.axis, was, now):
            detail = "ours appends to it, theirs changed its shape or how its chunks are read"
            yield view.conflict(ConflictType.ZarrMetadataDoubleUpdate, change, theirs.updated, detail)
        elif end.chunk != append.chunk or end.length % append.chunk:
            mark = AppendMark(append.axis, append.start, append.chunk)
            snapshot = theirs.appended if theirs is not None else None
            yield view.conflict(ConflictType.UnalignedAppend, change, snapshot, _advice(mark, end.length))
        elif lengths.setdefault(together, end.length) != end.length:
            detail = (
                f"it is {end.length} long by now, another array that ours appends to {lengths[together]}: "
                "append to all arrays of a dimension together"
            )
            yield view.conflict(ConflictType.UnalignedAppend, change, _newest(theirs), detail)


def _newest(theirs: NodeFootprint | None) -> SnapshotId | None:
    return None if theirs is None else theirs.appended or theirs.updated


def _reshaped_otherwise(theirs: NodeFootprint, axis: int, was: Node, now: Node) -> bool:
    """Tell whether theirs did more to an array than to append along the same dimension, or to change attributes."""
    old, new = array_info(was.documents).shape, array_info(now.documents).shape
    others = any(a != b for i, (a, b) in enumerate(zip(old, new, strict=False)) if i != axis)
    if theirs.reshaped or theirs.axes - {axis} or others:
        return True
    return bool(theirs.updated) and not theirs.appended and old != new


# -- chunks -------------------------------------------------------------------------------------------------------


def _chunks(view: _View) -> Iterator[Conflict]:
    touched = {change.node for change in view.ours.log.chunks} | view.ours.cuts.keys()
    created = {change.id for change in view.ours.changes(Operation.CREATED)}
    for node in sorted(touched - created):
        theirs = view.theirs.nodes.get(node)
        if theirs is None:
            continue
        cells = view.ours.cells.get(node, [])
        if theirs.deleted:
            detail = "ours wrote chunks of it, theirs deleted it"
            yield view.conflict(
                ConflictType.ChunksUpdatedInDeletedArray, theirs, theirs.deleted, detail, _coords(cells)
            )
        elif theirs.reshaped and cells:
            detail = "ours wrote chunks of it, theirs changed how its chunks are read"
            yield view.conflict(
                ConflictType.ChunksUpdatedInUpdatedArray, theirs, theirs.reshaped, detail, _coords(cells)
            )
        elif theirs.chunks:
            both = _both_wrote(view, node, cells, theirs)
            if len(both):
                yield view.conflict(
                    ConflictType.ChunkDoubleUpdate,
                    theirs,
                    theirs.snapshot_of(both),
                    f"both wrote {'this chunk' if len(both) == 1 else f'these {len(both)} chunks'}",
                    both,
                )


def _both_wrote(view: _View, node: NodeId, cells: Sequence[Cells], theirs: NodeFootprint) -> np.ndarray:
    """Return the cells that both wrote; what ours cut off counts as written by it, whether a chunk was there or not."""
    cut = view.ours.cuts.get(node)
    if cut is None and not cells:
        return np.empty((0, 0), dtype=np.int64)  # an append, which writes behind whatever theirs wrote
    written = theirs.cells()
    both = shared(cells, written) if cells else np.empty((0, len(written[0].box.low)), dtype=np.int64)
    updates = (change for change in view.ours.changes(Operation.UPDATED) if change.id == node)
    if cut is None or any(_reshapes(view.before, change) for change in updates):
        return both  # a shrink that lasts collides as such
    coords = np.concatenate([part.coords() for part in written])
    outside = coords[(coords >= np.array(cut, dtype=np.int64)).any(axis=1)]
    return np.unique(np.concatenate([both, outside]), axis=0)


def _coords(cells: Sequence[Cells]) -> np.ndarray | None:
    return np.concatenate([part.coords() for part in cells]) if cells else None


# -- nodes that go ------------------------------------------------------------------------------------------------


def _deletions(view: _View) -> Iterator[Conflict]:
    deleted = view.ours.changes(Operation.DELETED)
    groups: dict[str, NodeChange] = {}
    for change in deleted:
        theirs = view.theirs.nodes.get(change.id)
        if change.kind == NodeKind.GROUP and change.id in view.after.keys:
            groups[view.after.keys[change.id]] = change
        if theirs is None:
            continue
        if theirs.deleted:
            yield view.conflict(ConflictType.DeleteOfDeletedNode, change, theirs.deleted, "both deleted it")
            continue
        changed = theirs.updated or theirs.appended
        snapshot = changed or theirs.moved
        detail = "ours deletes it, theirs changed it" if changed or theirs.chunks else DELETES_MOVED
        if change.kind == NodeKind.GROUP:
            if snapshot:
                yield view.conflict(ConflictType.DeleteOfUpdatedGroup, change, snapshot, detail)
        elif snapshot or theirs.chunks:
            cells = _coords(theirs.cells())
            newest = theirs.chunks[-1].snapshot if theirs.chunks else snapshot
            yield view.conflict(ConflictType.DeleteOfUpdatedArray, change, newest, detail, cells)
    yield from _orphaned(view, groups)


def _orphaned(view: _View, groups: Mapping[str, NodeChange]) -> Iterator[Conflict]:
    """Find what theirs put into groups that ours deletes."""
    if not groups:
        return
    for node in view.arrivals:
        for above in ancestors(node.key.removeprefix("\0")):
            if above in view.moved_groups or node.id in view.ours.leaving:
                break  # ours takes it elsewhere
            if above in groups:
                detail = f"ours deletes it, theirs put {node.path!r} into it"
                snapshot = node.created or node.moved
                yield view.conflict(ConflictType.DeleteOfUpdatedGroup, groups[above], snapshot, detail)
                break
