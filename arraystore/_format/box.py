"""Boxes of chunk-grid coordinates, with numbered cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from operator import add, le, lt
from typing import Any

import numpy as np

from arraystore._format.types import Bools, Int64s
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

MAX_DIMENSIONS = 64
"""Limit of numpy."""

MAX_VOLUME = (1 << 63) - 1
"""Limit of the 63 bits of cell numbers."""


@dataclass(frozen=True)
class Box:
    """Box of cells from `low` (inclusive) to `high` (exclusive); without dimensions it has one cell."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each dimension."""
        return tuple([high - low for low, high in zip(self.low, self.high, strict=True)])

    @cached_property
    def volume(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Difference of the numbers of neighbours along each dimension, in row-major order."""
        strides: list[int] = []
        step = 1
        for size in reversed(self.shape):
            strides.append(step)
            step *= size
        return tuple(reversed(strides))

    def contains(self, coords: tuple[int, ...]) -> bool:
        """Return whether a cell is in the box."""
        return all(map(le, self.low, coords)) and all(map(lt, coords, self.high))

    def number(self, coords: tuple[int, ...]) -> int:
        """Return the number of a cell of the box."""
        total = 0
        for c, low, stride in zip(coords, self.low, self.strides, strict=True):
            total += (c - low) * stride
        return total

    def numbers(self, coords: Int64s) -> Int64s:
        """Return the numbers of cells, shape (n, d) to (n,)."""
        if not self.low:
            return np.zeros(len(coords), dtype=np.int64)
        return (coords - np.array(self.low, dtype=np.int64)) @ np.array(self.strides, dtype=np.int64)

    def coords(self, numbers: Int64s) -> Int64s:
        """Return the coordinates of cells, shape (n,) to (n, d)."""
        out = np.empty((len(numbers), len(self.low)), dtype=np.int64)
        rest = numbers
        for axis, stride in enumerate(self.strides):
            out[:, axis], rest = np.divmod(rest, stride)
            out[:, axis] += self.low[axis]
        return out

    def shifted(self, shift: tuple[int, ...]) -> Box:
        """Return the box moved by a vector."""
        return Box(
            tuple(map(add, self.low, shift)),
            tuple(map(add, self.high, shift)),
        )

    def intersects(self, other: Box) -> bool:
        """Return whether two boxes share a cell."""
        return all(map(lt, self.low, other.high)) and all(map(lt, other.low, self.high))

    def encloses(self, other: Box) -> bool:
        """Return whether all cells of another box are in the box."""
        return all(map(le, self.low, other.low)) and all(map(le, other.high, self.high))

    def intersection(self, other: Box) -> Box:
        """Return the box that two overlapping boxes share."""
        if self == other:
            return self
        return Box(tuple(map(max, self.low, other.low)), tuple(map(min, self.high, other.high)))

    def inside(self, coords: Int64s) -> Bools:
        """Return which cells are in the box, shape (n, d) to (n,)."""
        low, high = np.array(self.low, dtype=np.int64), np.array(self.high, dtype=np.int64)
        inside: Bools = ((coords >= low) & (coords < high)).all(axis=1)
        return inside

    def to_wire(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Encode as a msgpack value."""
        return (self.low, self.high)

    @classmethod
    def from_wire(cls, name: str, value: Any) -> Box:
        """Decode the value of `to_wire`; raises `FormatError`."""
        if type(value) is not tuple or len(value) != 2:
            raise FormatError(name, "a box must be a list of two lists")
        low, high = value
        if type(low) is not tuple or type(high) is not tuple or len(low) != len(high) or len(low) > MAX_DIMENSIONS:
            raise FormatError(name, "a box must have as many lower as upper bounds, and <= 64")
        for first, end in zip(low, high, strict=True):
            if type(first) is not int or type(end) is not int or not 0 <= first < end <= MAX_VOLUME:
                raise FormatError(name, f"bounds {first!r} and {end!r} of a box must be ascending")
        box = cls(low, high)
        if box.volume > MAX_VOLUME:
            raise FormatError(name, "a box must have < 2**63 cells")
        return box


def hull_of(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around boxes."""
    lows = zip(*[box.low for box in boxes], strict=True)
    highs = zip(*[box.high for box in boxes], strict=True)
    return Box(tuple(map(min, lows)), tuple(map(max, highs)))


def bounding_box(coords: Int64s) -> Box:
    """Return the bounding box of cells, shape (n, d) with n > 0."""
    low = coords.min(axis=0)
    high = coords.max(axis=0) + 1
    return Box(tuple(low.tolist()), tuple(high.tolist()))
