"""Footprints: the changes of consecutive transactions, as later ones have to see them.

Conflicts are detected against a footprint: per node its changes, and the snapshots that made them; the keys at which a
node has appeared or vanished; and the cells of chunks, which stay columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from arraystore._chunks.cells import Cells, any_shared, cells_of
from arraystore._format.ids import NodeId, SnapshotId, id_to_text
from arraystore._format.node import Documents, NodeKind, node_key
from arraystore._format.transaction import ChunkChange, NodeChange, Operation, TransactionLog
from arraystore._format.types import Int64s
from arraystore._format.zarr_changes import dimension_of, reads_alike, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._log.state import Resolved, SnapshotState, taken_along
from arraystore._runtime.values import dataclass


@dataclass(frozen=True)
class Written:
    """Chunks that one transaction wrote or deleted."""

    snapshot: SnapshotId
    """Snapshot of the transaction."""
    change: ChunkChange
    shift: tuple[int, ...] | None = None
    """Shift by an append, in chunks; None for none."""

    def cells(self) -> Cells:
        """Return the cells after the shift."""
        cells = cells_of(f"change log of snapshot {id_to_text(self.snapshot)}", self.change)
        return cells if self.shift is None else cells.shifted(self.shift)


@dataclass
class NodeFootprint:
    """Changes of one node; each field has the newest snapshot that made such a change, None for none."""

    id: NodeId
    kind: NodeKind
    key: str
    """Key that it ended up with (see `arraystore._format.node.node_key`), or was deleted at."""
    created: SnapshotId | None = None
    deleted: SnapshotId | None = None
    moved: SnapshotId | None = None
    updated: SnapshotId | None = None
    """Newest snapshot that changed a metadata document."""
    reshaped: SnapshotId | None = None
    """Newest snapshot that changed how chunks are read (see `arraystore._format.zarr_changes.reads_alike`)."""
    appended: SnapshotId | None = None
    """Newest snapshot that appended to it."""
    axes: set[int] = field(default_factory=set)
    """Dimensions that were appended to."""
    chunks: list[Written] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Path with a leading slash."""
        return "/" + self.key.removeprefix("\0")

    def cells(self) -> list[Cells]:
        """Return the cells that were written or deleted."""
        return [written.cells() for written in self.chunks]

    def snapshot_of(self, coords: Int64s) -> SnapshotId:
        """Return the newest snapshot that wrote any of these cells."""
        wanted = [Cells.of(coords)]
        for written in reversed(self.chunks):
            if any_shared(wanted, [written.cells()]):
                return written.snapshot
        return self.chunks[-1].snapshot


@dataclass
class Footprint:
    """Changes of some transactions."""

    nodes: dict[NodeId, NodeFootprint] = field(default_factory=dict)
    """Footprints by node id."""
    keys: dict[str, SnapshotId] = field(default_factory=dict)
    """Keys at which a node appeared or vanished, with the newest snapshot that did it."""
    documents: dict[NodeId, Documents] = field(default_factory=dict)
    """Metadata documents of the changed nodes after the transactions, except for `lengths`."""
    lengths: dict[NodeId, dict[int, int]] = field(default_factory=dict)
    """Lengths after appends, by array and axis, since encoding documents for each of a thousand appends takes too long.
    """

    def add(self, before: SnapshotState, snapshot: SnapshotId, log: TransactionLog) -> None:
        """Add one transaction; `before` is the state before the first one that was added."""
        shifts: dict[NodeId, tuple[int, ...]] = {}
        moves = [change for change in log.nodes if change.operation == Operation.MOVED]
        for change in log.nodes:
            node = self._node(before, change)
            if change.operation == Operation.CREATED:
                node.created = snapshot
                self.keys[node.key] = snapshot
                self.documents[node.id] = change.applied_to({})
            elif change.operation == Operation.DELETED:
                node.deleted = snapshot
                self.keys[node.key] = snapshot
            elif change.operation == Operation.MOVED:
                self._move(before, moves, snapshot)  # all at once: what comes to their old places later stays there
                moves = []
            elif change.append is not None:
                node.appended = snapshot
                node.axes.add(change.append.axis)
                shifts[change.id] = self._append(change)
            else:
                self._update(node, change, snapshot)
        for chunk in log.chunks:
            node = self._of_id(before, chunk.node)
            node.chunks.append(Written(snapshot, chunk, shifts[chunk.node] if chunk.appended else None))

    def _node(self, before: SnapshotState, change: NodeChange) -> NodeFootprint:
        if change.operation == Operation.CREATED:
            node = NodeFootprint(change.id, change.kind, node_key(change.path, change.kind))
            self.nodes[change.id] = node
            return node
        return self._of_id(before, change.id)

    def _of_id(self, before: SnapshotState, identifier: NodeId) -> NodeFootprint:
        footprint = self.nodes.get(identifier)
        if footprint is None:
            node = before.nodes[before.keys[identifier]]
            footprint = self.nodes[identifier] = NodeFootprint(identifier, node.kind, node.key)
            self.documents[identifier] = node.documents
        return footprint

    def _update(self, node: NodeFootprint, change: NodeChange, snapshot: SnapshotId) -> None:
        old = self.documents[node.id]
        for axis, length in self.lengths.pop(node.id, {}).items():
            old = with_length(old, axis, length)
        new = change.applied_to(old)
        node.updated = snapshot
        if node.kind == NodeKind.ARRAY and not reads_alike(old, new):
            node.reshaped = snapshot
        self.documents[node.id] = new

    def _append(self, change: NodeChange) -> tuple[int, ...]:
        append = change.append
        assert append is not None
        documents = self.documents[change.id]
        lengths = self.lengths.setdefault(change.id, {})
        length = lengths.get(append.axis)
        if length is None:
            length = dimension_of(documents, append.axis).length
        lengths[append.axis] = length + append.items
        return append.shift(length, len(array_info(documents).shape))

    def _move(self, before: SnapshotState, moves: Iterable[NodeChange], snapshot: SnapshotId) -> None:
        """Note moves, including those of nodes below a moved group."""
        moved: dict[str, str] = {}
        groups: dict[str, str] = {}
        for change in moves:
            if change.target is not None:
                key = self._of_id(before, change.id).key
                moved[key] = change.target
                if change.kind == NodeKind.GROUP:
                    groups[key] = change.target
        if not moved:
            return
        for key, node in before.nodes.items():
            footprint = self.nodes.get(node.id)
            now = key if footprint is None else footprint.key
            target = moved.get(now)
            if target is None:
                target = taken_along(now.removeprefix("\0"), groups)
            if target is not None and (footprint is None or footprint.deleted is None):
                footprint = self._of_id(before, node.id)
                self._relocate(footprint, target, snapshot)
        for footprint in list(self.nodes.values()):
            if footprint.id not in before.keys and footprint.deleted is None:
                target = moved.get(footprint.key)
                if target is None:
                    target = taken_along(footprint.key.removeprefix("\0"), groups)
                if target is not None:
                    self._relocate(footprint, target, snapshot)

    def _relocate(self, node: NodeFootprint, target: str, snapshot: SnapshotId) -> None:
        node.moved = snapshot
        self.keys[node.key] = snapshot
        node.key = node_key(target, node.kind)
        self.keys[node.key] = snapshot


def footprint_of(before: SnapshotState, transactions: Iterable[Resolved]) -> Footprint:
    """Return the footprint of transactions that follow a state, in their order."""
    footprint = Footprint()
    for transaction, log, _ in transactions:
        footprint.add(before, transaction.id, log)
    return footprint
