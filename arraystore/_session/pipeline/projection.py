"""Selections as products: the chunks, and the items within them, that a selection has along each axis.

zarr hands a pipeline one tuple per chunk.  Slices, integers and blocks make these tuples a product of what happens
along each axis; where they are, the whole selection is handled as boxes of chunks of which the same items are selected.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from operator import eq
from typing import Any

import numpy as np

from arraystore._format.types import Int64s
from arraystore._runtime.values import dataclass

Batch = Sequence[tuple[Any, Any, Any, Any, bool]]
"""What zarr passes to a pipeline: path, specification, selection in the chunk, selection in the array, completeness."""


@dataclass(frozen=True)
class Group:
    """Neighbouring chunks along one axis, of each of which the same items are selected."""

    first: int
    """Position of the first chunk among those of the axis."""
    count: int
    """Number of chunks."""
    within: slice
    """Items of each chunk."""
    start: int
    """Position of the first item in the user's array."""
    size: int
    """Items of each chunk in the user's array."""

    def is_whole(self, side: int) -> bool:
        """Tell whether all items of chunks of this side are selected."""
        return self.within == slice(0, side, 1)


@dataclass(frozen=True)
class GroupBox:
    """A box of chunks of which the same items are selected: one group for each axis."""

    groups: tuple[Group, ...]

    @property
    def low(self) -> tuple[int, ...]:
        """Positions of the first chunk."""
        return tuple([group.first for group in self.groups])

    @property
    def high(self) -> tuple[int, ...]:
        """Positions behind the last chunk."""
        return tuple([group.first + group.count for group in self.groups])

    @property
    def count(self) -> int:
        """Number of chunks."""
        return math.prod([group.count for group in self.groups])

    @property
    def within(self) -> tuple[slice, ...]:
        """Items of each chunk."""
        return tuple([group.within for group in self.groups])

    def is_whole(self, chunk_shape: tuple[int, ...]) -> bool:
        """Tell whether the chunks are selected as a whole."""
        return all(group.is_whole(side) for group, side in zip(self.groups, chunk_shape, strict=True))

    def items(self, low: tuple[int, ...], high: tuple[int, ...], array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a view of the user's array for some chunks of the box: chunks along each axis, then items of each."""
        cut = [
            slice(g.start + (a - g.first) * g.size, g.start + (b - g.first) * g.size)
            for g, a, b in zip(self.groups, low, high, strict=True)
        ]
        part = array[tuple(cut)]
        counts = [b - a for a, b in zip(low, high, strict=True)]
        sizes = [group.size for group in self.groups]
        steps = [stride * size for stride, size in zip(part.strides, sizes, strict=True)]
        # not `reshape`, which may copy
        return np.lib.stride_tricks.as_strided(part, (*counts, *sizes), (*steps, *part.strides))


@dataclass(frozen=True)
class Projection:
    """A selection as the product of what is selected along each axis."""

    axes: tuple[Int64s, ...]
    """Chunk coordinates along each axis, ascending."""
    groups: tuple[tuple[Group, ...], ...]
    """Groups of each axis, in order."""
    dropped: tuple[bool, ...]
    """Axes that an integer selects, which the user's array does not have."""
    complete: np.ndarray[Any, Any]
    """Whether zarr overwrites all items of each chunk that are in the array."""

    @property
    def sides(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(map(len, self.axes))

    @property
    def count(self) -> int:
        """Number of chunks."""
        return math.prod(self.sides)

    @property
    def shape(self) -> tuple[int, ...]:
        """Items along each axis, 1 for those that the user's array does not have."""
        return tuple([groups[-1].start + groups[-1].count * groups[-1].size for groups in self.groups])

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Shape of the user's array."""
        return tuple([size for size, dropped in zip(self.shape, self.dropped, strict=True) if not dropped])

    def boxes(self) -> Iterator[GroupBox]:
        """Yield the boxes of chunks of which the same items are selected."""
        return map(GroupBox, itertools.product(*self.groups))

    def are_complete(self, low: tuple[int, ...], high: tuple[int, ...]) -> bool:
        """Tell whether nothing is kept of a box of chunks."""
        return bool(self.complete[tuple([slice(a, b) for a, b in zip(low, high, strict=True)])].all())

    def with_all_axes(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Return a view of the user's array with all axes; None if it does not have the shape of the selection."""
        if array.shape != self.kept_shape:
            return None
        return array[tuple([None if dropped else slice(None) for dropped in self.dropped])]


def project(batch: Batch, prefix: str, separator: str, dimensions: int) -> Projection | None:
    """Return the selection as a product; None if it is not one."""
    coords = coordinates([item[0].path for item in batch], prefix, separator, dimensions)
    if coords is None:
        return None
    blocks = _blocks(coords)
    axes = [coords[: blocks[k] : blocks[k + 1], k] for k in range(dimensions)]
    sides = tuple(map(len, axes))
    if math.prod(sides) != len(batch) or not all(_is_along(coords, sides, k, axis) for k, axis in enumerate(axes)):
        return None
    return _projection(batch, axes, blocks)


def whole_chunks(axes: Sequence[Int64s], chunk_shape: tuple[int, ...]) -> Projection:
    """Return the selection of all items of chunks."""
    groups = [(Group(0, len(axis), slice(0, side, 1), 0, side),) for axis, side in zip(axes, chunk_shape, strict=True)]
    complete = np.ones(tuple(map(len, axes)), dtype=bool)
    return Projection(tuple(axes), tuple(groups), (False,) * len(axes), complete)


def coordinates(paths: list[str], prefix: str, separator: str, dimensions: int) -> Int64s | None:
    """Parse the keys of chunks, shape (n, d); None if they are not all keys of chunks of one array."""
    cut = len(prefix)
    parts = separator.join([path[cut:] for path in paths]).split(separator)
    if len(parts) != len(paths) * dimensions:
        return None
    try:
        numbers = np.fromiter(map(int, parts), np.int64, len(parts))
    except (ValueError, OverflowError):
        return None
    return numbers.reshape(len(paths), dimensions)


def _blocks(coords: Int64s) -> list[int]:
    """Return how many leading chunks agree in the first 0, 1, ... coordinates."""
    blocks = [len(coords)]
    for k in range(coords.shape[1]):
        other = coords[: blocks[-1], k] != coords[0, k]
        blocks.append(int(other.argmax()) or blocks[-1])
    return blocks


def _is_along(coords: Int64s, sides: tuple[int, ...], k: int, axis: Int64s) -> bool:
    """Tell whether one coordinate of all chunks is as in the product of the axes."""
    shaped = coords[:, k].reshape(sides)
    along = axis.reshape([-1 if i == k else 1 for i in range(len(sides))])
    return bool((shaped == along).all()) and bool((axis[1:] > axis[:-1]).all())


def _projection(batch: Batch, axes: list[Int64s], blocks: list[int]) -> Projection | None:
    within = _factors(batch, 2, axes, blocks, [True] * len(axes))
    if within is None:
        return None
    dropped = tuple([isinstance(items[0], int | np.integer) for items in within])
    outside = _factors(batch, 3, axes, blocks, [not d for d in dropped])
    if outside is None:
        return None
    groups = [_groups(a, b) for a, b in zip(within, outside, strict=True)]
    if None in groups:
        return None
    complete = np.array([item[4] for item in batch], dtype=bool).reshape(tuple(map(len, axes)))
    return Projection(tuple(axes), tuple([g for g in groups if g is not None]), dropped, complete)


def _factors(
    batch: Batch, part: int, axes: list[Int64s], blocks: list[int], present: list[bool]
) -> list[list[Any]] | None:
    """Return the selections along each axis, of which those of all chunks are the product; None if they are not."""
    first = batch[0][part]
    if not isinstance(first, tuple) or len(first) != sum(present):
        return None
    factors: list[list[Any]] = []
    place = itertools.count()
    for k, axis in enumerate(axes):
        at = next(place) if present[k] else -1
        chosen: list[Any] = [batch[i * blocks[k + 1]] for i in range(len(axis))]
        factors.append([item[part][at] if at >= 0 else None for item in chosen])
    if not all(isinstance(item, slice | int | np.integer | None) for items in factors for item in items):
        return None
    kept = [items for items, there in zip(factors, present, strict=True) if there]
    gone = math.prod([len(items) for items, there in zip(factors, present, strict=True) if not there])
    if gone != 1:  # an integer selects one chunk
        return None
    try:
        # No Python step per chunk: the tuples hold the very objects of the axes, so each comparison is of addresses.
        same = all(map(eq, [item[part] for item in batch], itertools.product(*kept)))
    except ValueError:  # arrays
        return None
    return factors if same else None


def _groups(within: list[Any], outside: list[Any]) -> tuple[Group, ...] | None:
    """Return neighbouring chunks of which the same items are selected; None if the selection is not contiguous."""
    groups: list[Group] = []
    at = 0
    for position, (inner, outer) in enumerate(zip(within, outside, strict=True)):
        items, size = _items(inner), 1 if outer is None else _extent(outer, at)
        if items is None or size is None or size != len(range(items.start, items.stop, items.step)):
            return None
        last = groups[-1] if groups else None
        if last is not None and last.within == items:
            groups[-1] = Group(last.first, last.count + 1, items, last.start, size)
        else:
            groups.append(Group(position, 1, items, at, size))
        at += size
    return tuple(groups)


def _items(inner: Any) -> slice | None:
    """Return the items of a chunk along one axis as a slice of integers."""
    if isinstance(inner, slice):
        step = 1 if inner.step is None else inner.step
        sound = isinstance(inner.start, int) and isinstance(inner.stop, int) and 0 <= inner.start < inner.stop
        return slice(inner.start, inner.stop, step) if sound and step >= 1 else None
    return slice(int(inner), int(inner) + 1, 1) if inner is not None and inner >= 0 else None


def _extent(outer: Any, at: int) -> int | None:
    """Return the items of the user's array along one axis, which begin at a position; None if they do not."""
    if not isinstance(outer, slice) or outer.step not in (None, 1) or outer.start != at:
        return None
    return int(outer.stop) - at


def boxes_of_run(sides: tuple[int, ...], start: int, stop: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the boxes, in order, that a run of cells in row-major order consists of: at most 2 d - 1."""
    if start >= stop:
        return
    if len(sides) <= 1:
        yield ((start,), (stop,)) if sides else ((), ())
        return
    row = math.prod(sides[1:])
    first, last = -(-start // row), stop // row
    if first > last:  # within one row
        yield from _within_row(sides, first - 1, start - (first - 1) * row, stop - (first - 1) * row)
        return
    yield from _within_row(sides, first - 1, start - (first - 1) * row, row)
    if first < last:
        yield (first, *[0] * (len(sides) - 1)), (last, *sides[1:])
    yield from _within_row(sides, last, 0, stop - last * row)


def _within_row(
    sides: tuple[int, ...], row: int, start: int, stop: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for low, high in boxes_of_run(sides[1:], start, stop):
        yield (row, *low), (row + 1, *high)
