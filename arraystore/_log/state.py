"""Snapshots in memory, and how the entries of a log change them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from functools import cached_property
from typing import NamedTuple

from arraystore._format.ids import CheckpointId, NodeId, SnapshotId
from arraystore._format.layer import Layer
from arraystore._format.lifecycle import NEW_LIFE, BranchLife, Deleted, Expiry, Fence
from arraystore._format.node import Node, NodeKind, ancestors
from arraystore._format.record import Replacement, Transaction, encode_note
from arraystore._format.reserved_keys import has_visible_files
from arraystore._format.snapshot import Checkpoint, PageRef
from arraystore._format.transaction import Append, NodeChange, Operation, TransactionLog
from arraystore._format.zarr_changes import dimension_of, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError, InvalidInputError

NO_NOTE = encode_note("", {})
"""Note of a state that no commit created."""


@dataclass(frozen=True)
class CheckpointRef:
    """Checkpoint: number of its record, its id, and the digest of the log that it contains, if known."""

    sequence: int
    id: CheckpointId
    digest: bytes | None = field(default=None, compare=False)


class Resolved(NamedTuple):
    """Transaction with its change log and its encoded note, which may be outside of the body of its record."""

    transaction: Transaction
    log: TransactionLog
    note: bytes


@dataclass(frozen=True)
class SnapshotState:
    """Snapshot of a branch at a record; immutable."""

    branch: str
    sequence: int
    snapshot: SnapshotId
    parent: SnapshotId | None
    time: int
    note: bytes
    nodes: dict[str, Node]
    """Nodes by key."""
    keys: dict[NodeId, str]
    """Key of each node by id."""
    pages: tuple[PageRef, ...] = ()
    """Directory of history pages, as of the checkpoint."""
    checkpoint: CheckpointRef | None = None
    """Checkpoint at or before this record; None where the log's start is."""
    detached: int = 0
    """Count of change logs since that checkpoint that are not in bodies of records, each of which takes a request."""
    life: BranchLife = NEW_LIFE
    """Creation, fences, expiry and deletion of the branch, as its log has them."""
    recorded: bool = True
    """Whether a record of the log creates it; without (uncommitted changes, or no branch) it is no base of commits."""

    @cached_property
    def has_files(self) -> bool:
        """Tell whether a node is a file that is not hidden."""
        return has_visible_files(self.nodes)

    def by_id(self, identifier: NodeId) -> Node | None:
        """Return a node by its id; None if there is none."""
        key = self.keys.get(identifier)
        return None if key is None else self.nodes[key]

    def committed(self, sequence: int, transactions: Iterable[Resolved]) -> SnapshotState:
        """Return the state after one commit; see `StateBuilder.commit`."""
        builder = StateBuilder(self)
        builder.commit(sequence, transactions)
        return builder.build()

    def rewritten(self, sequence: int, replacements: Iterable[Replacement]) -> SnapshotState:
        """Return the state after one rewrite."""
        builder = StateBuilder(self)
        builder.rewrite(sequence, replacements)
        return builder.build()

    def lived(self, sequence: int, entry: Deleted | Fence | Expiry) -> SnapshotState:
        """Return the state after an entry that changes no data; the state of a deleted branch has no nodes."""
        now = replace(self, sequence=sequence, life=self.life.after(sequence, entry))
        if isinstance(entry, Deleted):
            return replace(now, time=entry.time, note=NO_NOTE, nodes={}, keys={})
        return now

    def to_checkpoint(self, pages: tuple[PageRef, ...]) -> Checkpoint:
        """Return this state as a checkpoint."""
        return Checkpoint(
            self.branch,
            self.sequence,
            self.snapshot,
            self.parent,
            self.time,
            self.note,
            tuple(self.nodes.values()),
            pages,
            self.life,
        )


def is_detached(state: SnapshotState) -> bool:
    """Tell whether a snapshot is on no branch: its checkpoint has its own id."""
    return state.checkpoint is not None and state.checkpoint.id == CheckpointId(state.snapshot)


class StateBuilder:
    """Applies many entries of a log to a state with one copy of its tables; the state itself is not changed."""

    def __init__(self, state: SnapshotState) -> None:
        self._state = state
        self._nodes = state.nodes
        self._keys = state.keys
        self._own = False
        self._fileless = state.__dict__.get("has_files") is False

    def _detach(self) -> None:
        """Copy the tables before they are changed, unless they are not shared."""
        if not self._own:
            self._nodes, self._keys, self._own = dict(self._nodes), dict(self._keys), True

    def commit(self, sequence: int, transactions: Iterable[Resolved]) -> None:
        """Apply a commit of transactions, each with its log and its encoded note."""
        name = self._name(sequence)
        self._detach()
        nodes, keys = self._nodes, self._keys
        detached = self._state.detached
        for transaction, log, note in transactions:
            if not follows(transaction, self._state.snapshot, self._state.parent):
                raise FormatError(name, "a transaction must follow the snapshot before it")
            detached += not isinstance(transaction.log, TransactionLog)
            shifts = self._apply_nodes(log.nodes, name)
            for chunk in log.chunks:
                key = keys.get(chunk.node)
                if key is None:
                    raise FormatError(name, "chunks of a node that does not exist")
                layer = _shifted(chunk.layer, shifts[chunk.node]) if chunk.appended else chunk.layer
                nodes[key] = _with_layer(nodes[key], layer, name)
            self._state = replace(
                self._state, snapshot=transaction.id, parent=transaction.parent, time=transaction.time, note=note
            )
        self._state = replace(self._state, sequence=sequence, detached=detached)

    def change_nodes(self, changes: tuple[NodeChange, ...]) -> None:
        """Apply changes of nodes, without chunks; the record stays the same."""
        self._detach()
        self._apply_nodes(changes, self._name(self._state.sequence))

    def _apply_nodes(self, changes: tuple[NodeChange, ...], name: str) -> dict[NodeId, tuple[int, ...]]:
        self._fileless = self._fileless and not any(change.kind == NodeKind.FILE for change in changes)
        return _apply_nodes(self._nodes, self._keys, changes, name)

    def rewrite(self, sequence: int, replacements: Iterable[Replacement]) -> None:
        """Apply a rewrite."""
        self._detach()
        for item in replacements:
            key = self._keys.get(item.node)
            if key is None:
                continue  # deleted since the rewrite was prepared
            layers = replaced_layers(self._nodes[key].layers, item)
            if layers is None:
                raise FormatError(self._name(sequence), "a rewrite of layers that are not there")
            self._nodes[key] = replace(self._nodes[key], layers=layers)
        self._state = replace(self._state, sequence=sequence)

    def live(self, sequence: int, entry: Deleted | Fence | Expiry) -> None:
        """Apply an entry that changes no data."""
        self._state = self._state.lived(sequence, entry)
        if isinstance(entry, Deleted):
            self._nodes, self._keys, self._own = {}, {}, True

    def peek(self) -> SnapshotState:
        """Return the resulting state as a view, which changes with the builder."""
        state = replace(self._state, nodes=self._nodes, keys=self._keys)
        if self._fileless:  # carried on: to look through ten thousand keys again takes half a millisecond each commit
            state.__dict__["has_files"] = False
        return state

    def build(self) -> SnapshotState:
        """Return the resulting state; the builder may go on."""
        self._own = False
        return self.peek()

    def _name(self, sequence: int) -> str:
        return f"record {sequence} of branch {self._state.branch!r}"


def follows(transaction: Transaction, snapshot: SnapshotId, parent: SnapshotId | None) -> bool:
    """Tell whether a transaction is based on a snapshot, or amends it."""
    if transaction.amends is None:
        return transaction.parent == snapshot
    return transaction.amends == snapshot and transaction.parent == parent


def replaced_layers(layers: tuple[Layer, ...], item: Replacement) -> tuple[Layer, ...] | None:
    """Return layers with a run of neighbours replaced; None if the run is not there."""
    ids = [layer.id for layer in layers]
    if item.first not in ids or item.last not in ids:
        return None
    at, end = ids.index(item.first), ids.index(item.last) + 1
    if end - at != item.count:
        return None
    return layers[:at] + item.added + layers[end:]


def empty_state(
    branch: str, sequence: int, snapshot: SnapshotId, parent: SnapshotId | None, time: int, note: bytes
) -> SnapshotState:
    """Return a snapshot without nodes."""
    return SnapshotState(branch, sequence, snapshot, parent, time, note, {}, {})


def state_from_checkpoint(checkpoint: Checkpoint, identifier: CheckpointId) -> SnapshotState:
    """Return the state that a checkpoint holds."""
    nodes = {node.key: node for node in checkpoint.nodes}
    return SnapshotState(
        checkpoint.branch,
        checkpoint.sequence,
        checkpoint.snapshot,
        checkpoint.parent,
        checkpoint.time,
        checkpoint.note,
        nodes,
        {node.id: key for key, node in nodes.items()},
        checkpoint.pages,
        CheckpointRef(checkpoint.sequence, identifier, checkpoint.digest),
        life=checkpoint.life,
    )


def _with_layer(node: Node, layer: Layer, name: str) -> Node:
    """Add a layer to those of a node; raises `FormatError` if their dimensions differ."""
    if node.layers:
        dimensions = len(node.layers[0].box.low)
    elif node.kind == NodeKind.ARRAY:
        try:
            dimensions = len(array_info(node.documents).grid)
        except InvalidInputError as error:
            raise FormatError(name, f"array {node.path!r}: {error}") from None
    else:
        dimensions = 0
    if node.kind == NodeKind.GROUP or len(layer.box.low) != dimensions:
        raise FormatError(
            name, f"a layer of {len(layer.box.low)} dimensions for {node.kind.name.lower()} {node.path!r}"
        )
    return replace(node, layers=(*node.layers, layer))


def _shifted(layer: Layer, shift: tuple[int, ...]) -> Layer:
    return replace(layer, box=layer.box.shifted(shift), shift=shift) if any(shift) else layer


def _apply_nodes(
    nodes: dict[str, Node], keys: dict[NodeId, str], changes: tuple[NodeChange, ...], name: str
) -> dict[NodeId, tuple[int, ...]]:
    """Apply changes of nodes; returns how far the new chunks move, in chunks, per array that was appended to."""
    shifts: dict[NodeId, tuple[int, ...]] = {}
    moves = tuple(change for change in changes if change.operation == Operation.MOVED)
    for change in changes:
        if change.operation == Operation.MOVED:
            _move(nodes, keys, moves, name)  # all of them at once, in place of the first one
            moves = ()
        elif change.append is not None:
            shifts[change.id] = _append(nodes, keys, change, change.append, name)
        else:
            _apply_node(nodes, keys, change, name)
    return shifts


def _append(
    nodes: dict[str, Node], keys: dict[NodeId, str], change: NodeChange, append: Append, name: str
) -> tuple[int, ...]:
    """Append to an array at its present end; returns how far that is from the end at which the append was prepared."""
    node = nodes.get(keys.get(change.id, ""))
    if node is None or node.id != change.id or node.kind != NodeKind.ARRAY:
        raise FormatError(name, f"appends to {change.path!r}, which does not exist")
    try:
        dimension = dimension_of(node.documents, append.axis)
        documents = with_length(node.documents, append.axis, dimension.length + append.items)
        dimensions = len(array_info(documents).grid)
    except (InvalidInputError, KeyError, TypeError, IndexError, ValueError) as error:
        raise FormatError(name, f"appends to array {node.path!r}: {error}") from None
    if dimension.length < append.start:
        raise FormatError(name, f"an append to {node.path!r} must start within it")
    if dimension.chunk != append.chunk or dimension.length % append.chunk:
        raise FormatError(name, f"an append to {node.path!r} must start at the end of a chunk of {append.chunk}")
    nodes[node.key] = replace(node, documents=documents)
    return append.shift(dimension.length, dimensions)


def _apply_node(nodes: dict[str, Node], keys: dict[NodeId, str], change: NodeChange, name: str) -> None:
    if change.operation == Operation.CREATED:
        node = Node(change.id, change.path, change.kind, change.applied_to({}))
        if node.key in nodes or node.id in keys:
            raise FormatError(name, f"creates {change.path!r}, which exists")
        nodes[node.key] = node
        keys[node.id] = node.key
        return
    key = keys.get(change.id)
    if key is None:
        raise FormatError(name, f"changes {change.path!r}, which does not exist")
    if change.kind != nodes[key].kind:
        raise FormatError(name, f"changes {change.path!r}, which is not a {change.kind.name.lower()}, as one")
    if change.operation == Operation.DELETED:
        del nodes[key], keys[change.id]
    elif change.operation == Operation.UPDATED:
        node = nodes[key]
        nodes[key] = replace(node, documents=change.applied_to(node.documents))


def _move(nodes: dict[str, Node], keys: dict[NodeId, str], moves: tuple[NodeChange, ...], name: str) -> None:
    """Apply all moves of a transaction at once: each node moves with those below it that have no move of their own."""
    targets: dict[str, str] = {}
    for change in moves:
        key = keys.get(change.id)
        if key is None or change.target is None:
            raise FormatError(name, f"moves {change.path!r}, which does not exist")
        if change.kind != nodes[key].kind:
            raise FormatError(name, f"moves {change.path!r}, which is not a {change.kind.name.lower()}, as one")
        targets[key] = change.target
    groups = {key: target for key, target in targets.items() if nodes[key].kind == NodeKind.GROUP}
    moved = [(nodes[key], target) for key, target in targets.items()]
    if groups:
        moved += [
            (node, destination)
            for key, node in nodes.items()
            if key not in targets and (destination := taken_along(node.path, groups)) is not None
        ]
    for node, _ in moved:
        del nodes[node.key]
    for node, target in moved:
        renamed = replace(node, path=target)
        if renamed.key in nodes:
            raise FormatError(name, f"moves {node.path!r} to {target!r}, which exists")
        nodes[renamed.key] = renamed
        keys[renamed.id] = renamed.key


def moved_groups(changes: Iterable[NodeChange], state: SnapshotState) -> dict[str, str]:
    """Return the new paths of groups that are moved, by those that they have in a snapshot."""
    moves = (c for c in changes if c.operation == Operation.MOVED and c.kind == NodeKind.GROUP)
    return {state.keys[change.id]: change.target or "" for change in moves if change.id in state.keys}


def taken_along(path: str, groups: dict[str, str]) -> str | None:
    """Return the path of a node after the move of the nearest moved group above it; None if none is moved."""
    for above in ancestors(path):
        if above in groups:
            target = groups[above]
            return (target + "/" if target else "") + path[len(above) + 1 if above else 0 :]
    return None
