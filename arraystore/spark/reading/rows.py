"""Blocks of arrays as Arrow batches of rows: one for each position, or one for each chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from arraystore.errors import InvalidInputError
from arraystore.spark.reading.arrow_columns import arrow_array, arrow_type, spark_type
from arraystore.spark.reading.blocks import Block
from arraystore.spark.reading.decoding import Values, filled
from arraystore.spark.reading.frame_plan import FramePlan, FrameVariable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ChunkData", "ChunkRows", "PositionRows"]

ChunkData = Literal["binary", "array"]

_ROWS = 1 << 16
"""Rows of a batch: enough for its overhead not to matter, few enough for the caches of the Java virtual machine."""


@dataclass(frozen=True)
class PositionRows:
    """Rows of positions: a column for each dimension, unless they are left out, and one for each variable."""

    plan: FramePlan

    def spark_schema(self) -> StructType:
        """Return the schema of the frame."""
        from pyspark.sql.types import StructField, StructType

        axes = [StructField(axis.name, spark_type(*self._axis_type(number))) for number, axis in self._axes()]
        return StructType(
            axes + [StructField(one.column, spark_type(*_value_type(one))) for one in self.plan.variables]
        )

    def _axes(self) -> list[tuple[int, Any]]:
        return [] if self.plan.coords == "none" else list(enumerate(self.plan.axes))

    def _axis_type(self, number: int) -> tuple[str, np.dtype[Any]]:
        labels = self.plan.labels[number]
        return f"coordinate {self.plan.axes[number].name!r}", np.dtype(np.int64) if labels is None else (
            labels.values.dtype
        )

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block."""
        names = [axis.name for _, axis in self._axes()] + [one.column for one in self.plan.variables]
        flat = [
            (values.reshape(-1), None if missing is None else missing.reshape(-1)) for values, missing in block.columns
        ]
        kinds = [arrow_type(*_value_type(one)) for one in self.plan.variables]
        row = 0
        for slab in _slabs(block.shape):
            shape = tuple(stop - start for start, stop in slab)
            size = int(np.prod(shape, dtype=np.int64))
            columns = [self._axis_column(number, block, slab, shape) for number, _ in self._axes()]
            for (values, missing), kind in zip(flat, kinds, strict=True):
                part = None if missing is None else missing[row : row + size]
                columns.append(arrow_array(values[row : row + size], part, kind))
            yield pa.RecordBatch.from_arrays(columns, names=names)
            row += size

    def _axis_column(
        self, number: int, block: Block, slab: tuple[tuple[int, int], ...], shape: tuple[int, ...]
    ) -> pa.Array:
        """Return the column of a dimension: its labels or positions, repeated along the other dimensions."""
        first = block.bounds[number][0]
        start, stop = (first + at for at in slab[number])
        labels = self.plan.labels[number]
        along = [1] * len(shape)
        along[number] = shape[number]

        def spread(values: Values) -> Values:
            return np.broadcast_to(values.reshape(along), shape).reshape(-1)

        if labels is None:
            positions = self.plan.axes[number].positions[start:stop]
            return pa.array(spread(np.asarray(positions, dtype=np.int64)))
        missing = None if labels.missing is None else spread(labels.missing[start:stop])
        return arrow_array(spread(labels.values[start:stop]), missing, arrow_type(*self._axis_type(number)))


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

    def _as_bytes(self, variable: FrameVariable, columns: list[Any]) -> pa.Array:
        kind = _packed_type(variable)
        return pa.array([_pack_values(variable, *column).astype(kind, copy=False).tobytes() for column in columns])

    def _as_lists(self, variable: FrameVariable, columns: list[Any]) -> pa.Array:
        kind = arrow_type(*_value_type(variable))
        parts = [
            arrow_array(values.reshape(-1), None if missing is None else missing.reshape(-1), kind)
            for values, missing in columns
        ]
        offsets = np.cumsum([0] + [len(part) for part in parts], dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(parts))


def _pack_values(variable: FrameVariable, values: Values, missing: Any) -> Values:
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
