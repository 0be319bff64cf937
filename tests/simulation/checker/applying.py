"""How the entries of a log change a snapshot, after docs/format.md alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tests.simulation.checker.arrays import array_of, grown, reads_alike
from tests.simulation.checker.decoding import Coords
from tests.simulation.checker.states import ARRAY, FILE, Layer, Node, Nodes, moved

__all__ = ["ChunkChange", "Touched", "apply_chunks", "apply_nodes", "apply_rewrite"]

T = TypeVar("T")

CREATED, UPDATED, DELETED, MOVED, APPENDED = range(5)


@dataclass(frozen=True)
class ChunkChange:
    """A layer that a log puts on a node: what its manifest says, before the shift of an append."""

    node: bytes
    layer: Layer
    appended: bool


@dataclass
class Touched:
    """What a transaction changed, after its log.

    Parameters
    ----------
    created, deleted, moved, updated
        Ids of nodes; whatever went along with a group is among those that moved.
    appended
        The dimension, by id.
    reshaped
        Arrays whose chunks are read otherwise than before.
    chunks
        Coordinates that were written or deleted, by id.
    shifts
        How far appended chunks came to be from where they were prepared, by id.
    """

    created: set[bytes] = field(default_factory=set)
    deleted: set[bytes] = field(default_factory=set)
    moved: set[bytes] = field(default_factory=set)
    updated: set[bytes] = field(default_factory=set)
    reshaped: set[bytes] = field(default_factory=set)
    appended: dict[bytes, int] = field(default_factory=dict)
    chunks: dict[bytes, set[Coords]] = field(default_factory=dict)
    shifts: dict[bytes, tuple[int, ...]] = field(default_factory=dict)

    @property
    def nodes(self) -> set[bytes]:
        """Ids of everything that was changed in any way."""
        return self.created | self.deleted | self.moved | self.updated | self.appended.keys() | self.chunks.keys()

    def add(self, other: Touched) -> None:
        """Add what a later transaction changed."""
        self.created |= other.created
        self.deleted |= other.deleted
        self.moved |= other.moved
        self.updated |= other.updated
        self.reshaped |= other.reshaped
        self.appended |= other.appended
        for node, coords in other.chunks.items():
            self.chunks.setdefault(node, set()).update(coords)


def apply_nodes(state: Nodes, changes: Iterable[Any], touched: Touched) -> None:
    """Apply the changes of nodes of a log; raises ValueError where one does not fit."""
    changes = list(changes)
    moves = {change[1]: change[5] for change in changes if change[0] == MOVED}
    for change in changes:
        operation, identifier, path, kind, documents, more = change
        if operation == CREATED:
            _create(state, Node(identifier, path, kind, dict(documents or {})))
            touched.created.add(identifier)
            continue
        node = state.by_id(identifier)
        if node is None:
            raise ValueError(f"a change of {'/' + path!r}, which does not exist")
        if node.kind != kind:
            raise ValueError(f"a change of {'/' + path!r} as another kind of node")
        if operation == UPDATED:
            merged = {**node.documents, **documents}
            after = {n: d for n, d in merged.items() if d is not None}
            if kind == ARRAY and not reads_alike(node.documents, after):
                touched.reshaped.add(identifier)
            state.put(replace(node, documents=after))
            touched.updated.add(identifier)
        elif operation == DELETED:
            state.remove(identifier)
            touched.deleted.add(identifier)
        elif operation == MOVED:
            if moves:
                places = moved(state, moves)
                state.relocate(places)
                touched.moved |= places.keys()
                moves = {}
        elif operation == APPENDED:
            _append(state, node, more, touched)
        else:
            raise ValueError(f"an operation {operation}, which there is not")


def _create(state: Nodes, node: Node) -> None:
    if node.key in state.nodes or node.id in state.keys:
        raise ValueError(f"creates {'/' + node.path!r}, which exists")
    state.put(node)


def _append(state: Nodes, node: Node, append: Any, touched: Touched) -> None:
    axis, start, items, chunk = append
    if node.kind != ARRAY or node.id in touched.appended:
        raise ValueError(f"appends to {'/' + node.path!r}, which is no array or was appended to by this log")
    array = array_of(node.documents)
    length = array.shape[axis]
    if array.chunk[axis] != chunk or length % chunk or start % chunk or items < 1:
        raise ValueError(f"appends to {'/' + node.path!r}, whose end at {length} is not that of a chunk of {chunk}")
    state.put(replace(node, documents=grown(node.documents, axis, items)))
    touched.appended[node.id] = axis
    steps = (length - start) // chunk
    touched.shifts[node.id] = tuple([steps if i == axis else 0 for i in range(len(array.shape))])


def apply_chunks(state: Nodes, changes: Iterable[ChunkChange], touched: Touched) -> None:
    """Put the layers of a log on top of their nodes; raises ValueError where a node is not there."""
    for change in changes:
        node = state.by_id(change.node)
        if node is None or node.kind not in (ARRAY, FILE):
            raise ValueError("chunks of a node that does not exist, or has none")
        layer = (
            replace(
                change.layer,
                cells=_shifted(change.layer.cells, touched.shifts[node.id]),
                packs=_shifted(change.layer.packs, touched.shifts[node.id]),
            )
            if change.appended
            else (change.layer)
        )
        state.put(node.with_layer(layer))
        touched.chunks.setdefault(node.id, set()).update(layer.cells)


def _shifted(cells: Mapping[Coords, T], shift: tuple[int, ...]) -> dict[Coords, T]:
    if not any(shift):
        return dict(cells)
    return {tuple([c + s for c, s in zip(coords, shift, strict=True)]): data for coords, data in cells.items()}


def apply_rewrite(state: Nodes, identifier: bytes, first: bytes, last: bytes, count: int, added: list[Layer]) -> Node:
    """Replace neighbouring layers of a node; returns it as it was.

    Raises
    ------
    ValueError
        If the layers are not there.
    """
    node = state.by_id(identifier)
    if node is None:
        raise ValueError("a rewrite of a node that does not exist")
    ids = [layer.id for layer in node.layers]
    if first not in ids or last not in ids:
        raise ValueError(f"a rewrite of layers of {'/' + node.path!r} that are not there")
    start, end = ids.index(first), ids.index(last) + 1
    if end - start != count:
        raise ValueError(f"a rewrite of {count} layers of {'/' + node.path!r} that are {end - start}")
    state.put(node.with_layers((*node.layers[:start], *added, *node.layers[end:])))
    return node
