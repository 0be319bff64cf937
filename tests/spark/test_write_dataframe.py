"""Rows of a DataFrame become an array, in one commit."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr

import arraystore as ars
from arraystore.errors import InvalidInputError, MergeConflictError, NodeNotFoundError
from arraystore.spark import repartition_by_chunk, write_dataframe
from tests.spark.support import messages, read_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def repo(tmp_path: Path) -> ars.Repository:
    return ars.Repository.create(ars.local_filesystem_storage(str(tmp_path / "repo")))


def make(repo: ars.Repository, **arrays: dict[str, Any]) -> None:
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    for name, options in arrays.items():
        data = options.pop("data", None)
        made = group.create_array(name, **options)
        if data is not None:
            made[...] = data
    session.commit("make the arrays")


def cube(spark: SparkSession, shape: tuple[int, int, int]) -> DataFrame:
    """Return each cell of a cube as a row, in no order; its value is its number."""
    t, y, x = shape
    return (
        spark.range(t * y * x)
        .selectExpr(f"id div {y * x} AS t", f"(id div {x}) % {y} AS y", f"CAST(id % {x} AS INT) AS x", "id")
        .selectExpr("*", "CAST(id AS FLOAT) AS value", "CAST(-id AS DOUBLE) AS other")
        .repartition(3, "x")
    )


SHAPE = (7, 9, 11)


def numbers() -> np.ndarray:
    return np.arange(np.prod(SHAPE)).reshape(SHAPE)


@pytest.mark.end_to_end
def test_all_cells_arrive_in_one_commit(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "f4", "dimension_names": ["t", "y", "x"]})
    session = repo.writable_session("main")
    rows = cube(spark, SHAPE)
    report = write_dataframe(rows, session, "v", dims=["t", "y", "x"], value="value")
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), numbers())
    assert messages(repo)[:2] == ["rows", "make the arrays"]
    assert (report.rows, report.chunks, report.tasks) == (numbers().size, 4 * 3 * 3, 2)
    assert report.nbytes == numbers().size * 4
    assert report.arrays == ("v",)
    assert report.attempts_wasted == 0


@pytest.mark.end_to_end
def test_several_columns_go_into_several_arrays(spark: SparkSession, repo: ars.Repository) -> None:
    options = {"shape": SHAPE, "chunks": (3, 9, 4), "dimension_names": ["t", "y", "x"]}
    make(repo, a={**options, "dtype": "i4"}, b={**options, "dtype": "f8"})
    session = repo.writable_session("main")
    report = write_dataframe(
        cube(spark, SHAPE), session, dims={"x": "x", "y": "y", "t": "t"}, values={"a": "id", "b": "other"}
    )
    session.commit("rows")
    assert np.array_equal(read_array(repo, "a"), numbers())
    assert np.array_equal(read_array(repo, "b"), -numbers())
    assert report.arrays == ("a", "b")


def test_arrays_that_are_not_committed_yet_can_be_written_to(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="v", shape=SHAPE, chunks=(2, 4, 5), dtype="i8")
    write_dataframe(cube(spark, SHAPE), session, "v", dims=["t", "y", "x"], value="id")
    session.commit("all of it")
    assert np.array_equal(read_array(repo, "v"), numbers())
    assert messages(repo)[0] == "all of it"


def test_shards_are_owned_whole(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (1, 2, 3), "shards": (4, 4, 6), "dtype": "i8"})
    session = repo.writable_session("main")
    report = write_dataframe(cube(spark, SHAPE), session, "v", dims=["t", "y", "x"], value="id", tasks=3)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), numbers())
    assert (report.chunks, report.tasks) == (2 * 3 * 2, 3)


@pytest.mark.parametrize("partial", ["merge", "fill"])
@pytest.mark.parametrize("sort", [True, False])
def test_cells_that_no_row_names_are_kept_or_filled(
    spark: SparkSession, repo: ars.Repository, partial: Any, sort: bool
) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i8", "fill_value": -7, "data": 1000 + numbers()})
    session = repo.writable_session("main")
    rows = cube(spark, SHAPE).where("id % 3 = 0 AND t < 4")
    write_dataframe(rows, session, "v", dims=["t", "y", "x"], value="id", partial=partial, sort=sort)
    session.commit("some")
    expected = 1000 + numbers()
    named = (numbers() % 3 == 0) & (np.arange(SHAPE[0]) < 4)[:, None, None]
    for t, y, x in product(range(0, 7, 2), range(0, 9, 4), range(0, 11, 5)):
        chunk = slice(t, t + 2), slice(y, y + 4), slice(x, x + 5)
        if partial == "fill" and named[chunk].any():
            expected[chunk] = -7
    expected[named] = numbers()[named]
    assert np.array_equal(read_array(repo, "v"), expected)


def test_chunks_without_rows_are_not_written(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (1, 9, 11), "dtype": "i8"})
    session = repo.writable_session("main")
    report = write_dataframe(cube(spark, SHAPE).where("t IN (2, 5)"), session, "v", dims=["t", "y", "x"], value="id")
    assert report.chunks == 2


def test_rows_that_are_with_their_chunk_need_no_shuffle(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i8"})
    session = repo.writable_session("main")
    rows = repartition_by_chunk(cube(spark, SHAPE), session, "v", dims=["t", "y", "x"], tasks=4)
    assert rows.columns == ["t", "y", "x", "id", "value", "other"]
    report = write_dataframe(rows, session, "v", dims=["t", "y", "x"], value="id", shuffle=False)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), numbers())
    assert report.tasks == 4


def test_two_tasks_that_write_one_chunk_are_found_out(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i8"})
    session = repo.writable_session("main")
    with pytest.raises(MergeConflictError, match="repartition_by_chunk"):
        write_dataframe(cube(spark, SHAPE), session, "v", dims=["t", "y", "x"], value="id", shuffle=False)
    assert not session.has_uncommitted_changes


@pytest.mark.end_to_end
def test_rows_that_cannot_be_written_are_counted_and_shown_and_nothing_is_written(
    spark: SparkSession, repo: ars.Repository
) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i2"})
    session = repo.writable_session("main")
    rows = cube(spark, SHAPE).selectExpr(
        "CASE WHEN id = 5 THEN NULL ELSE t END AS t",
        "CASE WHEN id IN (6, 7) THEN 9 ELSE y END AS y",
        "CASE WHEN id = 8 THEN -1 WHEN id = 20 THEN 10 ELSE x END AS x",
        "CASE WHEN id BETWEEN 100 AND 103 THEN NULL WHEN id = 200 THEN 40000 ELSE id END AS value",
    )
    with pytest.raises(InvalidInputError) as caught:
        write_dataframe(rows, session, "v", dims=["t", "y", "x"], value="value")
    text = str(caught.value)
    for part in (
        "of 693 rows",
        "4 have no value in 'value'",
        "2 are outside the array by 'y'",
        "t=0, y=9, x=6",
        "1 are outside the array by 'x'",
        "t=0, y=0, x=-1",
        "1 have no value in the dimension column 't'",
        "t=null, y=0, x=5",
        "1 have a 'value' that does not fit",
        "40000 at t=2, y=0, x=2",
        "1 name a cell that another row names",
        "t=0, y=1, x=10",
        "Nothing was written",
    ):
        assert part in text
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("sort", [True, False])
def test_a_cell_that_is_named_twice_is_an_error_unless_the_rows_say_the_same(
    spark: SparkSession, repo: ars.Repository, sort: bool
) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "f4"})
    session = repo.writable_session("main")
    twice = cube(spark, SHAPE).union(cube(spark, SHAPE).where("id >= 600"))
    with pytest.raises(InvalidInputError, match="93 name a cell that another row names"):
        write_dataframe(twice, session, "v", dims=["t", "y", "x"], value="value", sort=sort)
    report = write_dataframe(twice, session, "v", dims=["t", "y", "x"], value="value", sort=sort, on_duplicate="same")
    session.commit("rows")
    assert report.rows == 693 + 93
    assert np.array_equal(read_array(repo, "v"), numbers())


@pytest.mark.parametrize(("on_null", "expected"), [("fill", -7), ("skip", 3)])
def test_nulls_are_filled_or_skipped_as_asked(
    spark: SparkSession, repo: ars.Repository, on_null: Any, expected: int
) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i8", "fill_value": -7, "data": np.full(SHAPE, 3)})
    session = repo.writable_session("main")
    rows = cube(spark, SHAPE).selectExpr("t", "y", "x", "CASE WHEN id % 5 != 0 THEN id END AS value")
    write_dataframe(rows, session, "v", dims=["t", "y", "x"], value="value", on_null=on_null)
    session.commit("rows")
    assert np.array_equal(read_array(repo, "v"), np.where(numbers() % 5 != 0, numbers(), expected))


@pytest.mark.filterwarnings("error::arraystore.UnmergedForksWarning")
def test_an_empty_frame_changes_nothing(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i8"})
    session = repo.writable_session("main")
    report = write_dataframe(cube(spark, SHAPE).where("id < 0"), session, "v", dims=["t", "y", "x"], value="id")
    assert (report.rows, report.chunks) == (0, 0)
    assert not session.has_uncommitted_changes
    session.commit("Nothing", allow_empty=True)  # warns of no fork, though Spark ran no task


def test_rows_for_an_array_without_cells_are_refused_as_rows(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="empty", shape=(0, 4), chunks=(2, 4), dtype="f4")
    rows = spark.range(3).selectExpr("id AS t", "id AS x", "float(id) AS v")
    with pytest.raises(InvalidInputError, match="3 are outside the array by 't'"):
        write_dataframe(rows, session, "empty", dims=["t", "x"], value="v")


def test_other_columns_may_have_the_names_that_are_used_inside(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="line", shape=(8,), chunks=(2,), dtype="i8")
    rows = spark.range(8).selectExpr("id AS t", "id AS position", "id AS Position0", "id AS position_", "id AS v")
    frame = repartition_by_chunk(rows, session, "line", dims=["t"], tasks=2)
    assert frame.columns == rows.columns
    assert sorted(row.t for row in frame.collect()) == list(range(8))


def test_what_can_be_known_before_a_task_starts_is_refused_then(spark: SparkSession, repo: ars.Repository) -> None:
    make(
        repo,
        v={"shape": SHAPE, "chunks": (2, 4, 5), "dtype": "i4", "dimension_names": ["t", "y", "x"]},
        w={"shape": SHAPE, "chunks": (2, 4, 6), "dtype": "i4", "dimension_names": ["t", "y", "x"]},
    )
    session = repo.writable_session("main")
    spark.sparkContext.setJobGroup("planning", "planning")
    df = cube(spark, SHAPE)
    for error, text, options in [
        (InvalidInputError, "must name 3 columns", {"dims": ["t", "y"], "value": "id"}),
        (InvalidInputError, "in another order", {"dims": ["x", "y", "t"], "value": "id"}),
        (InvalidInputError, "no column 'z'", {"dims": ["t", "y", "z"], "value": "id"}),
        (InvalidInputError, "no column 'nothing'", {"dims": ["t", "y", "x"], "value": "nothing"}),
        (InvalidInputError, "cast the column to long", {"dims": ["t", "y", "x"], "value": "other"}),
        (InvalidInputError, "takes integers", {"dims": ["other", "y", "x"], "value": "id"}),
        (InvalidInputError, "give value=", {"dims": ["t", "y", "x"]}),
        (InvalidInputError, "no coordinate array 't'", {"dims": ["t", "y", "x"], "value": "id", "coords": "label"}),
        (InvalidInputError, "partial='mix'", {"dims": ["t", "y", "x"], "value": "id", "partial": "mix"}),
        (InvalidInputError, "max_by", {"dims": ["t", "y", "x"], "value": "id", "on_duplicate": "last"}),
        (InvalidInputError, "tasks=0", {"dims": ["t", "y", "x"], "value": "id", "tasks": 0}),
        (InvalidInputError, "tolerance needs", {"dims": ["t", "y", "x"], "value": "id", "tolerance": 1}),
        (InvalidInputError, "coords names", {"dims": ["t", "y", "x"], "value": "id", "coords": {"q": "index"}}),
        (NodeNotFoundError, "'/nowhere'", {"path": "nowhere", "dims": ["t", "y", "x"], "value": "id"}),
        (InvalidInputError, "is a group", {"path": "", "dims": ["t", "y", "x"], "value": "id"}),
        (InvalidInputError, "one by one", {"path": "", "dims": ["t", "y", "x"], "values": {"v": "id", "w": "id"}}),
    ]:
        with pytest.raises(error, match=text):
            write_dataframe(df, session, **{"path": "v", **options})
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("planning")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # for the other tests of this process


def test_names_of_columns_may_hold_anything(spark: SparkSession, repo: ars.Repository) -> None:
    make(repo, v={"shape": (2, 3), "chunks": (1, 2), "dtype": "i8"})
    session = repo.writable_session("main")
    names = ["it's a `t`.x", "position", "v0"]
    rows = spark.createDataFrame(
        pa.table({names[0]: [0, 0, 1, 1, 0], names[1]: [0, 1, 0, 1, 9], names[2]: [1, 2, 3, 4, 5]})
    )
    with pytest.raises(InvalidInputError, match=r"it's a `t`\.x=0, position=9"):
        write_dataframe(rows, session, "v", dims=names[:2], value=names[2])
    write_dataframe(rows.where("v0 < 5"), session, "v", dims=names[:2], value=names[2])
    assert np.asarray(zarr.open_array(session.store, path="v")[...]).tolist() == [[1, 2, 0], [3, 4, 0]]
    shuffled = repartition_by_chunk(rows.where("v0 < 5"), session, "v", dims=names[:2])
    assert shuffled.columns == names
