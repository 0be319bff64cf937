"""Arrays, coordinates and dimension names are made from the schema and the labels of a DataFrame."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr

import arraystore as ars
from arraystore.errors import ConflictError, InvalidInputError
from arraystore.spark import NewArrays, read_dataframe, write_dataframe
from arraystore.spark.creation.chunk_choice import choose_chunks
from arraystore.spark.creation.create import find_missing
from arraystore.spark.creation.distinct_labels import LONGEST_LABEL
from arraystore.spark.creation.new_coordinates import new_coordinate
from arraystore.spark.creation.new_variables import new_variable
from tests.spark.support import new_repository, read_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

xarray = pytest.importorskip("xarray")

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

START = datetime(2020, 1, 1, tzinfo=UTC)
LATS = [-10.5, 0.25, 7.0]
STATIONS = ["north", "søuth"]
LABELLED: dict[str, Any] = {"dims": ["time", "lat", "station"], "coords": "label"}


@pytest.fixture
def repo(tmp_path: Path) -> ars.Repository:
    """An empty repository."""
    return new_repository(tmp_path)


def table(hours: int = 4) -> pa.Table:
    """Return rows in no order, of which one is missing."""
    rows = [(hour, lat, station) for hour in range(hours) for lat in LATS for station in STATIONS][:-1]
    rows = rows[::2] + rows[1::2]
    number = list(range(len(rows)))
    return pa.table(
        {
            "time": pa.array([START + timedelta(hours=hour) for hour, _, _ in rows], pa.timestamp("us", "UTC")),
            "lat": pa.array([lat for _, lat, _ in rows], pa.float64()),
            "station": [station for _, _, station in rows],
            "t2m": pa.array([n / 4 for n in number], pa.float32()),
            "count": pa.array(number, pa.int16()),
            "seen": pa.array([START + timedelta(microseconds=n) for n in number], pa.timestamp("us", "UTC")),
        }
    )


def create(session: ars.Session, df: DataFrame, choice: bool | NewArrays = True, **options: Any) -> Any:
    return write_dataframe(df, session, "obs", **{"values": ["t2m"], "create": choice, **LABELLED, **options})


@pytest.mark.end_to_end
def test_a_frame_comes_back_from_the_arrays_that_it_made(spark: SparkSession, repo: ars.Repository) -> None:
    df = spark.createDataFrame(table())
    session = repo.writable_session("main")
    report = create(session, df, values=["t2m", "count", "seen"])
    session.commit("made")
    assert {each.path for each in report.created} == {
        "obs/time", "obs/lat", "obs/station", "obs/t2m", "obs/count", "obs/seen",
    }  # fmt: skip
    assert "obs/t2m float32[4, 3, 2] in chunks of [4, 3, 2]" in str(report).partition("; created ")[2]
    back = read_dataframe(spark, repo, ["obs/t2m", "obs/count", "obs/seen"], coords="label", decode=True)
    order = ["time", "lat", "station"]
    expected = table().sort_by([(name, "ascending") for name in order])
    rows = back.where("count IS NOT NULL").select(*expected.column_names).orderBy(*order).toArrow()
    assert rows.to_pylist() == expected.to_pylist()
    assert back.where("count IS NULL AND seen IS NULL AND isnan(t2m)").count() == 1


def test_the_arrays_are_those_of_xarray(spark: SparkSession, repo: ars.Repository) -> None:
    df = spark.createDataFrame(table())
    session = repo.writable_session("main")
    create(session, df, values=["t2m", "count"])
    with xarray.open_zarr(session.store, group="obs", consolidated=False) as ours:
        frame = table().drop_columns(["seen"]).to_pandas()
        frame["time"] = frame["time"].dt.tz_localize(None)
        expected = frame.set_index(["time", "lat", "station"]).to_xarray()
        expected["time"] = expected["time"].astype("M8[ns]")  # Pandas 3 keeps Arrow's microseconds
        xarray.testing.assert_equal(ours.load(), expected)
        assert ours.t2m.dtype == np.float32


def test_a_second_variable_joins_the_group_on_its_labels_and_chunks(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    create(session, spark.createDataFrame(table()), NewArrays(chunks={"time": 2}, chunk_bytes=24))
    first = session.commit("one variable")
    session = repo.writable_session("main")
    one_hour = spark.createDataFrame(table(1))
    report = create(session, one_hour, values=["t2m", "count"])
    assert [(each.path, each.shape, each.chunks) for each in report.created] == [("obs/count", (4, 3, 2), (2, 1, 2))]
    session.commit("two variables")
    assert np.count_nonzero(read_array(repo, "obs/count") != np.iinfo("i2").min) == 5
    assert repo.readonly_session(snapshot_id=first) is not None
    early = spark.createDataFrame(table().slice(0, 2)).selectExpr(
        "time - interval 1 day time", "lat", "station", "seen"
    )
    with pytest.raises(InvalidInputError, match="2 have a 'time' that is not in the coordinate"):
        create(repo.writable_session("main"), early, values=["seen"])


def test_indices_make_arrays_without_coordinates(spark: SparkSession, repo: ars.Repository) -> None:
    df = spark.range(0, 60, 1, 3).selectExpr("int(id div 10) t", "id % 10 x", "id v")
    session = repo.writable_session("main")
    report = write_dataframe(df, session, "v", dims=["t", "x"], create=NewArrays(chunks=(4, 10)), value="v")
    assert [each.path for each in report.created] == ["v"]
    session.commit("made")
    assert read_array(repo, "v").tolist() == np.arange(60).reshape(6, 10).tolist()
    array = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")
    assert (array.chunks, array.metadata.dimension_names, array.fill_value) == ((4, 10), ("t", "x"), 0)  # type: ignore[union-attr]


def test_labels_of_the_caller_are_kept_in_their_order(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    times = [START + timedelta(hours=hour) for hour in range(6)]
    labels = {"time": times, "lat": sorted(LATS, reverse=True), "station": [*STATIONS, "west"]}
    choice = NewArrays(labels=labels, units={"time": "hours since 2020-01-01"}, attributes={"lat": {"axis": "Y"}})
    create(session, spark.createDataFrame(table()), choice)
    session.commit("made")
    assert read_array(repo, "obs/time").tolist() == list(range(6))
    assert read_array(repo, "obs/lat").tolist() == sorted(LATS, reverse=True)
    assert read_array(repo, "obs/t2m").shape == (6, 3, 3)
    assert zarr.open_array(repo.readonly_session("main").store, path="obs/lat", mode="r").attrs["axis"] == "Y"


def test_rows_of_later_batches_let_created_arrays_grow(spark: SparkSession, repo: ars.Repository) -> None:
    for hours in ((0, 1), (2, 3)):
        session = repo.writable_session("main")
        rows = table().filter(pa.compute.field("time") >= START + timedelta(hours=hours[0]))
        rows = rows.filter(pa.compute.field("time") <= START + timedelta(hours=hours[1]))
        create(session, spark.createDataFrame(rows), append_dim="time")
        session.commit("more", rebase_with=ars.ConflictDetector())
    assert read_array(repo, "obs/t2m").shape == (4, 3, 2)
    assert zarr.open_array(repo.readonly_session("main").store, path="obs/time", mode="r").chunks == (2,)


def test_no_rows_make_nothing(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    report = create(session, spark.createDataFrame(table()).where("lat > 90"))
    assert (report.rows, report.created, session.has_uncommitted_changes) == (0, (), False)


@pytest.mark.parametrize(("place", "coords"), [("CAST(NULL AS INT)", "label"), ("NULL", "index"), ("-5", "index")])
def test_rows_that_all_lack_a_place_are_refused_and_not_lost(
    spark: SparkSession, repo: ars.Repository, place: str, coords: Any
) -> None:
    df = spark.range(2).selectExpr(f"CAST({place} AS INT) AS x", "CAST(id AS FLOAT) AS v")
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match="no row has a place along dimension 'x' of the new arrays"):
        write_dataframe(df, session, "v", dims=["x"], coords=coords, value="v", create=True)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("before", [False, True])
def test_a_write_that_fails_leaves_nothing_behind(spark: SparkSession, repo: ars.Repository, before: bool) -> None:
    session = repo.writable_session("main")
    if before:
        zarr.create_array(session.store, name="mine", shape=(2,), dtype="i4")[:] = 1
    twice = spark.createDataFrame(pa.concat_tables([table(), table()]))
    with pytest.raises(InvalidInputError, match="another row names, too"):
        create(session, twice)
    assert session.has_uncommitted_changes is before
    assert sorted(name for name, _ in zarr.open_group(session.store, mode="a").members()) == ["mine"] * before


def test_two_drivers_that_create_the_same_array_conflict(spark: SparkSession, repo: ars.Repository) -> None:
    df = spark.createDataFrame(table())
    first, second = repo.writable_session("main"), repo.writable_session("main")
    create(first, df)
    create(second, df)
    first.commit("first")
    with pytest.raises(ConflictError, match="obs"):
        second.commit("second", rebase_with=ars.ConflictDetector())


def test_hostile_labels_are_refused(spark: SparkSession, repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"more than 3 distinct labels.*'time': 4"):
        write_dataframe(spark.createDataFrame(table()), session, "obs", values=["t2m"], dims=["time"], coords="label",
                        create=NewArrays(most_labels=3))  # fmt: skip
    long = spark.range(1).selectExpr(f"repeat('x', {LONGEST_LABEL + 1}) as name", "1.5D as v")
    with pytest.raises(InvalidInputError, match="label of 1,025 bytes"):
        write_dataframe(long, session, "v", dims=["name"], coords="label", value="v", create=True)
    odd = spark.createDataFrame([(float("nan"), 1), (0.0, 2), (-0.0, 3), (None, 4)], "x double, v int")
    with pytest.raises(InvalidInputError, match="1 have no value in the dimension column 'x'"):
        write_dataframe(odd, session, "v", dims=["x"], coords="label", value="v", create=True)
    assert not session.has_uncommitted_changes


def test_a_value_that_would_be_read_as_missing_is_refused(spark: SparkSession, repo: ars.Repository) -> None:
    df = spark.createDataFrame([(0, 5), (1, -128), (2, None)], "x int, v byte")
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"1 have a 'v' that means .*-128 at x=1"):
        write_dataframe(df, session, "v", dims=["x"], value="v", create=True, on_null="fill")
    write_dataframe(df, session, "v", dims=["x"], value="v", create=NewArrays(fill_values={"v": -1}), on_null="fill")
    session.commit("made")
    assert read_dataframe(spark, repo, "v", decode=True).orderBy("x").toArrow()["v"].to_pylist() == [5, -128, None]


@pytest.mark.parametrize("name", ["a/b", "", ".arraystore", "__x", "zarr.json"])
def test_hostile_names_are_refused(spark: SparkSession, repo: ars.Repository, name: str) -> None:
    df = spark.range(3).selectExpr("id as x", "id as v")
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        write_dataframe(df, session, "g", dims={name: "x"}, values={"v": "v"}, create=True)
    assert not session.has_uncommitted_changes


# -- without Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "chosen", "expected"),
    [((365, 720, 1440), {}, (92, 90, 90)), ((3,), {}, (3,)), ((0, 5), {}, (1, 5)),
     ((1000, 1000), {"a0": 1000}, (1000, 250)), ((10, 10), {"a0": 10, "a1": 10}, (10, 10))],
)  # fmt: skip
def test_chunks_have_up_to_the_target_of_bytes(shape: Any, chosen: Any, expected: Any) -> None:
    dims = [f"a{axis}" for axis in range(len(shape))]
    target = 4_000_000 if len(shape) != 2 or max(shape) < 100 else 1_000_000
    assert choose_chunks(shape, dims, chosen, 4, target) == expected


@pytest.mark.parametrize(
    ("kind", "labels", "units", "stored"),
    [
        ("date", pa.array([date(1970, 1, 3), date(1969, 12, 31)]), "days since 1970-01-01", [-1, 2]),
        ("timestamp", pa.array([2_000_000, -1_000_000], pa.timestamp("us")), "seconds since 1970-01-01", [-1, 2]),
        ("timestamp_ntz", pa.array([1_001_000], pa.timestamp("us")), "milliseconds since 1970-01-01", [1001]),
        ("timestamp", pa.array([7], pa.timestamp("us")), "microseconds since 1970-01-01", [7]),
    ],
)
def test_times_are_counted_in_the_coarsest_unit_that_holds_them(
    kind: Any, labels: Any, units: Any, stored: Any
) -> None:
    coordinate = new_coordinate("time", kind, labels, None)
    assert (coordinate.labels.tolist(), coordinate.attributes["units"]) == (stored, units)


def test_types_fill_values_and_attributes_come_from_the_column() -> None:
    from pyspark.sql.types import ByteType, DecimalType, DoubleType, IntegerType, StructField, StructType

    schema = StructType(
        [
            StructField("need", IntegerType(), nullable=False, metadata={"long_name": "need", "_FillValue": 3}),
            StructField("may", ByteType()),
            StructField("big", DecimalType(20, 0)),
            StructField("packed", DoubleType(), metadata={"scale_factor": 2.0}),
            StructField("money", DecimalType(10, 2)),
        ]
    )
    made = [new_variable(schema, f"g/{name}", name, NewArrays()) for name in ("need", "may", "big")]
    assert [(each.dtype, each.fill) for each in made] == [("i4", 0), ("i1", -128), ("u8", 2**64 - 1)]
    assert [dict(each.attributes) for each in made] == [
        {"long_name": "need"}, {"_FillValue": -128}, {"_FillValue": 2**64 - 1},
    ]  # fmt: skip
    for name, message in ("packed", "scale_factor"), ("money", "cast it first"):
        with pytest.raises(InvalidInputError, match=message):
            new_variable(schema, name, name, NewArrays())


@pytest.mark.parametrize("group", ["g/v", "g/v/deep"])
def test_no_array_is_created_below_another_one(repo: ars.Repository, group: str) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    session = repo.writable_session("main")
    zarr.create_array(session.store, name="g/v", shape=(3,), dtype="i4")
    fields = [StructField("x", LongType()), StructField("w", LongType())]
    with pytest.raises(InvalidInputError, match="'/g/v' is an array"):
        find_missing(
            session, StructType(fields), group, NewArrays(), dims=["x"], value=None, values=["w"], coords="index"
        )
