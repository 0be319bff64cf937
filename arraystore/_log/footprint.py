"""What transactions that were committed one after the other have changed, as whoever comes later has to see it.

A footprint is what conflicts are detected against: per node what happened to it, and by which snapshot; the keys at
which a node has appeared or vanished; and the cells of chunks, which stay columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from arraystore._chunks.cells import Cells, any_shared, cells_of
from arraystore._format.ids import id_to_text
from arraystore._format.node import Documents, NodeKind, node_key
from arraystore._format.transaction import ChunkChange, NodeChange, Operation, TransactionLog
from arraystore._format.zarr_changes import dimension_of, reads_alike, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._log.branch_log import Resolved
from arraystore._log.state import State, taken_along

__all__ = ["Footprint", "NodeFootprint", "Written", "footprint_of"]


@dataclass(frozen=True)
class Written:
    """Chunks that one transaction wrote or deleted.

    Parameters
    ----------
    snapshot
        That it made.
    change
        From its log.
    shift
        How far an append moved them, in chunks; None for not at all.
    """

    snapshot: bytes
    change: ChunkChange
    shift: tuple[int, ...] | None = None

    def cells(self) -> Cells:
        """Return the cells, where they ended up."""
        found = cells_of(f"change log of snapshot {id_to_text(self.snapshot)}", self.change)
        return found if self.shift is None else found.shifted(self.shift)


@dataclass
class NodeFootprint:
    """What happened to one node; each field names the newest snapshot that did it, None for nobody.

    Parameters
    ----------
    id, kind
        Of the node.
    key
        Where it was at the end (see `arraystore._format.node.node_key`), or where it was deleted.
    created, deleted, moved
        The node itself.
    updated
        A metadata document.
    reshaped
        How its chunks are read: see `arraystore._format.zarr_changes.reads_alike`.
    appended
        It grew by an append.
    axes
        Along which dimensions it was appended to.
    chunks
        Chunks that were written or deleted.
    """

    id: bytes
    kind: NodeKind
    key: str
    created: bytes | None = None
    deleted: bytes | None = None
    moved: bytes | None = None
    updated: bytes | None = None
    reshaped: bytes | None = None
    appended: bytes | None = None
    axes: set[int] = field(default_factory=set)
    chunks: list[Written] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Its path, with a slash in front."""
        return "/" + self.key.removeprefix("\0")

    def cells(self) -> list[Cells]:
        """Return the cells that were written or deleted."""
        return [written.cells() for written in self.chunks]

    def snapshot_of(self, coords: npt.NDArray[np.int64]) -> bytes:
        """Return the newest snapshot that wrote any of these cells."""
        wanted = [Cells.of(coords)]
        for written in reversed(self.chunks):
            if any_shared(wanted, [written.cells()]):
                return written.snapshot
        return self.chunks[-1].snapshot


@dataclass
class Footprint:
    """What some transactions changed.

    Parameters
    ----------
    nodes
        By id.
    keys
        Keys at which a node appeared or vanished, with the newest snapshot that did it.
    documents
        Metadata documents of nodes that the transactions touched, as they are after them but for `lengths`.
    lengths
        Of arrays that have grown by appends since their documents were written here last, by array and axis.  To
        write the documents anew for each of a thousand appends would take longer than all else.
    """

    nodes: dict[bytes, NodeFootprint] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    documents: dict[bytes, Documents] = field(default_factory=dict)
    lengths: dict[bytes, dict[int, int]] = field(default_factory=dict)

    def add(self, before: State, snapshot: bytes, log: TransactionLog) -> None:
        """Add one transaction.

        Parameters
        ----------
        before
            The state before the first transaction that was added.
        snapshot
            The one that it made.
        log
            Its changes.
        """
        shifts: dict[bytes, tuple[int, ...]] = {}
        moved: dict[str, str] = {}
        for change in log.nodes:
            node = self._node(before, change)
            if change.operation == Operation.CREATED:
                node.created = snapshot
                self.keys[node.key] = snapshot
                self.documents[node.id] = change.applied_to({})
            elif change.operation == Operation.DELETED:
                node.deleted = snapshot
                self.keys[node.key] = snapshot
            elif change.operation == Operation.MOVED and change.target is not None:
                node.moved = snapshot
                moved[node.key] = change.target
            elif change.append is not None:
                node.appended = snapshot
                node.axes.add(change.append.axis)
                shifts[change.id] = self._append(change)
            else:
                self._update(node, change, snapshot)
        if moved:
            self._move(before, moved, snapshot)
        for chunk in log.chunks:
            node = self._of_id(before, chunk.node)
            node.chunks.append(Written(snapshot, chunk, shifts[chunk.node] if chunk.appended else None))

    def _node(self, before: State, change: NodeChange) -> NodeFootprint:
        if change.operation == Operation.CREATED:
            found = NodeFootprint(change.id, change.kind, node_key(change.path, change.kind))
            self.nodes[change.id] = found
            return found
        return self._of_id(before, change.id)

    def _of_id(self, before: State, identifier: bytes) -> NodeFootprint:
        found = self.nodes.get(identifier)
        if found is None:
            node = before.nodes[before.keys[identifier]]
            found = self.nodes[identifier] = NodeFootprint(identifier, node.kind, node.key)
            self.documents[identifier] = node.documents
        return found

    def _update(self, node: NodeFootprint, change: NodeChange, snapshot: bytes) -> None:
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

    def _move(self, before: State, moved: dict[str, str], snapshot: bytes) -> None:
        """Note moves, and what went along with them."""
        for key, node in before.nodes.items():
            found = self.nodes.get(node.id)
            now = key if found is None else found.key
            target = moved.get(now)
            if target is None:
                target = taken_along(now.removeprefix("\0"), moved)
            if target is not None and (found is None or found.deleted is None):
                found = self._of_id(before, node.id)
                self._relocate(found, target, snapshot)
        for found in list(self.nodes.values()):
            if found.id not in before.keys and found.deleted is None:
                target = moved.get(found.key) or taken_along(found.key.removeprefix("\0"), moved)
                if target is not None:
                    self._relocate(found, target, snapshot)

    def _relocate(self, node: NodeFootprint, target: str, snapshot: bytes) -> None:
        node.moved = snapshot
        self.keys[node.key] = snapshot
        node.key = node_key(target, node.kind)
        self.keys[node.key] = snapshot


def footprint_of(before: State, transactions: Iterable[Resolved]) -> Footprint:
    """Return the footprint of transactions that follow a state, in their order."""
    footprint = Footprint()
    for transaction, log, _ in transactions:
        footprint.add(before, transaction.id, log)
    return footprint
