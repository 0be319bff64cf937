"""The arrays of the Spark cases: what a cell holds follows from where it is, so that any process can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Cube", "Field", "Line", "Region", "share"]

Region = tuple[slice, ...]

_T, _Y, _X = np.float32(31), np.float32(17), np.float32(7)
_STRIDE = 7919
"""A prime that divides no number of rows here: every so-many-th row meets each row once."""


class Field(Protocol):
    """An array that is written region by region."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def chunks(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    def regions(self) -> list[Region]:
        """Regions of whole chunks that cover the array, in order."""
        ...

    def values(self, region: Region) -> npt.NDArray[Any]:
        """What the cells of a region hold."""
        ...


def share(regions: list[Region], task: int, tasks: int) -> list[Region]:
    """The regions of one task: neighbours."""
    each = math.ceil(len(regions) / tasks)
    return regions[task * each : (task + 1) * each]


@dataclass(frozen=True, slots=True)
class Line:
    """A row of small chunks of numbers that do not compress.

    Parameters
    ----------
    count
        Number of chunks.
    side
        Cells of a chunk, of four bytes each.
    parts
        Number of regions.
    """

    count: int
    side: int
    parts: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count * self.side,)

    @property
    def chunks(self) -> tuple[int, ...]:
        return (self.side,)

    @property
    def dtype(self) -> str:
        return "uint32"

    def regions(self) -> list[Region]:
        each, (cells,) = math.ceil(self.count / self.parts) * self.side, self.shape
        return [(slice(start, min(start + each, cells)),) for start in range(0, cells, each)]

    def values(self, region: Region) -> npt.NDArray[np.uint32]:
        start, stop, _ = region[0].indices(*self.shape)
        return np.random.default_rng(start).integers(0, 1 << 32, stop - start, dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Cube:
    """An array of three dimensions, t, y and x, of float32.

    Parameters
    ----------
    shape, chunks
        As in Zarr.
    """

    shape: tuple[int, int, int]
    chunks: tuple[int, int, int]

    @property
    def dtype(self) -> str:
        return "float32"

    @property
    def rows(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells."""
        return 4 * self.rows

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-side // chunk) for side, chunk in zip(self.shape, self.chunks, strict=True))

    def regions(self) -> list[Region]:
        """One region for each chunk, in row-major order."""
        return [
            tuple(slice(at * side, (at + 1) * side) for at, side in zip(place, self.chunks, strict=True))
            for place in np.ndindex(*self.grid)
        ]

    def values(self, region: Region) -> npt.NDArray[np.float32]:
        """What the cells of a region hold: whole numbers, so that sums are exact in any order."""
        t, y, x = (
            np.arange(*part.indices(side), dtype=np.float32) for part, side in zip(region, self.shape, strict=True)
        )
        found: npt.NDArray[np.float32] = (t * _T)[:, np.newaxis, np.newaxis] + ((y * _Y)[:, np.newaxis] + x * _X)
        return found

    def whole(self) -> npt.NDArray[np.float32]:
        """What all cells hold."""
        return self.values((slice(None),) * 3)

    def frame(self, spark: SparkSession, *, shuffled: bool) -> DataFrame:
        """One row for each cell: t, y, x (int) and value (float), in row-major order or all over the place."""
        from pyspark.sql import functions

        _, ny, nx = self.shape
        number = (functions.col("id") * _STRIDE) % self.rows if shuffled else functions.col("id")
        parts = {"t": functions.floor(number / (ny * nx)), "y": functions.floor(number / nx) % ny, "x": number % nx}
        places = spark.range(self.rows).select(*(part.cast("int").alias(name) for name, part in parts.items()))
        value = functions.col("t") * int(_T) + functions.col("y") * int(_Y) + functions.col("x") * int(_X)
        return places.select("t", "y", "x", value.cast("float").alias("value"))

    def chunk_column(self) -> Column:
        """Number of the chunk that a row of t, y and x is in."""
        from pyspark.sql import functions

        _, rows, columns = self.grid
        t, y, x = (
            functions.floor(functions.col(name) / side) for name, side in zip(("t", "y", "x"), self.chunks, strict=True)
        )
        return (t * rows + y) * columns + x

    def sums(self, frame: DataFrame) -> tuple[int, ...]:
        """Number of rows, and sums that change when rows are lost, doubled or hold what belongs to others."""
        from pyspark.sql import functions

        place = self._place()
        weighted = functions.sum((place % _STRIDE) * functions.col("value").cast("double"))
        row: Any = frame.agg(functions.count("*"), functions.sum(place), functions.sum("value"), weighted).first()
        return tuple(int(figure) for figure in row)

    def expected_sums(self) -> tuple[int, ...]:
        """What `sums` gives for all cells, by numpy."""
        place = np.arange(self.rows, dtype=np.int64)
        values = self.whole().reshape(-1).astype(np.int64)
        return (self.rows, int(place.sum()), int(values.sum()), int((place % _STRIDE * values).sum()))

    def _place(self) -> Column:
        from pyspark.sql import functions

        _, ny, nx = self.shape
        return (functions.col("t").cast("long") * ny + functions.col("y")) * nx + functions.col("x")
