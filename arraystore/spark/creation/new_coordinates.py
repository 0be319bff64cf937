"""Coordinates that are created: labels in ascending order, in the types and the CF units that they are stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from arraystore._format.types import Array, Int64s
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import cf_time_codec, is_time
from arraystore.spark.writing.columns import INTEGERS, TIMES
from arraystore.transforms.number_conversion import convert_numbers

CALENDAR = "proleptic_gregorian"
_DAY = 86_400_000_000
_UNITS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_TYPES = {**INTEGERS, "float": "f4", "double": "f8"}
_TEXTS = frozenset({"string", "char", "varchar"})


@dataclass(frozen=True)
class NewCoordinate:
    """Labels of a dimension, and the attributes of the array that holds them."""

    labels: Array
    attributes: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.labels)


def new_coordinate(dimension: str, kind: str, labels: pa.Array, units: str | None) -> NewCoordinate:
    """Return the coordinate of distinct labels of a column of this type, in ascending order."""
    if kind in TIMES:
        view = labels.view(pa.int32() if kind == "date" else pa.int64())
        return _times(dimension, kind, np.unique(view.to_numpy(zero_copy_only=False)).astype(np.int64), units)
    if units is not None and is_time({"units": units}):
        raise InvalidInputError(f"units[{dimension!r}]={units!r} are of times, and the column is of type {kind}")
    attributes = {} if units is None else {"units": units}
    if kind in _TEXTS:
        return NewCoordinate(np.array(sorted(labels.to_pylist()), dtype=object), attributes)
    values = np.unique(labels.to_numpy(zero_copy_only=False).astype(_type(dimension, kind)))
    return NewCoordinate(values[values == values], attributes)  # noqa: PLR0124 - NaN is not a label


def passed_coordinate(dimension: str, kind: str, labels: Any, units: str | None) -> NewCoordinate:
    """Return the coordinate of labels that a caller passes, in their order."""
    if isinstance(labels, int | str | bytes):
        raise InvalidInputError(f"labels[{dimension!r}] must be labels, because its column holds labels, not indices")
    values = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
    if values.ndim != 1:
        raise InvalidInputError(f"labels[{dimension!r}] must be a sequence of labels, not of shape {values.shape}")
    if kind in TIMES:
        return _times(dimension, "timestamp" if kind != "date" else "date", _instants(dimension, kind, values), units)
    if kind in _TEXTS:
        if not all(isinstance(label, str) for label in values.tolist()):
            raise InvalidInputError(f"labels[{dimension!r}] must be strings: the column is of type {kind}")
        return NewCoordinate(values.astype(object), {})
    wanted = _type(dimension, kind)
    stored = _in_type(values, wanted)
    if stored is None:
        raise InvalidInputError(
            f"labels[{dimension!r}] must be finite numbers that {wanted}, the type of the column, holds exactly"
        )
    return NewCoordinate(stored, {} if units is None else {"units": units})


def _type(dimension: str, kind: str) -> np.dtype[Any]:
    if kind not in _TYPES:
        raise InvalidInputError(
            f"the column of dimension {dimension!r} is of type {kind}, which cannot label an array: use a number, a "
            "string, a date or a timestamp"
        )
    return np.dtype(_TYPES[kind])


def _in_type(values: Array, wanted: np.dtype[Any]) -> Array | None:
    """Return numbers in a type, None if it does not hold them; floats may be rounded to floats."""
    if values.dtype.kind in "iu":
        converted = convert_numbers(values, wanted)
        return None if converted.bad.any() else converted.values
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return None
    with np.errstate(all="ignore"):
        stored = values.astype(wanted)
        same = np.isfinite(stored) if wanted.kind == "f" else stored.astype(values.dtype) == values
    return stored if same.all() else None


def _instants(dimension: str, kind: str, values: Array) -> Int64s:
    """Return times that a caller passes in the unit of the column: days for dates, else microseconds."""
    try:
        if values.dtype.kind not in "MO":
            raise TypeError(f"{values.dtype} is not a type of times")
        passed = pa.array(values.tolist() if values.dtype.kind == "O" else values)
        day = pa.types.is_date(passed.type)
        cast = passed.cast(pa.timestamp("us", tz=getattr(passed.type, "tz", None))) if not day else passed
        cast = cast.cast(pa.date32() if kind == "date" else pa.timestamp("us", tz=getattr(cast.type, "tz", None)))
        if cast.null_count:
            raise TypeError("one of them is missing")
    except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"labels[{dimension!r}] must be times: datetime objects or datetime64 ({error})"
        ) from error
    numbers: Array = cast.view(pa.int32() if kind == "date" else pa.int64()).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64)


def _times(dimension: str, kind: str, values: Int64s, units: str | None) -> NewCoordinate:
    """Return times, in days for dates and else in microseconds, as integers in CF units."""
    instants = values * _DAY if kind == "date" else values
    if units is None:
        unit = "days" if kind == "date" else _coarsest(instants)
        units = f"{unit} since 1970-01-01"
    attributes = {"units": units, "calendar": CALENDAR, "standard_name": "time"}
    codec = cf_time_codec(f"coordinate {dimension!r}", attributes)
    if codec is None:
        raise InvalidInputError(f"units[{dimension!r}]={units!r} are not of times: 'hours since 2000-01-01' are")
    stored, *masks = codec.from_microseconds(instants, np.int64)
    if not masks[-1].all():
        bad = np.datetime64(int(instants[np.flatnonzero(~masks[-1])[0]]), "us")
        raise InvalidInputError(
            f"the label {bad!s} of dimension {dimension!r} is not an integer count of {units!r}: choose finer units "
            f"(create=NewArrays(units={{{dimension!r}: 'microseconds since 1970-01-01'}}))"
        )
    return NewCoordinate(stored, attributes)


def _coarsest(instants: Int64s) -> str:
    """Return the coarsest of seconds and finer units that counts all instants."""
    return next(name for name, length in _UNITS.items() if not (instants % length).any())
