"""Writing rows of a DataFrame into arrays."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.arguments import check_writable_session
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, MergeConflictError
from arraystore.spark.argument_checks import check_choice
from arraystore.spark.creation.create import create_missing, reserved_values
from arraystore.spark.creation.new_arrays import CreatedArray, NewArrays, new_arrays
from arraystore.spark.fork_job import Attempt, Outcome, Work, merge_outcomes, report_of, run_fork_job
from arraystore.spark.report import WriteReport
from arraystore.spark.writing.append_growth import AppendLabels, FrameLabels, find_growth, grow
from arraystore.spark.writing.axes import Tolerance
from arraystore.spark.writing.columns import Lossy, quoted
from arraystore.spark.writing.planning import (
    DimensionColumnKinds,
    DimensionColumnNames,
    OnDuplicate,
    Partial,
    plan_write,
    with_region,
)
from arraystore.spark.writing.rejected_rows import rejected_rows_in
from arraystore.spark.writing.repartition import lost_rows, shuffle_by_owner, sorts_automatically, write_task_count
from arraystore.spark.writing.replaced_region import Erasure, ReplaceWhere, erase_first
from arraystore.spark.writing.target_arrays import find_targets
from arraystore.spark.writing.whole_chunks import IncompleteRestError, outcomes_in_front, shuffle_rest, write_rest
from arraystore.spark.writing.write_plan import OnNull, WritePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@shows_progress("Writing")
def write_dataframe(
    df: DataFrame,
    session: Session,
    path: str | None = None,
    *,
    dims: DimensionColumnNames | None = None,
    value: str | None = None,
    values: Mapping[str, str] | Sequence[str] | None = None,
    coords: DimensionColumnKinds = "index",
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
    partial: Partial = "merge",
    on_duplicate: OnDuplicate = "error",
    on_null: OnNull = "error",
    lossy: Lossy = "floats",
    append_dim: str | None = None,
    append_labels: AppendLabels | None = None,
    create: bool | NewArrays = False,
    replace_where: ReplaceWhere | None = None,
    shuffle: bool | Literal["rest"] = True,
    sort: bool | Literal["auto"] = "auto",
    tasks: int | None = None,
    progress: Progress | bool = False,
    description: str | None = None,
) -> WriteReport:
    """Write the rows of a DataFrame into arrays; each row is one cell.

    The arrays must exist unless `create` is set; they may be uncommitted. The changes are in the session afterwards,
    and the caller commits them. If the write fails, the session is unchanged.

    Parameters
    ----------
    df
        Rows; not a stream (see `batch_writer`).
    session
        Writable session.
    path
        Path of the array for `value`, of the group for `values`.
    dims
        Columns of the place of a row, one for each dimension of the array, in their order; or a dict from
        names of dimensions to columns.  By default the columns with the names of the dimensions.
    value
        Column of the values, for one array.  By default the column with the name of the array, or the only one that is
        not of a dimension.
    values
        Names of arrays in the group and their columns; the arrays have the same shape, chunks and dimensions.
    coords
        ``"index"``: the columns hold indices.  ``"label"``: they hold values of the coordinates, the arrays in the same
        group that have the names of the dimensions; timestamps are looked up in coordinates with CF time units. A dict
        chooses by dimension.
    tolerance
        Largest distance of a value from its label, by dimension or for all: a number in the unit of the coordinate, or
        a timedelta.  By default labels match exactly; times in floating point to half a millisecond.  What is within
        it of a label is no new label for `append_dim`, and new labels that are within it of each other are refused.
    partial
        Treatment of cells without rows, in chunks that rows are written to: ``"merge"`` keeps them,
        ``"fill"`` gives them the fill value.
    on_duplicate
        Rows that name the same cell are an error, or with ``"same"`` only if they differ.
    on_null
        Treatment of NULL: ``"error"``, ``"fill"`` writes the fill value, ``"skip"`` keeps the cell as if there were
        no row.  NaN is a value.
    lossy
        Whether values may be rounded to the type of the array: integers and decimals in a float array, instants in a
        coarser unit of time, 64-bit floats in a 32-bit array.  With ``"floats"`` these are rounded, and any other value
        that would change is refused, with counts and examples; False refuses floats that would change, too.  Values
        out of the range of the type are always refused.
    append_dim
        Dimension along which the arrays grow if rows lie beyond their end, together with all arrays of the group that
        have it.  New labels are written to the coordinate, which they must continue.  Jobs that append at the same time
        both commit (``session.commit(..., rebase_with=ConflictDetector())``) if they end at chunk boundaries and do not
        append the same label.
    append_labels
        Labels that there may be in the rows, or with ``coords="index"`` the new length; saves a pass over `df`.
    create
        Whether arrays that do not exist are created, with their coordinates; a `NewArrays` in place of True chooses
        how.  Dimensions have the names that `dims` gives them, and those that the group has already keep their length
        and labels.  Types, fill values and attributes come from the columns.  The rows are scanned once for labels; if
        there are no rows, nothing is created.
    replace_where
        Region that the rows replace whole, by dimension: a label, a list or a slice of labels (both ends included),
        indices where the column holds indices; dimensions without an entry are replaced from end to end.  Cells of the
        region without rows become the fill value, and rows outside of it are an error.  Chunks that concurrent commits
        add to the region stay, unless the session is serializable.
    shuffle
        Whether rows are moved to the task that owns their chunk.  If not, they must be there already
        (`repartition_by_chunk`), or the merge fails.  ``"rest"``: tasks write the chunks of which they have all rows,
        and only the other rows are moved.  It takes half of the time where rows come in the order of the array, and
        1.6 times as long where they come in no order.  As many tasks write as `df` has partitions; with `replace_where`
        all rows are moved.
    sort
        Whether tasks get their rows in order.  ``"auto"``: only if the chunks of a task do not fit into its memory
        (64 MiB) together.
    tasks
        Number of tasks; by default one for each slot of the cluster, but no more than there are chunks.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called on the driver with the count of
        finished tasks and the count of all.
    description
        For Spark's pages.

    Returns
    -------
    WriteReport
        What was written.

    Raises
    ------
    InvalidInputError
        If arguments, columns or rows do not fit the arrays; for rows, with their number by cause and examples.
    NodeNotFoundError
        If there is no such array.
    MergeConflictError
        If two tasks wrote the same chunk, with ``shuffle=False``.
    TaskFailedError
        If a task failed for good.
    """
    began = time.perf_counter()
    if df.isStreaming:
        raise InvalidInputError("write_dataframe cannot take a stream: use writeStream.foreachBatch(batch_writer(...))")
    if append_labels is not None and append_dim is None:
        raise InvalidInputError("append_labels needs append_dim")
    check_writable_session(session)
    check_choice("shuffle", shuffle, (True, False, "rest"))
    rows = _Rows(
        df, path, dims, value, values, coords,
        {"tolerance": tolerance, "partial": partial, "on_duplicate": on_duplicate, "on_null": on_null, "lossy": lossy},
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        if create is not False or append_dim is not None:
            stack.enter_context(session.append_lock)  # each begins with the arrays that the one before has left
        made = _create_arrays(stack, session, rows, create, append_dim)
        if made is None:
            return report_of((), (), began)
        plan = rows.plan(session)
        if append_dim is not None:
            plan = _grow_arrays(stack, session, rows, plan, append_dim, append_labels)
        if create is not False:
            plan = replace(plan, reserved=reserved_values(session, plan.arrays))
        if replace_where is not None:
            plan = with_region(session, plan, dims, replace_where, partial)
        tasks = write_task_count(df, plan, tasks)
        text = description or f"write rows to {plan.what}"
        outcomes = _Job(df, session, plan, tasks, shuffle, sort, text, callback_of(progress)).run()
    return replace(report_of(plan.arrays, outcomes, began), created=made)


@dataclass(frozen=True)
class _Rows:
    """Rows, and the arguments that say where they go."""

    df: DataFrame
    path: str | None
    dims: DimensionColumnNames | None
    value: str | None
    values: Mapping[str, str] | Sequence[str] | None
    coords: DimensionColumnKinds
    options: Mapping[str, Any]
    """Further arguments of `plan_write`."""

    def plan(self, session: Session) -> WritePlan:
        """Plan the write into the arrays that the session has now."""
        return plan_write(
            session, self.df.schema, self.path,
            dims=self.dims, value=self.value, values=self.values, coords=self.coords, **self.options,
        )  # fmt: skip


def _create_arrays(
    stack: contextlib.ExitStack, session: Session, rows: _Rows, create: bool | NewArrays, append_dim: str | None
) -> tuple[CreatedArray, ...] | None:
    """Create missing arrays, until the stack unwinds with an error; None if there are no rows to make them from."""
    choice = new_arrays(create)
    if choice is None:
        return ()
    made = create_missing(
        rows.df, session, rows.path, choice,
        append_dim=append_dim, dims=rows.dims, value=rows.value, values=rows.values, coords=rows.coords,
        tolerance=rows.options["tolerance"],
    )  # fmt: skip
    return stack.enter_context(made)


def _grow_arrays(
    stack: contextlib.ExitStack, session: Session, rows: _Rows, plan: WritePlan, dimension: str,
    labels: AppendLabels | None,
) -> WritePlan:  # fmt: skip
    """Let arrays grow for rows beyond their end, until the stack unwinds with an error; return the plan for them."""
    with session.hierarchy.untracked():  # that it knows where the arrays end does not make it depend on that
        value = plan.values[0].column if rows.value is None and rows.values is None else rows.value
        targets = find_targets(session.store, rows.path, value, rows.values)
        growth = find_growth(
            FrameLabels(rows.df), session, targets, rows.dims, rows.coords, dimension, labels, rows.options["tolerance"]
        )
        stack.enter_context(grow(session, growth))
        return rows.plan(session)


@dataclass(frozen=True)
class _Job:
    """A Spark job that writes rows."""

    df: DataFrame
    session: Session
    plan: WritePlan
    tasks: int
    shuffle: bool | Literal["rest"]
    sort: bool | Literal["auto"]
    description: str
    progress: Progress | None

    def run(self) -> list[Outcome]:
        """Write the rows, into a region that is emptied first if there is one."""
        region = self.plan.region
        if self.shuffle == "rest" and region is None:
            with contextlib.suppress(IncompleteRestError, InvalidInputError, MergeConflictError):
                return self._write_rest()
            # Rows are refused, or of a chunk that is whole there are more: the error, if it is one, comes of all rows.
        write = functools.partial(self._write, *_arrange(self.df, self.plan, self.tasks, bool(self.shuffle), self.sort))
        if region is None:
            return write(())
        erasure = Erasure.of(self.session, region, self.plan.arrays, self.plan.fills)
        return erase_first(self.df.sparkSession, self.session, erasure, write)

    def _write(self, frame: DataFrame, plan: WritePlan, beneath: Sequence[bytes]) -> list[Outcome]:
        def take(outcomes: list[Outcome]) -> None:
            rejected = rejected_rows_in([outcome.report for outcome in outcomes])
            for kind, column in rejected.lacking() if plan.located else ():
                rejected.add(kind, column, 0, lost_rows(self.df, plan, plan.lost_position(kind, column)))
            plan.refuse(rejected)
            merge_outcomes(self.session, outcomes, beneath=beneath)

        return self._run(frame, plan.work, take)

    def _write_rest(self) -> list[Outcome]:
        """Write in front of the shuffle, too, what is whole there."""
        plan = _shuffled(self.plan, self.tasks, self.sort)
        everything: list[Outcome] = []

        def take(outcomes: list[Outcome]) -> None:
            plan.refuse(rejected_rows_in([outcome.report for outcome in outcomes]))
            everything.extend([*outcomes_in_front(outcomes), *outcomes])
            merge_outcomes(self.session, everything)

        arrange = functools.partial(shuffle_rest, self.df, self.plan, self.tasks, plan.policy.ordered)
        self._run(arrange, functools.partial(write_rest, plan), take)
        return everything

    def _run(
        self, frame: DataFrame | Callable[[Attempt], DataFrame], work: Work, take: Callable[[list[Outcome]], None]
    ) -> list[Outcome]:
        return run_fork_job(
            self.session, frame, work,
            description=self.description, tasks=self.tasks, progress=self.progress, take=take,
        )  # fmt: skip


def _arrange(
    df: DataFrame, plan: WritePlan, tasks: int, shuffle: bool, sort: bool | Literal["auto"]
) -> tuple[DataFrame, WritePlan]:
    """Return the rows as tasks get them, and the plan for them."""
    automatic = sorts_automatically(sort)
    if not shuffle:
        if sort and not automatic:
            raise InvalidInputError("sort=True needs shuffle=True: repartition_by_chunk sorts, too")
        columns = dict.fromkeys([*(axis.column for axis in plan.axes), *(value.column for value in plan.values)])
        return df.selectExpr(*map(quoted, columns)), plan
    shuffled = _shuffled(plan, tasks, sort)
    return shuffle_by_owner(df, plan, tasks, sort=shuffled.policy.ordered), shuffled


def _shuffled(plan: WritePlan, tasks: int, sort: bool | Literal["auto"]) -> WritePlan:
    """Return the plan for rows behind a shuffle, which are in order where they have to be."""
    if sorts_automatically(sort):
        return plan.of_positions(ordered=not plan.fits(-(-plan.grid.chunks // tasks)))
    return plan.of_positions(ordered=bool(sort))
