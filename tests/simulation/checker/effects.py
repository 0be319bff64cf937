"""What a transaction changes, apart from the snapshot that it was made on, and the same put on top of another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.simulation.checker.applying import Touched
from tests.simulation.checker.arrays import array_of, grown, reads_alike, same_json, shape_only
from tests.simulation.checker.decoding import Cells, Coords
from tests.simulation.checker.model import End, View, inside
from tests.simulation.checker.states import ARRAY, GROUP, Node, Nodes, Snapshot, above, moved

__all__ = ["AppendEffect", "Effects", "effects_of", "moves_between"]


@dataclass(frozen=True)
class AppendEffect:
    """By how much an array grows at its end, and what is written there, as prepared for a length of `start`."""

    axis: int
    start: int
    items: int
    chunk: int
    cells: Cells

    def shift(self, length: int, dimensions: int) -> tuple[int, ...]:
        """Return how far chunks go when the array has another length by then."""
        steps = (length - self.start) // self.chunk
        return tuple([steps if axis == self.axis else 0 for axis in range(dimensions)])


@dataclass
class Effects:
    """Changes of one transaction, by the ids of nodes.

    Parameters
    ----------
    base
        The snapshot that they were made on.
    created
        Nodes, with their chunks, in the order of their paths.
    deleted
        Ids.
    moves
        New paths of those that do not merely go along.
    documents
        Those that changed; None for removed.
    plain
        Arrays of which the documents say the same shape and the same way to read chunks as before.
    appends
        What belongs to an append.
    chunks
        Chunks written (or deleted: None) in place.
    cuts
        Grids outside of which everything is deleted.
    spared
        Chunks of others that are not.
    """

    base: Snapshot
    created: list[Node] = field(default_factory=list)
    deleted: set[bytes] = field(default_factory=set)
    moves: dict[bytes, str] = field(default_factory=dict)
    documents: dict[bytes, dict[str, bytes | None]] = field(default_factory=dict)
    plain: set[bytes] = field(default_factory=set)
    appends: dict[bytes, AppendEffect] = field(default_factory=dict)
    chunks: dict[bytes, Cells] = field(default_factory=dict)
    cuts: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    spared: dict[bytes, set[Coords]] = field(default_factory=dict)

    @property
    def leaving(self) -> set[bytes]:
        """Nodes that do not stay where they are."""
        return self.deleted | self.moves.keys()

    @property
    def changed(self) -> set[bytes]:
        """Nodes of the base that are changed in place."""
        return self.documents.keys() | self.appends.keys() | self.chunks.keys() | self.cuts.keys()

    def onto(self, snapshot: Snapshot, *, forced: bool) -> tuple[Nodes, list[str]]:
        """Put the changes on top of another snapshot.

        Parameters
        ----------
        snapshot
            On top of which.
        forced
            Whether what others put into groups that are deleted goes with them.

        Returns
        -------
        Nodes, list of str
            The hierarchy after it, and what could not be done.
        """
        state, problems = Nodes(snapshot.nodes, snapshot.keys), list[str]()
        if forced:
            for identifier in self._swept(snapshot):
                state.remove(identifier)
        self._delete(state, problems)
        self._move(state, problems)
        for node in self.created:
            if node.key in state.nodes:
                problems.append(f"creates {'/' + node.path!r}, where there is a node")
            else:
                state.put(node)
        for identifier in self.changed:
            there = state.by_id(identifier)
            if there is None:
                problems.append(f"changes {self._name(identifier)}, which is gone")
            else:
                state.put(self._changed(there, problems))
        return state, problems

    def _name(self, identifier: bytes) -> str:
        node = self.base.by_id(identifier)
        return repr("/" + node.path) if node is not None else "a node that it never saw"

    def _swept(self, snapshot: Snapshot) -> set[bytes]:
        """Return what others put into groups that are deleted."""
        paths: set[str] = set()
        for identifier in self.deleted:
            was, now = self.base.by_id(identifier), snapshot.by_id(identifier)
            if was is None or was.kind != GROUP:
                continue
            there = snapshot.nodes.get((was.path, False))
            paths |= {was.path} if there is None or there.id == identifier else set()
            paths |= {now.path} if now is not None else set()
        carriers = {node.path for i in self.moves if (node := snapshot.by_id(i)) is not None and node.kind == GROUP}
        return {
            node.id
            for node in snapshot.nodes.values()
            if node.id not in self.leaving and _first(above(node.path), carriers | paths) in paths - carriers
        }

    def _delete(self, state: Nodes, problems: list[str]) -> None:
        for identifier in self.deleted:
            if identifier in state.keys:
                state.remove(identifier)
            else:
                problems.append(f"deletes {self._name(identifier)}, which is gone")

    def _move(self, state: Nodes, problems: list[str]) -> None:
        targets = {i: target for i, target in self.moves.items() if i in state.keys}
        gone = self.moves.keys() - targets.keys()
        problems += [f"moves {self._name(identifier)}, which is gone" for identifier in gone]
        places = moved(state, targets)
        keys = {(path, state.keys[i][1]): i for i, path in places.items()}
        staying = {key for key, node in state.nodes.items() if node.id not in places}
        taken = sorted(path for path, is_file in keys.keys() & staying)
        if taken or len(keys) < len(places):
            problems.append(f"moves something to {taken or 'one path'}, where there is a node")
        else:
            state.relocate(places)

    def _changed(self, node: Node, problems: list[str]) -> Node:
        documents = {**node.documents, **self.documents.get(node.id, {})}
        after = {name: document for name, document in documents.items() if document is not None}
        if node.id in self.plain:
            after = shape_only(after, array_of(node.documents).shape)
        cells: Cells = {}
        if node.id in self.cuts:
            grid, spared = self.cuts[node.id], self.spared.get(node.id, set())
            cells |= dict.fromkeys([c for c in node.chunks if not inside(c, grid) and c not in spared])
        cells |= self.chunks.get(node.id, {})
        append = self.appends.get(node.id)
        if append is not None:
            array = array_of(after)
            length = array.shape[append.axis]
            if array.chunk[append.axis] != append.chunk or (length - append.start) % append.chunk:
                problems.append(f"appends to {self._name(node.id)}, whose end is not that of a chunk")
            shift = append.shift(length, len(array.shape))
            cells |= {tuple(map(sum, zip(c, shift, strict=True))): data for c, data in append.cells.items()}
            after = grown(after, append.axis, append.items)
        return replace(node, documents=after).with_chunks(cells)

    def without_chunks(self, touched: Touched) -> Effects:
        """Return the changes without those of chunks that others changed too."""
        chunks = {
            node: {c: data for c, data in cells.items() if c not in touched.chunks.get(node, ())}
            for node, cells in self.chunks.items()
        }
        return replace(self, chunks={n: cells for n, cells in chunks.items() if cells}, spared=touched.chunks)


def _first(paths: Iterable[str], wanted: set[str]) -> str | None:
    return next((path for path in paths if path in wanted), None)


def effects_of(view: View) -> Effects:
    """Return what a view's operations change, apart from its base."""
    base, state = view.base, view.state
    effects = Effects(base)
    effects.created = sorted((n for n in state if n.id not in base.keys), key=lambda n: n.path)
    effects.deleted = {i for i in base.keys if i not in state.keys}
    effects.moves = moves_between(base, state)
    for node in state:
        before = base.by_id(node.id)
        if before is not None and (before is not node):
            _add_changes(effects, view, before, node)
    return effects


def moves_between(base: Snapshot, state: Nodes) -> dict[bytes, str]:
    """Return the moves that explain all new paths."""
    moves: dict[bytes, str] = {}
    groups: dict[str, str] = {}
    for path, identifier in sorted((node.path, node.id) for node in base.nodes.values() if node.id in state.keys):
        node = state.by_id(identifier)
        assert node is not None
        expected = next((groups[p] + path[len(p) :] for p in above(path) if p in groups), path)
        if node.path != expected:
            moves[identifier] = node.path
            if node.kind == GROUP:
                groups[path] = node.path
    return moves


def _add_changes(effects: Effects, view: View, before: Node, node: Node) -> None:
    written = dict(view.written.get(node.id, {}))
    after: Mapping[str, bytes] = node.documents
    if node.kind == ARRAY:
        end = view.ends.get(node.id)
        append = None if end is None else _append(end, before, node, written)
        if append is not None:
            effects.appends[node.id] = append
            written = {c: data for c, data in written.items() if c not in append.cells}
            after = shape_only(after, array_of(before.documents).shape)
        if node.id in view.cuts:
            effects.cuts[node.id] = view.cuts[node.id]
    names = {n for n in before.documents.keys() | after.keys() if not _same(before.documents.get(n), after.get(n))}
    if names:
        effects.documents[node.id] = {name: after.get(name) for name in sorted(names)}
        if node.kind == ARRAY and _is_plain(before, after, view, node, effects):
            effects.plain.add(node.id)
    if written:
        effects.chunks[node.id] = written


def _is_plain(before: Node, after: Mapping[str, bytes], view: View, node: Node, effects: Effects) -> bool:
    if node.id in view.ends and node.id not in effects.appends:
        return False
    same_shape = array_of(before.documents).shape == array_of(after).shape
    return same_shape and reads_alike(before.documents, after)


def _same(first: bytes | None, second: bytes | None) -> bool:
    return first == second or (first is not None and second is not None and same_json(first, second))


def _append(end: End, before: Node, node: Node, written: Cells) -> AppendEffect | None:
    """Return an append if that is all that became of an array's shape, and it began at the end of a chunk."""
    old, new = array_of(before.documents), array_of(node.documents)
    axis = end.axis
    same = all(a == b for i, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)) if i != axis)
    chunk = old.chunk[axis]
    grew = old.shape[axis] == end.length < new.shape[axis]
    if not same or not grew or new.chunk[axis] != chunk or end.length % chunk:
        return None
    cells = {c: data for c, data in written.items() if c[axis] >= end.length // chunk}
    return AppendEffect(axis, end.length, new.shape[axis] - end.length, chunk, cells)
