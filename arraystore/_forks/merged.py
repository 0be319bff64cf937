"""The memory of a merge: the chunks and nodes that forks have changed, and the newest state of each fork."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from arraystore._chunks.chunk_table import ChunkTable
from arraystore._chunks.packed_run import PackedRun
from arraystore._format.ids import ForkId, NodeId
from arraystore._format.node import Node, NodeKind
from arraystore._format.types import Int32s, Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime.values import dataclass

if TYPE_CHECKING:
    from arraystore._forks.cuts import Cut


class CellLog(ChunkTable):
    """The last change of each chunk of an array: its epoch, and its owner, a number of a fork or 0 for the session."""

    __slots__ = ()

    packs = False

    def note(self, numbers: Int64s, values: Int32s) -> None:
        """Note epoch and owner, shape (n, 2), of many cells, shape (n,)."""
        self.put_numbered(numbers, values)

    def find_many(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return epochs and owners of many cells; -1 for cells that are not in the log."""
        self._spill()
        self._sweep()
        entries = np.full((len(numbers), 2), -1, dtype=np.int64)
        for run in self._runs:
            assert not isinstance(run, PackedRun)
            cells, values = run
            at = np.minimum(cells.searchsorted(numbers), len(cells) - 1)
            hit = cells[at] == numbers
            entries[hit] = values[at[hit]]
        return entries[:, 0], entries[:, 1]

    def coords(self, numbers: Int64s) -> Int64s:
        """Return the coordinates of many cells."""
        return self._box.coords(numbers)


@dataclass(frozen=True)
class MergedNode:
    """A node that a fork has changed."""

    fork: ForkId
    """Id of the fork."""
    node: Node | None
    """The node as the fork left it; None if the fork deleted it."""
    before: Node | None
    """The node before the fork changed it first; None if there was none."""

    def is_as_left(self, now: Node | None) -> bool:
        """Tell whether nobody has changed the node since."""
        if self.node is None or now is None:
            return self.node is now
        return (self.node.id, self.node.documents) == (now.id, now.documents)


@dataclass
class Merged:
    """The changes that a session has merged from forks."""

    cells: dict[NodeId, CellLog] = field(default_factory=dict)
    """Chunks changed since the first fork was issued, by id of the array."""
    cuts: dict[NodeId, list[Cut]] = field(default_factory=dict)
    """What was cut off from arrays, by their ids."""
    nodes: dict[str, MergedNode] = field(default_factory=dict)
    """The last change of a node by a fork, by key of the node."""
    numbers: dict[ForkId, int] = field(default_factory=dict)
    """Number of the newest merged state of each fork."""
    owners: dict[ForkId, int] = field(default_factory=dict)
    """Number of each fork in the logs."""

    def log(self, node: Node) -> CellLog:
        """Return the log of an array, with room for its grid."""
        grid = grid_of(node)
        log = self.cells.get(node.id)
        if log is None:
            log = self.cells[node.id] = CellLog(grid)
        log.fit(grid)
        return log


def grid_of(node: Node) -> tuple[int, ...]:
    """Return the sides of the chunk grid of a node, in chunks."""
    return () if node.kind == NodeKind.FILE else array_info(node.documents).grid
