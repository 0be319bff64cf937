"""Rows behind `repartition_by_chunk`: the same rows, each with the other rows of its chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from pyspark.sql.functions import expr
from pyspark.sql.types import LongType, StringType, StructField, StructType

import arraystore as ars
from arraystore.spark import repartition_by_chunk
from arraystore.spark.writing.chunk_grid import ChunkGrid, ChunkOwners
from arraystore.spark.writing.packed_indices import PackedIndices
from arraystore.spark.writing.planning import plan_axes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SHAPE, CHUNKS = (7, 9, 11), (2, 4, 5)
TASKS = 3
_KINDS = {"t": "smallint", "y": "int", "x": "bigint"}


@pytest.fixture
def session() -> ars.Session:
    session = ars.Repository.create(ars.in_memory_storage()).writable_session("main")
    for name, shape, chunks in [("v", SHAPE, CHUNKS), ("flat", SHAPE[1:], CHUNKS[1:])]:
        zarr.create_array(session.store, name=name, shape=shape, chunks=chunks, dtype="f4")
    zarr.create_array(session.store, name="huge", shape=(2**20,) * 3, chunks=(2**15, 2**12, 1), dtype="i1")
    return session


def rows_of(spark: SparkSession) -> DataFrame:
    """Return a row for each cell and some outside of the array, with columns of three types, and metadata."""
    cells = np.prod(SHAPE)
    frame = spark.range(int(cells) + 5).selectExpr(
        f"CASE WHEN id = {cells} THEN -1 WHEN id = {cells + 1} THEN 7 ELSE id % 7 END AS t",
        f"CASE WHEN id = {cells + 2} THEN NULL ELSE (id DIV 7) % 9 END AS y",
        f"CASE WHEN id = {cells + 3} THEN {2**63 - 1} ELSE (id DIV 63) % 11 END AS x",
        "CASE WHEN id % 2 = 0 THEN 'even' END AS word",
        "id",
    )
    casts = [
        expr(f"CAST({name} AS {_KINDS[name]})").alias(name, metadata={"units": name}) if name in _KINDS else expr(name)
        for name in frame.columns
    ]
    return frame.select(*casts)


def plain(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select("id", "t", "y", "x", "word").collect())


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize(("path", "dims"), [("v", ["t", "y", "x"]), ("flat", ["y", "x"])])
def test_rows_stay_as_they_are_whether_they_are_in_the_array_or_not(
    spark: SparkSession, session: ars.Session, path: str, dims: list[str], sort: bool
) -> None:
    rows = rows_of(spark)
    moved = repartition_by_chunk(rows, session, path, dims=dims, tasks=TASKS, sort=sort)
    assert moved.schema == rows.schema
    assert [field.metadata for field in moved.schema] == [field.metadata for field in rows.schema]
    assert plain(moved) == plain(rows)


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize(("path", "dims"), [("v", ["t", "y", "x"]), ("flat", ["y", "x"])])
def test_rows_are_where_the_owner_of_their_chunk_is(
    spark: SparkSession, session: ars.Session, path: str, dims: list[str], sort: bool
) -> None:
    rows = rows_of(spark).where("id < 693")
    moved = repartition_by_chunk(rows, session, path, dims=dims, tasks=TASKS, sort=sort)
    table = moved.selectExpr("*", "spark_partition_id() AS task").toArrow()
    grid = ChunkGrid(SHAPE[-len(dims) :], CHUNKS[-len(dims) :])
    positions = grid.positions([table[name].to_numpy().astype(np.int64) for name in dims])
    task = table["task"].to_numpy()
    if hasattr(rows, "repartitionById"):
        assert np.array_equal(task, ChunkOwners.of(grid, TASKS, 4).owner(positions // grid.cells))
    for number in np.unique(positions // grid.cells):
        assert len(set(task[positions // grid.cells == number])) == 1
    if sort:
        assert all((np.diff(positions[task == each]) >= 0).all() for each in range(TASKS))


def test_columns_that_cannot_be_null_cannot_be_null_afterwards(spark: SparkSession, session: ars.Session) -> None:
    schema = StructType([*(StructField(name, LongType(), False) for name in "tyx"), StructField("id", StringType())])
    rows = spark.createDataFrame([(6, 8, 10, "last"), (-3, 0, 0, "outside")], schema)
    moved = repartition_by_chunk(rows, session, "v", dims=["t", "y", "x"], sort=False)
    assert moved.schema == schema
    assert sorted(map(tuple, moved.collect())) == [(-3, 0, 0, "outside"), (6, 8, 10, "last")]


def test_indices_of_sixty_bits_stay_exact(spark: SparkSession, session: ars.Session) -> None:
    last = 2**20 - 1
    places = [(last, last, last), (last, 0, 0), (0, last, 0), (0, 0, last), (last + 1, 0, 0), (0, 0, -1)]
    rows = spark.createDataFrame(places, "t bigint, y bigint, x bigint")
    moved = repartition_by_chunk(rows, session, "huge", dims=["t", "y", "x"], tasks=2, sort=False)
    assert sorted(map(tuple, moved.collect())) == sorted(places)


def test_packed_columns_may_have_any_name(spark: SparkSession, session: ars.Session) -> None:
    names = ["it's a `t`.x", "position_packed", "select"]
    rows = spark.range(700).selectExpr("id % 7 AS a", "id DIV 7 % 9 AS b", "id DIV 63 AS c").toDF(*names)
    assert packed(rows, session, "v", names)
    moved = repartition_by_chunk(rows, session, "v", dims=names, tasks=2, sort=False)
    assert moved.schema == rows.schema
    assert sorted(map(tuple, moved.collect())) == sorted(map(tuple, rows.collect()))


def packed(rows: DataFrame, session: ars.Session, path: str, dims: Sequence[str]) -> bool:
    plan = plan_axes(session, rows.schema, path, dims=list(dims), coords="index", tolerance=None)
    return PackedIndices.of(rows, plan, "p") is not None


def test_indices_are_packed_only_where_that_saves_columns(spark: SparkSession, session: ars.Session) -> None:
    rows = rows_of(spark)
    zarr.create_array(session.store, name="empty", shape=(0, 3, 4), chunks=(1, 3, 4), dtype="f4")
    zarr.create_array(session.store, name="many", shape=(4097,) * 5, chunks=(1, 1, 1, 1, 4097), dtype="i1")
    more = rows.selectExpr("*", "id AS z", "id AS member")
    assert packed(rows, session, "v", "tyx")
    assert not packed(rows, session, "flat", "yx")  # one column, and another one for rows outside of the array
    assert not packed(rows, session, "empty", "tyx")
    assert not packed(more, session, "many", ["member", "z", "t", "y", "x"])  # 65 bits
