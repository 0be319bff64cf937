"""Geometry of arrays: the chunk of a cell, its place there, and the task that owns it.

Cells are identified by their *position*: number of the chunk (in C order) × cells of a chunk + place in the chunk (in C
order).  It is one integer, which Spark can compute, so that shuffled rows consist of it and the values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arraystore._format.types import Int64s
from arraystore.errors import InvalidInputError

NOWHERE = -1
"""Stand-in for an index: the row is outside the array, or its label is not in the coordinate."""

MISSING = -2
"""Stand-in for an index: the row has no value in the column of the dimension."""

_RUN_BYTES = 1 << 20
"""Bytes of neighbouring chunks that go to the same task: few packs, and still balanced for small inputs."""


@dataclass(frozen=True)
class ChunkGrid:
    """Shape and chunks of an array."""

    shape: tuple[int, ...]
    """Shape of the array."""
    chunk: tuple[int, ...]
    """Shape of what is written whole: a shard where there are shards, else a chunk."""

    def __post_init__(self) -> None:
        if self.cells * self.chunks >= 2**62:
            raise InvalidInputError(f"an array of shape {self.shape} has more cells than can be numbered")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    @cached_property
    def chunks(self) -> int:
        """Number of all chunks."""
        return math.prod(self.counts)

    @cached_property
    def cells(self) -> int:
        """Cells of a chunk, those outside of the array included."""
        return math.prod(self.chunk)

    @cached_property
    def chunk_strides(self) -> tuple[int, ...]:
        """Increment of the chunk number for a step to the next chunk, by dimension."""
        return _strides(self.counts)

    @cached_property
    def cell_strides(self) -> tuple[int, ...]:
        """Increment of the place within a chunk for a step to the next cell, by dimension."""
        return _strides(self.chunk)

    def positions(self, indices: Sequence[Int64s]) -> Int64s:
        """Return the positions of cells, or negative codes that `flaw` explains."""
        positions = np.zeros(len(indices[0]), np.int64)
        for index, chunk, chunk_stride, cell_stride in zip(
            indices, self.chunk, self.chunk_strides, self.cell_strides, strict=True
        ):
            positions += index * cell_stride
            over = chunk_stride * self.cells - chunk * cell_stride
            if over:
                positions += (index // chunk) * over
        for axis in reversed(range(len(indices))):  # the first dimension with a flaw is the one that is reported
            if len(positions) and indices[axis].min() < 0:
                flawed = indices[axis] < 0
                positions[flawed] = indices[axis][flawed] - 2 * axis
        return positions

    def position_sql(self, names: Sequence[str]) -> str:
        """Return `positions` as an expression of Spark SQL over columns of indices of type BIGINT."""
        terms: list[str] = []
        for name, chunk, chunk_stride, cell_stride, count in zip(
            names, self.chunk, self.chunk_strides, self.cell_strides, self.counts, strict=True
        ):
            over = chunk_stride * self.cells - chunk * cell_stride
            terms.append(f"{name} * {cell_stride}L" if cell_stride != 1 else name)
            if over and count > 1:
                terms.append(f"({name} DIV {chunk}L) * {over}L")
        flaws = "".join(f" WHEN {name} < 0 THEN {name} - {2 * axis}L" for axis, name in enumerate(names))
        return f"CASE{flaws} ELSE {' + '.join(terms)} END"

    def indices(self, position: int) -> tuple[int, ...]:
        """Return the indices of a cell."""
        number, place = divmod(position, self.cells)
        coords = np.unravel_index(number, self.counts)
        inside = np.unravel_index(place, self.chunk)
        return tuple(int(c) * n + int(i) for c, n, i in zip(coords, self.chunk, inside, strict=True))

    def box(self, number: int) -> tuple[slice, ...]:
        """Return the slices of a chunk, cut off at the end of the array."""
        coords = np.unravel_index(number, self.counts)
        return tuple(
            slice(int(c) * n, min((int(c) + 1) * n, length))
            for c, n, length in zip(coords, self.chunk, self.shape, strict=True)
        )

    def inside(self, number: int) -> tuple[slice, ...]:
        """Return the slices of a chunk's own cells that are in the array."""
        return tuple(slice(0, box.stop - box.start) for box in self.box(number))

    def cells_inside(self, numbers: Int64s) -> Int64s:
        """Return how many cells of chunks are in the array; 0 for numbers of no chunk."""
        if not self.chunks:
            return np.zeros(len(numbers), np.int64)
        valid = (numbers >= 0) & (numbers < self.chunks)
        coords = np.unravel_index(np.where(valid, numbers, 0), self.counts)
        cells = valid.astype(np.int64)
        for coord, side, length in zip(coords, self.chunk, self.shape, strict=True):
            cells *= np.minimum(side, length - coord * side)
        return cells


def _strides(lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(lengths[axis + 1 :]) for axis in range(len(lengths)))


def flaw(position: int) -> tuple[int, int]:
    """Return the dimension that a negative position refers to, and `NOWHERE` or `MISSING`."""
    axis, kind = divmod(-position - 1, 2)
    return axis, -1 - kind


@dataclass(frozen=True)
class ChunkOwners:
    """Assignment of chunks to tasks: each has one owner, neighbours along any dimension have different ones."""

    grid: ChunkGrid
    """Geometry of the array."""
    tasks: int
    """Number of tasks."""
    run: int = 1
    """Count of consecutive chunks along the last dimension with the same owner."""

    @classmethod
    def of(cls, grid: ChunkGrid, tasks: int, cell_bytes: int) -> ChunkOwners:
        """Return owners that keep packs few and tasks balanced."""
        room = _RUN_BYTES // max(1, grid.cells * cell_bytes)
        along = grid.counts[-1]
        return cls(grid, tasks, max(1, min(room, -(-grid.chunks // (4 * tasks)), along)))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Increment of the owner's number for a step to the next chunk, by dimension, modulo `tasks`.

        In C order all tasks own the same number of chunks.  But rows that come in batches (a day, one station) may be
        all in one column of chunks: where there are many of them, each step must therefore lead to another task.
        """
        lengths = (*self.grid.counts[:-1], -(-self.grid.counts[-1] // self.run))
        weights = list(_strides(lengths))
        if math.prod(lengths) >= 4 * self.tasks:
            for axis, weight in enumerate(weights):
                weights[axis] = next(w for w in itertools.count(weight) if math.gcd(w, self.tasks) == 1)
        return tuple(weights)

    def owner(self, chunks: Int64s) -> Int64s:
        """Return the numbers of the tasks that own chunks."""
        if not self.grid.chunks:  # only flawed rows are in an array without cells
            return np.zeros(len(chunks), np.int64)
        coords = np.unravel_index(chunks, self.grid.counts)
        total = np.zeros(len(chunks), np.int64)
        for axis, (coord, weight) in enumerate(zip(coords, self.weights, strict=True)):
            step = coord // self.run if axis == len(coords) - 1 else coord
            total += step * (weight % self.tasks)
        return total % self.tasks

    def sql(self, position: str) -> str:
        """Return `owner` as an expression of Spark SQL over the column of positions; flawed rows go to some task."""
        number = f"(greatest({position}, 0L) DIV {self.grid.cells}L)"
        coords: list[str] = []
        for axis, (count, stride) in enumerate(zip(self.grid.counts, self.grid.chunk_strides, strict=True)):
            coord = number if stride == 1 else f"({number} DIV {stride}L)"
            coords.append(f"({coord} % {count}L)" if axis > 0 and self.grid.chunks != count * stride else coord)
        return self._sql(coords)

    def sql_of_indices(self, indices: Sequence[str]) -> str:
        """Return `owner` as one over columns of indices of type BIGINT; flawed rows go to some task."""
        sides = zip(indices, self.grid.chunk, strict=True)
        return self._sql([f"(greatest({index}, 0L) DIV {side}L)" for index, side in sides])

    def _sql(self, coords: Sequence[str]) -> str:
        if self.tasks == 1 or self.grid.chunks == 0:
            return "0"
        terms: list[str] = []
        for axis, (coord, count, weight) in enumerate(zip(coords, self.grid.counts, self.weights, strict=True)):
            run = self.run if axis == len(coords) - 1 else 1
            if weight % self.tasks and count > run:
                terms.append(f"{coord if run == 1 else f'({coord} DIV {run}L)'} * {weight % self.tasks}L")
        return f"CAST(({' + '.join(terms) or '0L'}) % {self.tasks}L AS INT)"
