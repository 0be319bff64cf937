"""Columns of Arrow become values of the type that an array has, or are marked, or refused beforehand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyspark.sql import types as st
from zarr.storage import MemoryStore

from arraystore.errors import InvalidInputError
from arraystore.spark.writing.axes import Axis, index_axis, label_axis, read_coordinate
from arraystore.spark.writing.chunk_grid import MISSING, NOWHERE
from arraystore.spark.writing.columns import ValueColumn, value_column

NOON = datetime(2001, 2, 3, 12, tzinfo=UTC)


def column(kind: st.DataType, dtype: Any, attrs: dict[str, Any] | None = None) -> ValueColumn:
    return value_column(st.StructType([st.StructField("v", kind)]), "v", "array '/a'", np.dtype(dtype), attrs or {})


@pytest.mark.parametrize(
    ("kind", "arrow", "given", "dtype", "expected"),
    [
        (st.IntegerType(), pa.int32(), [1, -2], "i4", [1, -2]),
        (st.LongType(), pa.int64(), [1, -2], ">i2", [1, -2]),
        (st.LongType(), pa.int64(), [1, 2**40], "f8", [1.0, 2.0**40]),
        (st.ByteType(), pa.int8(), [1, 5], "u8", [1, 5]),
        (st.BooleanType(), pa.bool_(), [True, False], "?", [True, False]),
        (st.BooleanType(), pa.bool_(), [True, False], "i1", [1, 0]),
        (st.DoubleType(), pa.float64(), [0.5, float("inf")], "f4", [0.5, float("inf")]),
        (st.FloatType(), pa.float32(), [0.5], "f8", [0.5]),
        (st.StringType(), pa.string(), ["ü", ""], np.dtypes.StringDType(), ["ü", ""]),
        (st.StringType(), pa.string(), ["ü", "abc"], "U3", ["ü", "abc"]),
        (st.BinaryType(), pa.binary(), [b"ab"], "S3", [b"ab"]),
        (st.TimestampType(), pa.timestamp("us", "UTC"), [NOON], "M8[ns]", [np.datetime64("2001-02-03T12", "ns")]),
        (
            st.TimestampNTZType(),
            pa.timestamp("us"),
            [NOON.replace(tzinfo=None)],
            "M8[h]",
            [np.datetime64("2001-02-03T12")],
        ),
        (st.DateType(), pa.date32(), [date(1960, 1, 2)], "M8[D]", [np.datetime64("1960-01-02")]),
        (st.DayTimeIntervalType(), pa.duration("us"), [timedelta(hours=-6)], "m8[m]", [np.timedelta64(-360, "m")]),
    ],
    ids=str,
)
def test_values_arrive_in_the_type_of_the_array(
    kind: st.DataType, arrow: pa.DataType, given: list[Any], dtype: Any, expected: list[Any]
) -> None:
    read = column(kind, dtype).read(pa.array([*given, *given], arrow).slice(len(given)))
    assert read.values.dtype == np.dtype(dtype)
    assert read.values.tolist() == np.array(expected, dtype).tolist()
    assert read.absent is None
    assert read.unfit is None


@pytest.mark.parametrize(
    ("kind", "arrow", "given", "dtype"),
    [
        (st.BinaryType(), pa.binary(), [b"ab", b"a\0", b"\0a", None, b"\0"], "S2"),
        (st.StringType(), pa.string(), ["ab", "a\0", "\0a", None, "\0"], "U2"),
    ],
)
def test_null_bytes_at_the_end_which_numpy_drops_are_changes(
    kind: st.DataType, arrow: pa.DataType, given: list[Any], dtype: str
) -> None:
    read = column(kind, dtype).read(pa.array(given, arrow))
    assert read.changed is not None
    assert read.changed.tolist() == [False, True, False, False, True]
    lossy = value_column(st.StructType([st.StructField("v", kind)]), "v", "array '/a'", np.dtype(dtype), {}, True)
    assert lossy.read(pa.array(given, arrow)).changed is None
    plain = column(st.StringType(), np.dtypes.StringDType()).read(pa.array(["a\0"]))
    assert plain.changed is None
    assert plain.values.tolist() == ["a\0"]


def test_timestamps_become_the_numbers_of_an_array_that_counts_time() -> None:
    half_days = column(st.TimestampType(), "i4", {"units": "days since 2001-01-01"})
    read = half_days.read(pa.array([NOON, NOON - timedelta(hours=12), None], pa.timestamp("us", "UTC")))
    assert read.values[1] == 33
    assert read.changed is not None
    assert read.changed.tolist() == [True, False, False]
    assert read.absent is not None
    assert read.absent.tolist() == [False, False, True]
    floats = column(st.TimestampType(), "f8", {"units": "days since 2001-01-01"})
    assert floats.read(pa.array([NOON], pa.timestamp("us", "UTC"))).values.tolist() == [33.5]


@pytest.mark.parametrize(
    ("kind", "arrow", "given", "dtype", "unfit"),
    [
        (st.LongType(), pa.int64(), [127, 128, -129, None], "i1", [False, True, True, False]),
        (st.IntegerType(), pa.int32(), [-1, 0], "u4", [True, False]),
        (st.DoubleType(), pa.float64(), [1e300, float("inf"), float("nan")], "f4", [True, False, False]),
        (st.StringType(), pa.string(), ["abc", "abcd", None], "U3", [False, True, False]),
        (st.BinaryType(), pa.binary(), [b"abcd"], "S3", [True]),
        (
            st.TimestampType(),
            pa.timestamp("us", "UTC"),
            [NOON, datetime(2400, 1, 1, tzinfo=UTC)],
            "M8[ns]",
            [False, True],
        ),
        (st.DayTimeIntervalType(), pa.duration("us"), [2**63 - 1, None, -(2**63)], "m8[us]", [False, False, True]),
        (st.DayTimeIntervalType(), pa.duration("us"), [2**63 - 1, 2**60], "m8[ns]", [True, True]),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_marked(
    kind: st.DataType, arrow: pa.DataType, given: list[Any], dtype: str, unfit: list[bool]
) -> None:
    read = column(kind, dtype).read(pa.array(given, arrow))
    assert read.unfit is not None
    assert read.unfit.tolist() == unfit


@pytest.mark.parametrize(
    ("kind", "dtype", "remedy"),
    [
        (st.DoubleType(), "i4", "cast the column to long"),
        (st.StringType(), "f8", "cast the column to double"),
        (st.LongType(), "?", "cast the column to boolean"),
        (st.LongType(), "M8[ns]", "cast the column to timestamp"),
        (st.TimestampType(), "i8", "units"),
        (st.DecimalType(10, 2), "?", "cast the column to boolean"),
        (st.DoubleType(), "U3", "cast the column to string"),
        (st.StringType(), "S3", "cast the column to binary"),
        (st.ArrayType(st.LongType()), "i8", "select its fields or elements"),
        (st.DayTimeIntervalType(), "i8", "cast the column to long"),
        (st.DayTimeIntervalType(), "f8", r"cast the column to decimal\(18,6\)"),
        (st.DayTimeIntervalType(), "m8[M]", "write_regions"),
        (st.TimestampType(), "m8[s]", "interval day to second"),
        (st.YearMonthIntervalType(), "m8[s]", "months have no fixed length"),
        (st.DoubleType(), "c16", "write_regions"),
    ],
    ids=str,
)
def test_types_that_cannot_go_there_are_refused(kind: st.DataType, dtype: str, remedy: str) -> None:
    with pytest.raises(InvalidInputError, match=remedy):
        column(kind, dtype)


def test_a_column_that_is_there_twice_is_refused() -> None:
    schema = st.StructType([st.StructField("v", st.LongType()), st.StructField("v", st.LongType())])
    with pytest.raises(InvalidInputError, match="more than one column 'v'"):
        value_column(schema, "v", "array '/a'", np.dtype("i8"), {})


def axis(kind: st.DataType, values: Any, attrs: dict[str, Any] | None = None, tolerance: Any = None) -> Axis:
    schema = st.StructType([st.StructField("c", kind)])
    return label_axis(schema, "d", "c", np.asarray(values), attrs or {}, tolerance)


def test_indices_are_checked_against_the_length() -> None:
    schema = st.StructType([st.StructField("c", st.ShortType())])
    found = index_axis(schema, "d", "c", 5).indices(pa.array([0, 4, 5, -1, None], pa.int16()))
    assert found.tolist() == [0, 4, NOWHERE, NOWHERE, MISSING]


@pytest.mark.parametrize(
    ("kind", "arrow", "given", "values", "attrs", "expected"),
    [
        (st.IntegerType(), pa.int32(), [30, 11, None], np.array([10, 20, 30], "u2"), {}, [2, NOWHERE, MISSING]),
        (st.IntegerType(), pa.int32(), [2, 1], np.array([0.5, 2.0], "f4"), {}, [1, NOWHERE]),
        (st.DoubleType(), pa.float64(), [0.1, 0.1000001], np.array([0.1, 0.2], "f4"), {}, [0, NOWHERE]),
        (st.FloatType(), pa.float32(), [0.1, 0.5], np.array([0.1, 0.5]), {}, [NOWHERE, 1]),
        (st.DoubleType(), pa.float64(), [3.0, 3.5, float("nan")], np.array([1, 3]), {}, [1, NOWHERE, NOWHERE]),
        (st.StringType(), pa.string(), ["b", None, "c", "b"], np.array(["a", "b"]), {}, [1, MISSING, NOWHERE, 1]),
        (
            st.TimestampType(),
            pa.timestamp("us", "UTC"),
            [NOON],
            np.array([33.5]),
            {"units": "days since 2001-01-01"},
            [0],
        ),
        (st.DateType(), pa.date32(), [NOON.date()], np.array([0, 33 * 24]), {"units": "hours since 2001-01-01"}, [1]),
        (st.TimestampType(), pa.timestamp("us", "UTC"), [NOON], np.array(["2001-02-03T12"], "M8[h]"), {}, [0]),
        (st.LongType(), pa.int64(), [33], np.array([32, 33]), {"units": "days since 2001-01-01"}, [1]),
    ],
    ids=str,
)
def test_labels_are_found_in_coordinates_of_other_types(
    kind: st.DataType, arrow: pa.DataType, given: list[Any], values: Any, attrs: dict[str, Any], expected: list[int]
) -> None:
    assert axis(kind, values, attrs).indices(pa.array(given, arrow)).tolist() == expected


def test_times_in_floating_point_are_found_in_spite_of_rounding() -> None:
    hours = np.arange(24 * 400)
    clock = {"units": "days since 1850-01-01"}
    given = [datetime(1850, 1, 1, tzinfo=UTC) + timedelta(hours=int(hour)) for hour in hours]
    found = axis(st.TimestampType(), hours / 24, clock)
    assert found.indices(pa.array(given, pa.timestamp("us", "UTC"))).tolist() == hours.tolist()
    assert found.in_spark


def test_a_tolerance_is_a_length_of_time_for_instants_and_a_number_for_numbers() -> None:
    clock = {"units": "days since 2001-01-01"}
    late = pa.array([NOON - timedelta(hours=11)], pa.timestamp("us", "UTC"))
    assert axis(st.TimestampType(), [33], clock, timedelta(hours=1)).indices(late).tolist() == [0]
    assert axis(st.TimestampType(), [33], clock, 1 / 24).indices(late).tolist() == [0]
    assert axis(st.TimestampType(), [33], clock).indices(late).tolist() == [NOWHERE]
    with pytest.raises(InvalidInputError, match="not instants"):
        axis(st.DoubleType(), [33.0], {}, timedelta(hours=1))
    with pytest.raises(InvalidInputError, match="must be a timedelta"):
        axis(st.TimestampType(), np.array(["2001-02-03"], "M8[D]"), {}, 0.5)


@pytest.mark.parametrize(
    ("kind", "values", "attrs", "text"),
    [
        (st.StringType(), np.array([1, 2]), {}, "cannot be compared"),
        (st.TimestampType(), np.array([1, 2]), {}, "without a unit of time"),
        (st.TimestampType(), np.array([1, 2]), {"units": "days since 2001-01-01", "calendar": "noleap"}, "noleap"),
        (st.DoubleType(), np.array(["2001-01-01"], "M8[D]"), {}, "cannot be compared"),
        (st.BooleanType(), np.array([0, 1]), {}, "cannot be compared"),
    ],
    ids=str,
)
def test_labels_that_have_nothing_to_do_with_the_coordinate_are_refused(
    kind: st.DataType, values: Any, attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInputError, match=text):
        axis(kind, values, attrs)


@pytest.mark.parametrize("packing", [{"scale_factor": 0.1}, {"add_offset": 5}, {"_Unsigned": "true"}])
def test_labels_are_not_looked_up_among_packed_numbers(packing: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="'g/lat' is packed"):
        read_coordinate(coordinate(packing), "g", "lat", 3)


def test_a_scale_that_changes_nothing_is_none() -> None:
    values, attrs = read_coordinate(coordinate({"scale_factor": 1.0, "add_offset": 0}), "g", "lat", 3)
    assert values.tolist() == [0, 1, 2]
    assert attrs["scale_factor"] == 1


def coordinate(attrs: dict[str, Any]) -> Any:
    store = MemoryStore()
    array = zarr.create_array(store, name="g/lat", shape=(3,), dtype="i2")
    array[:] = [0, 1, 2]
    array.attrs.update(attrs)
    return store


def test_instants_are_not_written_as_packed_numbers() -> None:
    with pytest.raises(InvalidInputError, match="packed numbers"):
        column(st.TimestampType(), "i4", {"units": "days since 2001-01-01", "scale_factor": 2.0})


def test_a_decimal_is_no_index() -> None:
    schema = st.StructType([st.StructField("c", st.DecimalType(5, 0))])
    with pytest.raises(InvalidInputError, match="takes integers"):
        index_axis(schema, "d", "c", 5)
