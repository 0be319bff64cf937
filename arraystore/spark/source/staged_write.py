"""Saving a DataFrame whose rows decide what arrays there are: arrays are created, or grow along a dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from arraystore._session.handoff import SessionHandoff, hand_off
from arraystore._session.rearrange import DELETE
from arraystore._session.session import Session
from arraystore.spark.creation.create import (
    MissingArrays,
    created,
    find_coordinates,
    find_missing,
    lack_labels,
    no_place_error,
    reserved_values,
)
from arraystore.spark.creation.new_arrays import MOST_LABELS
from arraystore.spark.fork_job import Attempt, Outcome, pickle_new_fork
from arraystore.spark.reading.arrow_columns import arrow_schema
from arraystore.spark.source.messages import message_of
from arraystore.spark.source.options import WriteOptions
from arraystore.spark.source.staged_rows import StagedRows, StageRows
from arraystore.spark.writing.append_growth import find_growth, grow
from arraystore.spark.writing.planning import dimension_columns, plan_write, value_column_for
from arraystore.spark.writing.rejected_rows import rejected_rows_in
from arraystore.spark.writing.target_arrays import Target, find_targets
from arraystore.spark.writing.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BUDGET = 256 << 20
"""Bytes of open chunks in the process that commits."""


@dataclass(frozen=True)
class StagedWrite:
    """Plan of a save whose rows are written by the commit."""

    options: WriteOptions
    schema: StructType
    attempt: Attempt
    """Work of a task, which stores rows."""
    handoff: SessionHandoff
    scanned: tuple[tuple[str, ...], int]
    """Columns whose labels are found, and how many of them hold labels."""
    overwrite: bool

    def run(self, batches: Iterator[pa.RecordBatch], query: str | None = None) -> WriterCommitMessage:
        """Store the rows of one task."""
        return message_of(self.attempt.outcome(iter(batches)), self.handoff, query)

    def merge(self, session: Session, outcomes: Sequence[Outcome]) -> tuple[str, dict[str, Any]]:
        """Create or grow the arrays, write the rows, and return message and metadata for the commit."""
        staged = StagedRows.of(session.context, [outcome.report for outcome in outcomes])
        found = staged.find_labels(*self.scanned, _most(self.options)) if staged.rows else {}
        with ExitStack() as stack:
            if not staged.rows:
                self._empty(session)
                return self.options.message or "write no rows from Spark", {
                    "spark.rows": 0,
                    "spark.tasks": len(outcomes),
                }
            self._make(session, stack, found)
            plan = self._plan(session)
            rows = self._write(session, plan, staged)
        what = ", ".join("/" + path for path in plan.arrays)
        text = f"{'overwrite' if self.overwrite else 'write'} {what} with {rows:,} rows from Spark"
        message = text if self.options.message is None else self.options.message
        return message, {"spark.rows": rows, "spark.tasks": len(outcomes)}

    def _empty(self, session: Session) -> None:
        """Delete earlier values if they are overwritten by no rows."""
        if self.overwrite and missing_arrays(session, self.schema, self.options) is None:
            for path in plan_of(session, self.schema, self.options).arrays:
                session.reindex_array(path, lambda _: DELETE, vectorized=True)

    def _make(self, session: Session, stack: ExitStack, found: Mapping[str, pa.Array]) -> None:
        """Create missing arrays and let them grow."""
        options = self.options
        missing = missing_arrays(session, self.schema, options)
        if missing is not None and options.create is not None:
            coordinates = find_coordinates(missing, self.schema, options.create, lambda *_: found)
            if lack_labels(missing, coordinates):
                raise no_place_error(missing)
            stack.enter_context(created(session, missing, options.create, coordinates, options.append_dim))
        if options.append_dim is not None:
            with session.hierarchy.untracked():
                targets = _targets_of(session, self.schema, options)
                rows, coords = StagedLabels(self.schema, found), options.arguments.get("coords", "index")
                tolerance = options.arguments.get("tolerance")
                growth = find_growth(rows, session, targets, options.dims, coords, options.append_dim, None, tolerance)
                stack.enter_context(grow(session, growth))

    def _plan(self, session: Session) -> WritePlan:
        plan = plan_of(session, self.schema, self.options)
        if self.options.create is not None:
            plan = replace(plan, reserved=reserved_values(session, plan.arrays))
        return replace(plan, policy=replace(plan.policy, budget=_BUDGET, fill=plan.policy.fill or self.overwrite))

    def _write(self, session: Session, plan: WritePlan, staged: StagedRows) -> int:
        """Write the rows through a fork, merge it, and return their number."""
        fork = session.fork()
        try:
            rejected = rejected_rows_in([plan.work(fork, staged.batches())])
            plan.refuse(rejected)
            for path in plan.arrays if self.overwrite else ():
                session.reindex_array(path, lambda _: DELETE, vectorized=True)
            session.merge(fork, on_overlap="last" if self.overwrite else "error")
        except BaseException:
            session.abandon(fork)
            raise
        return rejected.rows


@dataclass(frozen=True)
class StagedLabels:
    """Labels of stored rows, as `find_growth` asks for them."""

    schema: StructType
    found: Mapping[str, pa.Array]

    def labels(self, column: str) -> pa.Array:
        """Return the distinct labels of a column."""
        empty = pa.array([], arrow_schema(self.schema).field(column).type)
        return self.found.get(column, empty)  # rows whose labels are all null have none

    def greatest(self, column: str) -> int | None:
        """Return the greatest index of a column; None if there are no rows."""
        return max((int(value) for value in self.labels(column).to_pylist()), default=None)

    def label_type(self, column: str) -> pa.DataType:
        """Return the type of labels."""
        return self.labels(column).type


def prepare_staged(session: Session, options: WriteOptions, schema: StructType, overwrite: bool) -> StagedWrite | None:
    """Plan a save whose rows are written by the commit; None if all arrays exist and none can grow."""
    missing = missing_arrays(session, schema, options)
    if missing is None and options.append_dim is None:
        return None
    if missing is None:
        plan = plan_of(session, schema, options)
        (target,) = find_targets(session.store, plan.arrays[0], "", None)
        dims = dict(dimension_columns(target, options.dims))
        columns = [*dims.values(), *(value.column for value in plan.values)]
        new = {}
    else:
        dims = dict(missing.dims)
        columns = [*dims.values(), *missing.columns.values()]
        new = {name: column for name, column in dims.items() if name not in missing.sizes}
    if options.append_dim in dims:
        new[str(options.append_dim)] = dims[str(options.append_dim)]
    coords = options.arguments.get("coords", "index")
    how = {name: coords.get(name, "index") if isinstance(coords, Mapping) else coords for name in new}
    labelled = tuple(column for name, column in new.items() if how[name] == "label")
    indexed = tuple(column for name, column in new.items() if how[name] == "index")
    work = StageRows(tuple(dict.fromkeys(columns)), labelled, indexed, _most(options))
    attempt = Attempt(pickle_new_fork(session), work)
    scanned = (*labelled, *indexed), len(labelled)
    return StagedWrite(options, schema, attempt, hand_off(session), scanned, overwrite)


def missing_arrays(session: Session, schema: StructType, options: WriteOptions) -> MissingArrays | None:
    """Return the arrays that a save creates; None if they exist, or if it may not."""
    if options.create is None:
        return None
    arguments = options.arguments
    return find_missing(
        session, schema, options.path, options.create, dims=options.dims, value=arguments.get("value"),
        values=arguments.get("values"), coords=arguments.get("coords", "index"), tolerance=arguments.get("tolerance"),
    )  # fmt: skip


def plan_of(session: Session, schema: StructType, options: WriteOptions) -> WritePlan:
    """Return the plan of a write into arrays that exist."""
    return plan_write(session, schema, options.path, dims=options.dims, **options.arguments)


def _targets_of(session: Session, schema: StructType, options: WriteOptions) -> list[Target]:
    """Return the arrays that a save writes to."""
    value, values = options.arguments.get("value"), options.arguments.get("values")
    if value is None and values is None:
        value = value_column_for(session.store, schema, options.path, options.dims)
    return find_targets(session.store, options.path, value, values)


def _most(options: WriteOptions) -> int:
    return MOST_LABELS if options.create is None else options.create.most_labels
