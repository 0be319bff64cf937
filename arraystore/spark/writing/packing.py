"""Rows packed for a shuffle: what goes to one task travels as few large values, not as many small rows.

Spark moves rows one by one through its Java process.  Where a Python worker has split them by owner before, it moves a
value for each owner and some ten thousand rows, which takes a third of the processor time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arraystore.spark.writing.grid import Owners
from arraystore.spark.writing.write_plan import WritePlan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PACKED", "Pack"]

PACKED = "owner int, rows binary"
"""Schema of packed rows."""

_ROWS_PER_OWNER = 2_000
_MOST_ROWS = 500_000


@dataclass(frozen=True)
class Pack:
    """Finds the positions of rows, and packs positions and values by owner.

    Parameters
    ----------
    plan
        How rows become chunks.
    owners
        Which task owns which chunk.
    """

    plan: WritePlan
    owners: Owners

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a batch of packed rows for some batches of rows."""
        import pyarrow as pa

        most = min(self.owners.tasks * _ROWS_PER_OWNER, _MOST_ROWS)
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(self._located(batch))
            rows += batch.num_rows
            if rows >= most:
                yield self._packed(pa.Table.from_batches(waiting))
                waiting, rows = [], 0
        if rows:
            yield self._packed(pa.Table.from_batches(waiting))

    def _located(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        positions, _ = self.plan.locate(batch)
        values = [batch.column(batch.schema.get_field_index(value.column)) for value in self.plan.values]
        names = ["position", *(f"v{number}" for number in range(len(values)))]
        return pa.RecordBatch.from_arrays([pa.array(positions), *values], names=names)

    def _packed(self, table: pa.Table) -> pa.RecordBatch:
        import pyarrow as pa

        positions = table.column(0).to_numpy()
        owner = self.owners.owner(np.maximum(positions, 0) // self.plan.grid.cells)
        counts = np.bincount(owner, minlength=self.owners.tasks)
        if np.count_nonzero(counts) > 1:
            kind = np.uint16 if self.owners.tasks < 2**16 else np.int64  # small numbers are sorted in one pass
            table = table.take(pa.array(np.argsort(owner.astype(kind), kind="stable")))
        told = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[told].tolist()
        parts = [table.slice(start, count) for start, count in zip(starts, counts[told].tolist(), strict=True)]
        columns = [pa.array(told, pa.int32()), pa.array([_sent(part) for part in parts], pa.binary())]
        return pa.RecordBatch.from_arrays(columns, names=["owner", "rows"])


def _sent(part: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_table(part)
    found: bytes = sink.getvalue().to_pybytes()
    return found
