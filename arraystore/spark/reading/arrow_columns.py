"""Conversion of numpy values and Spark's types to Arrow."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from arraystore._format.types import Array, Bools
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import has_fixed_unit

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WIDER = {"u1": "i2", "u2": "i4", "u4": "i8", "f2": "f4"}
"""Wider types, as Spark has neither unsigned numbers nor half precision."""

_ARROW = {
    "b1": pa.bool_(), "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(),
    "f4": pa.float32(), "f8": pa.float64(), "u8": pa.decimal128(20, 0),
}  # fmt: skip


def arrow_type(what: str, dtype: np.dtype[Any]) -> pa.DataType:
    """Return the Arrow type of a column."""
    if dtype.kind == "M":
        return pa.timestamp("us", tz="UTC")
    if has_fixed_unit(dtype):
        return pa.duration("us")
    if dtype.kind in "UT":
        return pa.string()
    if dtype.kind == "S":
        return pa.binary()
    code = f"{dtype.kind}{dtype.itemsize}"
    arrow = _ARROW.get(_WIDER.get(code, code))
    if arrow is None:
        raise InvalidInputError(
            f"{what} has values of type {dtype}, for which Spark has no type; use map_chunks, whose function may make "
            "columns of them"
        )
    return arrow


def spark_type(what: str, dtype: np.dtype[Any]) -> DataType:
    """Return the Spark type of a column; see `arrow_type`."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_type(what, dtype))


def arrow_array(values: Array, missing: Bools | None, kind: pa.DataType) -> pa.Array:
    """Return decoded values as an Arrow array, without a copy where the types allow."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.array(values.view(np.int64), mask=missing).view(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array(values.astype(object), type=kind, mask=missing)
    if pa.types.is_decimal(kind):
        return pa.array(values, mask=missing).cast(kind)
    return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), mask=missing)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, timestamps in UTC; everything may be null."""
    from pyspark.sql.pandas.types import to_arrow_schema

    make: Any = to_arrow_schema
    # PySpark 4.0 takes UTC for granted, later releases ask.
    parameters = inspect.signature(make).parameters
    made: pa.Schema = make(schema, timezone="UTC") if "timezone" in parameters else make(schema)
    return pa.schema([field.with_nullable(True).remove_metadata() for field in made])
