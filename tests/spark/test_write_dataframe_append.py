"""Arrays grow with the rows that lie beyond their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr

import arraystore as ars
from arraystore.errors import InvalidInputError, RebaseFailedError
from arraystore.spark import read_dataframe, write_dataframe
from tests.spark.support import read_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
PLACES = ["north", "south", "west"]


@pytest.fixture
def repo(tmp_path: Path) -> ars.Repository:
    """A repository with two days of two variables at three places, one day in a chunk."""
    repo = ars.Repository.create(ars.local_filesystem_storage(str(tmp_path / "repo")))
    session = repo.writable_session("main")
    group = zarr.create_group(session.store, path="series")
    time = group.create_array("time", shape=(2,), chunks=(1,), dtype="i4", dimension_names=["time"])
    time[:] = [0, 1]
    time.attrs["units"] = "days since 2000-01-01"
    place = group.create_array("place", shape=(3,), chunks=(3,), dtype=str, dimension_names=["place"])
    place[:] = np.array(PLACES, dtype=place.dtype)
    for name in ("rain", "wind"):
        options: dict[str, Any] = {"dtype": "f4", "fill_value": np.nan, "dimension_names": ["time", "place"]}
        group.create_array(name, shape=(2, 3), chunks=(1, 3), **options)[:] = 0
    session.commit("two days")
    return repo


def days(spark: SparkSession, *numbers: int) -> DataFrame:
    """Return rain and wind at all places for some days, the last first."""
    rows = [(day, place) for day in sorted(numbers, reverse=True) for place in range(3)]
    return spark.createDataFrame(
        pa.table(
            {
                "time": pa.array([EPOCH + timedelta(days=day) for day, _ in rows], pa.timestamp("us", "UTC")),
                "place": [PLACES[place] for _, place in rows],
                "rain": pa.array([day * 10.0 + place for day, place in rows], pa.float32()),
                "wind": pa.array([-day * 10.0 - place for day, place in rows], pa.float64()),
            }
        )
    )


OPTIONS: dict[str, Any] = {
    "path": "series",
    "dims": ["time", "place"],
    "values": ["rain", "wind"],
    "coords": "label",
    "append_dim": "time",
}


def expected(*numbers: int) -> np.ndarray:
    return np.array([[day * 10.0 + place if day > 1 else 0 for place in range(3)] for day in numbers], "f4")


@pytest.mark.end_to_end
def test_new_labels_make_all_arrays_of_the_dimension_grow(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    report = write_dataframe(days(spark, 2, 3, 5), session, **OPTIONS)
    session.commit("three more days")
    assert read_array(repo, "series/time").tolist() == [0, 1, 2, 3, 5]
    assert np.array_equal(read_array(repo, "series/rain"), expected(0, 1, 2, 3, 5))
    assert np.array_equal(read_array(repo, "series/wind"), -expected(0, 1, 2, 3, 5))
    assert (report.rows, report.chunks) == (9, 6)
    assert [found.message for found in repo.ancestry(branch="main")][:2] == ["three more days", "two days"]


def test_labels_that_are_there_and_new_ones_may_come_together(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    write_dataframe(days(spark, 1, 2), session, **OPTIONS, append_labels=[EPOCH + timedelta(days=2)])
    session.commit("a day again, and one more")
    assert read_array(repo, "series/time").tolist() == [0, 1, 2]
    assert np.array_equal(read_array(repo, "series/rain")[1:], [[10, 11, 12], [20, 21, 22]])


@pytest.mark.end_to_end
def test_two_jobs_that_append_at_the_same_time_both_commit(spark: SparkSession, repo: ars.Repository) -> None:
    one, two = repo.writable_session("main"), repo.writable_session("main")
    write_dataframe(days(spark, 2), one, **OPTIONS)
    write_dataframe(days(spark, 3, 4), two, **OPTIONS)
    one.commit("one", rebase_with=ars.ConflictDetector())
    two.commit("two", rebase_with=ars.ConflictDetector())
    assert read_array(repo, "series/time").tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(read_array(repo, "series/rain"), expected(0, 1, 2, 3, 4))
    assert np.array_equal(read_array(repo, "series/wind"), -expected(0, 1, 2, 3, 4))
    assert [found.message for found in repo.ancestry(branch="main")][:3] == ["two", "one", "two days"]


def test_two_jobs_that_append_the_same_day_do_not_both_commit(spark: SparkSession, repo: ars.Repository) -> None:
    one, two = repo.writable_session("main"), repo.writable_session("main")
    write_dataframe(days(spark, 2), one, **OPTIONS)
    write_dataframe(days(spark, 2, 3), two, **OPTIONS)
    one.commit("one", rebase_with=ars.ConflictDetector())
    with pytest.raises(RebaseFailedError) as caught:
        two.commit("two", rebase_with=ars.ConflictDetector())
    assert ars.ConflictType.DuplicateAppend in {conflict.conflict_type for conflict in caught.value.conflicts}
    assert read_array(repo, "series/time").tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dirty", [False, True])
def test_arrays_do_not_grow_where_rows_are_refused(spark: SparkSession, repo: ars.Repository, dirty: bool) -> None:
    session = repo.writable_session("main")
    if dirty:
        zarr.open_group(session.store).create_group("other")
    bad = days(spark, 2).selectExpr(
        "time", "CASE WHEN place = 'west' THEN 'east' ELSE place END AS place", "rain", "wind"
    )
    with pytest.raises(InvalidInputError, match=r"1 have a 'place' that is not in the coordinate .*place=east"):
        write_dataframe(bad, session, **OPTIONS)
    assert session.has_uncommitted_changes == dirty
    assert zarr.open_array(session.store, path="series/time").shape == (2,)
    assert zarr.open_array(session.store, path="series/rain").shape == (2, 3)
    write_dataframe(days(spark, 2), session, **OPTIONS)
    session.commit("a good day", rebase_with=ars.ConflictDetector())
    assert np.array_equal(read_array(repo, "series/rain"), expected(0, 1, 2))
    assert read_array(repo, "series/time").tolist() == [0, 1, 2]


def test_labels_that_do_not_continue_the_coordinate_are_refused(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"time=-1 .*does not come after its last one, 1"):
        write_dataframe(days(spark, -1, 2), session, **OPTIONS)
    with pytest.raises(InvalidInputError, match="no dimension 'day'"):
        write_dataframe(days(spark, 2), session, **{**OPTIONS, "append_dim": "day"})
    half = days(spark, 2).selectExpr("time + INTERVAL 12 HOURS AS time", "place", "rain", "wind")
    with pytest.raises(InvalidInputError, match=r"2000-01-03T12:00:00.000000 cannot be represented"):
        write_dataframe(half, session, **OPTIONS)
    assert not session.has_uncommitted_changes


def test_indices_beyond_the_end_are_refused_where_a_coordinate_would_lack_labels(
    spark: SparkSession, repo: ars.Repository
) -> None:
    rows = spark.range(1).selectExpr("7 AS time", "0 AS place", "float(1) AS rain", "float(2) AS wind")
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"need labels for its coordinate '/series/time'.*'label'"):
        write_dataframe(rows, session, **{**OPTIONS, "coords": "index"})
    assert not session.has_uncommitted_changes


@pytest.mark.end_to_end
def test_indices_beyond_the_end_make_arrays_grow(spark: SparkSession, repo: ars.Repository) -> None:
    options = {**OPTIONS, "coords": "index"}
    with repo.transaction("main", message="forget the days") as store:
        del zarr.open_group(store, path="series", mode="a")["time"]
    rows = days(spark, 2, 4).selectExpr("datediff(time, '2000-01-01') AS time", "rain", "wind", "place")
    rows = rows.selectExpr(
        "time", "CASE place WHEN 'north' THEN 0 WHEN 'south' THEN 1 ELSE 2 END AS place", "rain", "wind"
    )
    session = repo.writable_session("main")
    write_dataframe(rows, session, **options)
    session.commit("to the fourth day")
    rain = read_array(repo, "series/rain")
    assert rain.shape == (5, 3)
    assert np.isnan(rain[3]).all()
    assert np.array_equal(rain[[2, 4]], expected(2, 4))


def test_an_end_within_a_chunk_keeps_what_is_there(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, path="long", mode="a")
    group.create_array("v", shape=(3,), chunks=(4,), dtype="i8", dimension_names=["i"])[:] = [7, 8, 9]
    session.commit("three")
    session = repo.writable_session("main")
    rows = spark.range(3, 10).selectExpr("id AS i", "-id AS v")
    report = write_dataframe(rows, session, "long/v", dims=["i"], value="v", append_dim="i", append_labels=10)
    session.commit("seven more")
    found = zarr.open_array(repo.readonly_session("main").store, path="long/v", mode="r")[...]
    assert np.asarray(found).tolist() == [7, 8, 9, *range(-3, -10, -1)]
    assert report.chunks == 3


NEW_DAYS = [EPOCH + timedelta(days=day) for day in (2, 3)]


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_labels_that_will_be_appended_may_be_instants_of_any_unit(
    spark: SparkSession, repo: ars.Repository, unit: str
) -> None:
    session = repo.writable_session("main")
    labels = np.array([day.replace(tzinfo=None) for day in NEW_DAYS], f"M8[{unit}]")
    write_dataframe(days(spark, 2), session, **OPTIONS, append_labels=labels)
    session.commit("a day, and room for one more")
    assert read_array(repo, "series/time").tolist() == [0, 1, 2, 3]
    assert np.array_equal(read_array(repo, "series/rain")[2], expected(2)[0])


@pytest.mark.parametrize("labels", [[2, 3], np.array(["2000-01-03T00:00:00.000000001"], "M8[ns]")], ids=["days", "ns"])
def test_numbers_do_not_pass_for_instants_that_will_be_appended(
    spark: SparkSession, repo: ars.Repository, labels: Any
) -> None:
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match="is a number"):
        write_dataframe(days(spark, 2), session, **OPTIONS, append_labels=labels)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("through", ["function", "data source"])
def test_labels_that_are_one_to_the_coordinate_are_appended_once(
    spark: SparkSession, tmp_path: Path, repo: ars.Repository, through: str
) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="z", data=np.array([0.1, 0.2], "f4"), dimension_names=["z"])
    zarr.create_array(session.store, name="a", data=np.zeros((2, 2)), chunks=(1, 2), dimension_names=["z", "x"])
    session.commit("levels")
    within, as_double, as_single = 0.2001, 0.3, float(np.float32(0.3))
    rows = pa.table({"z": [within, as_double, as_single], "x": [0, 0, 1], "a": [1.0, 2.0, 3.0]})
    frame = spark.createDataFrame(rows).coalesce(1)
    if through == "function":
        write_dataframe(frame, session := repo.writable_session("main"), "a", dims=["z", "x"], value="a",
            coords={"z": "label"}, tolerance=0.001, append_dim="z")  # fmt: skip
        session.commit("a level")
    else:
        options = {"array": "a", "coords": '{"z": "label"}', "tolerance": "0.001", "appendDim": "z", "dims": "z,x"}
        frame.write.format("arraystore").mode("append").options(**options).save(str(tmp_path / "repo"))
    assert read_array(repo, "z").tolist() == [*np.array([0.1, 0.2, 0.3], "f4")]
    assert read_array(repo, "a").tolist() == [[0, 0], [1, 0], [2, 3]]


@pytest.mark.parametrize("through", ["function", "data source"])
def test_new_labels_within_the_tolerance_of_each_other_are_refused(
    spark: SparkSession, tmp_path: Path, repo: ars.Repository, through: str
) -> None:
    def save(*labels: float) -> None:
        frame = spark.createDataFrame(pa.table({"z": labels, "a": labels})).coalesce(1)
        if through == "function":
            session = repo.writable_session("main")
            write_dataframe(frame, session, "g", dims=["z"], values=["a"], coords="label", tolerance=0.01,
                append_dim="z", create=True)  # fmt: skip
            session.commit("labels")
        else:
            options = {"group": "g", "values": "a", "coords": "label", "dims": "z", "tolerance": "0.01"}
            options |= {"appendDim": "z", "create": "true"}
            frame.write.format("arraystore").mode("append").options(**options).save(str(tmp_path / "repo"))

    for labels in (1.0, 2.0, 2.005), (1.0, 2.0), (2.005, 3.0, 3.005), (2.005, 3.0):
        if len(labels) == 3:
            with pytest.raises(Exception, match=r"labels .*\.0 and .*\.005 of column 'z' are new, and within"):
                save(*labels)
        else:
            save(*labels)
    assert read_array(repo, "g/z").tolist() == [1, 2, 3]
    assert read_array(repo, "g/a").tolist() == [1, 2.005, 3]


def test_intervals_are_labels_and_values_of_timedeltas(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="step", data=np.array([0, 6], "m8[h]"), dimension_names=["step"])
    zarr.create_array(session.store, name="lag", data=np.array([1, 2], "m8[s]"), dimension_names=["step"])
    session.commit("two steps")
    read = read_dataframe(spark, repo, "lag", coords="label").selectExpr("step * 2 AS step", "lag * 2 AS lag")
    write_dataframe(
        read, session := repo.writable_session("main"), "lag", dims=["step"], value="lag", coords="label",
        append_dim="step", append_labels=np.array([12], "m8[h]"),
    )  # fmt: skip
    write_dataframe(
        read.selectExpr("0 AS i", "max(lag) AS lag"), session, "made", dims=["i"], values=["lag"], create=True
    )  # fmt: skip
    session.commit("a step more")
    assert read_array(repo, "step").tolist() == np.array([0, 6, 12], "m8[h]").tolist()
    assert read_array(repo, "lag").tolist() == np.array([2, 2, 4], "m8[s]").tolist()
    made = zarr.open_array(repo.readonly_session("main").store, path="made/lag", mode="r")
    assert (made.dtype, str(made.fill_value), made[0]) == ("m8[us]", "NaT", np.timedelta64(4, "s"))
    late = spark.sql("SELECT INTERVAL '13:30' HOUR TO MINUTE AS step, INTERVAL '1' SECOND AS lag")
    session = repo.writable_session("main")
    for labels, message in (
        (None, "step=13:30:00 cannot be represented"),
        ([timedelta(hours=18), 36], "36 is a number"),  # which Arrow takes for microseconds
        (np.array([1], "m8[M]"), "1 is a number"),
        ([np.timedelta64(10**9, "D")], "1000000000 is a number"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            write_dataframe(late, session, "lag", coords="label", append_dim="step", append_labels=labels)
    for tolerance in np.timedelta64(1, "M"), np.timedelta64(10**9, "D"):
        with pytest.raises(InvalidInputError, match="a fixed length of time"):
            write_dataframe(late, session, "lag", coords="label", tolerance=tolerance)
    assert not session.has_uncommitted_changes


def test_labels_out_of_the_range_of_a_coordinate_are_refused(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="at", data=np.array(["2000-01-01"], "M8[ns]"), dimension_names=["at"])
    zarr.create_array(session.store, name="v", data=np.zeros(1), dimension_names=["at"])
    session.commit("an instant")
    late = spark.sql("SELECT TIMESTAMP '2500-01-01' AS at, 1D AS v")
    with pytest.raises(InvalidInputError, match="cannot be represented in datetime64"):
        write_dataframe(late, session := repo.writable_session("main"), "v", coords="label", append_dim="at")
    assert not session.has_uncommitted_changes
