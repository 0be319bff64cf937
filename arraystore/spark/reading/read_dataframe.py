"""Arrays of a snapshot as a DataFrame, and the plan of its rows and tasks, which the data source shares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from arraystore._repository.repository import Repository
from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.spark import cluster
from arraystore.spark.argument_checks import check_choice
from arraystore.spark.reading.blocks import blocks_of_task
from arraystore.spark.reading.frame_plan import DimensionColumns, FramePlan, plan_frame, read_task_count
from arraystore.spark.reading.rows import ChunkData, ChunkRows, PositionRows
from arraystore.spark.snapshots import check_reachable, pinned_session
from arraystore.spark.spark_action import map_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Layout = Literal["rows", "chunks"]


def read_dataframe(
    spark: SparkSession,
    repo: Repository | SessionBase | str | os.PathLike[str],
    paths: str | Sequence[str] | Mapping[str, str],
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    ref: str | None = None,
    as_of: datetime | None = None,
    sel: Mapping[str, Any] | None = None,
    isel: Mapping[str, Any] | None = None,
    coords: DimensionColumns = "index",
    decode: bool = False,
    layout: Layout = "rows",
    data: ChunkData = "binary",
    skip_missing: bool = False,
    where: str | None = None,
    dims: Sequence[str] | None = None,
    chunks_per_task: int | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Read arrays into a DataFrame, which stays on one snapshot whatever is committed later.

    Nothing but metadata, coordinates and, with `skip_missing`, the directory of chunks is read now; chunks are read by
    executors, and only those that overlap the selection, and in which `where` may hold. Select here rather than with
    ``DataFrame.where``, which does not prune what is read.

    ==========================================  ==========================================
    Values                                      Type of the column
    ==========================================  ==========================================
    truth values, integers, float32 and 64      boolean, byte … long, float and double
    uint8, uint16, uint32; float16              the next larger one: short, int, long; float
    uint64                                      decimal(20, 0)
    text; bytes of fixed length                 string; binary
    datetime64; timedelta64                     timestamp, in UTC; interval day to second
    ==========================================  ==========================================

    Parameters
    ----------
    spark
        A session, classic or Connect.
    repo
        A repository, or its path or URL; or a session, with its uncommitted changes at this time.
    paths
        Of arrays, or of a group: all arrays in it but coordinates.  Columns are named after the last part of the path;
        a mapping names them otherwise, ``{"column": "path"}``.  Arrays are joined on the names of their dimensions;
        one of them must have all, and what lacks a dimension is repeated along it.  Chunks of the first array that has
        all dimensions are read as a whole, so that arrays with the same chunks are read best together.
    branch, tag, snapshot_id
        At most one of them; branch ``"main"`` by default.
    ref
        In their place: name of a branch, else of a tag, else id of a snapshot.
    as_of
        With a branch: its newest snapshot of this time, which needs a time zone, or before.
    sel
        By dimension: a label, a list of labels, or a slice between two labels, both included.  Labels are those that
        the coordinate array of the dimension shows, or, where that counts time, times: ``"1990-06"`` is all of June.
        Times without a zone are UTC.
    isel
        By dimension: a position, a slice, a list of positions or a mask, as in numpy.
    coords
        ``"index"``: a long column of positions for each dimension.  ``"label"``: the labels in their place, where there
        is a coordinate array.  ``"none"``: no columns but values.
    decode
        Whether attributes are obeyed, in coordinates too: ``_FillValue`` and ``missing_value`` are null (NaN is not,
        unless it is one of these), ``scale_factor`` and ``add_offset`` make doubles, ``_Unsigned`` is heeded, and
        numbers since an epoch become timestamps.
    layout
        ``"rows"``: a row for each position.  ``"chunks"``: a row for each chunk, cut to the selection, with columns
        ``<dimension>_start``, ``shape``, and for each array its values in row-major order.
    data
        Of chunks: ``"binary"``, little-endian, of the type ``dtype`` in the metadata of the column, missing values as
        NaN or empty strings; or ``"array"``.
    skip_missing
        Whether chunks that no array has, which read as the fill value, are left out. Only arrays with all dimensions
        count.
    where
        Which rows: comparisons of columns of numbers with numbers, joined by AND, such as ``"t2m > 310 AND cloud <=
        0.5"``.  Chunks are left out by their statistics, where the repository keeps them
        (`RepositoryConfig.chunk_statistics`), and so are those that are not stored, if the fill value does not satisfy
        it; rows are compared in any case.  Null satisfies nothing, and NaN is greater than any number, as for Spark.
        With ``layout="chunks"`` it chooses chunks, which may have other values, too.
    dims
        Names for the dimensions of arrays that have none; otherwise ``dim_0``, ``dim_1`` and so on.
    chunks_per_task, tasks
        How many chunks a task reads, or how many tasks there are; by default two tasks for each slot, or more, so that
        none reads more than some 256 MiB.

    Returns
    -------
    DataFrame
        In no particular order.  All columns may be null.

    Raises
    ------
    InvalidInputError
        If the arguments do not go together or with the arrays: an unknown dimension or label, a position out of bounds,
        a type that Spark does not have.
    NodeNotFoundError
        If there is no such array.
    RefNotFoundError, SnapshotNotFoundError, RepositoryNotFoundError
        If there is no such branch or tag, snapshot, or repository.
    """
    session = pinned_session(repo, branch=branch, tag=tag, snapshot_id=snapshot_id, ref=ref, as_of=as_of)
    check_reachable(session.context)
    plan = plan_read(
        session,
        paths,
        sel=sel,
        isel=isel,
        coords=coords,
        decode=decode,
        layout=layout,
        data=data,
        skip_missing=skip_missing,
        where=where,
        dims=dims,
        chunks_per_task=chunks_per_task,
        tasks=tasks,
        slots=cluster.slots(spark),
    )
    return map_tasks(spark, plan.tasks, plan.batches, plan.schema)


def create_view(
    spark: SparkSession,
    name: str,
    repo: Repository | SessionBase | str | os.PathLike[str],
    paths: str | Sequence[str] | Mapping[str, str],
    **options: Any,
) -> DataFrame:
    """Make a temporary view of arrays, for SQL; it stays on its snapshot until it is made again.

    Parameters
    ----------
    name
        Of the view; one of this name is replaced.
    repo, paths, **options
        As in `read_dataframe`.

    Returns
    -------
    DataFrame
        Rows of the view.
    """
    frame = read_dataframe(spark, repo, paths, **options)
    frame.createOrReplaceTempView(name)
    return frame


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
