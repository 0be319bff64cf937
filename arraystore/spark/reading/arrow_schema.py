"""Conversion of Spark schemas to Arrow schemas."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["arrow_schema"]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, timestamps in UTC; everything may be null."""
    from pyspark.sql.pandas.types import to_arrow_schema

    make: Any = to_arrow_schema
    # PySpark 4.0 takes UTC for granted, later releases ask.
    parameters = inspect.signature(make).parameters
    made: pa.Schema = make(schema, timezone="UTC") if "timezone" in parameters else make(schema)
    return pa.schema([field.with_nullable(True).remove_metadata() for field in made])
