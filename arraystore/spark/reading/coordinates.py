"""Coordinate arrays: the labels of a dimension, and the positions that labels mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

import numpy as np

from arraystore._format.types import Bools
from arraystore.errors import InvalidInputError
from arraystore.spark.reading.decoding import Decoder, Values, filled
from arraystore.spark.reading.selection import Positions, compact

__all__ = ["Coordinate"]


_SHOWN = 5
_INSTANT = np.dtype("M8[us]")
_PERIOD = re.compile(r"-?\d{4,6}(-\d{2}(-\d{2})?)?")
_NO_TIME = np.iinfo(np.int64).min
_NO_TEXT = ""
"""Labels that are missing, among texts that begin with an equals sign and times that are numbers."""


@dataclass(frozen=True)
class Coordinate:
    """The labels along one dimension.

    Parameters
    ----------
    name
        Of the dimension.
    stored
        As the coordinate array has them.
    shown
        How they become those of a column.
    meant
        How they become what they mean: instants, where the array counts time.
    """

    name: str
    stored: Values
    shown: Decoder
    meant: Decoder

    def column(self, positions: Positions) -> tuple[Values, Bools | None]:
        """Return the labels at some positions, and where there is none."""
        if isinstance(positions, range):
            return self.shown.decode(self.stored[positions.start : positions.stop])
        return self.shown.decode(self.stored[positions])

    @cached_property
    def labels(self) -> Values:
        """What a column shows, with NaN or not-a-time where there is none."""
        return filled(*self.shown.decode(self.stored))

    @cached_property
    def instants(self) -> Values | None:
        """What the labels mean, None if that is no time."""
        if self.meant.dtype != _INSTANT:
            return None
        return filled(*self.meant.decode(self.stored))

    def positions(self, wanted: Any) -> Positions:
        """Return the positions of labels.

        Parameters
        ----------
        wanted
            A label, a list of labels, or a slice between two labels, both included; where labels fall, the first bound
            is the greater one, but both may be given the other way round.  Where labels are times: any of what Python,
            numpy and pandas use for them; text, as in ``"1990-01"``, means all of that month.  What has no time zone is
            taken for UTC.

        Raises
        ------
        InvalidInputError
            If a label is not there; the nearest are told.
        """
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
                f"{wanted!r} selects along {self.name!r} with a step of {step!r}, which is no positive whole number"
            )
        given = [bound for bound in (wanted.start, wanted.stop) if bound is not None]
        labels = self._comparable(given)
        low, high = (None if bound is None else self._bounds(bound) for bound in (wanted.start, wanted.stop))
        if _falls(labels) and (low is None or high is None or low[0] > high[0]):
            low, high = high, low  # the first bound is the one that comes first along the dimension
        inside = np.ones(len(labels), bool)
        if given and labels.dtype.kind in "iU" and labels is not self.labels:
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
            found = np.asarray((labels >= bounds[0][0]) & (labels <= bounds[0][1]), dtype=bool)
            if not found.any():
                raise self._not_there([wanted[0]], labels, bounds[0][0])
            return compact(np.flatnonzero(found))
        possible = [_as_label(low, labels.dtype) for low, _ in bounds]
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

    def _comparable(self, wanted: list[Any]) -> Values:
        """Return the labels in the form that is compared with what is wanted: times as microseconds."""
        if self.instants is not None and any(_is_time(one) for one in wanted):
            if not all(_is_time(one) for one in wanted):
                raise InvalidInputError(f"{wanted!r} along {self.name!r} mixes times with something else")
            return self.instants.view(np.int64)
        if self.labels.dtype.kind == "M" and wanted:
            raise InvalidInputError(f"labels along {self.name!r} are times, and {wanted[0]!r} is none")
        if self.labels.dtype.kind in "TOU":
            told = [_NO_TEXT if one is None else f"={one}" for one in self.labels.tolist()]
            return np.array(told, dtype=np.str_)
        if self.labels.dtype.kind == "S":
            return self.labels
        if any(isinstance(one, str | bytes | date | np.datetime64) for one in wanted):
            raise InvalidInputError(
                f"labels along {self.name!r} are numbers, and {wanted[0]!r} is none"
                + ("" if self.instants is None else " that can be read")
            )
        return self.labels

    def _bounds(self, one: Any) -> tuple[Any, Any]:
        """Return the first and the last value that a label means: the same, unless it is a period of time."""
        if self.instants is not None and _is_time(one):
            return _instants_of(self.name, one)
        kind = self.labels.dtype
        if isinstance(one, np.generic):
            one = one.item()
        if kind.kind in "iufb" and not isinstance(one, int | float):
            raise InvalidInputError(f"labels along {self.name!r} are of type {kind}, and {one!r} is not")
        if kind.kind == "f":
            one = kind.type(one).item()  # the label 0.1 is found in an array of float32
        if kind.kind in "UTO" and not isinstance(one, str):
            raise InvalidInputError(f"labels along {self.name!r} are text, and {one!r} is none")
        if kind.kind in "UTO":
            one = f"={one}"
        if kind.kind == "S":
            one = one.encode() if isinstance(one, str) else one
        return one, one

    def _not_there(self, missing: list[Any], labels: Values, first: Any) -> InvalidInputError:
        shown = ", ".join(map(repr, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        if not len(labels):
            return InvalidInputError(f"there is no label {shown} along {self.name!r}, which has no positions")
        if labels.dtype.kind in "iuf":
            finite = labels[np.isfinite(labels)]
            near = finite[np.argsort(np.abs(finite.astype(np.float64) - float(first)), kind="stable")[:2]]
            told = (
                np.sort(near).astype(_INSTANT) if labels is not self.labels and _is_time(missing[0]) else np.sort(near)
            )
            close = ", ".join(map(str, told.tolist()))
        else:
            from difflib import get_close_matches

            names = [str(one).removeprefix("=") for one in labels.tolist()]
            close = ", ".join(get_close_matches(str(first).removeprefix("="), names, 2) or names[:1])
        return InvalidInputError(
            f"{len(missing)} of the labels selected along {self.name!r} {'is' if len(missing) == 1 else 'are'} not "
            f"there: {shown}; near it {'is' if ',' not in close else 'are'} {close}. Select by slice to get all labels "
            "between two, or by position with isel"
        )


def _falls(labels: Values) -> bool:
    return len(labels) > 1 and bool(labels[-1] < labels[0]) and bool(np.all(labels[1:] <= labels[:-1]))


def _as_label(one: Any, dtype: np.dtype[Any]) -> Any:
    """Return what a label would be among others, None if none of their type can be it."""
    if dtype.kind not in "iu":
        return one
    limits = np.iinfo(dtype)
    return int(one) if one == one // 1 and limits.min <= one <= limits.max else None


def _is_time(one: Any) -> bool:
    return isinstance(one, str | date | np.datetime64)


def _instants_of(name: str, one: Any) -> tuple[int, int]:
    """Return the first and the last microsecond since 1970 of what stands for a time."""
    if isinstance(one, datetime):
        moment = one.astimezone(UTC).replace(tzinfo=None) if one.tzinfo is not None else one
        instant = int(np.datetime64(moment.isoformat(), "us").astype(np.int64))
        return instant, instant
    if isinstance(one, np.datetime64):
        instant = int(one.astype(_INSTANT).astype(np.int64))
        return instant, instant
    text = one.isoformat() if isinstance(one, date) else one
    if "T" in text.upper() or " " in text.strip():
        try:
            return _instants_of(name, datetime.fromisoformat(text.strip()))
        except ValueError as error:
            raise InvalidInputError(f"labels along {name!r} are times, and {text!r} cannot be read as one") from error
    found = _PERIOD.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError("a year, a month or a day is expected")
        period = np.datetime64(found[0])
    except ValueError as error:
        raise InvalidInputError(f"labels along {name!r} are times, and {text!r} cannot be read as one") from error
    unit: Any = np.datetime_data(period.dtype)[0]
    following = period + np.timedelta64(1, unit)
    start, stop = (int(one.astype(_INSTANT).astype(np.int64)) for one in (period, following))
    return start, stop - 1
