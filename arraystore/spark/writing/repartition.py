"""Shuffles that bring all rows of a chunk to one task.

Spark's own ways to balance partitions (``rebalance``, and adaptive execution where no number of partitions is given)
split what belongs together, so none of them is used here.

Of the 2 CPU seconds that 4.2 million rows in order take on two warm slots (a shuffle and Parquet: 2.6), some 0.3 make
the rows, 1 shuffles them, 0.6 bring them to Python (1.5 where Spark measures each batch before each row, see the
settings of `start_session`), and 0.15 make chunks of them (0.2 of rows in any order). Putting chunks together in front
of the shuffle would bring all rows to Python there, and those that are left over a second time: it saves at most the
shuffle where rows come in order, and adds the way to Python where they do not.

`repartition_by_chunk` keeps the columns of the place, so that its rows are larger. It adds no position to them, from
which it could tell the owner, but tells it from the indices, and packs those while they are shuffled. Saved by the data
source, 16.8 million rows in order and in any order take 1.23 and 1.20 of the CPU seconds of `write_dataframe`; with
positions beside their columns they took 1.37 and 1.49. Packing saves a tenth in any order, and nothing in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.functions import expr
from pyspark.sql.types import LongType, StructField, StructType

from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_choice, check_count
from arraystore.spark.cluster import slots
from arraystore.spark.spark_action import map_in_arrow, run_action
from arraystore.spark.writing.chunk_grid import ChunkOwners
from arraystore.spark.writing.columns import quoted
from arraystore.spark.writing.packed_indices import PackedIndices
from arraystore.spark.writing.planning import DimensionColumnKinds, DimensionColumnNames, plan_axes
from arraystore.spark.writing.rejected_rows import EXAMPLES
from arraystore.spark.writing.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSITION = "position"


def repartition_by_chunk(
    df: DataFrame,
    session: Session,
    path: str,
    *,
    dims: DimensionColumnNames | None = None,
    tasks: int | None = None,
    coords: DimensionColumnKinds = "index",
    tolerance: Any = None,
    sort: bool | Literal["auto"] = "auto",
) -> DataFrame:
    """Return a DataFrame with the same rows, where all rows of a chunk of an array are in one partition.

    Parameters
    ----------
    df
        Rows, or a stream of rows; those outside the array go to some partition.
    session
        Session that has the array.
    path
        Path of the array; where several arrays have the same shape and chunks, one of them.
    dims, coords, tolerance
        As for `write_dataframe`.
    tasks
        Number of partitions; by default one for each slot of the cluster, but no more than there are chunks.
    sort
        Whether rows are sorted within their partition by chunk, and within it by place.  ``"auto"``: they are, but for
        those of a stream, which Spark does not sort.

    Returns
    -------
    DataFrame
        With the same columns.

    Raises
    ------
    InvalidInputError
        If the columns cannot be dimensions of the array, or rows of a stream are to be sorted.
    """
    streaming = df.isStreaming
    automatic = sorts_automatically(sort)
    if sort and streaming and not automatic:
        raise InvalidInputError("sort=True needs a DataFrame: Spark does not sort the rows of a stream; leave it out")
    plan = plan_axes(session, df.schema, path, dims=dims, coords=coords, tolerance=tolerance)
    tasks = write_task_count(df, plan, tasks)
    sort = not streaming and (automatic or bool(sort))
    name = _free_name(df)
    names = [(column, column) for column in df.columns]
    if plan.in_spark:
        frame = _to_owners_by_indices(df, plan, tasks, name)
        if sort:
            frame = _with_position(frame, plan, name, names).sortWithinPartitions(quoted(name))
    else:
        frame = by_owner(_with_position(df, plan, name, names), plan, tasks, quoted(name), sort=sort)
    return frame.selectExpr(*map(quoted, df.columns))


def _to_owners_by_indices(df: DataFrame, plan: WritePlan, tasks: int, prefix: str) -> DataFrame:
    """Return the same rows, with those of a chunk in one partition; no position is made for that."""
    owners = ChunkOwners.of(plan.grid, tasks, plan.cell_bytes)
    packed = PackedIndices.of(df, plan, prefix)
    if packed is None:
        return _to_owners(df, owners, owners.sql_of_indices([axis.sql() for axis in plan.axes]))
    owner = f"coalesce({owners.sql_of_indices(packed.indices())}, 0)"
    return packed.unpack(_to_owners(packed.pack(df), owners, owner))


def sorts_automatically(sort: bool | Literal["auto"]) -> bool:
    """Tell whether it is left to us if rows are sorted; raise `InvalidInputError`."""
    check_choice("sort", sort, ("auto", None, True, False))
    return sort in ("auto", None)


def write_task_count(df: DataFrame, plan: WritePlan, tasks: int | None) -> int:
    """Return the count of tasks that write; raise `InvalidInputError`."""
    check_count("tasks", tasks)
    return max(1, min(plan.grid.chunks, slots(df.sparkSession))) if tasks is None else tasks


def _free_name(df: DataFrame) -> str:
    """Return a prefix of names, to be followed by numbers, that no column begins with in any case."""
    name = POSITION
    while any(column.lower().startswith(name) for column in df.columns):
        name += "_"
    return name


def by_owner(frame: DataFrame, plan: WritePlan, tasks: int, position: str = POSITION, *, sort: bool) -> DataFrame:
    """Return rows with positions, those of a chunk in one of `tasks` partitions, there sorted or not."""
    owners = ChunkOwners.of(plan.grid, tasks, plan.cell_bytes)
    frame = _to_owners(frame, owners, owners.sql(position))
    return frame.sortWithinPartitions(position) if sort else frame


def _to_owners(frame: DataFrame, owners: ChunkOwners, owner: str) -> DataFrame:
    """Return rows in the partitions that an expression names."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(owners.tasks, expr(owner))
    return frame.repartition(owners.tasks, expr(owner))  # Spark 4.0: chunks stay together, tasks are less balanced


def shuffle_by_owner(df: DataFrame, plan: WritePlan, tasks: int, *, sort: bool) -> DataFrame:
    """Return rows as ``position`` and values, with all rows of a chunk in one of `tasks` partitions."""
    return by_owner(locate(df, plan), plan, tasks, sort=sort)


def locate(df: DataFrame, plan: WritePlan) -> DataFrame:
    """Return rows as ``position`` and values, from ``v0`` on, for the shuffle."""
    values = [(value.column, f"v{number}") for number, value in enumerate(plan.values)]
    return _with_position(df, plan, POSITION, values)


def lost_rows(df: DataFrame, plan: WritePlan, position: int) -> list[str]:
    """Return the dimension columns of a few rows with a flaw, as strings for messages."""
    columns = [(axis.column, f"d{number}") for number, axis in enumerate(plan.axes)]
    frame = _with_position(df, plan, POSITION, columns).where(f"{POSITION} = {position}L")
    some = frame.selectExpr(*(f"CAST({name} AS STRING) AS {name}" for _, name in columns)).limit(EXAMPLES)
    table = run_action(df.sparkSession, some.toArrow, description="look at rows that were refused", tasks=1)
    rows = [zip(plan.axes, row.values(), strict=True) for row in table.to_pylist()]
    return [", ".join(f"{axis.column}={'null' if text is None else text}" for axis, text in row) for row in rows]


def _with_position(df: DataFrame, plan: WritePlan, position: str, kept: Sequence[tuple[str, str]]) -> DataFrame:
    """Return the positions of rows in a column of this name, and some of their columns under other names."""
    if not plan.in_spark:
        return _position_by_search(df, plan, position, kept)
    names = [quoted(f"{position}{number}") for number in range(len(plan.axes))]
    indices = [f"{axis.sql()} AS {name}" for axis, name in zip(plan.axes, names, strict=True)]
    frame = df.selectExpr(*(f"{quoted(column)} AS {quoted(name)}" for column, name in kept), *indices)
    rest = (quoted(name) for _, name in kept)
    return frame.selectExpr(f"{plan.grid.position_sql(names)} AS {quoted(position)}", *rest)


def _position_by_search(df: DataFrame, plan: WritePlan, position: str, kept: Sequence[tuple[str, str]]) -> DataFrame:
    """Do so for labels that only a search finds; Spark passes columns with plain names to Python unchanged."""
    needed = dict.fromkeys([*(axis.column for axis in plan.axes), *(column for column, _ in kept)])
    plain = {column: f"c{number}" for number, column in enumerate(needed)}
    located = replace(plan, axes=tuple(replace(axis, column=plain[axis.column]) for axis in plan.axes))
    types = [StructField(name, df.schema[column].dataType) for column, name in kept]
    names = [position, *(name for _, name in kept)]

    def locate_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = [batch.column(batch.schema.get_field_index(plain[column])) for column, _ in kept]
            yield pa.RecordBatch.from_arrays([pa.array(located.locate(batch)[0]), *values], names=names)

    frame = df.selectExpr(*(f"{quoted(column)} AS {name}" for column, name in plain.items()))
    return map_in_arrow(frame, locate_batches, StructType([StructField(position, LongType()), *types]))
