"""Blocks of arrays as Arrow batches of rows: one for each position, or one for each chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from arraystore._format.types import Array
from arraystore.errors import InvalidInputError
from arraystore.spark.reading.arrow_columns import arrow_array, arrow_type, spark_type
from arraystore.spark.reading.blocks import Block
from arraystore.spark.reading.decoding import Column, filled
from arraystore.spark.reading.frame_plan import FramePlan, FrameVariable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ChunkData = Literal["binary", "array"]

_ROWS = 1 << 16
"""Rows of a batch: enough for its overhead not to matter, few enough for the caches of the Java virtual machine."""


@dataclass(frozen=True)
class PositionRows:
    """Rows of positions: a column for each dimension, unless they are left out, and one for each variable."""

    plan: FramePlan

    @cached_property
    def _schema(self) -> pa.Schema:
        labels = zip(self.plan.axes, self.plan.labels, strict=True)
        axes = [
            (axis.name, arrow_type(f"coordinate {axis.name!r}", np.dtype(np.int64) if of is None else of.values.dtype))
            for axis, of in (() if self.plan.coords == "none" else labels)
        ]
        return pa.schema(axes + [(one.column, arrow_type(*_value_type(one))) for one in self.plan.variables])

    def spark_schema(self) -> StructType:
        """Return the schema of the frame."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._schema)

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block."""
        flat = [column.map(np.ravel) for column in block.columns]
        axes = range(len(self._schema) - len(flat))
        row = 0
        for slab in _slabs(block.shape):
            shape = tuple(stop - start for start, stop in slab)
            size = int(np.prod(shape, dtype=np.int64))
            columns = [self._along(number, block, slab, shape) for number in axes]
            columns += [column.map(itemgetter(slice(row, row + size))) for column in flat]
            arrays = [arrow_array(*column, field.type) for column, field in zip(columns, self._schema, strict=True)]
            yield self._satisfying(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            row += size

    def _satisfying(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that satisfy the predicate; a missing value satisfies no comparison."""
        kept = np.ones(batch.num_rows, dtype=np.bool_)
        for comparison in self.plan.where:
            column = batch.column(batch.schema.get_field_index(comparison.column))
            kept &= comparison.holds(_numbers(column)) & column.is_valid().to_numpy(zero_copy_only=False)
        return batch if kept.all() else batch.filter(pa.array(kept))

    def _along(self, number: int, block: Block, slab: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> Column:
        """Return labels or positions of a dimension, repeated along the other dimensions."""
        part = slice(*(block.bounds[number][0] + at for at in slab[number]))
        labels = self.plan.labels[number]
        along = [1] * len(shape)
        along[number] = shape[number]
        if labels is None:
            column = Column(np.asarray(self.plan.axes[number].positions[part], dtype=np.int64), None)
        else:
            column = labels.map(itemgetter(part))
        return column.map(lambda values: np.broadcast_to(values.reshape(along), shape).reshape(-1))


def _slabs(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Cut a box into slabs that lie one after the other in row-major order, each of `_ROWS` positions at most."""
    inner, axis = 1, len(shape)
    while axis and inner * shape[axis - 1] <= _ROWS:
        axis -= 1
        inner *= shape[axis]
    rest = tuple((0, size) for size in shape[axis:])
    if not axis:
        yield rest
        return
    step = max(_ROWS // inner, 1)
    size = shape[axis - 1]
    for place in np.ndindex(shape[: axis - 1]):
        fixed = tuple((at, at + 1) for at in place)
        for start in range(0, size, step):
            yield (*fixed, (start, min(start + step, size)), *rest)


def _numbers(column: pa.Array) -> Array:
    """Return the numbers of a column, whatever stands for a null."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.uint64())
    filler: Any = False if pa.types.is_boolean(column.type) else 0
    return np.asarray(column.fill_null(filler).to_numpy(zero_copy_only=False))


def _value_type(variable: FrameVariable) -> tuple[str, np.dtype[Any]]:
    return f"array {variable.path!r}", variable.decoder.dtype


@dataclass(frozen=True)
class ChunkRows:
    """Rows of chunks: where each begins, its shape, and for each variable all its values in row-major order."""

    plan: FramePlan
    data: ChunkData

    def spark_schema(self) -> StructType:
        """Return the schema of the frame."""
        from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StructField, StructType

        fields = [StructField(f"{axis.name}_start", LongType()) for axis in self.plan.axes]
        fields.append(StructField("shape", ArrayType(IntegerType())))
        for one in self.plan.variables:
            element = spark_type(*_value_type(one))
            if self.data == "array":
                fields.append(StructField(one.column, ArrayType(element)))
            else:
                fields.append(StructField(one.column, BinaryType(), metadata={"dtype": _packed_type(one).str}))
        return StructType(fields)

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block, in one batch."""
        chunks = list(block.chunks(self.plan))
        columns: list[pa.Array] = []
        names: list[str] = []
        for number, axis in enumerate(self.plan.axes):
            starts = [int(axis.positions[chunk.bounds[number][0]]) for chunk in chunks]
            columns.append(pa.array(starts, pa.int64()))
            names.append(f"{axis.name}_start")
        columns.append(pa.array([chunk.shape for chunk in chunks], pa.list_(pa.int32())))
        names.append("shape")
        for number, variable in enumerate(self.plan.variables):
            pack = self._as_lists if self.data == "array" else self._as_bytes
            columns.append(pack(variable, [chunk.columns[number] for chunk in chunks]))
            names.append(variable.column)
        yield pa.RecordBatch.from_arrays(columns, names=names)

    def _as_bytes(self, variable: FrameVariable, columns: list[Column]) -> pa.Array:
        kind = _packed_type(variable)
        return pa.array([_pack_values(variable, *column).astype(kind, copy=False).tobytes() for column in columns])

    def _as_lists(self, variable: FrameVariable, columns: list[Column]) -> pa.Array:
        kind = arrow_type(*_value_type(variable))
        parts = [arrow_array(*column.map(np.ravel), kind) for column in columns]
        offsets = np.cumsum([0] + [len(part) for part in parts], dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(parts))


def _pack_values(variable: FrameVariable, values: Array, missing: Any) -> Array:
    if variable.decoder.fills and values.dtype.kind in "iub":
        values = values.astype(np.float64)  # in all chunks alike, whether values are missing or not
    if missing is not None and values.dtype.kind in "US":
        return np.where(missing, np.zeros((), values.dtype), values)
    return filled(values, missing)


def _packed_type(variable: FrameVariable) -> np.dtype[Any]:
    """Return the type of packed values, in little-endian byte order."""
    kind = variable.decoder.dtype
    if kind.kind == "T":
        raise InvalidInputError(
            f"array {variable.path!r} has strings of variable length, which data='binary' does not support: use "
            "data='array'"
        )
    if variable.decoder.fills and kind.kind in "iub":
        kind = np.dtype(np.float64)
    return kind.newbyteorder("<")
