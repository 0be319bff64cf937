"""Values arrive exactly, or are refused with their count and an example; ``lossy`` decides otherwise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyspark.sql import types as st

from arraystore import InvalidInputError, Repository
from arraystore.spark import batch_writer, read_dataframe, translate_error, write_dataframe, write_regions
from arraystore.spark.cf_time import cf_time_codec
from arraystore.spark.creation.new_coordinates import passed_coordinate
from arraystore.spark.writing.append_growth import _convert_labels
from arraystore.spark.writing.axes import Axis, label_axis
from arraystore.spark.writing.chunk_grid import MISSING, NOWHERE
from arraystore.spark.writing.columns import ColumnValues, Lossy, value_column
from arraystore.transforms.number_conversion import convert_numbers
from tests.spark.support import messages, new_repository, put_array, read_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2001, 2, 3, 12, tzinfo=UTC)
TIMES = pa.timestamp("us", "UTC")
DAYS = {"units": "days since 2001-01-01"}


def read(
    kind: st.DataType, arrow: Any, given: list[Any], dtype: Any, lossy: Lossy = "floats", attrs: Any = None
) -> ColumnValues:
    schema = st.StructType([st.StructField("v", kind)])
    column = value_column(schema, "v", "array '/a'", np.dtype(dtype), attrs or {}, lossy)
    return column.read(pa.array([given[0], *given], arrow).slice(1))


def mask(found: np.ndarray | None, rows: int) -> list[bool]:
    return [False] * rows if found is None else found.tolist()


def decimals(*texts: str) -> list[Decimal | None]:
    return [None if text == "" else Decimal(text) for text in texts]


LONG, DOUBLE, TIMESTAMP = (st.LongType(), pa.int64()), (st.DoubleType(), pa.float64()), (st.TimestampType(), TIMES)
WIDE = st.DecimalType(20, 0), pa.decimal128(20, 0)
MONEY = st.DecimalType(18, 2), pa.decimal128(18, 2)
INFERRED = st.DecimalType(38, 18), pa.decimal128(38, 18)
"""Type that Spark infers for the decimals of Python."""


@pytest.mark.parametrize(
    ("kind", "given", "dtype", "changed"),
    [
        (LONG, [2**24, 2**24 + 1, -(2**24) - 1, 2**24 + 2, None], "f4", [0, 1, 1, 0, 0]),
        (LONG, [2**53, 2**53 + 1, 2**63 - 1, -(2**63)], "f8", [0, 1, 1, 0]),
        (LONG, [2049, 2048], ">f2", [1, 0]),
        ((st.IntegerType(), pa.int32()), [2**24 + 1, 5], "f4", [1, 0]),
        (WIDE, decimals("18446744073709551615", "9223372036854775808", ""), "f8", [1, 0, 0]),
        (MONEY, decimals("0.10", "16777217.00", "123456.78", ""), "f4", [0, 1, 0, 0]),
        (MONEY, decimals("0.10", "9007199254740.99", "1234567890123456.78"), "f8", [0, 0, 1]),
        (
            INFERRED,
            decimals("0.1", "-273.15", "12345678901234567.5", "18446744073709552000", ""),
            "f8",
            [0, 0, 1, 1, 0],
        ),
        (INFERRED, decimals("0.1", "16777217", "16777216"), "f4", [0, 1, 0]),
        (TIMESTAMP, [NOON, NOON + timedelta(seconds=1), None], "M8[h]", [0, 1, 0]),
    ],
    ids=str,
)
def test_values_that_would_change_are_marked_unless_that_is_accepted(
    kind: tuple[st.DataType, Any], given: list[Any], dtype: str, changed: list[int]
) -> None:
    strict = read(*kind, given, dtype)
    assert mask(strict.changed, len(given)) == [bool(each) for each in changed]
    assert strict.unfit is None
    accepted = read(*kind, given, dtype, lossy=True)
    assert accepted.changed is None
    np.testing.assert_array_equal(accepted.values, strict.values)


def test_floats_are_rounded_unless_exact_ones_are_asked_for() -> None:
    given = [0.1, 0.5, float("nan"), float("inf"), None]
    assert read(*DOUBLE, given, "f4").changed is None
    assert mask(read(*DOUBLE, given, "f4", lossy=False).changed, 5) == [True, False, False, False, False]
    assert read(*DOUBLE, given, "f8", lossy=False).changed is None


def test_values_out_of_range_are_refused_even_where_rounding_is_accepted() -> None:
    assert mask(read(*DOUBLE, [1e300, 1.0], "f4", lossy=True).unfit, 2) == [True, False]
    assert mask(read(*LONG, [70_000, 1], "f2", lossy=True).unfit, 2) == [True, False]
    assert mask(read(*MONEY, decimals("1.50", "1.00", "300.00"), "u1", lossy=True).unfit, 3) == [True, False, True]


@pytest.mark.parametrize(
    ("dtype", "given", "unfit"),
    [
        ("u8", ["18446744073709551615", "0", "-1", "18446744073709551616", ""], [0, 0, 1, 1, 0]),
        ("i8", ["9223372036854775807", "-9223372036854775808", "9223372036854775808"], [0, 0, 1]),
        (">u2", ["65535", "65536", "-1"], [0, 1, 1]),
    ],
)
def test_integral_decimals_go_into_integers_without_a_float_in_between(
    dtype: str, given: list[str], unfit: list[int]
) -> None:
    found = read(st.DecimalType(20, 0), pa.decimal128(20, 0), decimals(*given), dtype)
    assert mask(found.unfit, len(given)) == [bool(each) for each in unfit]
    assert found.changed is None
    for number, text, bad in zip(found.values.tolist(), given, unfit, strict=True):
        assert bad or text == "" or number == int(text)


def test_instants_in_floats_too_coarse_for_them_are_marked() -> None:
    late = [NOON, NOON + timedelta(milliseconds=1)]
    assert mask(read(*TIMESTAMP, late, "f4", attrs=DAYS).changed, 2) == [False, True]
    assert read(*TIMESTAMP, late, "f8", attrs=DAYS).changed is None
    assert mask(read(*TIMESTAMP, late, "i4", attrs=DAYS).changed, 2) == [True, True]
    assert read(*TIMESTAMP, late, "i4", lossy=True, attrs=DAYS).values.tolist() == [33, 33]


def test_random_integers_are_marked_exactly_where_a_float_does_not_give_them_back() -> None:
    random = np.random.default_rng(7)
    values = random.integers(-(2**63), 2**63, 4000) >> random.integers(0, 60, 4000)
    for dtype in map(np.dtype, ("f2", "f4", "f8")):
        with np.errstate(over="ignore"):
            stored = values.astype(dtype)
        converted = convert_numbers(values, dtype)
        bad = mask(converted.unfit, 4000) | np.array(mask(converted.changed, 4000))
        wanted = [not np.isfinite(one) or int(one) != int(value) for value, one in zip(values, stored, strict=True)]
        assert bad.tolist() == wanted


def test_labels_that_a_coordinate_cannot_hold_are_refused() -> None:
    schema = st.StructType([st.StructField("x", st.LongType())])
    axis = label_axis(schema, "x", "x", np.array([1.0], "f4"), {}, None)
    with pytest.raises(InvalidInputError, match="16777217 cannot be represented in float32"):
        _convert_labels(axis, np.array([2**24 + 1]), np.array([1.0], "f4"), {})
    with pytest.raises(InvalidInputError, match="neighbouring integers"):
        label_axis(schema, "x", "x", np.array([2.0**53]), {}, None)
    double = st.StructType([st.StructField("x", st.DoubleType())])
    with pytest.raises(InvalidInputError, match="cast the column to long"):
        label_axis(double, "x", "x", np.array([2**53 + 1]), {}, None)
    codec = cf_time_codec("time", DAYS)
    assert codec is not None
    _, _, exact = codec.from_microseconds(np.array([10**15 + 1_000_000]), "f4")
    assert exact.tolist() == [False]


@pytest.mark.parametrize(
    ("kind", "label", "dtype"),
    [
        (st.LongType(), np.int64(-1), "u8"),
        (st.IntegerType(), np.int32(-1), "u4"),
        (st.ByteType(), np.int8(-1), "u1"),
        (st.LongType(), np.int64(2**63 - 1), "f8"),
    ],
    ids=str,
)
def test_new_labels_do_not_become_others_in_the_coordinate(kind: st.DataType, label: Any, dtype: str) -> None:
    axis = label_axis(st.StructType([st.StructField("x", kind)]), "x", "x", np.empty(0, dtype), {}, None)
    with pytest.raises(InvalidInputError, match="cannot be represented"):
        _convert_labels(axis, np.array([label]), np.empty(0, dtype), {})


def test_labels_that_are_passed_do_not_become_others_in_the_type_of_the_column() -> None:
    for kind, label in (("long", np.uint64(2**64 - 1)), ("double", 2**53 + 1), ("float", 2**24 + 1), ("byte", 0.5)):
        with pytest.raises(InvalidInputError, match="holds exactly"):
            passed_coordinate("x", kind, np.array([label]), None)
    assert passed_coordinate("x", "float", [0.1, 2**24], None).labels.tolist() == [np.float32(0.1), 2**24]


def test_decimals_are_labels_of_integers_and_of_floats() -> None:
    unsigned = decimal_axis(np.array([5, 2**63 - 1], "u8"))
    given = pa.array(decimals("9223372036854775807", "18446744073709551615", "", "5"), pa.decimal128(20, 0))
    assert unsigned.indices(given).tolist() == [1, NOWHERE, MISSING, 0]
    assert not unsigned.in_spark
    latitudes = decimal_axis(np.array([51.5, 0.1], "f4"))
    given = pa.array(decimals("0.1", "51.50", "51.51"), pa.decimal128(5, 2))
    assert latitudes.indices(given).tolist() == [1, 0, NOWHERE]
    coarse = decimal_axis(np.array([2.0**24], "f4"))
    assert coarse.indices(pa.array(decimals("16777217", "16777216"), pa.decimal128(20, 0))).tolist() == [NOWHERE, 0]


def decimal_axis(labels: Any) -> Axis:
    schema = st.StructType([st.StructField("x", st.DecimalType(20, 0))])
    return label_axis(schema, "x", "x", labels, {}, None)


def test_instants_at_the_ends_of_time_are_refused_where_numpy_cannot_count_them() -> None:
    ends = pa.array([2**63 - 1, -(2**63), 0], TIMES)
    schema = st.StructType([st.StructField("v", st.TimestampType())])
    for dtype in ("M8[D]", "M8[ns]"):
        found = value_column(schema, "v", "array '/a'", np.dtype(dtype), {}).read(ends)
        assert mask(found.unfit, 3) == [True, True, False]


# -- every way in -----------------------------------------------------------------------------------------------


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = new_repository(tmp_path)
    with repo.transaction("main", message="begin") as store:
        put_array(store, "f", np.zeros(4, "f4"), (2,), ["x"])
        put_array(store, "u", np.array([0, 1, 2**63, 2**64 - 1], "u8"), (2,), ["x"])
    return repo


def by_function(rows: DataFrame, repo: Repository, place: Path, **options: Any) -> None:
    session = repo.writable_session("main")
    write_dataframe(rows, session, "f", dims=["x"], value="v", **options)
    session.commit("rows")


def by_source(rows: DataFrame, repo: Repository, place: Path, **options: Any) -> None:
    writer = rows.coalesce(1).write.format("arraystore").option("array", "f").option("dims", "x").option("value", "v")
    writer.options(**options).mode("append").save(str(place / "repo"))


def streamed(rows: DataFrame, place: Path) -> Any:
    rows.coalesce(1).write.parquet(str(place / "rows"))
    stream = rows.sparkSession.readStream.schema(rows.schema).parquet(str(place / "rows"))
    return stream.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)


def by_sink(rows: DataFrame, repo: Repository, place: Path, **options: Any) -> None:
    sink = streamed(rows, place).format("arraystore").options(path=str(place / "repo"), array="f", dims="x", value="v")
    sink.options(**options).start().awaitTermination()


def by_batches(rows: DataFrame, repo: Repository, place: Path, **options: Any) -> None:
    write = batch_writer(repo, "f", dims=["x"], value="v", stream_id="s", **options)
    streamed(rows, place).foreachBatch(write).start().awaitTermination()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("way", [by_function, by_source, by_sink, by_batches])
def test_integers_that_a_float_array_would_change_are_refused_in_every_way_in(
    spark: SparkSession, repo: Repository, tmp_path: Path, way: Callable[..., None]
) -> None:
    rows = spark.range(4).selectExpr("id AS x", "16777216 + id AS v")
    with pytest.raises(Exception, match="16777217") as caught:
        way(rows, repo, tmp_path)
    error = translate_error(caught.value)
    assert isinstance(error, InvalidInputError)
    assert "2 have a 'v' that the type of the array does not hold exactly (lossy=True rounds it)" in str(error)
    assert "16777217 at x=1" in str(error)
    assert messages(repo) == ["begin"]
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "repo").symlink_to(tmp_path / "repo")
    way(rows, repo, tmp_path / "again", lossy=True)
    assert read_array(repo, "f").tolist() == [16777216, 16777216, 16777218, 16777220]


@pytest.mark.end_to_end
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_unsigned_integers_of_64_bits_come_back_as_they_were_read(spark: SparkSession, repo: Repository) -> None:
    rows = read_dataframe(spark, repo, "u")
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="w", shape=(4,), chunks=(2,), dtype="u8", dimension_names=["x"])
    write_dataframe(rows, session, "w", dims=["x"], value="u")
    session.commit("copy")
    assert read_array(repo, "w").tolist() == [0, 1, 2**63, 2**64 - 1]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_regions_of_integers_that_a_float_array_would_change_are_refused(spark: SparkSession, repo: Repository) -> None:
    session = repo.writable_session("main")
    with pytest.raises(Exception, match="do not fit into 'f', which holds float32"):
        write_regions(session, "f", None, lambda region: np.full(2, 2**24 + 1), spark=spark)
    write_regions(session, "f", None, lambda region: np.full(2, 2**24), spark=spark)
