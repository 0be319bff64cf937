"""Nodes as they were before an append or a write, to be restored without a request if it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._changes.node_changes import axis_of
from arraystore._chunks.chunk_table import ChunkReference, ChunkTable
from arraystore._format.ids import NodeId
from arraystore._format.node import Node, NodeKind
from arraystore._format.transaction import AppendMark
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._format.zarr_metadata import array_info
from arraystore._session.hierarchy import Hierarchy

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@contextmanager
def all_or_none(hierarchy: Hierarchy, paths: Iterable[str], dim: str | None) -> Iterator[None]:
    """Restore nodes if the block fails, and let nothing be committed before it has ended.

    Within the block, arrays that have the dimension, if one is passed, may only grow along it and be written beyond
    their ends; others, and groups, may be made, replaced and written to.
    """
    changes = hierarchy.writable()
    with changes.undivided():
        before = _NodesBefore.of(changes, dict.fromkeys(paths), dim)
        try:
            yield
        except BaseException:
            before.restore(changes)
            hierarchy.forget()
            raise


@dataclass(frozen=True)
class _NodesBefore:
    """Groups and arrays before an append, and what is kept below the arrays as files."""

    absent: tuple[str, ...]
    """Paths at which there was no node."""
    groups: tuple[Node, ...]
    growing: tuple[ArrayBefore, ...]
    """Arrays that have the dimension."""
    others: tuple[ChunksBefore, ...]
    """Arrays that lack it, and files."""
    noted: _NotedBefore

    @classmethod
    def of(cls, changes: ChangeSet, paths: Iterable[str], dim: str | None) -> _NodesBefore:
        with changes.lock:
            found = {path: changes.node(path) for path in paths}
            nodes = [node for node in found.values() if node is not None]
            arrays = [(node, _axis(node, dim)) for node in nodes if node.kind == NodeKind.ARRAY]
            absent = tuple(path for path, node in found.items() if node is None)
            files = _files_below(changes, [*absent, *(node.path for node, _ in arrays)])
            files += [node for node in nodes if node.kind == NodeKind.FILE]
            return cls(
                absent,
                tuple(node for node in nodes if node.kind == NodeKind.GROUP),
                tuple(ArrayBefore.of(changes, node, axis) for node, axis in arrays if axis is not None),
                tuple(
                    ChunksBefore.of(changes, node)
                    for node in [*(node for node, axis in arrays if axis is None), *files]
                ),
                _NotedBefore.of(changes, [*found, *(file.key for file in files)], [*nodes, *files]),
            )

    def restore(self, changes: ChangeSet) -> None:
        """Give all nodes their metadata and chunks back, and remove those that were made."""
        with changes.lock:
            for path in reversed(self.absent):
                if (made := changes.node(path)) is not None:
                    changes.remove_node(made)
            for group in self.groups:
                changes.put_node(group)
            nodes: list[ArrayBefore | ChunksBefore] = [*self.growing, *self.others]
            for node in nodes:
                node.restore(changes)
            if self.noted.holds(changes):
                self.noted.restore(changes)
                for node in nodes:
                    node.restore_touched(changes)


def _axis(array: Node, dim: str | None) -> int | None:
    return None if dim is None else axis_of(array.documents, dim)


def _files_below(changes: ChangeSet, paths: Iterable[str]) -> list[Node]:
    """Return the files below some paths, which an array that grows over their keys, or is made there, removes."""
    if not changes.has_files:
        return []
    places = tuple(path + "/" if path else "" for path in paths)
    return [node for node in changes.all_nodes() if node.kind == NodeKind.FILE and node.path.startswith(places)]


@dataclass(frozen=True)
class _NotedBefore:
    """Changes of nodes that a session has noted since forks were taken, for those of the forks to collide with."""

    epoch: int
    touched: dict[NodeId, ChunkTable]
    """The tables of the change set, which a merge replaces."""
    nodes: dict[str, int | None]
    """Epochs of nodes by their keys; None for those without one."""
    cuts: dict[NodeId, dict[int, tuple[int, ...]]]

    @classmethod
    def of(cls, changes: ChangeSet, keys: Iterable[str], nodes: Iterable[Node]) -> _NotedBefore:
        epochs = {key: changes.node_epochs.get(key) for key in keys}
        cuts = {node.id: dict(changes.cuts.get(node.id, {})) for node in nodes}
        return cls(changes.epoch, changes.touched, epochs, cuts)

    def holds(self, changes: ChangeSet) -> bool:
        """Tell whether no fork was taken or merged since, which may have seen or noted what is undone."""
        return self.epoch == changes.epoch and self.touched is changes.touched

    def restore(self, changes: ChangeSet) -> None:
        """Forget what was noted since."""
        for key, epoch in self.nodes.items():
            _set(changes.node_epochs, key, epoch)
        for identifier, cuts in self.cuts.items():
            _set(changes.cuts, identifier, cuts or None)


def _set(values: dict[_Key, _Value], key: _Key, value: _Value | None) -> None:
    """Set a value, or remove the one that there is for None."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


@dataclass(frozen=True)
class ChunksBefore:
    """A node with all chunks that the session had written to it."""

    node: Node
    mark: AppendMark | None
    """Where an earlier append of the session began; None if there was none."""
    written: ArrayChanges | None
    """The chunks that the session had changed; None if it had changed none."""
    touched: ChunkTable | None
    """Those that it had changed since forks were taken."""

    @classmethod
    def of(cls, changes: ChangeSet, node: Node) -> ChunksBefore:
        """Return a node as it is now; its chunks are not overwritten in place from now on."""
        written, touched = changes.arrays.get(node.id), changes.touched.get(node.id)
        if written is not None:
            written = written.copy()
            _settle(changes, written.table.columns()[1])
        touched = None if touched is None else touched.copy()
        return cls(node, changes.appends.get(node.id), written, touched)

    def restore(self, changes: ChangeSet) -> None:
        """Give the node its metadata and its chunks back."""
        present = changes.node(self.node.key)
        if present is not None and present.id != self.node.id:
            changes.remove_node(present)
        changes.put_node(self.node)
        _set(changes.appends, self.node.id, self.mark)
        _set(changes.arrays, self.node.id, self.written)

    def restore_touched(self, changes: ChangeSet) -> None:
        """Forget which of its chunks were changed since."""
        _set(changes.touched, self.node.id, self.touched)


@dataclass(frozen=True)
class ArrayBefore:
    """An array before an append, with the references of the chunks at its end, which the append may overwrite."""

    node: Node
    mark: AppendMark | None
    """Where an earlier append of the session began; None if there was none."""
    end: _CellsBefore
    """The chunks at its end that hold fewer items than they could, as far as the session had changed them."""
    touched: _CellsBefore
    """Those of them that it had changed since forks were taken."""

    @classmethod
    def of(cls, changes: ChangeSet, node: Node, axis: int) -> ArrayBefore:
        """Return an array as it is now; chunks at its end are not overwritten in place from now on."""
        coords = _overwritten(node, axis)
        with changes.lock:
            written = changes.arrays.get(node.id)
            end = _CellsBefore.of(None if written is None else written.table, coords)
            _settle(changes, end.values[end.known])
            touched = _CellsBefore.of(changes.touched.get(node.id), coords)
            return cls(node, changes.appends.get(node.id), end, touched)

    def restore(self, changes: ChangeSet) -> None:
        """Give the array its shape and its chunks back."""
        with changes.lock:
            changes.put_node(self.node)  # which drops the chunks outside of its grid
            if self.mark is None:
                changes.appends.pop(self.node.id, None)
            self.end.restore(changes.array(self.node).table)

    def restore_touched(self, changes: ChangeSet) -> None:
        """Forget which of its chunks were changed since, except by others within it."""
        table = changes.touched.get(self.node.id)
        if table is not None:
            coords, _ = table.columns()
            table.drop((coords < np.array(array_info(self.node.documents).grid, dtype=np.int64)).all(axis=1))
            self.touched.restore(table)


@dataclass(frozen=True)
class _CellsBefore:
    """Entries that a table had of some cells."""

    coords: Int64s
    """Coordinates of the cells, shape (n, d)."""
    known: Bools
    """Which of them it had, shape (n,)."""
    values: Int64s
    """What it had of these, shape (n, 3)."""

    @classmethod
    def of(cls, table: ChunkTable | None, coords: Int64s) -> _CellsBefore:
        if table is None or not len(coords):
            return cls(coords, np.zeros(len(coords), dtype=bool), np.zeros((len(coords), 3), dtype=np.int64))
        known, values = table.get_many(table.numbers(coords))
        return cls(coords, known, values.astype(np.int64, copy=False))

    def restore(self, table: ChunkTable) -> None:
        """Give the table what it had."""
        numbers = table.numbers(self.coords)
        for number, known, value in zip(numbers.tolist(), self.known.tolist(), self.values.tolist(), strict=True):
            table.put(number, ChunkReference(*value)) if known else table.forget(number)


def _settle(changes: ChangeSet, references: Int64s) -> None:
    """Overwrite none of these chunks in place from now on."""
    if bool((references[:, 0] == changes.packs.open_source).any()):
        changes.packs.settle()


def _overwritten(node: Node, axis: int) -> Int64s:
    """Return the coordinates of the chunks that an append writes a further part of, shape (n, d)."""
    end, grid = dimension_of(node.documents, axis), array_info(node.documents).grid
    if end.chunk is not None and end.length % end.chunk == 0:
        return np.empty((0, len(grid)), dtype=np.int64)
    sides = [range(max(side - 1, 0), side) if each == axis else range(side) for each, side in enumerate(grid)]
    return np.stack([each.reshape(-1) for each in np.meshgrid(*sides, indexing="ij")], axis=1).astype(np.int64)
