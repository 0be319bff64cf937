"""What SQL, other threads and Spark's own errors meet: views, activation, and messages that name the remedy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import InvalidInputError, Repository
from arraystore.spark import (
    SparkUnavailableError,
    TaskFailedError,
    activate,
    repartition_by_chunk,
    translate_error,
    write_dataframe,
)
from arraystore.spark.source.options import raw_options
from tests.spark.support import messages, new_repository, put_array, read_array, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

BEFORE = np.arange(12, dtype="f4").reshape(3, 4)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        put_array(store, "g/v", BEFORE, (3, 2), ["t", "x"])
        put_array(store, "g/w", BEFORE, (3, 2), ["t", "x"])
        zarr.create_array(store, name="nameless", shape=(3, 4), chunks=(3, 2), dtype="f4")
    return repo


def cells(spark: SparkSession) -> DataFrame:
    return spark.range(12).selectExpr("id div 4 AS t", "id % 4 AS x", "float(100 + id) AS v")


def view(spark: SparkSession, name: str, path: str, **options: str) -> None:
    given = ", ".join(f"{option} '{text}'" for option, text in {"path": path, **options}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING arraystore OPTIONS ({given})")


@pytest.mark.end_to_end
def test_rows_are_inserted_into_a_view_by_position_and_by_name(spark: SparkSession, path: str, repo: Repository):
    view(spark, "one", path, array="g/v", skipMissing="true", message="from SQL")
    spark.sql("INSERT INTO one SELECT 1, 2, float(100)")
    spark.sql("INSERT INTO one (v, x, t) VALUES (float(200), 3, 2)")
    wanted = BEFORE.copy()
    wanted[1, 2], wanted[2, 3] = 100, 200
    assert np.array_equal(read_array(repo, "g/v"), wanted)
    assert messages(repo) == ["from SQL", "from SQL", "begin"]
    assert spark.sql("SELECT count(*) FROM one").first()[0] == 12  # the same options read


def test_rows_are_inserted_into_a_view_of_several_arrays(spark: SparkSession, path: str, repo: Repository):
    view(spark, "both", path, arrays="g/v,g/w")
    spark.sql("INSERT INTO both SELECT 0, 0, float(5), float(6)")
    assert (read_array(repo, "g/v")[0, 0], read_array(repo, "g/w")[0, 0]) == (5, 6)


def test_rows_of_one_chunk_are_inserted_by_one_task_with_a_hint(spark: SparkSession, path: str, repo: Repository):
    view(spark, "few", path, array="g/v")
    error = spark_error(lambda: spark.sql("INSERT INTO few VALUES (0, 0, float(5)), (0, 1, float(6))"))
    assert "INSERT INTO ... SELECT /*+ COALESCE(1) */ ..." in str(error)
    spark.sql("INSERT INTO few SELECT /*+ COALESCE(1) */ * FROM VALUES (0, 0, float(5)), (0, 1, float(6))")
    assert read_array(repo, "g/v")[0, :2].tolist() == [5, 6]


def test_an_array_behind_a_view_grows_without_the_name_of_its_column(spark: SparkSession, path: str, repo: Repository):
    with repo.transaction("main", message="coordinates") as store:
        put_array(store, "g/t", np.array([10, 20, 30], "u8"), (3,), ["t"])
        put_array(store, "g/x", np.arange(4), (4,), ["x"])
    view(spark, "growing", path, array="g/v", coords="label", appendDim="t")
    spark.sql("INSERT INTO growing VALUES (40, 0, float(5)), (20, 1, float(6))")
    assert read_array(repo, "g/t").tolist() == [10, 20, 30, 40]
    assert (read_array(repo, "g/v")[1, 1], read_array(repo, "g/v")[3, 0]) == (6, 5)
    error = spark_error(lambda: spark.sql("INSERT INTO growing VALUES (-1, 0, float(5))"))
    assert isinstance(error, InvalidInputError)
    assert read_array(repo, "g/t").tolist() == [10, 20, 30, 40]


def test_a_view_of_a_selection_or_of_an_old_snapshot_is_not_inserted_into(
    spark: SparkSession, path: str, repo: Repository
):
    view(spark, "part", path, array="g/v", isel='{"t": 0}')
    error = spark_error(lambda: spark.sql("INSERT INTO part SELECT 1, 2, float(100)"))
    assert "'isel' has no effect in writing" in str(error)
    assert messages(repo) == ["begin"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE asp_table USING arraystore OPTIONS (path '{path}', array 'g/v')",
        "CREATE TABLE asp_table USING arraystore LOCATION '{path}'",
        "CREATE TABLE asp_table USING arraystore TBLPROPERTIES ('a' = 'b')",
        "CREATE TABLE asp_table USING arraystore OPTIONS (path '{path}', array 'g/v') AS SELECT 1L t, 1L x, float(1) v",
    ],
)
def test_tables_are_refused_with_the_statement_for_a_view(
    spark: SparkSession, path: str, repo: Repository, statement: str
):
    error = spark_error(lambda: spark.sql(statement.format(path=path)))
    assert isinstance(error, InvalidInputError)
    assert "views are supported, not tables: CREATE TEMPORARY VIEW name USING arraystore OPTIONS (path" in str(error)
    assert "\n" not in str(error)


def test_columns_are_found_by_the_names_of_dimensions_and_array(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    write_dataframe(cells(spark), session, "g/v")
    write_dataframe(cells(spark).selectExpr("*", "v * 0 AS other"), session, "g/v")
    write_dataframe(cells(spark), session, "g/w")  # v is the only column that is left
    for path, frame, text in [
        ("nameless", cells(spark), "has dimensions without names"),
        ("g/w", cells(spark).withColumnRenamed("x", "lon"), "no column 'x'"),
        ("g/w", cells(spark).drop("v"), "no column"),
        ("g/w", cells(spark).selectExpr("*", "v AS u"), "'v', 'u'"),
    ]:
        with pytest.raises(InvalidInputError, match=text):
            write_dataframe(frame, session, path)


def test_a_save_with_the_number_of_a_batch_is_committed_once(spark: SparkSession, path: str, repo: Repository):
    def save(number: int, add: int) -> None:
        rows = cells(spark).selectExpr("t", "x", f"v + {add} AS v").coalesce(1)
        named = rows.write.format("arraystore").option("array", "g/v").option("txnAppId", "daily")
        named.option("txnVersion", number).mode("append").save(path)

    save(1, 0)
    save(1, 1000)
    assert np.array_equal(read_array(repo, "g/v"), BEFORE + 100)
    save(2, 1000)
    assert np.array_equal(read_array(repo, "g/v"), BEFORE + 1100)
    assert len(messages(repo)) == 3


def test_a_stream_is_repartitioned_without_being_sorted(spark: SparkSession, tmp_path: Path, repo: Repository):
    cells(spark).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema("t long, x long, v float").parquet(str(tmp_path / "rows"))
    owned = repartition_by_chunk(rows, repo.readonly_session("main"), "g/v", tasks=2)
    sink = owned.writeStream.format("arraystore").option("path", str(tmp_path / "repo")).option("array", "g/v")
    sink.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start().awaitTermination()
    assert np.array_equal(read_array(repo, "g/v"), BEFORE + 100)
    with pytest.raises(InvalidInputError, match="does not sort the rows of a stream"):
        repartition_by_chunk(rows, repo.readonly_session("main"), "g/v", sort=True)
    sorted_rows = repartition_by_chunk(cells(spark), repo.readonly_session("main"), "g/v", tasks=1).collect()
    assert [row.x for row in sorted_rows] == [0, 1] * 3 + [2, 3] * 3


def in_thread(action: Callable[[], Any]) -> list[BaseException]:
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(action).exception()
    return [] if error is None else [error]


@pytest.mark.end_to_end
def test_another_thread_saves_once_the_session_is_activated_there(spark: SparkSession, path: str, repo: Repository):
    def save() -> None:
        cells(spark).coalesce(1).write.format("arraystore").option("array", "g/v").mode("append").save(path)

    def activated() -> None:
        activate(spark)
        save()

    (error,) = in_thread(save)
    translated = translate_error(error)
    assert isinstance(translated, SparkUnavailableError)
    assert "arraystore.spark.activate(spark)" in str(translated)
    assert in_thread(activated) == []
    assert np.array_equal(read_array(repo, "g/v"), BEFORE + 100)


def test_what_a_query_of_the_user_raises_is_reported_as_what_it_is(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    for condition, text in [
        ("assert_true(x < 2, 'too far east') IS NULL", r"\[USER_RAISED_EXCEPTION\] too far east"),
        ("1 / (x - 1) < 5", r"\[DIVIDE_BY_ZERO\]"),
    ]:
        with pytest.raises(TaskFailedError, match=text) as caught:
            write_dataframe(cells(spark).where(condition), session, "g/v")
        assert "without a message" not in str(caught.value)
    assert not session.has_uncommitted_changes


def test_a_relative_path_is_refused_where_client_and_server_may_differ(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=f"'climate' is relative: .* where it is '{tmp_path}/climate'"):
        raw_options({"path": "climate", "array": "t"}, remote=True)
    assert raw_options({"path": "climate", "array": "t"}).text("path") == f"{tmp_path}/climate"
    for url in ("/data/climate", "s3://bucket/climate", "file:///data/climate"):
        assert raw_options({"path": url, "array": "t"}, remote=True).text("path") == url
