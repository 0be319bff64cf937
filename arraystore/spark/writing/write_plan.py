"""Plans of writes, and the work of one task.

A plan is made from the types alone, needs no Spark session, and pickles small: it is what travels to the executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arraystore._format.types import Bools, Int64s
from arraystore._session.fork import ForkSession
from arraystore.errors import InvalidInputError
from arraystore.spark.writing.axes import Axis
from arraystore.spark.writing.chunk_assembler import ChunkAssembler, Chunks, Policy
from arraystore.spark.writing.chunk_grid import MISSING, NOWHERE, ChunkGrid, flaw
from arraystore.spark.writing.columns import ValueColumn
from arraystore.spark.writing.rejected_rows import Cause, RejectedRows
from arraystore.spark.writing.replaced_region import ErasedChunks, ReplacedRegion
from arraystore.spark.writing.target_arrays import ArrayChunks

OnNull = Literal["error", "fill", "skip"]


@dataclass(frozen=True)
class WritePlan:
    """Plan of a write of rows."""

    arrays: tuple[str, ...]
    """Paths of the arrays."""
    grid: ChunkGrid
    """Their geometry."""
    axes: tuple[Axis, ...]
    """Columns of the dimensions."""
    values: tuple[ValueColumn, ...]
    """Columns of the values, one for each array."""
    fills: tuple[Any, ...]
    """Fill value of each array."""
    policy: Policy
    """Choices for cells without rows, and with several."""
    on_null: OnNull = "error"
    """Treatment of NULL values."""
    reserved: tuple[int | None, ...] = ()
    """Value of each array that means that there is none, which rows must not have; empty if they may."""
    region: ReplacedRegion | None = None
    """Region that the rows replace whole."""
    located: bool = False
    """Whether batches hold positions: a column ``position``, then the values."""

    @property
    def what(self) -> str:
        """Paths of the arrays as a string for errors."""
        return ", ".join(f"'/{path}'" for path in self.arrays)

    @property
    def cell_bytes(self) -> int:
        """Bytes of one cell of all arrays."""
        return sum(value.dtype.itemsize for value in self.values)

    @property
    def in_spark(self) -> bool:
        """Tell whether Spark can compute positions."""
        return all(axis.in_spark for axis in self.axes)

    def of_positions(self, *, ordered: bool) -> WritePlan:
        """Return the plan for rows that hold positions."""
        return replace(self, located=True, policy=replace(self.policy, ordered=ordered))

    def fits(self, chunks: int) -> bool:
        """Return whether a task can hold this count of chunks open at a time."""
        return chunks * self.grid.cells * (self.cell_bytes + 2) <= self.policy.budget

    def work(self, fork: ForkSession, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        """Write rows through a fork, and return a report for `rejected_rows_in`."""
        return _Task(self, fork).run(batches)

    def refuse(self, rejected: RejectedRows) -> None:
        """Raise `InvalidInputError` if there are rejected rows."""
        if rejected:
            raise InvalidInputError(f"of {rejected.rows:,} rows for {self.what} {rejected.text()}. Nothing was written")

    def lost_position(self, kind: Cause, column: str) -> int:
        """Return the code that replaces the position of rejected rows."""
        axis = next(number for number, axis in enumerate(self.axes) if axis.column == column)
        return (MISSING if kind == Cause.NO_PLACE else NOWHERE) - 2 * axis

    def locate(self, batch: pa.RecordBatch) -> tuple[Int64s, npt.NDArray[Any]]:
        """Return the positions of rows, and the numbers of the rows that have none."""
        columns = [batch.column(batch.schema.get_field_index(axis.column)) for axis in self.axes]
        positions = self.grid.positions([axis.indices(column) for axis, column in zip(self.axes, columns, strict=True)])
        lost = np.flatnonzero(positions < 0) if len(positions) and positions.min() < 0 else np.empty(0, np.int64)
        return positions, lost

    def place_of(self, batch: pa.RecordBatch, row: int) -> str:
        """Return the dimension columns of a row, as a string for messages."""
        values = (batch.column(batch.schema.get_field_index(axis.column))[row].as_py() for axis in self.axes)
        return ", ".join(
            f"{axis.column}={'null' if value is None else value}" for axis, value in zip(self.axes, values, strict=True)
        )

    def cell_of(self, position: int) -> str:
        """Return the place of a cell as a string for messages, with labels where rows hold labels."""
        places = zip(self.axes, self.grid.indices(position), strict=True)
        return ", ".join(f"{axis.column}={axis.text(index)}" for axis, index in places)


class _Task:
    """The work of one task."""

    def __init__(self, plan: WritePlan, fork: ForkSession) -> None:
        self._plan = plan
        self._rejected = RejectedRows()
        self._rows = 0
        chunks: Chunks = ArrayChunks(fork, plan.arrays, plan.grid)
        if plan.region is not None:
            chunks = ErasedChunks(chunks, plan.region, plan.fills)
        dtypes = [value.dtype for value in plan.values]
        self._assembler = ChunkAssembler(plan.grid, dtypes, plan.fills, chunks, plan.policy, self._refuse_duplicates)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        for batch in batches:
            if batch.num_rows:
                self._rows += batch.num_rows
                self._take(batch)
        self._assembler.finish()
        return {
            "rows": self._rows,
            "chunks": self._assembler.written,
            "nbytes": self._assembler.nbytes,
            "rejected": self._rejected.plain(),
        }

    def _take(self, batch: pa.RecordBatch) -> None:
        plan = self._plan
        if plan.located:
            positions = batch.column(0).to_numpy()
            columns = [batch.column(1 + number) for number in range(len(plan.values))]
            lost = np.flatnonzero(positions < 0) if positions.min() < 0 else None
        else:
            positions, lost = plan.locate(batch)
            columns = [batch.column(batch.schema.get_field_index(value.column)) for value in plan.values]
        if lost is not None and len(lost):
            self._refuse_lost(batch, positions[lost], lost)
            rest = np.flatnonzero(positions >= 0)
            columns = [column.take(pa.array(rest)) for column in columns]
            positions = positions[rest]
        if len(positions):
            if plan.region is not None:
                self._check_region(plan.region, positions)
            self._put(positions, columns)

    def _put(self, positions: Int64s, columns: Sequence[pa.Array]) -> None:
        plan = self._plan
        values: list[npt.NDArray[Any]] = []
        absent: list[Bools | None] = []
        for number, (column, value, fill) in enumerate(zip(columns, plan.values, plan.fills, strict=True)):
            read = value.read(column)
            column_values = read.values
            for cause, mask in (Cause.UNFIT, read.unfit), (Cause.CHANGED, read.changed):
                if mask is not None:
                    self._refuse(cause, value.column, int(mask.sum()), self._values_at(column, positions, mask))
            self._check_reserved(number, positions, column_values, read.absent)
            if read.absent is not None and plan.on_null == "error":
                texts = (plan.cell_of(int(position)) for position in positions[read.absent])
                self._refuse(Cause.NO_VALUE, value.column, int(read.absent.sum()), texts)
            if read.absent is not None and plan.on_null == "fill":
                column_values = np.where(read.absent, np.asarray(fill, column_values.dtype), column_values)
            values.append(column_values)
            absent.append(read.absent if plan.on_null == "skip" else None)
        self._assembler.add(positions, values, absent)

    def _check_region(self, region: ReplacedRegion, positions: Int64s) -> None:
        outside = positions[~region.contains(positions)]
        if len(outside):
            self._refuse(Cause.OUTSIDE, "", len(outside), (self._plan.cell_of(int(each)) for each in outside))

    def _check_reserved(self, number: int, positions: Int64s, values: npt.NDArray[Any], absent: Bools | None) -> None:
        """Refuse values that would be read as missing ones."""
        reserved = self._plan.reserved[number] if self._plan.reserved else None
        if reserved is None:
            return
        same = values == reserved if absent is None else (values == reserved) & ~absent
        if same.any():
            texts = (f"{reserved} at {self._plan.cell_of(int(position))}" for position in positions[same])
            self._refuse(Cause.RESERVED, self._plan.values[number].column, int(same.sum()), texts)

    def _values_at(self, column: pa.Array, positions: Int64s, mask: Bools) -> Iterator[str]:
        """Yield some of the values of a column and their places, as strings for messages."""
        for row in np.flatnonzero(mask).tolist():
            value = column[row].as_py()
            shown = repr(value) if isinstance(value, str | bytes) else str(value)
            yield f"{shown:.60} at {self._plan.cell_of(int(positions[row]))}"

    def _refuse(self, kind: Cause, column: str, count: int, examples: Iterator[str]) -> None:
        self._rejected.add(kind, column, count, examples)
        self._assembler.dry = True

    def _refuse_duplicates(self, positions: Int64s) -> None:
        texts = (self._plan.cell_of(int(position)) for position in positions)
        self._rejected.add(Cause.DUPLICATE, "", len(positions), texts)

    def _refuse_lost(self, batch: pa.RecordBatch, codes: Int64s, rows: npt.NDArray[Any]) -> None:
        for code in np.unique(codes).tolist():
            number, kind = flaw(code)
            axis = self._plan.axes[number]
            these = rows[codes == code]
            cause = Cause.NO_PLACE if kind != NOWHERE else Cause.NO_INDEX if axis.labels is None else Cause.NO_LABEL
            # Rows that Spark has located have lost their labels; the driver reads some of them again.
            texts = iter(()) if self._plan.located else (self._plan.place_of(batch, int(row)) for row in these)
            self._refuse(cause, axis.column, len(these), texts)
