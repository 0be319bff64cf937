"""Re-encoding CF time: from the unit and epoch of a source to those of the target array.

The arithmetic is exact, in integers, so a time is either converted to the same instant or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np

from arraystore.ingest.errors import VariableMismatchError
from arraystore.ingest.model import Recode
from arraystore.spark.cf_time import split_units, unit_length

_CALENDARS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
_TOLERANCE_US = 1_000


def _calendar(attrs: Mapping[str, Any]) -> str:
    name = str(attrs.get("calendar", "standard")).lower()
    return _CALENDARS.get(name, name)


def same_clock(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether units and calendars are spelled alike, so that numbers mean the same instants."""
    return a.get("units") == b.get("units") and _calendar(a) == _calendar(b)


def recode_between(what: str, source: Mapping[str, Any], target: Mapping[str, Any]) -> Recode:
    """Return the recode from a source's numbers to the target's."""
    if _calendar(source) != _calendar(target):
        raise VariableMismatchError(
            f"{what} counts time in the calendar {_calendar(source)!r}, the array in {_calendar(target)!r}; "
            "dates do not correspond one to one, so convert the source first"
        )
    from_us, from_epoch = _unit(what, source)
    to_us, to_epoch = _unit(what, target)
    gap = Fraction(_epoch_gap(what, from_epoch, to_epoch, _calendar(source)))
    # old * from_us microseconds after from_epoch = new * to_us microseconds after to_epoch
    ratio, offset = Fraction(from_us, to_us), gap / to_us
    denominator = ratio.denominator * offset.denominator
    return Recode(int(ratio * denominator), int(offset * denominator), denominator, to_us)


def _unit(what: str, attrs: Mapping[str, Any]) -> tuple[int, str]:
    unit, epoch = split_units(attrs["units"])
    length = unit_length(unit)
    if length is None:
        raise VariableMismatchError(
            f"{what} counts time in {unit!r}, whose length varies or is unknown; convert the source to "
            "the array's units first"
        )
    return length, epoch


def _epoch_gap(what: str, start: str, end: str, calendar: str) -> int:
    """Return the microseconds from one epoch to the other."""
    try:
        import cftime
    except ImportError as error:
        raise VariableMismatchError(
            f"{what} counts time from {start!r}, the array from {end!r}; to convert it install the package cftime"
        ) from error
    try:
        first, second = (cftime.num2date(0, f"microseconds since {epoch}", calendar=calendar) for epoch in (start, end))
        gap: timedelta = first - second
    except (ValueError, OverflowError) as error:
        raise VariableMismatchError(
            f"{what} counts time from an epoch that cannot be read: {error}; convert the source first"
        ) from error
    return gap // timedelta(microseconds=1)


def recode_values(what: str, values: np.ndarray[Any, Any], recode: Recode, fill: Any | None) -> np.ndarray[Any, Any]:
    """Apply a recode, leaving missing values as they are."""
    missing = np.zeros(values.shape, bool) if fill is None else values == fill
    if values.dtype.kind == "f":
        missing |= ~np.isfinite(values)
    result = (
        _scaled_floats(values, recode) if values.dtype.kind == "f" else _scaled_integers(what, values, recode, missing)
    )
    result[missing] = values[missing]
    if values.dtype.kind == "f":
        _check_precision(what, values, result, recode, missing)
    return result


def _scaled_floats(values: np.ndarray[Any, Any], recode: Recode) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):  # missing values may overflow; they are put back afterwards
        exact = values.astype("f8") * float(Fraction(recode.numerator, recode.denominator))
        return (exact + float(Fraction(recode.offset, recode.denominator))).astype(values.dtype)


def _check_precision(
    what: str, old: np.ndarray[Any, Any], new: np.ndarray[Any, Any], recode: Recode, missing: np.ndarray[Any, Any]
) -> None:
    for before, after in zip(old[~missing].tolist(), new[~missing].tolist(), strict=True):
        error = Fraction(before) * recode.numerator + recode.offset - Fraction(after) * recode.denominator
        if abs(error) * recode.microseconds > _TOLERANCE_US * recode.denominator:
            raise VariableMismatchError(
                f"{what}: {before} cannot be represented in the array's time units as {new.dtype} without losing "
                "precision; convert the source first"
            )


def _scaled_integers(
    what: str, values: np.ndarray[Any, Any], recode: Recode, missing: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    limits = np.iinfo(values.dtype)
    result = np.zeros_like(values)
    flat = result.reshape(-1)
    for index, (value, skip) in enumerate(zip(values.ravel().tolist(), missing.ravel().tolist(), strict=True)):
        if skip:
            continue
        scaled, rest = divmod(value * recode.numerator + recode.offset, recode.denominator)
        if rest or not limits.min <= scaled <= limits.max:
            raise VariableMismatchError(
                f"{what}: {value} has no integer equivalent of type {values.dtype} in the array's time "
                "units; convert the source first"
            )
        flat[index] = scaled
    return result
