"""Variables that are created: type, fill value and attributes from a column of a frame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import is_time
from arraystore.spark.creation.new_arrays import NewArrays
from arraystore.spark.creation.new_coordinates import CALENDAR
from arraystore.spark.writing.columns import INTERVAL, NESTED, NESTED_REMEDY, TIMES, column_kind

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

_TYPES = {
    "byte": "i1", "short": "i2", "integer": "i4", "long": "i8", "float": "f4", "double": "f8", "boolean": "?",
    "date": "i4", "timestamp": "i8", "timestamp_ntz": "i8", INTERVAL: "m8[us]",
}  # fmt: skip
_TEXTS = frozenset({"string", "char", "varchar"})
_PACKING = frozenset({"scale_factor", "add_offset", "_Unsigned"})
_DECIDED = frozenset({"_FillValue", "missing_value", "_ARRAY_DIMENSIONS", "coordinates", "calendar", "dtype"})
"""Attributes that follow from the type of a column, or from the arrays; those of another array are left out."""


@dataclass(frozen=True)
class NewVariable:
    """An array for the values of a column."""

    path: str
    column: str
    dtype: Any
    """Type as `zarr.create_array` takes it."""
    fill: Any
    attributes: Mapping[str, Any]
    reserved: bool
    """Whether the fill value means that there is no value."""

    @property
    def cell_bytes(self) -> int:
        """Bytes of a cell; for strings, a guess."""
        return 16 if self.dtype is str else np.dtype(self.dtype).itemsize


def new_variable(schema: StructType, path: str, column: str, choice: NewArrays) -> NewVariable:
    """Return the array for a column; refuse types that no array has."""
    name = path.rpartition("/")[2]
    kind = column_kind(schema, column, f"the values of array '/{path}'")
    field = next(field for field in schema.fields if field.name == column)
    dtype = _dtype(field, kind, path)
    attributes = attributes_of(field, choice.attributes.get(name, {}))
    units = choice.units.get(name)
    if kind in TIMES:
        attributes["units"] = units or f"{'days' if kind == 'date' else 'microseconds'} since 1970-01-01"
        attributes["calendar"] = CALENDAR
    elif units is not None:
        attributes["units"] = units
    if kind in TIMES and not is_time(attributes):
        raise InvalidInputError(
            f"units[{name!r}]={units!r} are not of times, which column {column!r} holds: 'hours since 2000-01-01' are"
        )
    default, reserved = _fill(dtype, nullable=bool(field.nullable))
    fill = choice.fill_values.get(name, default)
    if reserved:
        attributes.setdefault("_FillValue", int(fill))
    return NewVariable(path, column, dtype, fill, attributes, reserved)


def _dtype(field: StructField, kind: str, path: str) -> Any:
    if kind in _TEXTS:
        return str
    if kind in _TYPES:
        return _TYPES[kind]
    wide: Any = field.dataType
    if kind == "decimal" and wide.scale == 0:
        return "i8" if wide.precision <= 18 else "u8"  # in which Spark has unsigned integers; each value is checked
    remedy = NESTED_REMEDY if kind in NESTED else "cast it first, for instance to double or string"
    what = f"column {field.name!r} for array '/{path}'"
    raise InvalidInputError(f"{what} is of type {kind}, which no array has: {remedy}")


def _fill(dtype: Any, *, nullable: bool) -> tuple[Any, bool]:
    """Return the fill value of a type, and whether it means that there is no value."""
    if dtype is str:
        return "", False
    number = np.dtype(dtype)
    if number.kind == "f":
        return np.nan, False
    if number.kind == "m":
        return np.timedelta64("NaT" if nullable else 0, "us"), False
    if number.kind == "b" or not nullable:
        return number.type(0).item(), False
    limits = np.iinfo(number)
    return int(limits.max if number.kind == "u" else limits.min), True


def attributes_of(field: StructField, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes from the metadata of a column; refuse what would change the meaning of its values."""
    own = {key: value for key, value in (field.metadata or {}).items() if not key.startswith("__")}
    attributes = {**{key: value for key, value in own.items() if key not in _DECIDED}, **more}
    if packing := _PACKING & set(attributes):
        raise InvalidInputError(
            f"column {field.name!r} has {sorted(packing)} in its metadata, which say how numbers are packed, "
            "but values are written as they are: remove them (df.withMetadata), or create the array yourself"
        )
    try:
        json.dumps(attributes, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the attributes of column {field.name!r} are not JSON: {error}") from error
    return attributes
