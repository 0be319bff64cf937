"""Nodes as they were before an append or a write, to be restored without a request if it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._changes.node_changes import axis_of
from arraystore._chunks.chunk_table import ChunkReference, ChunkTable
from arraystore._format.node import Node, NodeKind
from arraystore._format.transaction import AppendMark
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._format.zarr_metadata import array_info
from arraystore._session.hierarchy import Hierarchy


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
            )

    def restore(self, changes: ChangeSet) -> None:
        """Give all nodes their metadata and chunks back, and remove those that were made."""
        with changes.lock:
            for path in reversed(self.absent):
                if (made := changes.node(path)) is not None:
                    changes.remove_node(made)
            for group in self.groups:
                changes.put_node(group)
            for array in self.growing:
                array.restore(changes)
            for other in self.others:
                other.restore(changes)


def _axis(array: Node, dim: str | None) -> int | None:
    return None if dim is None else axis_of(array.documents, dim)


def _files_below(changes: ChangeSet, paths: Iterable[str]) -> list[Node]:
    """Return the files below some paths, which an array that grows over their keys, or is made there, removes."""
    if not changes.has_files:
        return []
    places = tuple(path + "/" if path else "" for path in paths)
    return [node for node in changes.all_nodes() if node.kind == NodeKind.FILE and node.path.startswith(places)]


@dataclass(frozen=True)
class ChunksBefore:
    """A node with all chunks that the session had written to it."""

    node: Node
    coords: Int64s
    references: Int64s
    visible: tuple[int, ...] | None
    changed: bool
    """Whether the session had changed any of its chunks."""

    @classmethod
    def of(cls, changes: ChangeSet, node: Node) -> ChunksBefore:
        """Return a node as it is now; its chunks are not overwritten in place from now on."""
        written = changes.arrays.get(node.id)
        if written is None:
            return cls(node, np.empty((0, 0), dtype=np.int64), np.empty((0, 3), dtype=np.int64), None, False)
        coords, references = written.table.columns()
        _settle(changes, references)
        return cls(node, coords, references, written.visible, True)

    def restore(self, changes: ChangeSet) -> None:
        """Give the node its metadata and its chunks back."""
        present = changes.node(self.node.key)
        if present is not None and present.id != self.node.id:
            changes.remove_node(present)
        changes.put_node(self.node)
        changes.arrays.pop(self.node.id, None)
        if self.changed:
            grid = () if self.node.kind == NodeKind.FILE else array_info(self.node.documents).grid
            table = ChunkTable(grid)
            table.put_numbered(table.numbers(self.coords), self.references)
            changes.arrays[self.node.id] = ArrayChanges(table, self.visible)


@dataclass(frozen=True)
class ArrayBefore:
    """An array before an append, with the references of the chunks at its end, which the append may overwrite."""

    node: Node
    mark: AppendMark | None
    """Where an earlier append of the session began; None if there was none."""
    coords: Int64s
    """Coordinates of the chunks at its end that hold fewer items than they could, shape (n, d)."""
    known: Bools
    """Which of them the session had written or deleted, shape (n,)."""
    references: Int64s
    """References of these, shape (n, 3)."""

    @classmethod
    def of(cls, changes: ChangeSet, node: Node, axis: int) -> ArrayBefore:
        """Return an array as it is now; chunks at its end are not overwritten in place from now on."""
        coords = _overwritten(node, axis)
        with changes.lock:
            known, references = np.zeros(len(coords), dtype=bool), np.zeros((len(coords), 3), dtype=np.int64)
            written = changes.arrays.get(node.id)
            if written is not None and len(coords):
                known, references = written.table.get_many(written.table.numbers(coords))
                _settle(changes, references[known])
            return cls(node, changes.appends.get(node.id), coords, known, references)

    def restore(self, changes: ChangeSet) -> None:
        """Give the array its shape and its chunks back."""
        with changes.lock:
            changes.put_node(self.node)  # which drops the chunks outside of its grid
            if self.mark is None:
                changes.appends.pop(self.node.id, None)
            table = changes.array(self.node).table
            numbers = table.numbers(self.coords)
            for number, known, reference in zip(
                numbers.tolist(), self.known.tolist(), self.references.tolist(), strict=True
            ):
                table.put(number, ChunkReference(*reference)) if known else table.forget(number)


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
