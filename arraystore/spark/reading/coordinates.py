"""Coordinate arrays: the labels of a dimension, and the positions of labels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from arraystore._format.types import Array
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import has_fixed_unit
from arraystore.spark.reading.decoding import Column, Decoder, filled
from arraystore.spark.reading.selection import Positions, compact

_SHOWN = 5
_INSTANT = np.dtype("M8[us]")
_PERIOD = re.compile(r"-?\d{4,6}(-\d{2}(-\d{2})?)?")
_NO_TIME = np.iinfo(np.int64).min
_NO_TEXT = ""
"""Stand-in for missing labels among strings, which begin with an equals sign here."""


@dataclass(frozen=True)
class Coordinate:
    """The labels along one dimension."""

    name: str
    """Name of the dimension."""
    stored: Array
    """Labels as stored in the coordinate array."""
    shown: Decoder
    """Decoder for the column."""
    meant: Decoder
    """Decoder for lookups, which returns instants where the array counts time."""

    def column(self, positions: Positions) -> Column:
        """Return the labels at some positions."""
        if isinstance(positions, range):
            return self.shown.decode(self.stored[positions.start : positions.stop])
        return self.shown.decode(self.stored[positions])

    @cached_property
    def labels(self) -> Array:
        """Labels as in a column, with NaN or not-a-time where one is missing."""
        return filled(*self.shown.decode(self.stored))

    @cached_property
    def instants(self) -> Array | None:
        """Instants of the labels; None if they are not times."""
        if self.meant.dtype != _INSTANT:
            return None
        return filled(*self.meant.decode(self.stored))

    def positions(self, wanted: Any) -> Positions:
        """Return the positions of labels."""
        if isinstance(wanted, slice):
            return self._between(wanted)
        if isinstance(wanted, str | bytes | date | np.generic) or not isinstance(wanted, Iterable):
            return self._exactly([wanted], whole_periods=True)
        many = list(wanted) if not isinstance(wanted, np.ndarray) else list(wanted.reshape(-1))
        return self._exactly(many, whole_periods=False) if many else range(0)

    def _between(self, wanted: slice) -> Positions:
        step = 1 if wanted.step is None else wanted.step
        if not isinstance(step, int | np.integer) or step < 1:
            raise InvalidInputError(
                f"{wanted!r} selects along {self.name!r} with a step of {step!r}, which must be an integer >= 1"
            )
        bounds = [bound for bound in (wanted.start, wanted.stop) if bound is not None]
        labels = self._comparable(bounds)
        low, high = (None if bound is None else self._bounds(bound) for bound in (wanted.start, wanted.stop))
        if _falls(labels) and (low is None or high is None or low[0] > high[0]):
            low, high = high, low  # the first bound is the one that comes first along the dimension
        inside = np.ones(len(labels), bool)
        if bounds and labels.dtype.kind in "iU" and labels is not self.labels:
            inside = labels != (_NO_TEXT if labels.dtype.kind == "U" else _NO_TIME)
        if low is not None:
            inside &= np.asarray(labels >= low[0], dtype=bool)
        if high is not None:
            inside &= np.asarray(labels <= high[1], dtype=bool)
        return compact(np.flatnonzero(inside)[::step])

    def _exactly(self, wanted: list[Any], *, whole_periods: bool) -> Positions:
        labels = self._comparable(wanted)
        bounds = [self._bounds(one) for one in wanted]
        if whole_periods and bounds[0][0] != bounds[0][1]:
            inside = np.asarray((labels >= bounds[0][0]) & (labels <= bounds[0][1]), dtype=bool)
            if not inside.any():
                raise self._not_there([wanted[0]], labels, bounds[0][0])
            return compact(np.flatnonzero(inside))
        possible = [_as_label(low, labels.dtype) if low <= high else None for low, high in bounds]
        sought = np.unique(np.array([one for one in possible if one is not None], dtype=labels.dtype))
        order = np.argsort(labels, kind="stable")
        first, stop = (np.searchsorted(labels[order], sought, side) for side in ("left", "right"))
        there = set(sought[stop > first].tolist())
        absent = [number for number, one in enumerate(possible) if one is None or one not in there]
        if absent:
            raise self._not_there([wanted[number] for number in absent], labels, bounds[absent[0]][0])
        counts = stop - first
        places = np.repeat(first, counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return compact(np.sort(order[places]))

    def _comparable(self, wanted: list[Any]) -> Array:
        """Return the labels in the form that wanted labels are compared with: times as microseconds."""
        if self.instants is not None and any(_is_time(one) for one in wanted):
            if not all(_is_time(one) for one in wanted):
                raise InvalidInputError(f"{wanted!r} along {self.name!r} mixes times with other types")
            return self.instants.view(np.int64)
        if self.labels.dtype.kind == "m":
            return self._lengths(wanted)
        if self.labels.dtype.kind == "M" and wanted:
            raise InvalidInputError(f"labels along {self.name!r} are times, and {wanted[0]!r} is not a time")
        if self.labels.dtype.kind in "TOU":
            texts = [_NO_TEXT if one is None else f"={one}" for one in self.labels.tolist()]
            return np.array(texts, dtype=np.str_)
        if self.labels.dtype.kind == "S":
            return self.labels
        if any(isinstance(one, str | bytes | date | np.datetime64) for one in wanted):
            raise InvalidInputError(
                f"labels along {self.name!r} are numbers, and {wanted[0]!r} is not a number"
                + ("" if self.instants is None else " or a readable time")
            )
        return self.labels

    def _lengths(self, wanted: list[Any]) -> Array:
        """Return labels that are lengths of time in microseconds, which such lengths are compared with."""
        if wanted and not has_fixed_unit(self.labels.dtype):
            raise InvalidInputError(
                f"labels along {self.name!r} are of type {self.labels.dtype}, which has no fixed length: select by "
                "position with isel"
            )
        for one in wanted:
            if not isinstance(one, timedelta | np.timedelta64):
                raise InvalidInputError(
                    f"labels along {self.name!r} are lengths of time, and {one!r} is not a timedelta"
                )
        return self.labels.view(np.int64)

    def _bounds(self, one: Any) -> tuple[Any, Any]:
        """Return the first and the last value of a label, which differ for periods of time."""
        if self.instants is not None and _is_time(one):
            return _instants_of(self.name, one)
        if self.labels.dtype.kind == "m":
            return _microseconds_around(self.name, np.timedelta64(one))
        kind = self.labels.dtype
        if isinstance(one, np.generic):
            one = one.item()
        if kind.kind in "iufb" and not isinstance(one, int | float):
            raise InvalidInputError(f"labels along {self.name!r} are of type {kind}, and {one!r} is not")
        if kind.kind == "f":
            one = kind.type(one).item()  # the label 0.1 is found in an array of float32
        if kind.kind in "UTO" and not isinstance(one, str):
            raise InvalidInputError(f"labels along {self.name!r} are strings, and {one!r} is not a string")
        if kind.kind in "UTO":
            one = f"={one}"
        if kind.kind == "S":
            one = one.encode() if isinstance(one, str) else one
        return one, one

    def _not_there(self, missing: list[Any], labels: Array, first: Any) -> InvalidInputError:
        shown = ", ".join(map(repr, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        if not len(labels):
            return InvalidInputError(f"there is no label {shown} along {self.name!r}, which has no positions")
        if labels.dtype.kind in "iuf":
            finite = labels[np.isfinite(labels)]
            near = finite[np.argsort(np.abs(finite.astype(np.float64) - float(first)), kind="stable")[:2]]
            counted = self.labels.dtype if self.labels.dtype.kind == "m" else _INSTANT
            nearest = np.sort(near) if labels is self.labels else np.sort(near).astype(counted)
            close = ", ".join(map(str, nearest.tolist()))
        else:
            from difflib import get_close_matches

            names = [str(one).removeprefix("=") for one in labels.tolist()]
            close = ", ".join(get_close_matches(str(first).removeprefix("="), names, 2) or names[:1])
        return InvalidInputError(
            f"{len(missing)} of the labels selected along {self.name!r} {'is' if len(missing) == 1 else 'are'} not "
            f"there: {shown}; near it {'is' if ',' not in close else 'are'} {close}. Select by slice to get all labels "
            "between two, or by position with isel"
        )


def _falls(labels: Array) -> bool:
    return len(labels) > 1 and bool(labels[-1] < labels[0]) and bool(np.all(labels[1:] <= labels[:-1]))


def _as_label(one: Any, dtype: np.dtype[Any]) -> Any:
    """Return a label in the type of others; None if that type cannot represent it."""
    if dtype.kind not in "iu":
        return one
    limits = np.iinfo(dtype)
    return int(one) if one == one // 1 and limits.min <= one <= limits.max else None


def _is_time(one: Any) -> bool:
    return isinstance(one, str | date | np.datetime64)


def _microseconds_around(name: str, one: np.datetime64 | np.timedelta64) -> tuple[int, int]:
    """Return the first microsecond that is not before a time, and the last one that is not after it."""
    try:
        count = one.astype(f"{one.dtype.kind}8[us]")
        exact = bool(count == one)
    except (OverflowError, TypeError) as error:
        raise InvalidInputError(f"labels along {name!r} are times, and {one!r} cannot be compared with them") from error
    if np.isnat(one):
        raise InvalidInputError(f"labels along {name!r} are times, and {one!r} is not a time")
    number = int(count.astype(np.int64))
    return number + (not exact), number


def _instants_of(name: str, one: Any) -> tuple[int, int]:
    """Return the first and the last microsecond since 1970 of a time or a period."""
    if isinstance(one, datetime):
        time = one.astimezone(UTC).replace(tzinfo=None) if one.tzinfo is not None else one
        instant = int(np.datetime64(time.isoformat(), "us").astype(np.int64))
        return instant, instant
    if isinstance(one, np.datetime64):
        return _microseconds_around(name, one)
    text = one.isoformat() if isinstance(one, date) else one
    if "T" in text.upper() or " " in text.strip():
        try:
            return _instants_of(name, datetime.fromisoformat(text.strip()))
        except ValueError as error:
            raise InvalidInputError(f"labels along {name!r} are times, and {text!r} cannot be read as one") from error
    match = _PERIOD.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError("a year, a month or a day is expected")
        period = np.datetime64(match[0])
    except ValueError as error:
        raise InvalidInputError(f"labels along {name!r} are times, and {text!r} cannot be read as one") from error
    unit: Any = np.datetime_data(period.dtype)[0]
    following = period + np.timedelta64(1, unit)
    start, stop = (int(one.astype(_INSTANT).astype(np.int64)) for one in (period, following))
    return start, stop - 1
