"""Columns of a DataFrame as NumPy arrays of the type that an array has.

Types that do not fit are refused before a job starts. Values that do not fit (numbers too large for the array's type),
and values that the type cannot hold exactly, are marked and counted by the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arraystore._format.types import Array, Bools, Int64s
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import CFTimeCodec, cf_time_codec, has_fixed_unit
from arraystore.spark.writing.decimals import convert_decimals
from arraystore.transforms.number_conversion import Converted, convert_numbers

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


INTEGERS = {"byte": "i1", "short": "i2", "integer": "i4", "long": "i8"}
_NUMBERS = {**INTEGERS, "float": "f4", "double": "f8", "boolean": "?"}
TIMES = frozenset({"timestamp", "timestamp_ntz", "date"})
INTERVAL = "daytimeinterval"
COUNTED = TIMES | {INTERVAL}
"""Types whose values are integer counts of microseconds, or of days."""
_VARYING = frozenset({"yearmonthinterval", "interval"})
"""Types of lengths of time that count months."""
NESTED = frozenset({"struct", "array", "map", "variant"})
_TEXTS = frozenset({"string", "char", "varchar"})
NESTED_REMEDY = "select its fields or elements as columns of their own"
Lossy = bool | Literal["floats"]
"""Whether values may be rounded to the type of an array; "floats": floats may, other values may not."""
_DAY = 86_400_000_000
_FURTHEST = 290_000 * 365 * _DAY
"""Microsecond from which NumPy counts all coarser units, some 4,000 years before the last one of 64 bits."""


def quoted(name: str) -> str:
    """Quote the name of a column for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def column_kind(schema: StructType, column: str, role: str) -> str:
    """Return the name of the type of a column."""
    fields = [field for field in schema.fields if field.name == column]
    if len(fields) != 1:
        names = ", ".join(map(repr, schema.names)) or "none"
        which = "no column" if not fields else "more than one column"
        raise InvalidInputError(f"{role}: the DataFrame has {which} {column!r}; its columns are {names}")
    return fields[0].dataType.typeName()


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Values of one batch."""

    values: Array
    """Shape (rows,), of the type of the array."""
    absent: Bools | None
    """Mask of missing values; None if there are none."""
    unfit: Bools | None
    """Mask of values that do not fit the type; None if all fit."""
    changed: Bools | None = None
    """Mask of values that the type does not hold exactly, where that is refused; None if there are none."""


@dataclass(frozen=True)
class ValueColumn:
    """A column that goes into an array."""

    column: str
    """Name of the column."""
    kind: str
    """Name of its type in Spark."""
    dtype: np.dtype[Any]
    """Type of the array."""
    time_codec: CFTimeCodec | None = None
    """Codec of times, if the column holds instants and the array numbers."""
    lossy: Lossy = "floats"
    """Whether values may be rounded to the type of the array."""

    def read(self, array: pa.Array) -> ColumnValues:
        """Return the values of a column of a batch."""
        absent = absent_in(array)
        converted = self._convert(array)
        changed = None if self.lossy is True else converted.changed
        return ColumnValues(converted.values, absent, _present(converted.unfit, absent), _present(changed, absent))

    def _convert(self, array: pa.Array) -> Converted:
        if self.kind == "decimal":
            return convert_decimals(filled(array, self.kind), self.dtype, exact=self.lossy is not True)
        values = raw(array, self.kind)
        if self.kind in COUNTED:
            return self._times(microseconds(values, self.kind))
        if self.dtype.kind in "TUSO":
            return self._texts(array, values)
        return convert_numbers(values, self.dtype, exact_floats=self.lossy is False)

    def _times(self, instants: Int64s) -> Converted:
        if self.time_codec is not None:
            values, within, exact = self.time_codec.from_microseconds(instants, self.dtype)
            return Converted(values, ~within, ~exact)
        return times_of(instants, self.dtype)

    def _texts(self, array: pa.Array, values: Array) -> Converted:
        if self.dtype.kind not in "US":
            return Converted(values.astype(self.dtype))
        size = self.dtype.itemsize // (4 if self.dtype.kind == "U" else 1)
        length = pc.call_function("utf8_length" if self.dtype.kind == "U" else "binary_length", [array])
        unfit = length.fill_null(0).to_numpy(zero_copy_only=False) > size
        # NumPy takes null characters at the end of a string of fixed length for padding.
        cut = pc.call_function("ends_with", [array], pc.MatchSubstringOptions("\0")).fill_null(False)
        return Converted(values.astype(self.dtype), unfit, cut.to_numpy(zero_copy_only=False))


def times_of(counts: Int64s, dtype: np.dtype[Any]) -> Converted:
    """Return microseconds as datetime64 or timedelta64."""
    least, most = _reach(dtype)
    far = (counts < least) | (counts > most)
    fine = f"{dtype.kind}8[us]"
    reachable = np.where(far, 0, counts).view(fine)
    stored = reachable.astype(dtype)
    return Converted(stored, far, stored.astype(fine) != reachable)


def _present(mask: Bools | None, absent: Bools | None) -> Bools | None:
    """Return a mask without the rows that have no value; None if nothing is left of it."""
    present = mask if mask is None or absent is None else mask & ~absent
    return present if present is not None and present.any() else None


def _reach(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the greatest microsecond of a type of times, or less where NumPy's arithmetic ends."""
    unit, count = np.datetime_data(dtype)
    finer = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}.get(unit)
    if finer is not None:
        most = (2**63 - 1) * count // finer
    else:
        most = 2**63 - 1 if (unit, count) == ("us", 1) else _FURTHEST
    return -most, most


def absent_in(array: pa.Array) -> Bools | None:
    """Return the mask of missing values; None if there are none."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def raw(array: pa.Array, kind: str) -> Array:
    """Return the values of an Arrow array without conversion, and any value where one is missing.

    Numbers are not copied; instants and intervals are returned as integers, strings as those of Python.
    """
    if kind in COUNTED:
        array = array.view(pa.int32() if kind == "date" else pa.int64())
    values: Array = filled(array, kind).to_numpy(zero_copy_only=False)
    return values


def filled(array: pa.Array, kind: str) -> pa.Array:
    """Return an array with some value in place of each missing one."""
    if not array.null_count:
        return array
    zeros: Mapping[str, Any] = {**dict.fromkeys(_TEXTS, ""), "binary": b"", "boolean": False, "decimal": Decimal(0)}
    return array.fill_null(pa.scalar(zeros.get(kind, 0), array.type))


def microseconds(values: Array, kind: str) -> Int64s:
    """Return instants since 1970, or intervals, in microseconds; dates begin at midnight UTC."""
    return values.astype(np.int64) * _DAY if kind == "date" else values.astype(np.int64, copy=False)


def value_column(
    schema: StructType,
    column: str,
    what: str,
    dtype: np.dtype[Any],
    attrs: Mapping[str, Any],
    lossy: Lossy = "floats",
) -> ValueColumn:
    """Return the conversion of a column into an array's type; refuse types that do not fit."""
    kind = column_kind(schema, column, f"the values of {what}")
    refused = InvalidInputError(
        f"{what} holds {dtype}, and column {column!r} is of type {kind}: {_remedy(kind, dtype)}"
    )
    if kind in TIMES:
        time_codec = cf_time_codec(what, attrs) if dtype.kind in "iuf" else None
        if time_codec is None and dtype.kind != "M":
            raise refused
        if time_codec is not None and is_packed(attrs):
            raise InvalidInputError(
                f"{what} counts time in packed numbers (scale_factor, add_offset or _Unsigned), which are not written "
                "from instants: pack them yourself, in a column of numbers"
            )
        return ValueColumn(column, kind, dtype, time_codec, lossy)
    if kind in _NUMBERS:
        column_type = np.dtype(_NUMBERS[kind])
        # Spark has no unsigned numbers: signed ones stand for them, and each is checked.
        fits = dtype.kind in "iufb?" and (
            np.can_cast(column_type, dtype, "same_kind") or (column_type.kind == "i" and dtype.kind == "u")
        )
    elif kind == "decimal":
        fits = dtype.kind in "iuf"
    elif kind == INTERVAL:
        fits = has_fixed_unit(dtype)
    else:
        fits = (kind in _TEXTS and dtype.kind in "TUO") or (kind == "binary" and dtype.kind in "SO")
    if not fits:
        raise refused
    return ValueColumn(column, kind, dtype, lossy=lossy)


def is_packed(attrs: Mapping[str, Any]) -> bool:
    """Return whether an array is packed by the conventions of CF."""
    return (
        attrs.get("scale_factor", 1) != 1
        or attrs.get("add_offset", 0) != 0
        or str(attrs.get("_Unsigned", "")).lower() in {"true", "false"}
    )


def _remedy(kind: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind in "cV" or (dtype.kind == "m" and not has_fixed_unit(dtype)):
        return "Spark has no such values, so write them with write_regions"
    if kind in NESTED:
        return NESTED_REMEDY
    if kind in _VARYING and dtype.kind == "m":
        return "months have no fixed length, so make intervals day to second of its days, hours and seconds"
    if kind == INTERVAL and dtype.kind == "f":
        return "cast the column to decimal(18,6) first, which gives seconds"
    if kind in TIMES and dtype.kind == "m":
        return "subtract an instant from it, which gives an interval day to second"
    if kind in TIMES and dtype.kind in "iuf":
        return "give the array the attribute units ('seconds since 1970-01-01'), or cast the column to a number"
    wanted = {
        "i": "long", "u": "long", "f": "double", "b": "boolean", "M": "timestamp", "m": "interval day to second",
        "S": "binary",
    }  # fmt: skip
    return f"cast the column to {wanted.get(dtype.kind, 'string')} first"
