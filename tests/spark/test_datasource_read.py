"""Loading arrays with ``spark.read.format("arraystore")``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import (
    InvalidInputError,
    NodeNotFoundError,
    RefNotFoundError,
    Repository,
    RepositoryNotFoundError,
)
from tests.spark.support import new_repository, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TEMP = np.arange(4 * 6, dtype="f8").reshape(4, 6) / 2
WIND = np.arange(4 * 6, dtype="i2").reshape(4, 6) * 3
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
X = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        root = zarr.open_group(store, mode="a")
        root.create_array("t", data=np.arange(4), chunks=(4,), dimension_names=["t"])
        root.create_array("x", data=X, chunks=(6,), dimension_names=["x"])
        root.create_array("temp", data=TEMP, chunks=(2, 3), dimension_names=["t", "x"])
        root.create_array("wind", data=WIND, chunks=(2, 3), dimension_names=["t", "x"])
    return repo


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("arraystore").options(**options).load(path)


def cube(frame: DataFrame, column: str = "temp") -> np.ndarray:
    found = np.full(TEMP.shape, np.nan)
    for row in frame.collect():
        assert np.isnan(found[row["t"], row["x"]])
        found[row["t"], row["x"]] = row[column]
    return found


def write(repo: Repository, value: float) -> None:
    with repo.transaction("main", message="write") as store:
        zarr.open_array(store, path="temp", mode="r+")[:] = value


@pytest.mark.end_to_end
def test_an_array_is_a_frame_of_its_cells(spark: SparkSession, path: str):
    frame = load(spark, path, array="temp")

    assert frame.schema.simpleString() == "struct<t:bigint,x:bigint,temp:double>"
    assert np.array_equal(cube(frame), TEMP)


@pytest.mark.end_to_end
def test_several_arrays_labels_and_selections_come_as_from_read_dataframe(spark: SparkSession, path: str):
    frame = load(
        spark, path, arrays="temp,wind", coords="label", sel='{"x": {"start": 20, "stop": 40}}', isel='{"t": [1, 3]}'
    )

    rows = sorted(tuple(row) for row in frame.collect())
    assert frame.columns == ["t", "x", "temp", "wind"]
    assert rows == [(t, X[x], TEMP[t, x], WIND[t, x]) for t in (1, 3) for x in (1, 2, 3)]


def test_chunks_are_rows_of_their_own_layout(spark: SparkSession, path: str):
    rows = load(spark, path, array="temp", layout="chunks", tasks=3).collect()

    found = np.full(TEMP.shape, np.nan)
    for row in rows:
        shape = tuple(row["shape"])
        block = np.frombuffer(row["temp"], "<f8").reshape(shape)
        found[row["t_start"] : row["t_start"] + shape[0], row["x_start"] : row["x_start"] + shape[1]] = block
    assert len(rows) == 4
    assert np.array_equal(found, TEMP)


@pytest.mark.parametrize(("options", "partitions"), [({"tasks": 3}, 3), ({"chunks_per_task": 1}, 4)])
def test_the_number_of_tasks_is_as_told(spark: SparkSession, path: str, options: dict[str, Any], partitions: int):
    from pyspark.sql.functions import spark_partition_id

    frame = load(spark, path, array="temp", **options)

    assert frame.select(spark_partition_id().alias("p")).distinct().count() == partitions
    assert np.array_equal(cube(frame), TEMP)


def test_an_empty_selection_is_an_empty_frame(spark: SparkSession, path: str):
    frame = load(spark, path, array="temp", isel='{"t": {"start": 2, "stop": 2}}')

    assert frame.columns == ["t", "x", "temp"]
    assert frame.collect() == []


@pytest.mark.end_to_end
def test_a_frame_stays_on_its_snapshot_and_another_load_sees_the_new_one(
    spark: SparkSession, path: str, repo: Repository
):
    before = load(spark, path, array="temp")
    assert np.array_equal(cube(before), TEMP)

    write(repo, 99)

    assert np.array_equal(cube(before), TEMP)
    assert before.where("temp = 99").count() == 0
    assert np.array_equal(cube(load(spark, path, array="temp")), np.full_like(TEMP, 99))


def test_with_a_schema_of_the_user_a_frame_stays_on_the_snapshot_of_its_first_action(
    spark: SparkSession, path: str, repo: Repository
):
    # Spark does not ask a source for anything before that.
    frame = spark.read.format("arraystore").schema("temp double, x long").option("array", "temp").load(path)
    assert frame.count() == 24

    write(repo, 99)

    assert frame.columns == ["temp", "x"]
    assert sorted(row["temp"] for row in frame.collect()) == sorted(TEMP.ravel())


def test_a_view_is_for_sql_and_stays_on_its_snapshot(spark: SparkSession, path: str, repo: Repository):
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW temp_view USING arraystore OPTIONS (path '{path}', array 'temp', tasks '2')"
    )
    try:
        write(repo, 99)
        total = spark.sql("SELECT sum(temp) AS s, count(*) AS n FROM temp_view WHERE x >= 3").collect()[0]
    finally:
        spark.catalog.dropTempView("temp_view")

    assert (total["s"], total["n"]) == (TEMP[:, 3:].sum(), 12)


def test_old_snapshots_branches_and_tags_are_read(spark: SparkSession, path: str, repo: Repository):
    old = repo.lookup_branch("main")
    repo.create_tag("v1", old)
    repo.create_branch("dev", old)
    write(repo, 99)

    for options in ({"snapshot": old}, {"tag": "v1"}, {"branch": "dev"}, {"ref": "v1"}):
        assert np.array_equal(cube(load(spark, path, array="temp", **options)), TEMP)


@pytest.mark.parametrize("filters_are_pushed", ["false", "true"])
def test_a_query_that_uses_a_frame_twice_is_right(spark: SparkSession, path: str, filters_are_pushed: str):
    """Spark 4.1 to 4.3 would hand the filters of one query to others of the frame, if the source took them."""
    spark.conf.set(FILTER_PUSHDOWN, filters_are_pushed)
    frame = load(spark, path, array="temp", chunks_per_task=1)

    assert frame.where("t = 1").count() == 6
    assert frame.count() == 24
    assert frame.where("t = 1").union(frame.where("t = 3")).count() == 12
    assert frame.join(frame.withColumnRenamed("temp", "other"), ["t", "x"]).count() == 24
    spark.conf.set(FILTER_PUSHDOWN, "false")


def test_a_file_url_is_a_place(spark: SparkSession, path: str):
    assert load(spark, Path(path).as_uri(), array="temp").count() == 24


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({"array": "tmep"}, NodeNotFoundError, "tmep"),
        ({"array": "temp", "branch": "nope"}, RefNotFoundError, "nope"),
        ({"array": "temp", "isel": '{"y": 1}'}, InvalidInputError, "'y'"),
        ({"array": "temp", "brnach": "dev"}, InvalidInputError, "did you mean 'branch'"),
        ({"array": "temp", "layout": "cubes"}, InvalidInputError, "rows, chunks"),
        ({}, InvalidInputError, "option 'array' is missing"),
    ],
)
def test_what_is_wrong_with_a_load_is_told_in_a_sentence(
    spark: SparkSession, path: str, options: dict[str, str], kind: type[Exception], told: str
):
    error = spark_error(lambda: load(spark, path, **options))

    assert isinstance(error, kind)
    assert told in str(error)
    assert "\n" not in str(error)


def test_a_place_without_a_repository_is_told(spark: SparkSession, tmp_path: Path):
    assert isinstance(spark_error(lambda: load(spark, str(tmp_path / "no"), array="a")), RepositoryNotFoundError)


def test_a_load_without_a_path_and_one_of_several_paths_are_told(spark: SparkSession, path: str):
    without = spark_error(lambda: spark.read.format("arraystore").option("array", "temp").load())
    several = spark_error(lambda: spark.read.format("arraystore").option("array", "temp").load([path, path]))

    assert "option 'path' is missing" in str(without)
    assert "one repository at a time" in str(several)


def test_a_secret_is_refused_and_shown_nowhere(spark: SparkSession, path: str):
    with pytest.raises(Exception, match="ARRAYSTORE_INVALID_INPUT") as caught:
        load(spark, path, array="temp", **{"storage.secret_access_key": "hunter2"})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("t long, humidity double", "'humidity'"),
        ("temp float", "as float, but it is double"),
    ],
)
def test_a_schema_that_does_not_fit_is_told(spark: SparkSession, path: str, schema: str, told: str):
    frame = spark.read.format("arraystore").schema(schema).option("array", "temp").load(path)

    assert told in str(spark_error(frame.collect))


def test_chunks_that_are_gone_are_told_by_the_task_that_needs_them(
    spark: SparkSession, path: str, repo: Repository, tmp_path: Path
):
    with repo.transaction("main", message="larger than what is kept in records") as store:
        zarr.create_array(store, name="noise", data=np.random.default_rng(0).random((512, 256)), chunks=(256, 256))
    frame = load(spark, path, array="noise")
    packs = [file for file in (tmp_path / "repo" / "chunks").rglob("*") if file.is_file()]
    for file in packs:
        file.unlink()

    assert packs
    assert not isinstance(spark_error(frame.collect), InvalidInputError)


def test_reading_a_stream_of_cells_is_refused_with_what_there_is_instead(spark: SparkSession, path: str):
    stream = spark.readStream.format("arraystore").option("array", "temp").load(path)
    query = stream.writeStream.format("noop").trigger(availableNow=True).option("checkpointLocation", path + "-cp")

    error = spark_error(lambda: query.start().awaitTermination())

    assert "set option 'changes' to true" in str(error)
