"""CF time: numbers since an epoch, and the instants that they mean.

Instants are microseconds since 1970 in UTC, as Spark keeps its timestamps.  Calendars that have other days than the one
that Spark knows are refused: their dates have no equivalent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Bools, Int64s
from arraystore.errors import InvalidInputError

__all__ = [
    "GREGORIAN_START",
    "CFTimeCodec",
    "cf_time_codec",
    "is_time",
    "microseconds_from_datetimes",
    "split_units",
    "unit_length",
]


_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_SHORT = {
    "us": "microsecond", "usec": "microsecond", "microsec": "microsecond",
    "ms": "millisecond", "msec": "millisecond", "millisec": "millisecond",
    "s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day",
}  # fmt: skip
_DAY = _MICROSECONDS["day"]
_EPOCH = re.compile(
    r"(?P<year>[+-]?\d{1,6})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[T\s]+(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,6})0*)?)?)?"
    r"\s*(?:Z|UTC|GMT|(?P<zone>[+-]\d{1,2}(?::?\d{2})?))?",
    re.IGNORECASE,
)
_MIXED = frozenset({"standard", "gregorian"})
_CALENDARS = _MIXED | {"proleptic_gregorian"}

GREGORIAN_START = (date(1582, 10, 15) - date(1970, 1, 1)).days * _DAY
"""Microseconds since 1970 of the first day of the Gregorian calendar; the standard calendar is Julian before."""

_WHOLE_FLOATS = 2.0**53
_FURTHEST = 2.0**63


def is_time(attrs: Mapping[str, Any]) -> bool:
    """Tell whether attributes describe instants: a unit since an epoch."""
    return isinstance(attrs.get("units"), str) and " since " in attrs["units"]


def cf_time_codec(what: str, attrs: Mapping[str, Any]) -> CFTimeCodec | None:
    """Return how an array counts time, None where it does not.

    Parameters
    ----------
    what
        Names the array in an error.
    attrs
        Its attributes.

    Raises
    ------
    InvalidInputError
        If it counts time in a way that has no equivalent in timestamps.
    """
    if not is_time(attrs):
        return None
    units = attrs["units"]
    calendar = str(attrs.get("calendar", "standard")).lower()
    if calendar not in _CALENDARS:
        raise InvalidInputError(
            f"{what} counts time in the calendar {calendar!r}, which has days that no timestamp has; use its numbers "
            "as they are (decode=False)"
        )
    unit, epoch = split_units(units)
    return CFTimeCodec(what, _unit(what, unit), _epoch(what, epoch, calendar in _MIXED), calendar in _MIXED)


@dataclass(frozen=True)
class CFTimeCodec:
    """How an array counts time.

    Parameters
    ----------
    what
        Names the array in errors.
    unit
        Its unit in microseconds.
    epoch
        Where it counts from, in microseconds since 1970.
    mixed
        Whether its calendar is Julian before `GREGORIAN_START`.
    """

    what: str
    unit: int
    epoch: int
    mixed: bool = False

    def to_microseconds(self, values: npt.NDArray[Any]) -> tuple[Int64s, Bools | None]:
        """Return the instants that numbers mean.

        Parameters
        ----------
        values
            Integers or floats, any shape.  Floats are rounded to a microsecond.

        Returns
        -------
        ndarray of int64
            Microseconds since 1970, 0 where there is none.
        ndarray of bool or None
            Where there is none: the number is not finite.

        Raises
        ------
        InvalidInputError
            If an instant is outside of what timestamps can tell.
        """
        if values.dtype.kind not in "iuf":
            raise InvalidInputError(f"{self.what} counts time in values of type {values.dtype}, which are no numbers")
        missing = None if values.dtype.kind in "iu" else ~np.isfinite(values)
        if missing is not None and missing.any():
            values = np.where(missing, 0, values)
        else:
            missing = None
        self._check_reach(values)
        result = self._whole(values) if values.dtype.kind in "iu" else self._rounded(values)
        if missing is not None:
            result[missing] = 0
        early = result < GREGORIAN_START if self.mixed else None
        if early is not None and missing is not None:
            early &= ~missing
        if early is not None and early.any():
            raise InvalidInputError(
                f"{self.what} has instants before 1582-10-15, when its calendar was another one than that of "
                "timestamps; use its numbers as they are (decode=False)"
            )
        return result, missing

    def _check_reach(self, values: npt.NDArray[Any]) -> None:
        if values.size == 0:
            return
        for extreme in (values.min().item(), values.max().item()):
            if abs(extreme) * self.unit + abs(self.epoch) >= _FURTHEST:
                raise InvalidInputError(
                    f"{self.what} has the instant {extreme!r}, which is outside of what timestamps can tell; use its "
                    "numbers as they are (decode=False), or declare it as _FillValue"
                )

    def _whole(self, values: npt.NDArray[Any]) -> Int64s:
        return values.astype(np.int64) * self.unit + self.epoch

    def _rounded(self, values: npt.NDArray[Any]) -> Int64s:
        exact = values.astype(np.float64)
        whole = np.floor(exact)
        return whole.astype(np.int64) * self.unit + np.rint((exact - whole) * self.unit).astype(np.int64) + self.epoch

    def from_microseconds(self, instants: Int64s, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Bools]:
        """Return instants as the numbers of this codec.

        Parameters
        ----------
        instants
            Microseconds since 1970.
        dtype
            Of the result: integer or floating point.

        Returns
        -------
        ndarray
            The numbers; of no use where there is none.
        ndarray of bool
            Where there is one: exactly, or for floating point to half a microsecond and to the precision of the type.
        """
        kind: np.dtype[Any] = np.dtype(dtype)
        since = instants.astype(np.int64) - self.epoch
        whole, rest = np.divmod(since, self.unit)
        told = np.ones(since.shape, bool)
        if self.mixed:
            told &= instants >= GREGORIAN_START
        if kind.kind == "f":
            return (whole.astype(np.float64) + rest / self.unit).astype(kind), told
        limits = np.iinfo(kind.name)
        told &= (rest == 0) & (whole >= limits.min)
        if limits.max < np.iinfo(np.int64).max:
            told &= whole <= limits.max
        return np.where(told, whole, 0).astype(kind), told


def microseconds_from_datetimes(what: str, values: npt.NDArray[Any]) -> tuple[Int64s, Bools | None]:
    """Return datetime64 or timedelta64 values in microseconds.

    Parameters
    ----------
    what
        Names the array in errors.
    values
        Of any unit.

    Returns
    -------
    ndarray of int64
        Microseconds, 0 for not-a-time.
    ndarray of bool or None
        Where it is not-a-time.

    Raises
    ------
    InvalidInputError
        If a value is no whole number of microseconds, or out of their reach.
    """
    missing = np.isnat(values)
    found = missing if missing.any() else None
    wanted = np.dtype(f"{values.dtype.kind}8[us]")
    try:
        told = values.astype(wanted)
    except OverflowError:
        told = None
    if told is None or not np.array_equal(told.astype(values.dtype)[~missing], values[~missing]):
        raise InvalidInputError(
            f"{what} has times of type {values.dtype} that are no whole number of microseconds, or out of their reach: "
            "Spark cannot tell them"
        )
    numbers = told.view(np.int64)
    if found is not None:
        numbers = np.where(missing, 0, numbers)
    return numbers, found


def split_units(units: str) -> tuple[str, str]:
    """Split CF units of time into their unit and their epoch."""
    unit, epoch = re.split(r"\s+since\s+", units.strip(), maxsplit=1)
    return unit, epoch


def unit_length(unit: str) -> int | None:
    """Return the length of a unit of time in microseconds, None if it is not fixed or not known."""
    name = unit.lower()
    name = _SHORT.get(name, name)
    name = name if name in _MICROSECONDS else _SHORT.get(name.rstrip("s"), name.rstrip("s"))
    return _MICROSECONDS.get(name)


def _unit(what: str, unit: str) -> int:
    length = unit_length(unit)
    if length is None:
        raise InvalidInputError(
            f"{what} counts time in {unit!r}, whose length is not fixed or not known; use its numbers as they are "
            "(decode=False)"
        )
    return length


def _epoch(what: str, text: str, mixed: bool) -> int:
    """Return an epoch in microseconds since 1970."""
    found = _EPOCH.fullmatch(text.strip()) or _EPOCH.fullmatch(text.strip() + "-01-01")
    days = None if found is None else _days(int(found["year"]), int(found["month"]), int(found["day"]), mixed)
    if found is None or days is None:
        raise InvalidInputError(
            f"{what} counts time since {text!r}, which is no date that can be read; use its numbers as they are "
            "(decode=False)"
        )
    seconds = int(found["hour"] or 0) * 3600 + int(found["minute"] or 0) * 60 + int(found["second"] or 0)
    fraction = int((found["fraction"] or "").ljust(6, "0"))
    return days * _DAY + seconds * 1_000_000 + fraction - _zone_minutes(found["zone"]) * 60_000_000


def _zone_minutes(zone: str | None) -> int:
    if zone is None:
        return 0
    found = re.fullmatch(r"([+-])(\d{1,2}):?(\d{2})?", zone)
    assert found is not None
    return (int(found[2]) * 60 + int(found[3] or 0)) * (-1 if found[1] == "-" else 1)


def _days(year: int, month: int, day: int, mixed: bool) -> int | None:
    """Return a date as days since 1970, None if there is no such date."""
    if not 1 <= month <= 12:
        return None
    julian = mixed and (year, month, day) < (1582, 10, 15)
    if julian and (year, month, day) >= (1582, 10, 5):
        return None  # the days that the reform left out
    leap = year % 4 == 0 and (julian or year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]:
        return None
    # Years are taken to begin in March, so that the leap day is the last one.
    years = year - (month <= 2)
    since_march = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = years * 365 + years // 4 + since_march
    # In the Gregorian calendar 0000-03-01 is 719468 days before 1970, in the Julian one two days earlier.
    return days - 719_470 if julian else days - years // 100 + years // 400 - 719_468
