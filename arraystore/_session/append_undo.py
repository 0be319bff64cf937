"""Arrays as they were before an append, to be restored without a request if it fails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.chunk_table import ChunkReference
from arraystore._format.node import Node
from arraystore._format.transaction import AppendMark
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_changes import dimension_of
from arraystore._format.zarr_metadata import array_info


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
                if bool((references[known, 0] == changes.packs.open_source).any()):
                    changes.packs.settle()
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


def _overwritten(node: Node, axis: int) -> Int64s:
    """Return the coordinates of the chunks that an append writes a further part of, shape (n, d)."""
    end, grid = dimension_of(node.documents, axis), array_info(node.documents).grid
    if end.chunk is not None and end.length % end.chunk == 0:
        return np.empty((0, len(grid)), dtype=np.int64)
    sides = [range(max(side - 1, 0), side) if each == axis else range(side) for each, side in enumerate(grid)]
    return np.stack([each.reshape(-1) for each in np.meshgrid(*sides, indexing="ij")], axis=1).astype(np.int64)
