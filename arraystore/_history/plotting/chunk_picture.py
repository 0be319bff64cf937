"""Chunk grids of any rank and size, reduced to the rows and columns of a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arraystore._format.types import Float64s, Int64s
from arraystore.errors import InvalidInputError

__all__ = ["ChunkPicture", "cell_numbers", "count_along", "make_picture", "rows_of_line"]

_MOST_CELLS = 1 << 16
_SIDE = 256
"""Rows or columns of a picture of two axes, whose cells are _MOST_CELLS or fewer."""

_LONGEST_ROW, _WIDE = 64, 3.0
"""Length from which a single axis is wrapped into rows, and width of these rows over their height."""


@dataclass(frozen=True)
class ChunkPicture:
    """Places of chunks in a picture: two axes of the grid, or one that is wrapped into rows; others are summed up."""

    grid: tuple[int, ...]
    axes: tuple[int, ...]
    """Axes of the grid down and across, the one that is wrapped, or none."""
    rows: int
    columns: int
    step: tuple[int, int]
    """Chunks to a cell, down and across; along a wrapped axis the second."""

    @property
    def is_wrapped(self) -> bool:
        """True if there is one axis, in several rows."""
        return len(self.axes) < 2

    def count(self, coords: Int64s) -> Float64s:
        """Count chunks by cell, shape (rows, columns)."""
        coords = coords[(coords < self.grid).all(axis=1)]
        cells = cell_numbers(coords, self.axes, self.step, self.columns)
        counts = np.bincount(cells, minlength=self.rows * self.columns)
        return counts.reshape(self.rows, self.columns).astype(np.float64)

    @cached_property
    def capacity(self) -> Float64s:
        """Chunks that each cell has room for, shape (rows, columns); 0 beyond the end of a wrapped axis."""
        others = math.prod(float(size) for axis, size in enumerate(self.grid) if axis not in self.axes)
        if self.is_wrapped:
            size = self.grid[self.axes[0]] if self.axes else 1
            room = _room(size, self.step[1], self.rows * self.columns).reshape(self.rows, self.columns)
        else:
            down, across = self.axes
            room = np.outer(
                _room(self.grid[down], self.step[0], self.rows), _room(self.grid[across], self.step[1], self.columns)
            )
        return room * others


def cell_numbers(coords: Int64s, axes: tuple[int, ...], step: tuple[int, int], columns: int) -> Int64s:
    """Return the cells of chunks in row-major order: along two axes, along one that is wrapped, or all in one."""
    if not axes:
        return np.zeros(len(coords), dtype=np.int64)
    across = coords[:, axes[-1]] // step[1]
    return across if len(axes) == 1 else (coords[:, axes[0]] // step[0]) * columns + across


def rows_of_line(size: int, most: int, longest: int, wide: float) -> tuple[int, int, int]:
    """Return rows, columns and chunks to a cell of one axis in at most `most` cells; a row of `longest` is not wrapped.

    Rows of a wrapped one are `wide` times as wide as they are high together.
    """
    step = max(1, -(-size // most))
    cells = -(-size // step)
    columns = cells if cells <= longest else math.ceil(math.sqrt(cells * wide))
    return -(-cells // max(columns, 1)), columns, step


def _room(size: int, step: int, cells: int) -> Float64s:
    """Return how many of `size` items each of some cells holds."""
    starts = np.arange(cells, dtype=np.float64) * step
    return np.clip(size - starts, 0, step)


def make_picture(grid: tuple[int, ...], axes: Sequence[int] | None = None) -> ChunkPicture:
    """Choose the places of the chunks of a grid, by default along its two longest axes."""
    if axes is None:
        longest = sorted(range(len(grid)), key=lambda axis: (-grid[axis], axis))[:2]
        axes = sorted(axis for axis in longest if grid[axis] > 1) or longest[:1]
    if len(axes) > 2 or len(set(axes)) < len(axes):
        raise InvalidInputError(f"dims must be one or two different dimensions, not {len(axes)}")
    return _wrapped(grid, tuple(axes)) if len(axes) < 2 else _flat(grid, (axes[0], axes[1]))


def _wrapped(grid: tuple[int, ...], axes: tuple[int, ...]) -> ChunkPicture:
    size = max(1, grid[axes[0]]) if axes else 1
    rows, columns, step = rows_of_line(size, _MOST_CELLS, _LONGEST_ROW, _WIDE)
    return ChunkPicture(grid, axes, rows, columns, (1, step))


def _flat(grid: tuple[int, ...], axes: tuple[int, int]) -> ChunkPicture:
    down, across = (max(1, grid[axis]) for axis in axes)
    steps = -(-down // _SIDE), -(-across // _SIDE)
    return ChunkPicture(grid, axes, -(-down // steps[0]), -(-across // steps[1]), steps)


def count_along(grid: tuple[int, ...], coords: Int64s, cells: int) -> tuple[Float64s, Float64s]:
    """Count chunks, and the places for them, along the grid in row-major order, in equal parts."""
    places = math.prod(map(float, grid))
    cells = int(max(1, min(cells, places)))
    numbers = np.zeros(len(coords))
    for axis, size in enumerate(grid):
        numbers = numbers * size + coords[:, axis]
    parts = np.minimum(numbers * cells // max(places, 1), cells - 1).astype(np.int64)
    return np.bincount(parts, minlength=cells).astype(np.float64), np.full(cells, places / cells)
