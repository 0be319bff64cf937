"""Labels and the positions that they mean, against xarray where it has the same notion."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import cf_time_codec
from arraystore.spark.reading.coordinates import Coordinate
from arraystore.spark.reading.decoding import Decoder

NAIVE = datetime(1990, 1, 3)  # noqa: DTZ001 - what has no time zone is taken for UTC


def coordinate(
    values: Any, units: str | None = None, *, decode: bool = False, fills: tuple[Any, ...] = ()
) -> Coordinate:
    stored = np.asarray(values)
    plain = Decoder("array 'x'", stored.dtype)
    meant = Decoder("array 'x'", stored.dtype, fills, time_codec=cf_time_codec("array 'x'", {"units": units}))
    return Coordinate("x", stored, meant if decode else plain, meant)


def found(place: Coordinate, wanted: Any) -> list[int]:
    return [int(position) for position in place.positions(wanted)]


floats = st.sampled_from([-1.5, -0.1, 0.0, 0.1, 0.3, 2.5, 7.0])


@given(
    st.lists(floats, unique=True, min_size=1), st.one_of(st.none(), floats), st.one_of(st.none(), floats), st.booleans()
)
def test_slices_select_what_xarray_selects(
    labels: list[float], start: float | None, stop: float | None, falling: bool
) -> None:
    labels = sorted(labels, reverse=falling)
    if falling and len(labels) > 1 and start is not None and stop is not None and start < stop:
        start, stop = stop, start  # xarray wants them in the order of the labels
    array = xr.DataArray(np.arange(len(labels)), coords={"x": labels}, dims="x")
    if len(labels) == 1 and start is not None and stop is not None and start > stop:
        return
    expected = array.sel(x=slice(start, stop)).values.tolist()
    assert found(coordinate(np.array(labels)), slice(start, stop)) == expected


def test_the_bounds_of_falling_labels_may_be_given_either_way() -> None:
    place = coordinate([90.0, 45.0, 0.0, -45.0])
    assert found(place, slice(50, 0)) == found(place, slice(0, 50)) == [1, 2]
    assert found(place, slice(50, None)) == [1, 2, 3]


def test_bounds_of_rising_labels_the_wrong_way_round_select_nothing() -> None:
    assert found(coordinate([0.0, 45.0, 90.0]), slice(50, 0)) == []


def test_labels_without_an_order_are_selected_by_their_values() -> None:
    place = coordinate([5, 1, 3, 1])
    assert found(place, slice(1, 3)) == [1, 2, 3]
    assert found(place, 1) == [1, 3]
    assert found(place, [3, 5]) == [0, 2]


def test_every_second_label_of_a_slice() -> None:
    assert found(coordinate(np.arange(10.0)), slice(2, 8, 2)) == [2, 4, 6, 8]


def test_a_label_is_found_in_an_array_of_less_precision() -> None:
    place = coordinate(np.array([0.1, 0.2, 0.3], "f4"))
    assert found(place, 0.2) == [1]
    assert found(place, slice(0.1, 0.2)) == [0, 1]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8"])
def test_numbers_that_no_label_can_be_are_not_there(dtype: str) -> None:
    place = coordinate(np.array([1, 2, 3], dtype))
    assert found(place, [2.0, 3]) == [1, 2]
    for wanted in (1.5, -1, 2**64, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="not there"):
            place.positions(wanted)


def test_large_whole_numbers_are_told_apart() -> None:
    place = coordinate(np.array([2**63, 2**63 + 1], "u8"))
    assert found(place, 2**63 + 1) == [1]


@pytest.mark.parametrize("dtype", ["U3", "S3", np.dtypes.StringDType()])
def test_text_is_found_and_what_is_not_there_is_refused_with_the_nearest(dtype: Any) -> None:
    place = coordinate(np.array(["abc", "xyz", "foo"], dtype))
    assert found(place, ["foo", "abc"]) == [0, 2]
    assert found(place, "xyz") == [1]
    assert found(place, slice("abc", "foo")) == [0, 2]
    with pytest.raises(InvalidInputError, match=r"fooo.*foo"):
        place.positions("fooo")


def test_missing_labels_are_never_selected_by_value() -> None:
    days = coordinate(np.array([0, 9, 2]), "days since 2000-01-01", decode=True, fills=(9,))
    assert found(days, slice(None, "2100")) == [0, 2]
    assert found(days, slice(None)) == [0, 1, 2]
    text = coordinate(np.array(["a", "none", "b"]), decode=True, fills=("none",))
    assert found(text, slice(None, "b")) == [0, 2]
    assert found(coordinate(np.array([1.0, np.nan, 2.0])), slice(None, 5)) == [0, 2]


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("1990-02", range(31, 59)),
        ("1990", range(365)),
        ("1990-01-03", [2]),
        ("1990-01-03T00:00", [2]),
        ("1990-01-03 02:00+02:00", [2]),
        (date(1990, 1, 3), [2]),
        (NAIVE, [2]),
        (datetime(1990, 1, 3, 1, tzinfo=timezone(timedelta(hours=1))), [2]),
        (np.datetime64("1990-01-03", "ns"), [2]),
        (["1990-01-03", datetime(1991, 1, 1, tzinfo=UTC)], [2, 365]),
        (slice("1990-01-30", "1990-02"), range(29, 59)),
        (slice(None, NAIVE), [0, 1, 2]),
        (slice("1991", None), range(365, 400)),
        ([], []),
    ],
)
def test_times_are_what_python_numpy_and_people_write_for_them(wanted: Any, expected: Any, decode: bool) -> None:
    place = coordinate(np.arange(400), "days since 1990-01-01", decode=decode)
    assert found(place, wanted) == list(expected)


def test_undecoded_times_can_be_selected_by_their_numbers_and_decoded_ones_cannot() -> None:
    assert found(coordinate(np.arange(5), "days since 1990-01-01"), 3) == [3]
    with pytest.raises(InvalidInputError, match="are times, and 3 is not a time"):
        coordinate(np.arange(5), "days since 1990-01-01", decode=True).positions(3)


@pytest.mark.parametrize("wanted", ["1991", "1990-13", "soon", "1990-01-01T25:00", NAIVE.replace(hour=1)])
def test_a_time_that_is_not_there_is_refused(wanted: Any) -> None:
    with pytest.raises(InvalidInputError, match="'x'"):
        coordinate(np.arange(5), "days since 1990-01-01", decode=True).positions(wanted)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (np.timedelta64(6, "h"), [1]),
        (np.timedelta64(6 * 3600 * 10**9, "ns"), [1]),
        (timedelta(hours=12), [2]),
        (np.array([0, 6], "m8[h]").astype("m8[ns]"), [0, 1]),
        (slice(np.timedelta64(1, "ns"), None), [1, 2]),
        (slice(None, np.timedelta64(12 * 3600 * 10**9 - 1, "ns")), [0, 1]),
        (slice(None), [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_lengths_of_time_are_selected_in_any_unit(wanted: Any, expected: list[int]) -> None:
    assert found(coordinate(np.array([0, 6, 12, "NaT"], "m8[h]")), wanted) == expected


@pytest.mark.parametrize(
    ("unit", "wanted", "message"),
    [
        ("h", 6, "6 is not a timedelta"),
        ("us", slice(0, 10), "0 is not a timedelta"),
        ("h", np.timedelta64(7, "h"), "near it are 6:00:00, 12:00:00"),
        ("us", np.timedelta64(6_001, "ns"), "not there"),
        ("us", [np.timedelta64(6_001, "ns")], "not there"),
        ("h", np.timedelta64("NaT", "h"), "is not a time"),
        ("h", np.timedelta64(1, "M"), "cannot be compared"),
        ("M", np.timedelta64(30, "D"), "no fixed length"),
    ],
    ids=str,
)
def test_what_is_no_length_of_time_among_the_labels_is_refused(unit: str, wanted: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        coordinate(np.array([0, 6, 12], f"m8[{unit}]")).positions(wanted)


def test_the_nearest_labels_are_told() -> None:
    with pytest.raises(InvalidInputError, match=r"2 of the labels .* are not there: 11, 99; near it are 10, 20"):
        coordinate(np.arange(0, 60, 10)).positions([11, 99, 30])
    with pytest.raises(InvalidInputError, match="1990-01-05"):
        coordinate(np.arange(5), "days since 1990-01-01", decode=True).positions("1992-01-01")


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [([1, 2], "a"), ([1.0], date(2000, 1, 1)), (["a"], 1), ([1, 2], None), ([1, 2], slice(0, 1, 0))],
)
def test_labels_of_another_kind_are_refused(labels: Any, wanted: Any) -> None:
    with pytest.raises(InvalidInputError, match="'x'"):
        coordinate(labels).positions(wanted)
