"""Chunks whose rows a task has all: they are written where the rows are, and only the rest is shuffled.

Each task in front of the shuffle passes on the rows that it did not write, and one row more, with its outcome.  Which
chunks it writes follows from its rows, and from their order only where its memory ends.  So an attempt that runs again
may decide otherwise than the one of which other tasks have fetched rows already: `outcomes_in_front` counts rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from arraystore._format.types import Array, Bools, Int64s
from arraystore._session.fork import ForkSession
from arraystore.errors import FormatError
from arraystore.spark.fork_job import Attempt, Outcome, read_outcome
from arraystore.spark.spark_action import map_in_arrow
from arraystore.spark.writing.repartition import by_owner, locate
from arraystore.spark.writing.target_arrays import ArrayChunks
from arraystore.spark.writing.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OUTCOME = "outcome"
"""Column of the outcomes of tasks in front of the shuffle."""

_OF_OUTCOME = -(1 << 62)
"""Position of the rows that hold an outcome: no cell, and no code of a flaw."""

_BLOCK_BYTES = 4 << 20
"""Bytes of rows that are looked at together, at least."""

_MOST_INLINE = 64 << 10
"""Largest change set that goes through the shuffle, in bytes: all of them go to one task."""

_SPREAD = 8
"""Chunks for each row of a block, between its first and its last one, up to which a table counts rows by chunk."""


class IncompleteRestError(Exception):
    """Tasks on both sides of the shuffle do not agree on which of them wrote which rows."""


def shuffle_rest(df: DataFrame, plan: WritePlan, tasks: int, sort: bool, attempt: Attempt) -> DataFrame:
    """Return rows as `shuffle_by_owner` does, without those that tasks in front of the shuffle write."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    located = locate(df, plan)
    attempt = replace(attempt, most_inline=_MOST_INLINE)
    fields = [StructField(field.name, field.dataType) for field in located.schema.fields]

    def rest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        form: pa.Schema | None = None
        with attempt.writing() as fork:
            whole = WholeChunks(plan, fork)
            for batch in batches:
                form = batch.schema
                yield from map(_without_outcome, whole.take(batch))
            yield from map(_without_outcome, whole.finish())
            if form is not None:  # else there is nothing to tell
                yield _with_outcome(form, attempt.result(fork, whole.report()))

    schema = StructType([*fields, StructField(_OUTCOME, BinaryType())])
    return by_owner(map_in_arrow(located, rest, schema), plan, tasks, sort=sort)


def _without_outcome(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _batch(batch.schema.names, [*batch.columns, pa.nulls(batch.num_rows, pa.binary())])


def _with_outcome(schema: pa.Schema, outcome: bytes) -> pa.RecordBatch:
    nothing = [pa.nulls(1, kind) for kind in schema.types[1:]]
    return _batch(schema.names, [pa.array([_OF_OUTCOME], pa.int64()), *nothing, pa.array([outcome], pa.binary())])


def _batch(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch of the one schema that Arrow wants all batches of a task to have, in which all may be null."""
    return pa.RecordBatch.from_arrays(columns, names=[*names, _OUTCOME])


# -- in front of the shuffle ------------------------------------------------------------------------------------------


class WholeChunks:
    """Writes chunks all of whose rows it gets, and returns the other rows.

    Rows with a flaw, and all of their chunk, are left to the tasks behind the shuffle, which refuse them.
    """

    def __init__(self, plan: WritePlan, fork: ForkSession) -> None:
        self._plan = plan
        self._chunks = ArrayChunks(fork, plan.arrays, plan.grid)
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._next = _BLOCK_BYTES
        self._most = max(_BLOCK_BYTES, plan.policy.budget)
        self._closed = np.empty(0, np.int64)  # numbers of chunks that are written, or of which rows are passed on
        self._in_vain = False
        self._rows = self._written = self._nbytes = self._left = 0

    def report(self) -> dict[str, Any]:
        """Return counts of rows, chunks and bytes that were written, and of the rows that were passed on."""
        return {"rows": self._rows, "chunks": self._written, "nbytes": self._nbytes, "left": self._left}

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows as positions and values; yield those that are passed on."""
        if self._in_vain:
            self._left += batch.num_rows
            yield batch
            return
        self._held.append(batch)
        self._size += batch.nbytes
        if self._size >= self._next:
            yield from self._sift(last=False)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left."""
        if self._held:
            yield from self._sift(last=True)

    def _sift(self, *, last: bool) -> Iterator[pa.RecordBatch]:
        """Write the chunks that are whole, and yield the rows that need not be held for later ones."""
        table = pa.Table.from_batches(self._held).combine_chunks()
        positions = table.column(0).to_numpy()
        block = _Block(positions // self._plan.grid.cells)
        passed = (block.chunks < 0) | np.isin(block.chunks, self._closed)
        whole = (block.counts == self._plan.grid.cells_inside(block.chunks)) & ~passed
        if whole.any():
            flawless = self._write_all(block, whole, positions, table)
            passed |= whole & ~flawless
            whole = flawless
        kept = table.filter(pa.array(block.rows_of(~whole & ~passed)))
        full = kept.nbytes > self._most // 2
        if last or full:  # rows that do not come in order, or chunks that are larger than the memory
            passed |= ~whole & (block.counts > 0)
            self._in_vain = full and not self._written
            kept = kept.slice(0, 0)
        self._closed = np.union1d(self._closed, block.chunks[whole | passed])
        self._held, self._size = kept.to_batches(), kept.nbytes
        self._next = min(max(_BLOCK_BYTES, 2 * self._size), self._most)
        yield from self._pass(table, block.rows_of(passed))

    def _pass(self, table: pa.Table, rows: Bools) -> Iterator[pa.RecordBatch]:
        passed = table.filter(pa.array(rows))
        self._left += passed.num_rows
        yield from passed.to_batches()

    def _write_all(self, block: _Block, whole: Bools, positions: Int64s, table: pa.Table) -> Bools:
        """Write chunks that have as many rows as cells; return which of them are without a flaw."""
        columns, flawed = self._read(table)
        if flawed.any():
            whole = whole & (block.count(flawed) == 0)
        single = np.zeros(len(whole), np.bool_)
        each = self._plan.grid.cells * (self._plan.cell_bytes + 4)
        at_once = max(1, self._plan.policy.budget // each)
        numbers = np.flatnonzero(whole)
        for start in range(0, len(numbers), at_once):
            some = np.zeros(len(whole), np.bool_)
            some[numbers[start : start + at_once]] = True
            single |= self._write_some(block, some, positions, columns)
        self._rows += int(block.counts[single].sum())
        self._written += len(columns) * int(single.sum())
        return single

    def _read(self, table: pa.Table) -> tuple[list[Array], Bools]:
        """Return the values of rows, by array, and which rows have one with a flaw."""
        flawed = np.zeros(table.num_rows, np.bool_)
        columns: list[Array] = []
        for number, value in enumerate(self._plan.values):
            parts, at = [np.empty(0, value.dtype)], 0
            for chunk in table.column(1 + number).chunks:  # more than one where they have more than 2 GiB
                read = value.read(chunk)
                for mask in (read.absent, read.unfit, read.changed):
                    if mask is not None:
                        flawed[at : at + len(chunk)] |= mask
                parts.append(read.values)
                at += len(chunk)
            values = np.concatenate(parts) if len(parts) > 2 else parts[-1]
            if self._plan.reserved and (reserved := self._plan.reserved[number]) is not None:
                flawed |= values == reserved
            columns.append(values)
        return columns, flawed

    def _write_some(self, block: _Block, whole: Bools, positions: Int64s, columns: Sequence[Array]) -> Bools:
        """Write chunks unless two of their rows name one cell, so that another one has none; return which are."""
        cells = self._plan.grid.cells
        slots = np.cumsum(whole) - 1
        rows = np.flatnonzero(block.rows_of(whole))
        flat = slots[block.places[rows]] * cells + positions[rows] % cells
        count = int(whole.sum())
        marks = np.empty(count * cells, np.uint32)  # no memory where chunks reach beyond the array
        ordinals = np.arange(len(rows), dtype=np.uint32)
        marks[flat] = ordinals
        single: Bools = whole & (block.count(rows[marks[flat] != ordinals]) == 0)
        for array, values in enumerate(columns):
            slab = np.empty(count * cells, values.dtype)
            slab[flat] = values[rows]
            for slot, number in zip(slots[single].tolist(), block.chunks[single].tolist(), strict=True):
                self._write(array, number, slab[slot * cells : (slot + 1) * cells])
        return single

    def _write(self, array: int, number: int, cells: Array) -> None:
        values = cells.reshape(self._plan.grid.chunk)[self._plan.grid.inside(number)]
        self._chunks.write(array, number, values)
        self._nbytes += values.nbytes


class _Block:
    """Chunks of rows, which are few and next to each other where rows come in order."""

    def __init__(self, numbers: Int64s) -> None:
        low, high = int(numbers.min()), int(numbers.max())
        if high - low > _SPREAD * len(numbers):
            self.chunks, self.places = np.unique(numbers, return_inverse=True)
        else:
            self.places = numbers - low
            self.chunks = np.arange(low, high + 1)
        self.counts = self.count(None)
        """Rows of each chunk."""

    def count(self, rows: Bools | Int64s | None) -> Int64s:
        """Return how many of these rows, a mask or numbers, each chunk has; of all for None."""
        places = self.places if rows is None else self.places[rows]
        return np.bincount(places, minlength=len(self.chunks)).astype(np.int64)

    def rows_of(self, chunks: Bools) -> Bools:
        """Return the mask of the rows of these chunks."""
        found: Bools = chunks[self.places]
        return found


# -- behind the shuffle -----------------------------------------------------------------------------------------------


def write_rest(plan: WritePlan, fork: ForkSession, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
    """Write the rows that came through the shuffle; the report lists the outcomes that came with them."""
    outcomes: list[bytes] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            of_outcome = batch.column(0).to_numpy() == _OF_OUTCOME
            if of_outcome.any():
                outcomes.extend(batch.column(batch.num_columns - 1).filter(pa.array(of_outcome)).to_pylist())
            yield batch.filter(pa.array(~of_outcome)) if of_outcome.any() else batch

    report = plan.work(fork, rows())
    return {**report, "in_front": outcomes}


def outcomes_in_front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of tasks in front of the shuffle, which came with those of the tasks behind it.

    Raises
    ------
    IncompleteRestError
        If the tasks behind the shuffle have not got the rows that those in front of it have passed on.
    """
    found: list[Outcome] = []
    for outcome in outcomes:
        listed = outcome.report.get("in_front", [])
        if not isinstance(listed, list) or not all(isinstance(each, bytes) for each in listed):
            raise FormatError("report of a task", "does not list outcomes")
        found += [read_outcome("outcome of a task in front of a shuffle", each) for each in listed]
    passed = sum(int(outcome.report.get("left", 0)) for outcome in found)
    arrived = sum(int(outcome.report.get("rows", 0)) for outcome in outcomes)
    if passed != arrived or len({outcome.task for outcome in found}) != len(found):
        raise IncompleteRestError
    return found
