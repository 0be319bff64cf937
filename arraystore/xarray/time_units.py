"""Units and calendars of times, which are refused where an array counts otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from arraystore.errors import InvalidInputError

_CALENDARS = {"noleap": "365_day", "all_leap": "366_day", "gregorian": "standard"}

_REFORM = 1582
"""Year in which the standard calendar became the Gregorian one, which the proleptic one always was."""


def counts_time(attributes: Mapping[str, Any]) -> bool:
    """Tell whether attributes of an array say that it counts time."""
    units = attributes.get("units")
    return isinstance(units, str) and (" since " in units or str(attributes.get("dtype")).startswith("timedelta64"))


def check_units(name: str, new: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Check attributes of encoded times against those of their array, which stay; raise `InvalidInputError`."""
    wanted, held = new["units"], there.get("units")
    if not isinstance(held, str):
        raise InvalidInputError(
            f"the array {name!r} has no units, and the values to write count time in {wanted!r}: write numbers, as "
            "those that are there, or the array anew"
        )
    if _unit(wanted) != _unit(held):
        raise InvalidInputError(
            f"the array {name!r} counts time in {held!r}, and the values to write in {wanted!r}: round them to the "
            "units of the array, or write it anew in finer ones"
        )
    start = _start(held)
    if _start(wanted) != start or _calendar(new, start) != _calendar(there, start):
        raise InvalidInputError(
            f"the array {name!r} counts time in {held!r} (calendar {there.get('calendar')!r}), and the values to write "
            f"in {wanted!r} (calendar {new.get('calendar')!r}), so that the same number is another time: decode the "
            "dataset (xarray.decode_cf), whose times are then counted as those of the array"
        )


def _unit(units: str) -> str:
    """Return the unit of a count of time, as xarray reads it."""
    return units.partition(" since ")[0].strip().lower().removesuffix("s")


def _start(units: str) -> object:
    """Return the time that is counted from; its text where pandas cannot read it."""
    year, dash, rest = units.partition(" since ")[2].strip().partition("-")
    text = f"{year.zfill(4)}{dash}{rest}"  # as xarray does, or pandas reads the year 1 as 2001
    try:
        start = pd.Timestamp(text)
    except ValueError:
        return text
    return start if start.tz is None else start.tz_convert(None)


def _calendar(attributes: Mapping[str, Any], start: object) -> str:
    """Return the calendar, one name for those that agree on what is counted from a start after 1582."""
    name = str(attributes.get("calendar", "standard")).lower()
    name = _CALENDARS.get(name, name)
    agrees = isinstance(start, pd.Timestamp) and start.year > _REFORM
    return "standard" if agrees and name == "proleptic_gregorian" else name
