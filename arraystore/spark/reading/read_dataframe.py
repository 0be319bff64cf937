"""Arrays of a snapshot as a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from arraystore._repository.repository import Repository
from arraystore._session.base import SessionBase
from arraystore.spark.cluster import slots
from arraystore.spark.reading.frame_plan import DimensionColumns
from arraystore.spark.reading.read_plan import Layout, plan_read
from arraystore.spark.reading.rows import ChunkData
from arraystore.spark.snapshots import check_reachable, pinned_session
from arraystore.spark.spark_action import map_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["create_view", "read_dataframe"]


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
    dims: Sequence[str] | None = None,
    chunks_per_task: int | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Read arrays into a DataFrame, which stays on one snapshot whatever is committed later.

    Nothing but metadata, coordinates and, with `skip_missing`, the directory of chunks is read now; chunks are read by
    executors, and only those that overlap the selection. Select here rather than with ``where``, which does not prune
    what is read.

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
        dims=dims,
        chunks_per_task=chunks_per_task,
        tasks=tasks,
        slots=slots(spark),
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
