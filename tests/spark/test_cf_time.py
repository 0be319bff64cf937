"""CF time and instants, against cftime."""

from __future__ import annotations

from datetime import UTC, datetime

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import CFTimeCodec, cf_time_codec, microseconds_from_datetimes

EPOCHS = [
    "1970-01-01",
    "1900-1-1 00:00:0.0",
    "0001-01-01",
    "1-1-1 00:00:00",
    "2000-02-29T12:30:15.25",
    "1850-01-01 00:00:00 -06:00",
    "1582-10-04",
    "1582-10-15",
    "1990-01-01T00:00:00Z",
    "1990-01-01 00:00:00 UTC",
]


def clock(units: str, calendar: str = "standard") -> CFTimeCodec:
    found = cf_time_codec("array 'time'", {"units": units, "calendar": calendar})
    assert found is not None
    return found


@pytest.mark.parametrize("calendar", ["standard", "gregorian", "proleptic_gregorian"])
@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("unit", ["days", "hours", "h", "min", "seconds"])
def test_instants_are_those_of_cftime(unit: str, epoch: str, calendar: str) -> None:
    units = f"{unit} since {epoch}"
    number = int(cftime.date2num(cftime.datetime(2001, 5, 6, 7, 8, 9, calendar=calendar), units, calendar=calendar))
    told = cftime.num2date(number, units, calendar=calendar).isoformat()

    instants, missing = clock(units, calendar).to_microseconds(np.array([number]))

    assert instants.view("M8[us]")[0] == np.datetime64(told, "us")
    assert missing is None


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1), st.sampled_from(["i4", "i8", "f8"]))
def test_numbers_become_instants_and_the_same_numbers_again(numbers: list[int], dtype: str) -> None:
    hours = clock("hours since 1900-01-01", "proleptic_gregorian")
    values = np.array(numbers, dtype)
    instants, _ = hours.to_microseconds(values)
    back, within, exact = hours.from_microseconds(instants, dtype)
    assert within.all()
    assert exact.all()
    np.testing.assert_array_equal(back, values)


def test_fractions_of_a_day_are_exact_to_a_microsecond() -> None:
    exact = np.arange(0, 86_400_000_000, 123_456_789)
    days = clock("days since 2000-01-01")
    instants, _ = days.to_microseconds(exact / 86_400_000_000)
    np.testing.assert_array_equal(instants, exact + int(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1_000_000))


def test_floats_that_are_not_finite_are_no_instants() -> None:
    instants, missing = clock("days since 1970-01-01").to_microseconds(np.array([np.nan, 1.0, np.inf]))
    assert missing is not None
    assert missing.tolist() == [True, False, True]
    assert instants.tolist() == [0, 86_400_000_000, 0]


def test_an_instant_without_a_whole_number_is_told_as_such() -> None:
    _, within, exact = clock("days since 1970-01-01").from_microseconds(np.array([0, 1, 86_400_000_000]), "i4")
    assert within.all()
    assert exact.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("units", "calendar", "what"),
    [
        ("days since 2000-01-01", "noleap", "'noleap'"),
        ("days since 2000-01-01", "360_day", "'360_day'"),
        ("months since 2000-01-01", "standard", "'months'"),
        ("days since then", "standard", "'then'"),
        ("days since 2001-02-29", "standard", "'2001-02-29'"),
        ("days since 1582-10-10", "standard", "'1582-10-10'"),
    ],
)
def test_what_has_no_equivalent_is_refused_by_name(units: str, calendar: str, what: str) -> None:
    with pytest.raises(InvalidInputError, match=r"array 'time'.*decode=False") as caught:
        clock(units, calendar)
    assert what in str(caught.value)


def test_dates_of_the_julian_calendar_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="1582-10-15"):
        clock("days since 1582-10-15").to_microseconds(np.array([-1]))
    proleptic, _ = clock("days since 1582-10-15", "proleptic_gregorian").to_microseconds(np.array([-1]))
    assert proleptic.view("M8[us]")[0] == np.datetime64("1582-10-14")


def test_numbers_beyond_all_timestamps_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="_FillValue"):
        clock("days since 1970-01-01").to_microseconds(np.array([2**31 - 1, 9.96921e36]))


def test_other_units_are_no_clock() -> None:
    assert cf_time_codec("x", {"units": "m s-1"}) is None
    assert cf_time_codec("x", {}) is None


def test_datetimes_become_microseconds_only_if_they_are_whole_ones() -> None:
    numbers, missing = microseconds_from_datetimes("x", np.array(["2020-01-01", "NaT"], "M8[ns]"))
    assert numbers.tolist() == [1_577_836_800_000_000, 0]
    assert missing is not None
    assert missing.tolist() == [False, True]
    with pytest.raises(InvalidInputError, match="microseconds"):
        microseconds_from_datetimes("x", np.array([1001], "M8[ns]"))
    with pytest.raises(InvalidInputError, match="out of range"):
        microseconds_from_datetimes("x", np.array([10**15], "M8[D]"))
