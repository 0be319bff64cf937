"""What operations mean, a second time and as plainly as possible: a session's hierarchy as tables that are changed.

A `View` is a snapshot with operations on top, in order, as the session that makes them sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.simulation.checker.arrays import array_of, grown, integers, kind_of
from tests.simulation.checker.decoding import Cells, Coords
from tests.simulation.checker.states import ARRAY, FILE, GROUP, Key, Node, Nodes, Snapshot, place_of
from tests.simulation.observations import (
    Append,
    Create,
    Delete,
    Move,
    Operation,
    Rebase,
    Update,
    WriteChunk,
    WriteFile,
)

__all__ = ["UNCUT", "End", "ModelError", "View", "inside"]

UNCUT = 1 << 62
"""Side of a grid that is not cut."""


class ModelError(Exception):
    """An operation that cannot have succeeded on the snapshot that it was made on."""


@dataclass(frozen=True)
class End:
    """Where an array ended before it was appended to: dimension, and length in items."""

    axis: int
    length: int


class View:
    """A snapshot with changes.

    Parameters
    ----------
    base
        The snapshot.
    label
        Of the transaction; nodes that it creates get ids that begin with it.

    Attributes
    ----------
    state
        The hierarchy now.
    written
        Chunks written (or deleted: None) by id of the node.
    cuts
        Grids outside of which the base's chunks are gone, by id of the array; along dimensions in which nothing of the
        base was cut off they have no end.
    ends
        Of arrays that were appended to, by id.
    """

    def __init__(self, base: Snapshot, label: str) -> None:
        self.base = base
        self.label = label
        self.state = Nodes(base.nodes, base.keys)
        self.written: dict[bytes, Cells] = {}
        self.cuts: dict[bytes, tuple[int, ...]] = {}
        self.ends: dict[bytes, End] = {}
        self._created = 0

    @property
    def nodes(self) -> Mapping[Key, Node]:
        """The nodes as they are now."""
        return self.state.nodes

    def apply(self, operation: Operation) -> None:
        """Make an operation; raises `ModelError` where it cannot be made."""
        if isinstance(operation, Create):
            self._create(operation.path, operation.documents)
        elif isinstance(operation, Update):
            self._update(operation)
        elif isinstance(operation, Delete):
            self._delete(operation.path)
        elif isinstance(operation, Move):
            self._move(operation.source, operation.target)
        elif isinstance(operation, WriteChunk):
            self._write(self._array(operation.path), {operation.coords: operation.data})
        elif isinstance(operation, WriteFile):
            self._write_file(operation)
        elif isinstance(operation, Append):
            self._append(operation)
        else:
            assert isinstance(operation, Rebase)
            raise ModelError("a rebase is no operation on a hierarchy")

    def new_id(self) -> bytes:
        """Return an id for a node that has none yet; it is longer than real ones."""
        self._created += 1
        return f"created by {self.label} as number {self._created}".encode()

    def follow(self, other: View) -> None:
        """Go on numbering created nodes where another view of the transaction ended."""
        self._created = other._created

    def _node(self, path: str) -> Node:
        node = self.nodes.get((path, False))
        if node is None:
            raise ModelError(f"there is no node {'/' + path!r}")
        return node

    def _array(self, path: str) -> Node:
        node = self._node(path)
        if node.kind != ARRAY:
            raise ModelError(f"{'/' + path!r} is no array")
        return node

    def _create(self, path: str, documents: Mapping[str, bytes]) -> None:
        if (path, False) in self.nodes:
            raise ModelError(f"{'/' + path!r} is created, and exists")
        self.state.put(Node(self.new_id(), path, kind_of(documents), dict(documents)))

    def _update(self, operation: Update) -> None:
        node = self._node(operation.path)
        merged = {**node.documents, **operation.documents}
        after = {name: document for name, document in merged.items() if document is not None}
        if node.kind == ARRAY:
            old, new = array_of(node.documents).grid, array_of(after).grid
            if any(a < b for a, b in zip(new, old, strict=True)):
                node = self._cut(node, new)
        self.state.put(replace(node, documents=after))

    def _cut(self, node: Node, new: tuple[int, ...]) -> Node:
        was = self.base.by_id(node.id)
        if was is not None:
            had = array_of(was.documents).grid
            cut = tuple([n if n < h else UNCUT for n, h in zip(new, had, strict=True)])
            cut = tuple(map(min, cut, self.cuts.get(node.id, cut)))
            if any(bound != UNCUT for bound in cut):
                self.cuts[node.id] = cut
        kept = self.written.get(node.id, {})
        self.written[node.id] = {c: data for c, data in kept.items() if inside(c, new)}
        return replace(node, chunks={c: data for c, data in node.chunks.items() if inside(c, new)})

    def _delete(self, path: str) -> None:
        below = path + "/" if path else ""
        for node in list(self.state):
            if node.path.startswith(below) or (node.path == path and node.kind != FILE):
                self._remove(node)

    def _remove(self, node: Node) -> None:
        self.state.remove(node.id)
        for table in (self.written, self.cuts, self.ends):
            table.pop(node.id, None)

    def _move(self, source: str, target: str) -> None:
        node = self._node(source)
        if (target, False) in self.nodes:
            raise ModelError(f"{'/' + source!r} is moved to {'/' + target!r}, which exists")
        below = source + "/"
        places = {node.id: target}
        if node.kind == GROUP:
            places |= {n.id: target + n.path[len(source) :] for n in self.state if n.path.startswith(below)}
        self.state.relocate(places)

    def _write(self, node: Node, cells: Mapping[Coords, bytes | None]) -> None:
        if node.kind == ARRAY:
            grid = array_of(node.documents).grid
            if any(not inside(coords, grid) for coords in cells):
                raise ModelError(f"a chunk of {'/' + node.path!r} outside of its grid {grid}")
        self.state.put(node.with_chunks(dict(cells)))
        self.written.setdefault(node.id, {}).update(cells)

    def _write_file(self, operation: WriteFile) -> None:
        node = self.nodes.get((operation.key, True))
        if operation.data is None:
            if node is not None:
                self._remove(node)
            return
        self._write(node or Node(self.new_id(), operation.key, FILE, {}), {(): operation.data})

    def _append(self, operation: Append) -> None:
        node = self._array(operation.path)
        length = array_of(node.documents).shape[operation.axis]
        again = set(operation.unique) & integers(node.chunks.values()) if operation.unique else ()
        if again:
            raise ModelError(f"{sorted(again)} are appended to {'/' + node.path!r}, which has them")
        if node.id in self.base.keys:
            self.ends.setdefault(node.id, End(operation.axis, length))
        node = replace(node, documents=grown(node.documents, operation.axis, operation.items))
        self.state.put(node)
        self._write(node, operation.chunks)

    def is_own(self, key: str) -> bool:
        """Tell whether what a key shows now was made by this session, so that it says nothing about others."""
        found = place_of(self.nodes, key)
        if found is None:
            return place_of(self.base.nodes, key) is not None
        node, what = found
        before = self.base.by_id(node.id)
        if before is None or before.path != node.path:
            return True
        if isinstance(what, str):
            return before.documents.get(what) != node.documents.get(what)
        return what in self.written.get(node.id, {}) or not inside(what, self.cuts.get(node.id, what_all(what)))


def inside(coords: Coords, grid: tuple[int, ...]) -> bool:
    """Tell whether a chunk is within a grid."""
    return all(c < g for c, g in zip(coords, grid, strict=True))


def what_all(coords: Coords) -> tuple[int, ...]:
    """Return a grid that holds a chunk."""
    return tuple([c + 1 for c in coords])
