"""States of an Icechunk repository: nodes of a snapshot, and tables of the chunk references of its arrays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arraystore._format.box import Box
from arraystore._format.types import Int64s

if TYPE_CHECKING:
    import icechunk

__all__ = ["VIRTUAL", "ChunkBatch", "Snapshot", "SourceNode", "Table", "batches", "read_snapshot", "trim"]

VIRTUAL = 2
"""Kind of references to bytes elsewhere."""

_MOST_ROWS = 1 << 24
"""Rows of tables that are kept for the next snapshot: 16 bytes each."""


@dataclass(frozen=True)
class SourceNode:
    """A node of a snapshot."""

    id: str
    """Stays the same when the node is moved."""
    is_array: bool
    shape: str
    manifests: tuple[tuple[str, str], ...]
    """Ids of its manifests with their extents: chunks differ only where these do."""


@dataclass(frozen=True)
class Table:
    """References of an array: numbers of cells, ascending, and what tells the reference of each from any other one."""

    box: Box
    numbers: Int64s
    marks: Int64s

    def within(self, box: Box) -> Table:
        """Return the same for another grid, without the cells outside of it."""
        if box == self.box:
            return self
        coords = self.box.coords(self.numbers)
        inside = (coords < np.array(box.high, dtype=np.int64)).all(axis=1)
        return Table(box, box.numbers(coords[inside]), self.marks[inside])

    def same(self, numbers: Int64s, marks: Int64s) -> npt.NDArray[np.bool_]:
        """Return which references of another state the table has, too."""
        if not len(self.numbers):
            return np.zeros(len(numbers), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        same: npt.NDArray[np.bool_] = (self.numbers[at] == numbers) & (self.marks[at] == marks)
        return same

    @classmethod
    def of(cls, box: Box, numbers: list[Int64s], marks: list[Int64s]) -> Table:
        """Return the table of some batches."""
        joined = np.concatenate([np.empty(0, np.int64), *numbers])
        order = np.argsort(joined, kind="stable")
        return cls(box, joined[order], np.concatenate([np.empty(0, np.int64), *marks])[order])


@dataclass(frozen=True)
class Snapshot:
    """Nodes of a snapshot by path, which has no leading slash, and the tables that were read of its arrays, by id."""

    id: str
    nodes: dict[str, SourceNode]
    tables: dict[str, Table] = field(default_factory=dict)


async def read_snapshot(source: icechunk.Repository, identifier: str) -> Snapshot:
    """Read the nodes of a snapshot."""
    shown: Any = await source.inspect_snapshot_async(identifier)
    return Snapshot(identifier, {node["path"].strip("/"): _node(node) for node in shown["nodes"]})


def _node(shown: dict[str, Any]) -> SourceNode:
    manifests = tuple((part["id"], repr(part["extents"])) for part in shown.get("manifest_refs") or ())
    return SourceNode(shown["id"], shown["node_type"] == "array", repr(shown.get("shape")), manifests)


def trim(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without tables where they take too much memory."""
    rows = sum(len(table.numbers) for table in snapshot.tables.values())
    return snapshot if rows <= _MOST_ROWS else replace(snapshot, tables={})


@dataclass(frozen=True)
class ChunkBatch:
    """Some references of an array, in columns."""

    coords: Int64s
    kinds: Int64s
    places: list[str]
    """URLs of virtual chunks."""
    offsets: Int64s
    lengths: Int64s
    inlined: dict[int, bytes]
    """Values of inlined chunks, by row."""

    def marks(self) -> Int64s:
        """Return a number for each row that tells its reference from any other one within this process."""
        marks = np.fromiter(
            map(hash, zip(self.places, self.offsets.tolist(), self.lengths.tolist(), strict=True)),
            np.int64,
            len(self.places),
        )
        for row, value in self.inlined.items():
            marks[row] = hash(value)
        return marks


async def batches(store: icechunk.IcechunkStore, path: str, grid: tuple[int, ...]) -> AsyncIterator[ChunkBatch]:
    """Yield the references that an array has within its grid."""
    async for coords, kinds, places, offsets, lengths, inlined in store.array_chunk_iterator("/" + path):
        cells = np.asarray(coords, dtype=np.int64).reshape(len(places), len(grid))
        kept = (cells < np.array(grid, dtype=np.int64)).all(axis=1)  # a shrink has cut off the others
        rows = np.flatnonzero(kept).tolist()
        yield ChunkBatch(
            cells[kept],
            np.asarray(kinds, dtype=np.int64)[kept],
            list(places) if len(rows) == len(places) else [places[row] for row in rows],
            np.asarray(offsets).astype(np.int64)[kept],
            np.asarray(lengths).astype(np.int64)[kept],
            {at: inlined[row] for at, row in enumerate(rows) if row in inlined},
        )
