"""CF time: numbers since an epoch, and the instants that they mean.

Instants are microseconds since 1970 in UTC, as in Spark's timestamps. Calendars with other days than Spark's are
refused: their dates have no equivalent.
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
    r"\s*(?:Z|UTC|GMT|(?P<sign>[+-])(?P<zone_hour>\d{1,2})(?::?(?P<zone_minute>\d{2}))?)?",
    re.IGNORECASE,
)
_MIXED = frozenset({"standard", "gregorian"})
_CALENDARS = _MIXED | {"proleptic_gregorian"}

_GREGORIAN_START = (date(1582, 10, 15) - date(1970, 1, 1)).days * _DAY
"""Microseconds since 1970 of the first day of the Gregorian calendar; the standard calendar is Julian before."""

_FURTHEST = 2.0**63
_VARYING = frozenset({"Y", "M", "generic"})
"""Units of timedelta64 that have no fixed length."""

FLOAT_TIMES_US = 500
"""Microseconds to which times in floating point are exact."""


def is_time(attrs: Mapping[str, Any]) -> bool:
    """Return whether attributes describe instants: a unit since an epoch."""
    return isinstance(attrs.get("units"), str) and " since " in attrs["units"]


def cf_time_codec(what: str, attrs: Mapping[str, Any]) -> CFTimeCodec | None:
    """Return the codec for the time units of an array; None if it has none."""
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
    """Conversion between the numbers of an array and instants."""

    what: str
    """Name of the array for errors."""
    unit: int
    """Length of the unit in microseconds."""
    epoch: int
    """Epoch in microseconds since 1970."""
    mixed: bool = False
    """Whether its calendar is Julian before `_GREGORIAN_START`."""

    def to_microseconds(self, values: npt.NDArray[Any]) -> tuple[Int64s, Bools | None]:
        """Return numbers as microseconds since 1970, and a mask of missing values."""
        if values.dtype.kind not in "iuf":
            raise InvalidInputError(f"{self.what} counts time in values of type {values.dtype}, which are not numbers")
        missing = None if values.dtype.kind in "iu" else ~np.isfinite(values)
        if missing is not None and missing.any():
            values = np.where(missing, 0, values)
        else:
            missing = None
        self._check_reach(values)
        result = self._whole(values) if values.dtype.kind in "iu" else self._round(values)
        if missing is not None:
            result[missing] = 0
        early = result < _GREGORIAN_START if self.mixed else None
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
                    f"{self.what} has the instant {extreme!r}, which is out of the range of timestamps; use its "
                    "numbers as they are (decode=False), or declare it as _FillValue"
                )

    def _whole(self, values: npt.NDArray[Any]) -> Int64s:
        return values.astype(np.int64) * self.unit + self.epoch

    def _round(self, values: npt.NDArray[Any]) -> Int64s:
        exact = values.astype(np.float64)
        whole = np.floor(exact)
        return whole.astype(np.int64) * self.unit + np.rint((exact - whole) * self.unit).astype(np.int64) + self.epoch

    def from_microseconds(self, instants: Int64s, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Bools, Bools]:
        """Return instants as numbers of a type, with masks of those within its reach and of those it holds exactly.

        A float holds an instant if it gives it back to half a millisecond.
        """
        kind: np.dtype[Any] = np.dtype(dtype)
        since = instants.astype(np.int64) - self.epoch
        whole, rest = np.divmod(since, self.unit)
        within = instants >= _GREGORIAN_START if self.mixed else np.ones(since.shape, bool)
        if kind.kind == "f":
            with np.errstate(over="ignore"):
                numbers = (whole.astype(np.float64) + rest / self.unit).astype(kind)
            within &= np.isfinite(numbers)
            back = self._round(np.where(within, numbers, 0))
            return numbers, within, within & (np.abs(back - instants) <= FLOAT_TIMES_US)
        limits = np.iinfo(kind.name)
        within &= whole >= limits.min
        if limits.max < np.iinfo(np.int64).max:
            within &= whole <= limits.max
        return np.where(within, whole, 0).astype(kind), within, within & (rest == 0)


def has_fixed_unit(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is a timedelta64 whose unit is a number of microseconds, or a fraction of one."""
    return dtype.kind == "m" and np.datetime_data(dtype)[0] not in _VARYING


def microseconds_from_datetimes(what: str, values: npt.NDArray[Any]) -> tuple[Int64s, Bools | None]:
    """Return datetime64 or timedelta64 values in microseconds, and a mask of not-a-time."""
    missing = np.isnat(values)
    mask = missing if missing.any() else None
    wanted = np.dtype(f"{values.dtype.kind}8[us]")
    try:
        instants = values.astype(wanted)
    except OverflowError:
        instants = None
    if instants is None or not np.array_equal(instants.astype(values.dtype)[~missing], values[~missing]):
        raise InvalidInputError(
            f"{what} has times of type {values.dtype} that are not integer counts of microseconds, or out of range: "
            "Spark cannot represent them"
        )
    numbers = instants.view(np.int64)
    if mask is not None:
        numbers = np.where(missing, 0, numbers)
    return numbers, mask


def split_units(units: str) -> tuple[str, str]:
    """Split CF units of time into their unit and their epoch."""
    unit, epoch = re.split(r"\s+since\s+", units.strip(), maxsplit=1)
    return unit, epoch


def unit_length(unit: str) -> int | None:
    """Return the length of a unit of time in microseconds; None if it varies or the unit is unknown."""
    name = unit.lower()
    name = _SHORT.get(name, name)
    name = name if name in _MICROSECONDS else _SHORT.get(name.rstrip("s"), name.rstrip("s"))
    return _MICROSECONDS.get(name)


def _unit(what: str, unit: str) -> int:
    length = unit_length(unit)
    if length is None:
        raise InvalidInputError(
            f"{what} counts time in {unit!r}, whose length varies or is unknown; use its numbers as they are "
            "(decode=False)"
        )
    return length


def _epoch(what: str, text: str, mixed: bool) -> int:
    """Return an epoch in microseconds since 1970."""
    match = _EPOCH.fullmatch(text.strip()) or _EPOCH.fullmatch(text.strip() + "-01-01")
    days = None if match is None else _days(int(match["year"]), int(match["month"]), int(match["day"]), mixed)
    if match is None or days is None:
        raise InvalidInputError(
            f"{what} counts time since {text!r}, which is not a readable date; use its numbers as they are "
            "(decode=False)"
        )
    seconds = int(match["hour"] or 0) * 3600 + int(match["minute"] or 0) * 60 + int(match["second"] or 0)
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    ahead = (int(match["zone_hour"] or 0) * 60 + int(match["zone_minute"] or 0)) * (-1 if match["sign"] == "-" else 1)
    return days * _DAY + seconds * 1_000_000 + fraction - ahead * 60_000_000


def _days(year: int, month: int, day: int, mixed: bool) -> int | None:
    """Return a date as days since 1970; None if it is not a valid date."""
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
