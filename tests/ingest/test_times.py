"""Time arrives as the same instant in the array's units, exactly, or not at all."""

from __future__ import annotations

from datetime import date

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.ingest import VariableMismatchError
from arraystore.ingest.times import recode_between, recode_values, same_clock
from arraystore.spark.cf_time import is_time


def clock(units: str, calendar: str = "standard") -> dict[str, str]:
    return {"units": units, "calendar": calendar}


def test_only_a_unit_since_an_epoch_is_time() -> None:
    assert is_time(clock("days since 2000-01-01"))
    assert not is_time({"units": "days"})
    assert not is_time({})


def test_calendars_of_two_names_are_one() -> None:
    assert same_clock(clock("days since 2000-01-01", "gregorian"), {"units": "days since 2000-01-01"})
    assert not same_clock(clock("days since 2000-01-01"), clock("days since 2000-01-02"))


@given(
    units=st.sampled_from(["days", "hours", "h", "minutes", "seconds", "s"]),
    to_units=st.sampled_from(["day", "hours", "min", "secs", "milliseconds"]),
    epoch=st.dates(date(1600, 1, 1), date(2400, 1, 1)),
    calendar=st.sampled_from(["standard", "360_day", "noleap", "proleptic_gregorian"]),
    value=st.integers(-1000, 100_000),
)
def test_an_instant_stays_the_same(units: str, to_units: str, epoch: date, calendar: str, value: int) -> None:
    day = f"{epoch:%Y-%m-%d}" if epoch.day <= 28 else f"{epoch:%Y-%m}-01"
    source, target = clock(f"{units} since {day}", calendar), clock(f"{to_units} since 1990-06-01 12:00:00", calendar)
    new = recode_values("time", np.array([value], "f8"), recode_between("time", source, target), None)[0]
    before = cftime.num2date(value, source["units"].replace("secs", "seconds"), calendar=calendar)
    after = cftime.num2date(new, target["units"].replace("secs", "seconds"), calendar=calendar)
    assert abs((before - after).total_seconds()) < 1e-3


def test_whole_numbers_stay_exact() -> None:
    recode = recode_between("time", clock("days since 1970-01-01"), clock("hours since 1970-01-02"))
    assert recode_values("time", np.array([1, 2, 10**6]), recode, None).tolist() == [0, 24, 24 * 10**6 - 24]


def test_a_whole_number_without_equivalent_is_refused() -> None:
    recode = recode_between("time", clock("hours since 1970-01-01"), clock("days since 1970-01-01"))
    assert recode_values("time", np.array([48]), recode, None).tolist() == [2]
    with pytest.raises(VariableMismatchError, match="no integer equivalent"):
        recode_values("time", np.array([47]), recode, None)


def test_a_number_that_overflows_is_refused() -> None:
    recode = recode_between("time", clock("days since 1970-01-01"), clock("seconds since 1970-01-01"))
    with pytest.raises(VariableMismatchError, match="int32"):
        recode_values("time", np.array([10**6], "i4"), recode, None)


def test_floats_too_coarse_for_the_units_are_refused() -> None:
    recode = recode_between("time", clock("days since 2000-01-01"), clock("seconds since 1900-01-01"))
    with pytest.raises(VariableMismatchError, match="precision"):
        recode_values("time", np.array([0.3], "f4"), recode, None)


def test_missing_values_stay_missing() -> None:
    recode = recode_between("time", clock("days since 1970-01-01"), clock("hours since 1970-01-01"))
    assert recode_values("time", np.array([1, -1]), recode, -1).tolist() == [24, -1]
    assert np.isnan(recode_values("time", np.array([1.0, np.nan]), recode, None)).tolist() == [False, True]


def test_weeks_are_a_unit_of_seven_days_as_they_are_for_spark() -> None:
    recode = recode_between("time", clock("weeks since 2000-01-01"), clock("days since 2000-01-01"))
    assert recode_values("time", np.array([1, 3]), recode, None).tolist() == [7, 21]


@pytest.mark.parametrize("units", ["months since 2000-01-01", "years since 2000-01-01", "fortnights since 2000-01-01"])
def test_units_of_no_fixed_length_are_refused(units: str) -> None:
    with pytest.raises(VariableMismatchError, match="convert the source"):
        recode_between("time", clock(units), clock("days since 2000-01-01"))


def test_calendars_do_not_mix() -> None:
    with pytest.raises(VariableMismatchError, match="360_day"):
        recode_between("time", clock("days since 2000-01-01", "360_day"), clock("days since 2000-01-01"))


def test_an_epoch_that_is_no_date_is_refused() -> None:
    with pytest.raises(VariableMismatchError, match="epoch"):
        recode_between("time", clock("days since yesterday"), clock("days since 2000-01-01"))
