"""Loading arrays through the data source: an adapter of the plan of `read_dataframe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from arraystore.errors import InvalidInputError
from arraystore.spark.errors import marked_errors
from arraystore.spark.reading.arrow_columns import arrow_schema
from arraystore.spark.reading.read_dataframe import ReadPlan, plan_read
from arraystore.spark.snapshots import pinned_session
from arraystore.spark.source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def load_plan(options: ReadOptions, snapshot: str | None = None) -> ReadPlan:
    """Plan a load on a snapshot, by default on the one that its options name now."""
    ref = options.ref if snapshot is None else {"snapshot_id": snapshot}
    session = pinned_session(options.location.repository(), **ref)
    return plan_read(session, options.arrays, **options.arguments)


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Partition of one task."""

    task: int
    """Number of the task."""


class ArrayReader(DataSourceReader):
    """Reads a plan."""

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the tasks."""
        return [ReadTask(task) for task in range(self._plan.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        with marked_errors():
            # Spark makes one partition of no partitions, without a number.
            if isinstance(partition, ReadTask):
                yield from columns_of(self._plan.batches(partition.task), self._schema)


def check_schema(plan: ReadPlan, schema: StructType) -> None:
    """Check that the plan has the columns of a user's schema, in their types."""
    planned = {field.name: field.dataType for field in plan.schema.fields}
    if not schema.fields:
        raise InvalidInputError(f"the schema must have columns; the arrays have {', '.join(planned)}")
    for field in schema.fields:
        if field.name not in planned:
            raise InvalidInputError(f"the schema has a column {field.name!r}, but the columns are {', '.join(planned)}")
        if planned[field.name] != field.dataType:
            there, wanted = planned[field.name].simpleString(), field.dataType.simpleString()
            raise InvalidInputError(
                f"the schema has column {field.name!r} as {wanted}, but it is {there}: leave the schema out "
                "and cast the column afterwards"
            )


def columns_of(batches: Iterator[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches with some of their columns, exactly as Spark expects them."""
    nullable = [field.nullable for field in schema.fields]
    target = pa.schema([field.with_nullable(may) for field, may in zip(arrow_schema(schema), nullable, strict=True)])
    for batch in batches:
        arrays = [batch.column(batch.schema.get_field_index(field.name)) for field in target]
        for field, array in zip(target, arrays, strict=True):
            if not field.nullable and array.null_count:
                raise InvalidInputError(
                    f"column {field.name!r} is NOT NULL in the schema that was given, and {array.null_count} of its "
                    "values are null: let it be nullable"
                )
        yield pa.RecordBatch.from_arrays(arrays, schema=target)
