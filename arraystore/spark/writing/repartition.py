"""Shuffles that bring all rows of a chunk to one task.

Spark's own ways to balance partitions (``rebalance``, and adaptive execution where no number of partitions is given)
split what belongs together, so none of them is used here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.cluster import slots
from arraystore.spark.spark_action import map_in_arrow, run_action
from arraystore.spark.writing.chunk_grid import ChunkOwners
from arraystore.spark.writing.columns import quoted
from arraystore.spark.writing.planning import Coords, Dims, plan_axes
from arraystore.spark.writing.rejected_rows import EXAMPLES
from arraystore.spark.writing.write_plan import WritePlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["locate", "lost_rows", "repartition_by_chunk", "shuffle_by_owner", "write_task_count"]

POSITION = "position"


def repartition_by_chunk(
    df: DataFrame,
    session: Session,
    path: str,
    *,
    dims: Dims,
    tasks: int | None = None,
    coords: Coords = "index",
    tolerance: Any = None,
    sort: bool = True,
) -> DataFrame:
    """Return a DataFrame with the same rows, where all rows of a chunk of an array are in one partition.

    Parameters
    ----------
    df
        Rows; those outside the array go to some partition.
    session
        Session that has the array.
    path
        Path of the array; where several arrays have the same shape and chunks, one of them.
    dims, coords, tolerance
        As for `write_dataframe`.
    tasks
        Number of partitions; by default one for each slot of the cluster, but no more than there are chunks.
    sort
        Whether rows are sorted within their partition by chunk, and within it by place.

    Returns
    -------
    DataFrame
        With the same columns.

    Raises
    ------
    InvalidInputError
        If the columns cannot be dimensions of the array.
    """
    plan = plan_axes(session, df.schema, path, dims=dims, coords=coords, tolerance=tolerance)
    tasks = write_task_count(df, plan, tasks)
    name = _free_name(df)
    frame = _with_position(df, plan, name)
    frame = _by_owner(frame, ChunkOwners.of(plan.grid, tasks, plan.cell_bytes), quoted(name))
    if sort:
        frame = frame.sortWithinPartitions(quoted(name))
    return frame.selectExpr(*map(quoted, df.columns))


def write_task_count(df: DataFrame, plan: WritePlan, tasks: int | None) -> int:
    """Return the count of tasks that write; raise `InvalidInputError`."""
    if tasks is not None:
        if tasks < 1:
            raise InvalidInputError(f"tasks={tasks!r} must be an integer >= 1")
        return tasks
    return max(1, min(plan.grid.chunks, slots(df.sparkSession)))


def _free_name(df: DataFrame) -> str:
    """Return a prefix of names, to be followed by numbers, that no column begins with in any case."""
    name = POSITION
    while any(column.lower().startswith(name) for column in df.columns):
        name += "_"
    return name


def _by_owner(frame: DataFrame, owners: ChunkOwners, position: str) -> DataFrame:
    from pyspark.sql.functions import expr

    owner = expr(owners.sql(position))
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(owners.tasks, owner)
    return frame.repartition(owners.tasks, owner)  # Spark 4.0: chunks stay together, tasks are less balanced


def shuffle_by_owner(df: DataFrame, plan: WritePlan, tasks: int, *, sort: bool) -> DataFrame:
    """Return rows as ``position`` and values, with all rows of a chunk in one of `tasks` partitions."""
    frame = _by_owner(locate(df, plan), ChunkOwners.of(plan.grid, tasks, plan.cell_bytes), POSITION)
    return frame.sortWithinPartitions(POSITION) if sort else frame


def _rename_columns(df: DataFrame, plan: WritePlan) -> tuple[DataFrame, WritePlan]:
    """Return the needed columns under plain names, which Spark passes to Python unchanged."""
    columns = dict.fromkeys([*(axis.column for axis in plan.axes), *(value.column for value in plan.values)])
    names = {column: f"c{number}" for number, column in enumerate(columns)}
    axes = tuple(replace(axis, column=names[axis.column]) for axis in plan.axes)
    values = tuple(replace(value, column=names[value.column]) for value in plan.values)
    frame = df.selectExpr(*(f"{quoted(column)} AS {name}" for column, name in names.items()))
    return frame, replace(plan, axes=axes, values=values)


def locate(df: DataFrame, plan: WritePlan) -> DataFrame:
    """Return rows as ``position`` and values, from ``v0`` on, for the shuffle."""
    values = [f"{quoted(value.column)} AS v{number}" for number, value in enumerate(plan.values)]
    names = [f"v{number}" for number in range(len(values))]
    if not plan.in_spark:
        return _located_in_python(df, plan, names)
    indices = [f"{axis.sql()} AS i{number}" for number, axis in enumerate(plan.axes)]
    position = plan.grid.position_sql([f"i{number}" for number in range(len(indices))])
    return df.selectExpr(*indices, *values).selectExpr(f"{position} AS {POSITION}", *names)


def lost_rows(df: DataFrame, plan: WritePlan, position: int) -> list[str]:
    """Return the dimension columns of a few rows with a flaw, as text for messages."""
    columns = [quoted(axis.column) for axis in plan.axes]
    name = _free_name(df)
    frame = _with_position(df.selectExpr(*dict.fromkeys(columns)), plan, name).where(f"{quoted(name)} = {position}L")
    shown = [f"CAST({column} AS STRING) AS d{number}" for number, column in enumerate(columns)]
    some = frame.selectExpr(*shown).limit(EXAMPLES)
    table = run_action(df.sparkSession, some.toArrow, description="look at rows that were refused", tasks=1)
    rows = [zip(plan.axes, row.values(), strict=True) for row in table.to_pylist()]
    return [", ".join(f"{axis.column}={'null' if text is None else text}" for axis, text in row) for row in rows]


def _with_position(df: DataFrame, plan: WritePlan, name: str) -> DataFrame:
    """Return rows with one more column, the position."""
    columns = [quoted(column) for column in df.columns]
    if plan.in_spark:
        indices = [f"{axis.sql()} AS {quoted(f'{name}{number}')}" for number, axis in enumerate(plan.axes)]
        frame = df.selectExpr(*columns, *indices)
        position = plan.grid.position_sql([quoted(f"{name}{number}") for number in range(len(plan.axes))])
        return frame.selectExpr(*columns, f"{position} AS {quoted(name)}")
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([*_nullable(df.schema).fields, StructField(name, LongType())])
    return map_in_arrow(df, _AddPosition(plan, name), schema)


def _nullable(schema: Any) -> Any:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def _located_in_python(df: DataFrame, plan: WritePlan, names: list[str]) -> DataFrame:
    from pyspark.sql.types import LongType, StructField, StructType

    df, plan = _rename_columns(df, plan)
    values = [
        StructField(name, df.schema[value.column].dataType) for name, value in zip(names, plan.values, strict=True)
    ]
    schema = StructType([StructField(POSITION, LongType()), *values])
    return map_in_arrow(df, _Locate(plan), schema)


@dataclass(frozen=True)
class _AddPosition:
    """Adds the position to rows whose labels only a search finds."""

    plan: WritePlan
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            positions, _ = self.plan.locate(batch)
            names = [*batch.schema.names, self.name]
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(positions)], names=names)


@dataclass(frozen=True)
class _Locate:
    """Replaces labels that only a search finds by the position."""

    plan: WritePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            positions, _ = self.plan.locate(batch)
            values = [batch.column(batch.schema.get_field_index(value.column)) for value in self.plan.values]
            names = [POSITION, *(f"v{number}" for number in range(len(values)))]
            yield pa.RecordBatch.from_arrays([pa.array(positions), *values], names=names)
