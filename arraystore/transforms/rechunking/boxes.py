"""Choice of the boxes that tasks copy: as large as memory allows, so that few chunks are read more than once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from arraystore._format.types import Shape

_ACCESS_BYTES = 128 << 10
"""Cost of reading or writing one more chunk, in bytes that are copied in the same time."""
_WRITE_WEIGHT = 2
"""Cost of encoding and writing a byte, in bytes that are read and decoded in the same time."""
_BUFFERED_CHUNKS = 2
"""Chunks at each end that a task holds beside its box, on their way through codecs."""
_MOST_PERMUTED = 4
"""Dimensions up to which boxes are grown in all orders."""


@dataclass(frozen=True)
class CopyCost:
    """Work of copying an array box by box."""

    boxes: int
    reads: int
    """Chunks that are read, each as often as a box needs it."""
    writes: int
    """Chunks that are written."""
    read_bytes: int
    """Bytes that are decoded."""
    write_bytes: int
    """Bytes that are encoded."""

    @property
    def total(self) -> int:
        """Cost in bytes that are read in the same time."""
        return self.read_bytes + _WRITE_WEIGHT * self.write_bytes + _ACCESS_BYTES * (self.reads + self.writes)


@lru_cache(maxsize=4096)
def _along(size: int, step: int, unit: int) -> tuple[int, int, int]:
    """Return counts along one dimension: boxes, chunks they touch, and cells of these."""
    start = np.arange(0, size, step, dtype=np.int64)
    first = start // unit
    last = -(-np.minimum(start + step, size) // unit)
    return len(start), int((last - first).sum()), int((np.minimum(last * unit, size) - first * unit).sum())


def copy_cost(shape: Shape, itemsize: int, box: Shape, read_unit: Shape, write_unit: Shape) -> CopyCost:
    """Return the work of copying an array in boxes, which hold whole units of writing."""
    along = [_along(*sides) for sides in zip(shape, box, read_unit, strict=True)]
    return CopyCost(
        math.prod(each[0] for each in along),
        math.prod(each[1] for each in along),
        math.prod(-(-size // side) for size, side in zip(shape, write_unit, strict=True)),
        math.prod(each[2] for each in along) * itemsize,
        math.prod(shape) * itemsize,
    )


def clip(unit: Sequence[int], shape: Sequence[int]) -> Shape:
    """Return a unit that is nowhere larger than the array."""
    return tuple(max(1, min(side, size)) for side, size in zip(unit, shape, strict=True))


def task_memory(itemsize: int, box: Shape, read_unit: Shape, write_unit: Shape) -> int:
    """Return the bytes of values that a task holds: its box, and chunks on their way through codecs."""
    return itemsize * (math.prod(box) + _BUFFERED_CHUNKS * (math.prod(read_unit) + math.prod(write_unit)))


def best_box(shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int) -> Shape | None:
    """Return the box of least cost that fits into memory and holds whole units of writing; None if none fits."""
    costs = [
        (copy_cost(shape, itemsize, box, read_unit, write_unit).total, math.prod(box), box)
        for box in grown_boxes(shape, itemsize, read_unit, write_unit, memory)
    ]
    return min(costs)[2] if costs else None


def grown_boxes(shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int) -> set[Shape]:
    """Return boxes of whole units of writing within memory, grown in each order of the dimensions."""
    return {
        box for order in _orders(len(shape)) for box in _grown(shape, itemsize, read_unit, write_unit, memory, order)
    }


def _orders(ndim: int) -> Iterator[tuple[int, ...]]:
    """Yield the orders of dimensions in which boxes are grown."""
    if ndim <= _MOST_PERMUTED:
        yield from permutations(range(ndim))
        return
    for first in range(ndim):  # each dimension first, the others from the last to the first
        yield (first, *(axis for axis in reversed(range(ndim)) if axis != first))


def _grown(
    shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int, order: tuple[int, ...]
) -> Iterator[Shape]:
    """Yield boxes that are grown from one unit of writing, one dimension after the other as far as memory allows."""
    room = memory // itemsize - _BUFFERED_CHUNKS * (math.prod(read_unit) + math.prod(write_unit))
    box = list(write_unit)
    if math.prod(box) > room:
        return
    yield tuple(box)
    for axis in order:
        other = math.prod(box) // box[axis]
        box[axis] = _longest(shape[axis], read_unit[axis], write_unit[axis], room // other)
        yield tuple(box)


def _longest(size: int, read_side: int, write_side: int, most: int) -> int:
    """Return the longest side of at most so many cells, if possible one that ends where chunks at both ends do."""
    if size <= most:
        return max(1, size)  # of no cells, too, boxes are cut
    both = math.lcm(read_side, write_side)
    side = both if both <= most else write_side
    return most // side * side
