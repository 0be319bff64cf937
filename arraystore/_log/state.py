"""A snapshot in memory, and how the entries of a log change it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from arraystore._format.layer import Layer
from arraystore._format.lifecycle import NEW_LIFE, BranchLife, Deleted, Expiry, Fence
from arraystore._format.node import Node, NodeKind, ancestors
from arraystore._format.record import Replacement, Transaction, encode_note
from arraystore._format.snapshot import Checkpoint, PageRef
from arraystore._format.transaction import Append, NodeChange, Operation, TransactionLog
from arraystore._format.zarr_changes import dimension_of, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore.errors import FormatError, InvalidInputError

__all__ = [
    "CheckpointRef",
    "State",
    "StateBuilder",
    "empty_state",
    "follows",
    "replaced_layers",
    "state_from_checkpoint",
    "taken_along",
]


NO_NOTE = encode_note("", {})
"""Of what nobody has committed."""


@dataclass(frozen=True)
class CheckpointRef:
    """A checkpoint that exists: number of its record, its id, and the digest of the log that it holds, if known."""

    sequence: int
    id: bytes
    digest: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True)
class State:
    """The snapshot that a branch has at a record; never changed, only followed by another.

    Parameters
    ----------
    branch, sequence
        The record.
    snapshot, parent, time, note
        The newest snapshot at that record; see `Checkpoint`.
    nodes
        All nodes by key.
    keys
        Key of each node by id.
    pages
        Directory of history pages, as of the checkpoint.
    checkpoint
        A checkpoint at or before this record, None where the log's start does.
    detached
        How many change logs since that checkpoint are not in the bodies of their records: a reader needs a request
        for each.
    life
        What the log says of the branch itself.
    recorded
        Whether a record of the log makes it; False with uncommitted changes, or on no branch.  Nothing is committed on
        a base that is not recorded.
    """

    branch: str
    sequence: int
    snapshot: bytes
    parent: bytes | None
    time: int
    note: bytes
    nodes: dict[str, Node]
    keys: dict[bytes, str]
    pages: tuple[PageRef, ...] = ()
    checkpoint: CheckpointRef | None = None
    detached: int = 0
    life: BranchLife = NEW_LIFE
    recorded: bool = True

    def by_id(self, identifier: bytes) -> Node | None:
        """Return a node by its id; None if there is none."""
        key = self.keys.get(identifier)
        return None if key is None else self.nodes[key]

    def committed(self, sequence: int, transactions: Iterable[tuple[Transaction, TransactionLog, bytes]]) -> State:
        """Return the state after one commit; see `StateBuilder.commit`."""
        builder = StateBuilder(self)
        builder.commit(sequence, transactions)
        return builder.build()

    def rewritten(self, sequence: int, replacements: Iterable[Replacement]) -> State:
        """Return the state after one rewrite."""
        builder = StateBuilder(self)
        builder.rewrite(sequence, replacements)
        return builder.build()

    def lived(self, sequence: int, entry: Deleted | Fence | Expiry) -> State:
        """Return the state after an entry that changes no data; a branch that is deleted shows none."""
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


class StateBuilder:
    """Applies many entries of a log with one copy of the tables.

    Parameters
    ----------
    state
        What to start from; it is not changed.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._nodes = state.nodes
        self._keys = state.keys
        self._own = False

    def _detach(self) -> None:
        """Copy the tables before they are changed, unless they are nobody else's."""
        if not self._own:
            self._nodes, self._keys, self._own = dict(self._nodes), dict(self._keys), True

    def commit(self, sequence: int, transactions: Iterable[tuple[Transaction, TransactionLog, bytes]]) -> None:
        """Apply a commit.

        Parameters
        ----------
        sequence
            Number of its record.
        transactions
            Each with its log and its encoded note.
        """
        name = self._name(sequence)
        self._detach()
        nodes, keys = self._nodes, self._keys
        detached = self._state.detached
        for transaction, log, note in transactions:
            if not follows(transaction, self._state.snapshot, self._state.parent):
                raise FormatError(name, "a transaction that does not follow the snapshot before it")
            detached += not isinstance(transaction.log, TransactionLog)
            shifts = _apply_nodes(nodes, keys, log.nodes, name)
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
        """Apply changes of nodes, and none of chunks; the record stays the same."""
        self._detach()
        _apply_nodes(self._nodes, self._keys, changes, self._name(self._state.sequence))

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

    def peek(self) -> State:
        """Return the state reached as a view, which changes with the builder."""
        return replace(self._state, nodes=self._nodes, keys=self._keys)

    def build(self) -> State:
        """Return the state reached; the builder may go on."""
        self._own = False
        return self.peek()

    def _name(self, sequence: int) -> str:
        return f"record {sequence} of branch {self._state.branch!r}"


def follows(transaction: Transaction, snapshot: bytes, parent: bytes | None) -> bool:
    """Tell whether a transaction comes right after a snapshot of a parent."""
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


def empty_state(branch: str, sequence: int, snapshot: bytes, parent: bytes | None, time: int, note: bytes) -> State:
    """Return a snapshot without nodes."""
    return State(branch, sequence, snapshot, parent, time, note, {}, {})


def state_from_checkpoint(checkpoint: Checkpoint, identifier: bytes) -> State:
    """Return the state that a checkpoint holds."""
    nodes = {node.key: node for node in checkpoint.nodes}
    return State(
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
    """Put a layer on top of a node's others; raises `FormatError` if it has other dimensions than the node."""
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
    nodes: dict[str, Node], keys: dict[bytes, str], changes: tuple[NodeChange, ...], name: str
) -> dict[bytes, tuple[int, ...]]:
    """Apply changes of nodes; returns, per array that was appended to, how far its new chunks move, in chunks."""
    shifts: dict[bytes, tuple[int, ...]] = {}
    moves = tuple(change for change in changes if change.operation == Operation.MOVED)
    for change in changes:
        if change.operation == Operation.MOVED:
            _move(nodes, keys, moves, name)  # all of them at once, where the first one stands
            moves = ()
        elif change.append is not None:
            shifts[change.id] = _append(nodes, keys, change, change.append, name)
        else:
            _apply_node(nodes, keys, change, name)
    return shifts


def _append(
    nodes: dict[str, Node], keys: dict[bytes, str], change: NodeChange, append: Append, name: str
) -> tuple[int, ...]:
    """Grow an array at the end that it has now; returns how far that is from where the append was prepared."""
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
        raise FormatError(name, f"appends to {node.path!r} behind its end")
    if dimension.chunk != append.chunk or dimension.length % append.chunk:
        raise FormatError(name, f"appends to {node.path!r}, whose end is not that of a chunk of {append.chunk}")
    nodes[node.key] = replace(node, documents=documents)
    return append.shift(dimension.length, dimensions)


def _apply_node(nodes: dict[str, Node], keys: dict[bytes, str], change: NodeChange, name: str) -> None:
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
        raise FormatError(name, f"changes {change.path!r} as the {change.kind.name.lower()} that it is not")
    if change.operation == Operation.DELETED:
        del nodes[key], keys[change.id]
    elif change.operation == Operation.UPDATED:
        node = nodes[key]
        nodes[key] = replace(node, documents=change.applied_to(node.documents))


def _move(nodes: dict[str, Node], keys: dict[bytes, str], moves: tuple[NodeChange, ...], name: str) -> None:
    """Apply all moves of a transaction at once: each node goes with what is below it and has no move of its own."""
    targets: dict[str, str] = {}
    for change in moves:
        key = keys.get(change.id)
        if key is None or change.target is None:
            raise FormatError(name, f"moves {change.path!r}, which does not exist")
        if change.kind != nodes[key].kind:
            raise FormatError(name, f"moves {change.path!r} as the {change.kind.name.lower()} that it is not")
        targets[key] = change.target
    groups = {key: target for key, target in targets.items() if nodes[key].kind == NodeKind.GROUP}
    moved = [(nodes[key], target) for key, target in targets.items()]
    if groups:
        moved += [
            (node, found)
            for key, node in nodes.items()
            if key not in targets and (found := taken_along(node.path, groups)) is not None
        ]
    for node, _ in moved:
        del nodes[node.key]
    for node, target in moved:
        renamed = replace(node, path=target)
        if renamed.key in nodes:
            raise FormatError(name, f"moves {node.path!r} to {target!r}, which exists")
        nodes[renamed.key] = renamed
        keys[renamed.id] = renamed.key


def taken_along(path: str, groups: dict[str, str]) -> str | None:
    """Return where a node goes with the nearest group above it that is moved; None if none is."""
    for above in ancestors(path):
        if above in groups:
            target = groups[above]
            return (target + "/" if target else "") + path[len(above) + 1 if above else 0 :]
    return None
