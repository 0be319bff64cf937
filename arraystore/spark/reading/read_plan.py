"""Plans of rows and tasks, which `read_dataframe` and the data source share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_choice
from arraystore.spark.reading.blocks import blocks_of_task
from arraystore.spark.reading.frame_plan import FramePlan, plan_frame, read_task_count
from arraystore.spark.reading.rows import ChunkData, ChunkRows, PositionRows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Layout", "ReadPlan", "plan_read"]

Layout = Literal["rows", "chunks"]


@dataclass(frozen=True)
class ReadPlan:
    """Plan of a read: its rows and the count of its tasks; pickles small."""

    rows: PositionRows | ChunkRows
    tasks: int

    @property
    def schema(self) -> StructType:
        """Schema of the rows; everything may be null."""
        return self.rows.spark_schema()

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, with timestamps in microseconds and UTC."""
        for block in blocks_of_task(self.rows.plan, task, self.tasks):
            yield from self.rows.batches(block)


def plan_read(
    session: SessionBase,
    paths: str | Sequence[str] | Mapping[str, str],
    *,
    layout: Layout = "rows",
    data: ChunkData = "binary",
    chunks_per_task: int | None = None,
    tasks: int | None = None,
    slots: int | None = None,
    **selection: Any,
) -> ReadPlan:
    """Plan a read; the arguments are those of `arraystore.spark.read_dataframe`."""
    check_choice("layout", layout, get_args(Layout))
    check_choice("data", data, get_args(ChunkData))
    plan = plan_frame(session, paths, name_dims=layout == "rows", **selection)
    count = read_task_count(plan, slots or os.cpu_count() or 1, chunks_per_task, tasks)
    return ReadPlan(_rows(plan, layout, data), count)


def _rows(plan: FramePlan, layout: Layout, data: ChunkData) -> PositionRows | ChunkRows:
    if layout == "rows":
        return PositionRows(plan)
    for axis in plan.axes:
        if not isinstance(axis.positions, range):
            raise InvalidInputError(
                f"along {axis.name!r} positions with gaps are selected, which layout='chunks' does not support: select "
                "one stretch, or use layout='rows' or map_chunks"
            )
    return ChunkRows(plan, data)
