"""Saving DataFrames with ``df.write.format("arraystore")``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import (
    InvalidInputError,
    MergeConflictError,
    NodeNotFoundError,
    RebaseFailedError,
    RefNotFoundError,
    Repository,
    local_filesystem_storage,
)
from arraystore.spark import repartition_by_chunk
from tests.spark.support import messages, new_repository, read_array, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SHAPE = (8, 6)
BEFORE = np.arange(48, dtype="f8").reshape(SHAPE)
X = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        root = zarr.open_group(store, mode="a")
        root.create_array("x", data=X, chunks=(6,), dimension_names=["x"])
        for name in ("temp", "wind"):
            array = root.create_array(
                name, shape=SHAPE, chunks=(2, 3), dtype="f8", fill_value=-1, dimension_names=["t", "x"]
            )
            array[:4] = BEFORE[:4]
    return repo


def before() -> np.ndarray:
    found = np.full(SHAPE, -1.0)
    found[:4] = BEFORE[:4]
    return found


def cells(spark: SparkSession, times: range, add: float = 100) -> DataFrame:
    """A row for each cell of some times, with the value that it had, and more."""
    return spark.range(times.start * 6, times.stop * 6, 1, 3).selectExpr(
        "id div 6 AS t", "id % 6 AS x", f"cast(id + {add} AS double) AS v"
    )


def save(frame: DataFrame, path: str, mode: str = "append", **options: Any) -> None:
    given = {"array": "temp", "dims": "t,x", "value": "v"} | options
    frame.write.format("arraystore").options(**given).mode(mode).save(path)


def owned(frame: DataFrame, repo: Repository, tasks: int = 2) -> DataFrame:
    return repartition_by_chunk(frame, repo.readonly_session("main"), "temp", dims=["t", "x"], tasks=tasks)


@pytest.mark.end_to_end
def test_appending_writes_the_cells_that_are_given_in_one_commit(spark: SparkSession, path: str, repo: Repository):
    save(owned(cells(spark, range(3, 6)), repo), path, message="from Spark")

    wanted = before()
    wanted[3:6] = BEFORE[3:6] + 100
    assert np.array_equal(read_array(repo, "temp"), wanted)
    assert messages(repo) == ["from Spark", "begin"]
    metadata = next(iter(repo.ancestry(branch="main"))).metadata
    assert metadata["spark.rows"] == 18
    assert metadata["spark.tasks"] == 2


@pytest.mark.end_to_end
def test_overwriting_leaves_nothing_but_the_rows_in_one_commit(spark: SparkSession, path: str, repo: Repository):
    save(owned(cells(spark, range(3, 6)).where("x < 5"), repo), path, mode="overwrite")

    wanted = np.full(SHAPE, -1.0)
    wanted[3:6, :5] = BEFORE[3:6, :5] + 100
    assert np.array_equal(read_array(repo, "temp"), wanted)
    assert np.array_equal(read_array(repo, "wind"), before())
    assert messages(repo) == ["overwrite /temp with 15 rows from Spark", "begin"]


def test_several_arrays_of_a_group_and_labels_are_written(spark: SparkSession, path: str, repo: Repository):
    frame = spark.createDataFrame([(7, 20.0, 1.0, 2.0), (7, 60.0, 3.0, 4.0)], "t int, lon double, a double, b double")

    frame.coalesce(1).write.format("arraystore").mode("append").option("dims", '{"t": "t", "x": "lon"}').option(
        "values", '{"temp": "a", "wind": "b"}'
    ).option("coords", '{"t": "index", "x": "label"}').save(path)

    temp, wind = before(), before()
    temp[7, [1, 5]], wind[7, [1, 5]] = (1, 3), (2, 4)
    assert np.array_equal(read_array(repo, "temp"), temp)
    assert np.array_equal(read_array(repo, "wind"), wind)
    assert messages(repo) == ["write /temp, /wind with 2 rows from Spark", "begin"]


def test_another_branch_is_written_where_it_is_named(spark: SparkSession, path: str, repo: Repository):
    repo.create_branch("dev", repo.lookup_branch("main"))

    save(cells(spark, range(1)).coalesce(1), path, branch="dev")

    assert np.array_equal(read_array(repo, "temp", branch="dev")[0], BEFORE[0] + 100)
    assert np.array_equal(read_array(repo, "temp"), before())


def test_sql_inserts_into_a_view_through_the_writer_only(spark: SparkSession, path: str, repo: Repository):
    cells(spark, range(2)).coalesce(1).createOrReplaceTempView("rows_to_save")
    try:
        save(spark.sql("SELECT t, x, v * 2 AS v FROM rows_to_save WHERE t = 1"), path)
    finally:
        spark.catalog.dropTempView("rows_to_save")

    assert np.array_equal(read_array(repo, "temp")[1], (BEFORE[1] + 100) * 2)


def test_a_frame_without_rows_commits_nothing(spark: SparkSession, path: str, repo: Repository):
    save(cells(spark, range(2)).where("t > 99"), path)

    assert messages(repo) == ["begin"]


def test_overwriting_without_rows_empties_the_array(spark: SparkSession, path: str, repo: Repository):
    save(spark.createDataFrame([], "t long, x long, v double"), path, mode="overwrite")

    assert np.array_equal(read_array(repo, "temp"), np.full(SHAPE, -1.0))
    assert len(messages(repo)) == 2


def test_a_chunk_of_two_tasks_is_a_merge_conflict_with_the_remedy(spark: SparkSession, path: str, repo: Repository):
    rows = cells(spark, range(1)).repartition(2, "x")

    error = spark_error(lambda: save(rows, path))

    assert isinstance(error, MergeConflictError)
    assert error.path.strip("/") == "temp"
    assert error.chunks
    assert "repartition_by_chunk" in str(error)
    assert messages(repo) == ["begin"]
    assert np.array_equal(read_array(repo, "temp"), before())


def test_bad_rows_are_counted_with_examples_and_nothing_is_committed(spark: SparkSession, path: str, repo: Repository):
    rows = cells(spark, range(6, 10)).union(cells(spark, range(6, 7))).coalesce(1)

    error = spark_error(lambda: save(rows, path))

    assert isinstance(error, InvalidInputError)
    assert "12" in str(error)  # rows of the times 8 and 9, which are out of bounds
    assert "6" in str(error)  # rows of time 6, which come twice
    assert messages(repo) == ["begin"]


class Saboteur:
    """Runs in a task: lets it fail at first, after rows have been written."""

    def __init__(self, marker: str, times: int) -> None:
        self.marker = marker
        self.times = times

    def __call__(self, batches: Any) -> Any:
        yield from batches
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 0 and context.attemptNumber() < self.times:
            Path(f"{self.marker}-{context.attemptNumber()}").touch()
            os._exit(9)


def test_workers_that_die_are_started_again_and_nothing_is_written_twice(
    spark: SparkSession, path: str, repo: Repository, tmp_path: Path
):
    rows = owned(cells(spark, range(3, 6)), repo).mapInArrow(
        Saboteur(str(tmp_path / "died"), 2), "t long, x long, v double"
    )

    save(rows, path)

    wanted = before()
    wanted[3:6] = BEFORE[3:6] + 100
    assert np.array_equal(read_array(repo, "temp"), wanted)
    assert len(messages(repo)) == 2
    assert sorted(file.name for file in tmp_path.glob("died-*")) == ["died-0", "died-1"]


def fails(batches: Any) -> Any:
    yield from batches
    raise ValueError("the sensor was upside down")


def test_a_task_that_fails_for_good_commits_nothing(spark: SparkSession, path: str, repo: Repository):
    rows = cells(spark, range(2)).coalesce(1).mapInArrow(fails, "t long, x long, v double")

    with pytest.raises(Exception, match="upside down"):
        save(rows, path)

    assert messages(repo) == ["begin"]


class Intruder:
    """Runs in a task: commits to the same repository meanwhile."""

    def __init__(self, path: str, time: int) -> None:
        self.path = path
        self.time = time

    def __call__(self, batches: Any) -> Any:
        repo = Repository.open(local_filesystem_storage(self.path, fsync=False))
        with repo.transaction("main", message="meanwhile") as store:
            zarr.open_array(store, path="temp", mode="r+")[self.time] = 55
        yield from batches


def test_a_commit_of_somebody_else_meanwhile_is_built_upon(spark: SparkSession, path: str, repo: Repository):
    rows = cells(spark, range(1)).coalesce(1).mapInArrow(Intruder(path, 7), "t long, x long, v double")

    save(rows, path, message="mine")

    wanted = before()
    wanted[0], wanted[7] = BEFORE[0] + 100, 55
    assert np.array_equal(read_array(repo, "temp"), wanted)
    assert messages(repo) == ["mine", "meanwhile", "begin"]


def test_a_commit_of_the_same_chunk_meanwhile_is_a_conflict(spark: SparkSession, path: str, repo: Repository):
    rows = cells(spark, range(1)).coalesce(1).mapInArrow(Intruder(path, 1), "t long, x long, v double")

    error = spark_error(lambda: save(rows, path, message="mine"))

    assert isinstance(error, RebaseFailedError)
    assert "/temp" in str(error)
    assert messages(repo) == ["meanwhile", "begin"]


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({"array": "tmep"}, NodeNotFoundError, "tmep"),
        ({"branch": "nope"}, RefNotFoundError, "nope"),
        ({"dims": "t"}, InvalidInputError, "dims"),
        ({"dims": "t,y"}, InvalidInputError, "'y'"),
        ({"value": "w"}, InvalidInputError, "'w'"),
        ({"coords": "label"}, InvalidInputError, "'t'"),
        ({"on_null": "guess"}, InvalidInputError, "'guess'"),
        ({"on_duplicate": "last"}, InvalidInputError, "on_duplicate"),
        ({"stream": "s"}, InvalidInputError, "'stream' and 'batch' go together"),
        ({"sel": "{}"}, InvalidInputError, "'sel' has no effect"),
    ],
)
def test_what_is_wrong_with_a_save_is_told_in_a_sentence_before_any_task(
    spark: SparkSession, path: str, repo: Repository, options: dict[str, str], kind: type[Exception], told: str
):
    error = spark_error(lambda: save(cells(spark, range(1)), path, **options))

    assert isinstance(error, kind)
    assert told in str(error)
    assert messages(repo) == ["begin"]


def test_a_text_where_a_number_goes_is_told(spark: SparkSession, path: str):
    rows = spark.createDataFrame([(0, 0, "warm")], "t long, x long, v string")

    assert "'v'" in str(spark_error(lambda: save(rows, path)))


def test_merging_into_what_is_overwritten_is_refused(spark: SparkSession, path: str):
    error = spark_error(lambda: save(cells(spark, range(1)), path, mode="overwrite", partial="merge"))

    assert "keeps no values to merge with" in str(error)


@pytest.mark.end_to_end
def test_what_is_written_can_be_loaded(spark: SparkSession, path: str):
    save(cells(spark, range(2)).coalesce(1), path)

    frame = spark.read.format("arraystore").option("array", "temp").load(path)

    assert frame.where("t < 2").agg({"temp": "sum"}).collect()[0][0] == (BEFORE[:2] + 100).sum()
