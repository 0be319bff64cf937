"""Columns of a load as Spark expects them: exactly, or it fails where nobody can tell why."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, FloatType, LongType, StructField, StructType, TimestampType

from arraystore import InvalidInputError
from arraystore.spark.source.read import check_schema, columns_of

BATCH = pa.RecordBatch.from_pydict({"t": pa.array([1, None], pa.int64()), "v": pa.array([1.5, 2.5])})
ALL = StructType([StructField("t", LongType()), StructField("v", DoubleType())])


@dataclass(frozen=True)
class Plan:
    schema: StructType


def test_columns_come_in_the_order_that_is_asked_for():
    [found] = columns_of(iter([BATCH]), StructType([StructField("v", DoubleType()), StructField("t", LongType())]))

    assert found.schema.names == ["v", "t"]
    assert found.to_pydict() == {"v": [1.5, 2.5], "t": [1, None]}


def test_some_of_the_columns_are_enough_and_may_be_not_null():
    [found] = columns_of(iter([BATCH]), StructType([StructField("v", DoubleType(), nullable=False)]))

    assert found.schema == pa.schema([pa.field("v", pa.float64(), nullable=False)])


def test_nulls_in_a_column_that_may_have_none_are_told():
    with pytest.raises(InvalidInputError, match="1 of its values are null"):
        list(columns_of(iter([BATCH]), StructType([StructField("t", LongType(), nullable=False)])))


def test_times_are_in_utc():
    times = pa.RecordBatch.from_pydict({"time": pa.array([0], pa.timestamp("us", tz="UTC"))})

    [found] = columns_of(iter([times]), StructType([StructField("time", TimestampType())]))

    assert found.schema.field("time").type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([StructField("humidity", DoubleType())], "'humidity', but the columns are t, v"),
        ([StructField("v", FloatType())], "'v' as float, but it is double"),
        ([], "must have columns"),
    ],
)
def test_a_schema_that_does_not_fit_is_told(fields: list[StructField], told: str):
    with pytest.raises(InvalidInputError, match=told):
        check_schema(Plan(ALL), StructType(fields))  # type: ignore[arg-type]


def test_a_schema_that_fits_is_let_through():
    check_schema(Plan(ALL), StructType([StructField("v", DoubleType(), nullable=False)]))  # type: ignore[arg-type]
