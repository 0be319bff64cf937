"""Dimensions of an array and the columns with the places of rows along them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import zarr

from arraystore._format.types import Array, Int64s
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import FLOAT_TIMES_US, cf_time_codec, has_fixed_unit, microseconds_from_datetimes
from arraystore.spark.writing.chunk_grid import MISSING, NOWHERE
from arraystore.spark.writing.columns import (
    COUNTED,
    INTEGERS,
    INTERVAL,
    TIMES,
    absent_in,
    column_kind,
    filled,
    is_packed,
    microseconds,
    quoted,
    raw,
)
from arraystore.spark.writing.decimals import convert_decimals
from arraystore.spark.writing.labels import LabelIndex

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Tolerance = float | int | timedelta | np.timedelta64

_TEXTS = frozenset({"string", "char", "varchar"})
_ONLY_IN_PYTHON = _TEXTS | {"timestamp_ntz", "decimal", INTERVAL}
_NOISE_US = 20
_WHOLE = 2**53
"""Integer from which on 64-bit floats do not hold all."""


@dataclass(frozen=True)
class Axis:
    """A dimension, and the column that determines the index along it."""

    column: str
    """Name of the column."""
    kind: str
    """Name of its type in Spark."""
    size: int
    """Length of the array along the dimension."""
    labels: LabelIndex | None = None
    """The coordinate; None where the column holds indices."""

    def indices(self, array: pa.Array) -> Int64s:
        """Return the index for each row of a batch, `NOWHERE`, or `MISSING`."""
        if self.labels is not None and self.kind in _TEXTS:
            return self._of_texts(self.labels, array)
        absent = absent_in(array)
        if self.labels is None:
            indices = raw(array, self.kind).astype(np.int64, copy=False)
            if len(indices) and (indices.min() < 0 or indices.max() >= self.size):
                indices = np.where((indices < 0) | (indices >= self.size), NOWHERE, indices)
        elif self.kind == "decimal":
            indices = self._of_decimals(self.labels, array)
        else:
            indices = self.labels.indices(self._comparable(raw(array, self.kind)))
        return indices if absent is None else np.where(absent, MISSING, indices)

    def _comparable(self, values: Array) -> Array:
        assert self.labels is not None
        if self.kind in COUNTED:
            return microseconds(values, self.kind)
        with np.errstate(over="ignore"):
            return values.astype(self.labels.values.dtype, copy=False)

    def _of_decimals(self, labels: LabelIndex, array: pa.Array) -> Int64s:
        converted = convert_decimals(filled(array, self.kind), labels.values.dtype, exact=not labels.tolerance)
        return np.where(converted.bad, NOWHERE, labels.indices(converted.values))

    def _of_texts(self, labels: LabelIndex, array: pa.Array) -> Int64s:
        encoded = array.dictionary_encode()
        places = np.append(labels.indices(encoded.dictionary.to_numpy(zero_copy_only=False)), MISSING)
        codes = encoded.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)
        indices: Int64s = places[codes]
        return indices

    def text(self, index: int) -> str:
        """Return the value of the column for an index, as a string for messages."""
        if self.labels is None:
            return str(index)
        label = self.labels.values[index]
        if self.kind == INTERVAL:
            return str(timedelta(microseconds=int(label)))
        return str(np.datetime64(int(label), "us")) if self.kind in TIMES else str(label)

    @property
    def in_spark(self) -> bool:
        """Tell whether Spark can compute the index by arithmetic."""
        if self.labels is None:
            return True
        return self.kind not in _ONLY_IN_PYTHON and self.labels.regular is not None

    def sql(self) -> str:
        """Return the index as an expression of Spark SQL, of type BIGINT; only where it is `in_spark`."""
        name = quoted(self.column)
        if self.labels is None:
            index = f"CAST({name} AS BIGINT)"
            index = f"CASE WHEN {self.inside_sql()} THEN {index} ELSE {NOWHERE}L END"
        else:
            regular = self.labels.regular
            assert regular is not None
            index = regular.sql(self._label_sql(name), self.labels.tolerance)
        return f"CASE WHEN {name} IS NULL THEN {MISSING}L ELSE {index} END"

    def inside_sql(self) -> str:
        """Return whether a column of indices holds one of the array, as an expression of Spark SQL."""
        return f"{quoted(self.column)} BETWEEN 0 AND {self.size - 1}L"

    def _label_sql(self, name: str) -> str:
        assert self.labels is not None
        if self.kind == "timestamp":
            return f"unix_micros({name})"
        if self.kind == "date":
            return f"(unix_date({name}) * 86400000000L)"
        return f"CAST({name} AS {'BIGINT' if self.labels.values.dtype.kind == 'i' else 'DOUBLE'})"


def index_axis(schema: StructType, dimension: str, column: str, size: int) -> Axis:
    """Return the axis of a column of indices."""
    kind = column_kind(schema, column, f"dimension {dimension!r}")
    if kind not in INTEGERS:
        raise InvalidInputError(
            f"column {column!r} of dimension {dimension!r} is of type {kind}, and coords='index' takes integers; use "
            "coords='label' if it holds values of the coordinate"
        )
    return Axis(column, kind, size)


def read_coordinate(store: Any, group: str, dimension: str, size: int) -> tuple[Array, Mapping[str, Any]]:
    """Return the labels of a dimension, and the attributes of the coordinate that holds them."""
    path = f"{group}/{dimension}".strip("/")
    try:
        array = zarr.open_array(store, path=path, mode="r")
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise InvalidInputError(
            f"there is no coordinate array {path!r} for dimension {dimension!r}; use coords='index', or write it first"
        ) from error
    if array.shape != (size,):
        raise InvalidInputError(
            f"coordinate {path!r} has shape {array.shape}, and the dimension {dimension!r} is {size} long"
        )
    attrs = dict(array.attrs)
    if is_packed(attrs):
        raise InvalidInputError(
            f"coordinate {path!r} is packed (scale_factor, add_offset or _Unsigned): it stores no labels; "
            "use coords='index' for this dimension, or write the coordinate unpacked"
        )
    return np.asarray(array[:]), attrs


def label_axis(
    schema: StructType,
    dimension: str,
    column: str,
    values: Array,
    attrs: Mapping[str, Any],
    tolerance: Tolerance | None,
) -> Axis:
    """Return the axis of a column of labels."""
    kind = column_kind(schema, column, f"dimension {dimension!r}")
    if kind in TIMES:
        labels = _instants(dimension, values, attrs, tolerance)
    elif kind == INTERVAL and has_fixed_unit(values.dtype):
        labels = _intervals(dimension, values, tolerance)
    elif kind in _TEXTS and values.dtype.kind in "TUO":
        labels = LabelIndex(dimension, values.astype(object), _plain_tolerance(dimension, tolerance))
    elif (kind in INTEGERS or kind in {"float", "double", "decimal"}) and values.dtype.kind in "iuf":
        labels = _numbers(dimension, kind, values, _plain_tolerance(dimension, tolerance))
    else:
        raise InvalidInputError(
            f"column {column!r} of dimension {dimension!r} is of type {kind}, and its coordinate holds {values.dtype}: "
            "they cannot be compared"
        )
    return Axis(column, kind, len(values), labels)


def check_apart(axis: Axis) -> None:
    """Check that no new label is within the tolerance of another one, which it would be if it came in a later write."""
    pair = None if axis.labels is None else axis.labels.near_each_other()
    if pair is not None:
        one, other = map(axis.text, pair)
        raise InvalidInputError(
            f"the labels {one} and {other} of column {axis.column!r} are new, and within the tolerance of each other: "
            "round the column first, so that rows that belong together have one label, or lower the tolerance"
        )


def _numbers(name: str, kind: str, values: Array, tolerance: float) -> LabelIndex:
    digits = kind in INTEGERS or kind == "decimal"
    if digits and values.dtype.kind in "iu":
        if values.dtype.kind == "u" and len(values) and int(values.max()) >= 2**63:
            raise InvalidInputError(f"coordinate {name!r} has labels above those of Spark's integers")
        return LabelIndex(name, values.astype(np.int64), int(tolerance))
    # Either the labels or what they are compared with are floats from here on.
    if (digits or values.dtype.kind in "iu") and len(values) and np.nanmax(np.abs(values.astype("f8"))) >= _WHOLE:
        raise InvalidInputError(
            f"coordinate {name!r} has labels of {_WHOLE} or more, and is compared with a column of type {kind} as "
            f"floats, where neighbouring integers are the same number; cast the column to {_exact_kind(values)}"
        )
    # A label is what the coordinate would hold if it were written there: 0.1 is found among 32-bit floats.
    single = values.dtype == np.float32 and kind not in INTEGERS and not tolerance
    return LabelIndex(name, values.astype(np.float32 if single else np.float64), tolerance)


def _exact_kind(values: Array) -> str:
    return "long" if values.dtype.kind in "iu" else "double if that is intended"


def _plain_tolerance(name: str, tolerance: Tolerance | None) -> float:
    if isinstance(tolerance, timedelta | np.timedelta64):
        raise InvalidInputError(f"the tolerance for {name!r} must be a number: its labels are not instants")
    return tolerance or 0


def _instants(name: str, values: Array, attrs: Mapping[str, Any], tolerance: Tolerance | None) -> LabelIndex:
    """Return labels that are instants, in microseconds since 1970."""
    time_codec = cf_time_codec(f"coordinate {name!r}", attrs) if values.dtype.kind in "iuf" else None
    if values.dtype.kind == "M":
        instants, missing = microseconds_from_datetimes(f"coordinate {name!r}", values)
    elif time_codec is not None:
        instants, missing = time_codec.to_microseconds(values)
    else:
        raise InvalidInputError(
            f"the column of dimension {name!r} holds instants, and its coordinate holds {values.dtype} without a unit "
            "of time; give it the attribute units ('days since 1970-01-01')"
        )
    if missing is not None:
        raise InvalidInputError(f"coordinate {name!r} has labels that are not instants")
    instants = instants.astype(np.int64)
    if values.dtype.kind == "f":
        instants = _without_noise(instants)
    if tolerance is None:
        gaps = np.diff(np.sort(instants))
        exact = values.dtype.kind != "f" or (len(gaps) > 0 and int(gaps.min()) <= 4 * FLOAT_TIMES_US)
        return LabelIndex(name, instants, 0 if exact else FLOAT_TIMES_US)
    if isinstance(tolerance, timedelta | np.timedelta64):
        return LabelIndex(name, instants, _microseconds_of(name, tolerance))
    if time_codec is None:
        raise InvalidInputError(f"the tolerance for {name!r} must be a timedelta: its labels are instants")
    return LabelIndex(name, instants, int(tolerance * time_codec.unit))


def _intervals(name: str, values: Array, tolerance: Tolerance | None) -> LabelIndex:
    """Return labels that are lengths of time, in microseconds."""
    lengths, missing = microseconds_from_datetimes(f"coordinate {name!r}", values)
    if missing is not None:
        raise InvalidInputError(f"coordinate {name!r} has labels that are not lengths of time")
    if tolerance is not None and not isinstance(tolerance, timedelta | np.timedelta64):
        raise InvalidInputError(f"the tolerance for {name!r} must be a timedelta: its labels are lengths of time")
    return LabelIndex(name, lengths, 0 if tolerance is None else _microseconds_of(name, tolerance))


def _microseconds_of(name: str, tolerance: timedelta | np.timedelta64) -> int:
    try:
        return int(np.timedelta64(tolerance, "us").astype(np.int64))
    except (OverflowError, TypeError) as error:
        what = f"the tolerance for {name!r}"
        raise InvalidInputError(f"{what} must be a fixed length of time, not {tolerance!r}") from error


def _without_noise(instants: Int64s) -> Int64s:
    """Round instants that were stored in floating point to milliseconds, if all are within the noise of one."""
    whole = (instants + 500) // 1000 * 1000
    return whole if len(instants) and int(np.abs(whole - instants).max()) <= _NOISE_US else instants
