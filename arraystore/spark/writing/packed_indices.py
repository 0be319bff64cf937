"""Indices of rows in one integer while they are shuffled.

A row of Spark has eight bytes for each column whatever its type, so three columns of indices are shuffled as one, and
are unpacked behind the shuffle by shifts. Positions (see `arraystore.spark.writing.chunk_grid`) would be as small, but
take four divisions for each index to unpack, which costs more than the shuffle saves. Rows outside of the array keep
their columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql.functions import expr

from arraystore.spark.writing.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from arraystore.spark.writing.axes import Axis
    from arraystore.spark.writing.write_plan import WritePlan

_MOST_BITS = 63
_FEWEST_COLUMNS = 3
"""Columns of indices from which on two, one with all of them and one for rows outside of the array, are fewer."""


@dataclass(frozen=True)
class PackedIndices:
    """Columns of indices along an array, and the bits that each takes."""

    axes: tuple[Axis, ...]
    """Dimensions of the array."""
    schema: StructType
    """Columns of the frame."""
    prefix: str
    """What the name of no column of the frame begins with."""

    @classmethod
    def of(cls, df: DataFrame, plan: WritePlan, prefix: str) -> PackedIndices | None:
        """Return how rows are packed; None where they had better stay as they are."""
        columns = {axis.column for axis in plan.axes}
        if any(axis.labels is not None for axis in plan.axes) or len(columns) < len(plan.axes):
            return None
        if len(columns) < _FEWEST_COLUMNS or not plan.grid.chunks:
            return None
        packed = cls(plan.axes, df.schema, prefix)
        return packed if sum(packed._bits) <= _MOST_BITS else None

    @property
    def _bits(self) -> list[int]:
        return [max(1, (axis.size - 1).bit_length()) for axis in self.axes]

    @property
    def _shifts(self) -> list[int]:
        return list(accumulate(self._bits[:0:-1], initial=0))[::-1]

    @property
    def _packed(self) -> str:
        return quoted(f"{self.prefix}_packed")

    @property
    def _outside(self) -> str:
        return quoted(f"{self.prefix}_outside")

    def pack(self, df: DataFrame) -> DataFrame:
        """Return rows with the packed indices, and with what lies outside of the array, in place of their columns."""
        names = [quoted(axis.column) for axis in self.axes]
        inside = " AND ".join(axis.inside_sql() for axis in self.axes)
        parts = (f"shiftleft(CAST({name} AS BIGINT), {at})" for name, at in zip(names, self._shifts, strict=True))
        frame = df.selectExpr("*", f"CASE WHEN {inside} THEN {' | '.join(parts)} END AS {self._packed}")
        outside = f"CASE WHEN {self._packed} IS NULL THEN struct({', '.join(names)}) END AS {self._outside}"
        others = (name for name in map(quoted, self.schema.names) if name not in names)
        return frame.selectExpr(self._packed, outside, *others)

    def indices(self) -> list[str]:
        """Return the indices as expressions of type BIGINT; NULL for rows outside of the array."""
        return [
            f"({self._shifted(shift)} & {(1 << bits) - 1}L)"
            for bits, shift in zip(self._bits, self._shifts, strict=True)
        ]

    def _shifted(self, shift: int) -> str:
        return f"shiftright({self._packed}, {shift})" if shift else self._packed

    def unpack(self, frame: DataFrame) -> DataFrame:
        """Return rows with the columns that they had."""
        indices = dict(zip((axis.column for axis in self.axes), self.indices(), strict=True))
        return frame.select(
            *(
                self._unpacked(field, indices[field.name]) if field.name in indices else expr(quoted(field.name))
                for field in self.schema
            )
        )

    def _unpacked(self, field: StructField, index: str) -> Column:
        kind, name = field.dataType.simpleString(), quoted(field.name)
        text = f"CASE WHEN {self._packed} IS NULL THEN {self._outside}.{name} ELSE CAST({index} AS {kind}) END"
        if not field.nullable:
            text = f"coalesce({text}, CAST(0 AS {kind}))"
        return expr(text).alias(field.name, metadata=field.metadata)
