"""Arrays as DataFrames and views, through executors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import arraystore.spark as asp
from arraystore import InvalidInputError, Repository, local_filesystem_storage
from tests.spark.support import put_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

VALUES = np.random.default_rng(0).normal(size=(6, 20, 30)).astype("f4")
HEIGHT = np.arange(600, dtype="i2").reshape(20, 30)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A cube, a map of its last two dimensions, and coordinates; tag ``v1`` is on its first snapshot."""
    repo = Repository.create(local_filesystem_storage(tmp_path_factory.mktemp("read") / "repo"))
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    put_array(group.store, "temp", VALUES, (2, 10, 15), ("time", "lat", "lon"))
    put_array(group.store, "height", HEIGHT, (20, 30), ("lat", "lon"), {"_FillValue": 0, "scale_factor": 0.5})
    put_array(group.store, "time", np.arange(6), (6,), ("time",), {"units": "days since 1990-01-01"})
    put_array(group.store, "lat", np.linspace(90, -90, 20), (20,), ("lat",))
    repo.create_tag("v1", session.commit("cube"))
    return repo


def cube(frame: DataFrame, column: str = "temp", dims: tuple[str, ...] = ("time", "lat", "lon")) -> Any:
    """Put rows back where they belong; each position must have exactly one."""
    table = frame.toArrow()
    places = tuple(table[dim].to_numpy() for dim in dims)
    seen = np.zeros(VALUES.shape, dtype=int)
    np.add.at(seen, places, 1)
    found = np.full(VALUES.shape, np.nan, dtype="f4")
    found[places] = table[column].to_numpy()
    assert seen.max(initial=0) <= 1
    return found, seen.astype(bool)


@pytest.mark.end_to_end
def test_all_positions_of_an_array_are_rows(spark: SparkSession, repo: Repository) -> None:
    frame = asp.read_dataframe(spark, repo, "temp")
    assert frame.dtypes == [("time", "bigint"), ("lat", "bigint"), ("lon", "bigint"), ("temp", "float")]
    found, seen = cube(frame)
    assert seen.all()
    np.testing.assert_array_equal(found, VALUES)


def test_a_selection_is_rows_of_what_is_selected(spark: SparkSession, repo: Repository) -> None:
    frame = asp.read_dataframe(
        spark, repo, "temp", sel={"lat": slice(45, -45)}, isel={"time": [0, 5], "lon": -1}, tasks=3
    )
    found, seen = cube(frame)
    labels = np.linspace(90, -90, 20)
    expected = np.zeros(VALUES.shape, dtype=bool)
    expected[np.ix_([0, 5], np.flatnonzero(np.abs(labels) <= 45), [29])] = True
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_array_equal(found[seen], VALUES[expected])


@pytest.mark.end_to_end
def test_labels_and_decoded_values_of_several_arrays_in_one_frame(spark: SparkSession, repo: Repository) -> None:
    frame = asp.read_dataframe(spark, repo, ["temp", "height"], coords="label", decode=True)
    assert [kind for _, kind in frame.dtypes] == ["timestamp", "double", "bigint", "float", "double"]
    noon = frame.where("time >= timestamp'1990-01-03T00:00:00Z' and lat = 90 and lon < 2").orderBy("time", "lon")
    rows = noon.selectExpr("unix_seconds(time) s", "lon", "temp", "height").collect()
    assert [row.s for row in rows[::2]] == [int(datetime(1990, 1, day, tzinfo=UTC).timestamp()) for day in range(3, 7)]
    assert [row.height for row in rows] == [None, 0.5] * 4
    assert [row.temp for row in rows] == VALUES[2:, 0, :2].reshape(-1).tolist()


def test_a_frame_stays_on_its_snapshot_through_all_its_actions(spark: SparkSession, tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    put_array(session.store, "v", np.arange(10), (3,), ("x",))
    session.commit("first")
    frame = asp.read_dataframe(spark, repo, "v")
    assert frame.selectExpr("sum(v)").first()[0] == 45
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="v")[:] = 0
    session.commit("second")
    assert frame.selectExpr("sum(v)").first()[0] == 45
    assert asp.read_dataframe(spark, repo, "v").selectExpr("sum(v)").first()[0] == 0


def test_what_is_uncommitted_in_a_session_can_be_read(spark: SparkSession, repo: Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="temp")[0, 0, 0] = 1000
    frame = asp.read_dataframe(spark, session, "temp")
    assert frame.selectExpr("max(temp)").first()[0] == 1000
    assert asp.read_dataframe(spark, repo, "temp").selectExpr("max(temp)").first()[0] < 1000


def test_a_frame_used_twice_in_one_query_has_all_its_rows_both_times(spark: SparkSession, repo: Repository) -> None:
    frame = asp.read_dataframe(spark, repo, "temp")
    both = frame.where("time = 1").union(frame.where("time = 3"))
    assert sorted(row.time for row in both.select("time").distinct().collect()) == [1, 3]
    assert both.count() == 2 * 20 * 30
    assert frame.union(frame.where("time = 1")).count() == 7 * 20 * 30


@pytest.mark.end_to_end
def test_chunks_as_rows_bring_their_values_in_bulk(spark: SparkSession, repo: Repository) -> None:
    frame = asp.read_dataframe(spark, repo, "temp", layout="chunks", isel={"time": slice(1, 6)})
    kind = frame.schema["temp"].metadata["dtype"]
    found = np.zeros_like(VALUES)
    for row in frame.collect():
        place = (row.time_start, row.lat_start, row.lon_start)
        region = tuple(slice(start, start + size) for start, size in zip(place, row["shape"], strict=True))
        found[region] = np.frombuffer(row.temp, kind).reshape(row["shape"])
    np.testing.assert_array_equal(found[1:], VALUES[1:])
    means = asp.read_dataframe(spark, repo, "temp", layout="chunks", data="array").selectExpr(
        "aggregate(temp, 0D, (a, b) -> a + b) s"
    )
    assert sum(row.s for row in means.collect()) == pytest.approx(VALUES.sum(dtype="f8"), rel=1e-9)


def test_an_empty_selection_is_a_frame_without_rows(spark: SparkSession, repo: Repository) -> None:
    frame = asp.read_dataframe(spark, repo, "temp", isel={"time": slice(0, 0)})
    assert frame.columns == ["time", "lat", "lon", "temp"]
    assert frame.collect() == []


def test_every_type_of_column_arrives(spark: SparkSession, tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    stored = {
        "flag": np.array([True, False]),
        "u1": np.array([0, 255], "u1"),
        "u8": np.array([0, 2**64 - 1], "u8"),
        "half": np.array([0.5, np.nan], "f2"),
        "moment": np.array(["2000-01-01", "NaT"], "M8[ns]"),
        "span": np.array([1_000_000, 0], "m8[us]"),
        "word": np.array(["a", "ä"]),
    }
    for name, values in stored.items():
        put_array(group.store, name, values, (1,), ("x",))
    put_array(group.store, "months", np.array([1, 2], "m8[M]"), (1,), ("x",))
    session.commit("types")
    frame = asp.read_dataframe(spark, repo, list(stored)).orderBy("x")
    with pytest.raises(InvalidInputError, match=r"timedelta64\[M\], for which Spark has no type"):
        asp.read_dataframe(spark, repo, "months")
    first, second = frame.selectExpr("*", "unix_micros(moment) us").collect()
    assert (first.flag, first.u1, int(first.u8), first.half, first.word) == (True, 0, 0, 0.5, "a")
    assert (second.flag, second.u1, int(second.u8), second.word) == (False, 255, 2**64 - 1, "ä")
    assert np.isnan(second.half)
    assert (first.us, second.moment) == (946_684_800_000_000, None)
    assert (first.span.total_seconds(), second.span.total_seconds()) == (1.0, 0.0)


def test_an_error_of_a_task_is_told_as_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    put_array(session.store, "moment", np.array([1001, 2000], "M8[ns]"), (2,), ("x",))
    session.commit("nanoseconds")
    with pytest.raises(Exception, match="ARRAYSTORE_INVALID_INPUT") as caught:
        asp.read_dataframe(spark, repo, "moment").collect()
    told = asp.translate_error(caught.value)
    assert isinstance(told, InvalidInputError)
    assert "'moment'" in str(told)


def test_the_plan_that_spark_shows_tells_nothing_of_the_storage(spark: SparkSession, tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    put_array(session.store, "v", np.arange(10), (3,), ("x",))
    session.commit("first")
    shown = asp.read_dataframe(spark, repo, "v")._jdf.queryExecution().toString()
    assert "MapInArrow" in shown
    assert str(tmp_path) not in shown


@pytest.mark.end_to_end
def test_a_view_is_asked_in_sql_and_stays_until_it_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    repo = Repository.create(local_filesystem_storage(tmp_path / "repo"))
    session = repo.writable_session("main")
    put_array(session.store, "v", np.arange(10), (3,), ("x",))
    first = session.commit("first")
    asp.create_view(spark, "numbers", repo, {"value": "v"})
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="v")[:] = 100
    session.commit("second")
    query = "select sum(value) s, (select count(*) from numbers where x > 5) n from numbers"
    assert spark.sql(query).first() == (45, 4)
    asp.create_view(spark, "numbers", repo, {"value": "v"})
    asp.create_view(spark, "before", repo, {"value": "v"}, ref=first)
    assert spark.sql(query).first() == (1000, 4)
    changed = "select count(*) from numbers join before using (x) where numbers.value <> before.value"
    assert spark.sql(changed).first()[0] == 10


def test_spark_reads_in_as_many_tasks_as_are_asked_for(spark: SparkSession, repo: Repository) -> None:
    assert asp.read_dataframe(spark, repo, "temp", tasks=3).rdd.getNumPartitions() == 3
    assert asp.read_dataframe(spark, repo, "temp", chunks_per_task=4).rdd.getNumPartitions() == 3
    assert asp.read_dataframe(spark, repo, "temp").rdd.getNumPartitions() == 4
