"""Selections of arrays: positions along each dimension, the chunks that hold them, and boxes of such chunks.

Selections are ranges and numpy columns: ten million dense chunks are a few numbers, and never an object for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from arraystore._format.types import Int64s
from arraystore.errors import InvalidInputError

Positions = range | Int64s
"""Positions along a dimension, rising: a range without gaps, or an array."""

Boxes = Int64s
"""Shape (n, dimensions, 2): ordinals of the first touched chunk along each dimension, and of the one past the last."""


def index_positions(what: str, size: int, index: Any) -> Positions:
    """Return the positions that an index selects, by the rules of numpy."""
    if isinstance(index, slice):
        return _of_slice(what, size, index)
    array = np.asarray(index)
    if array.dtype.kind == "b":
        if array.shape != (size,):
            raise InvalidInputError(f"{what} has {size} positions, and the mask for it has shape {array.shape}")
        return compact(np.flatnonzero(array))
    if array.size == 0:
        return range(0)
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise InvalidInputError(
            f"{index!r} does not select positions of {what}: give an integer, a slice, or a list of integers"
        )
    positions = array.astype(np.int64).reshape(-1)
    outside = (positions < -size) | (positions >= size)
    if outside.any():
        raise InvalidInputError(
            f"{what} has {size} positions, and {int(positions[outside][0])} is not among them"
            + (f", nor are {int(outside.sum()) - 1} more" if outside.sum() > 1 else "")
        )
    return compact(np.unique(np.where(positions < 0, positions + size, positions)))


def _of_slice(what: str, size: int, index: slice) -> Positions:
    for bound in (index.start, index.stop, index.step):
        if bound is not None and not isinstance(bound, int | np.integer):
            raise InvalidInputError(f"{what} is selected by position, so the bounds of {index!r} must be integers")
    if index.step == 0:
        raise InvalidInputError(f"the slice {index!r} of {what} has a step of 0")
    selected = range(*index.indices(size))
    selected = selected if selected.step > 0 else selected[::-1]
    if selected.step == 1 or len(selected) <= 1:
        return range(selected.start, selected.start + len(selected))
    return np.arange(selected.start, selected.stop, selected.step, dtype=np.int64)


def compact(positions: Int64s) -> Positions:
    """Return rising positions as a range, where they have no gaps."""
    if len(positions) and positions[-1] - positions[0] + 1 != len(positions):
        return positions
    start = int(positions[0]) if len(positions) else 0
    return range(start, start + len(positions))


def check_dimension_names(option: str, selected: Mapping[str, Any], dims: Sequence[str]) -> None:
    """Check that a selection names dimensions that there are."""
    for name in selected:
        if name not in dims:
            close = get_close_matches(str(name), dims, 1)
            raise InvalidInputError(
                f"{option} selects along {name!r}, but the dimensions are {', '.join(map(repr, dims)) or 'none'}"
                + (f"; did you mean {close[0]!r}?" if close else "")
            )


@dataclass(frozen=True)
class AxisSelection:
    """Selection along one dimension, and its division into chunks."""

    name: str
    size: int
    """Size of the dimension."""
    side: int
    """Side of its chunks."""
    positions: Positions
    """Selected positions."""

    @cached_property
    def touched(self) -> Positions:
        """Coordinates of the chunks that hold selected positions, rising."""
        if isinstance(self.positions, range):
            if not self.positions:
                return range(0)
            return range(self.positions[0] // self.side, self.positions[-1] // self.side + 1)
        return compact(np.unique(self.positions // self.side))

    @property
    def chunks(self) -> int:
        """Count of chunks that hold selected positions."""
        return len(self.touched)

    def within(self, first: int, stop: int) -> tuple[int, int]:
        """Return the ordinals of the selected positions in touched chunks: of the first, and past the last."""
        lowest, beyond = int(self.touched[first]) * self.side, (int(self.touched[stop - 1]) + 1) * self.side
        if isinstance(self.positions, range):
            start = self.positions.start
            return max(lowest - start, 0), min(beyond, self.positions.stop) - start
        low, high = np.searchsorted(self.positions, [lowest, beyond])
        return int(low), int(high)

    def spans_of(self, starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
        """Return the touched chunks that stretches of positions overlap: ordinals of the first, and past the last."""
        if isinstance(self.touched, range):
            first, beyond = starts // self.side - self.touched.start, -(-stops // self.side) - self.touched.start
            low, high = np.clip(first, 0, len(self.touched)), np.clip(beyond, 0, len(self.touched))
        else:
            low = np.searchsorted(self.touched, starts // self.side)
            high = np.searchsorted(self.touched, -(-stops // self.side))
        return low.astype(np.int64), np.maximum(low, high).astype(np.int64)


@dataclass(frozen=True)
class ChunkRuns:
    """Numbers of chunks in row-major order of the touched ones, as runs without gaps."""

    starts: Int64s
    lengths: Int64s

    @classmethod
    def up_to(cls, count: int) -> ChunkRuns:
        """Return the run of all chunks."""
        return cls(np.zeros(min(count, 1), np.int64), np.full(min(count, 1), count, np.int64))

    @classmethod
    def of(cls, numbers: Int64s) -> ChunkRuns:
        """Return the runs of some chunks; `numbers` rise."""
        breaks = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        return cls(numbers[breaks], np.diff(breaks, append=len(numbers)))

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def among(self, numbers: Int64s) -> Int64s:
        """Return those of some rising numbers that are in a run."""
        runs = np.searchsorted(self.starts, numbers, side="right") - 1
        inside = runs >= 0
        inside[inside] = (numbers[inside] - self.starts[runs[inside]]) < self.lengths[runs[inside]]
        return numbers[inside]

    def between(self, start: int, stop: int) -> Int64s:
        """Return the numbers of some of the chunks: from the `start`-th one on, up to the `stop`-th."""
        ends = np.cumsum(self.lengths)
        wanted = np.arange(start, stop, dtype=np.int64)
        runs = np.searchsorted(ends, wanted, side="right")
        return self.starts[runs] + wanted - (ends - self.lengths)[runs]


def boxes_of(numbers: Int64s, shape: Sequence[int], most: int) -> Boxes:
    """Join chunks into boxes, each of which is read at once."""
    places = np.stack(np.unravel_index(numbers, shape), axis=1) if shape else np.empty((len(numbers), 0), np.int64)
    boxes = np.stack([places, places + 1], axis=2).astype(np.int64)
    for axis in reversed(range(len(shape))):
        if most <= 1 or len(boxes) <= 1:
            break
        boxes = _join(boxes, axis, most)
    return boxes


def _join(boxes: Boxes, axis: int, most: int) -> Boxes:
    """Join boxes that differ along one dimension only, and are next to each other there."""
    others = [number for number in range(boxes.shape[1]) if number != axis]
    keys = [boxes[:, axis, 0], *(boxes[:, other, side] for other in reversed(others) for side in (1, 0))]
    boxes = boxes[np.lexsort(keys)]
    begins = np.ones(len(boxes), bool)
    begins[1:] = boxes[1:, axis, 0] != boxes[:-1, axis, 1]
    begins[1:] |= (boxes[1:, others] != boxes[:-1, others]).any(axis=(1, 2))
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(boxes))
    # All boxes of a run are of one size, one chunk along this dimension, so as many of them fit.
    size = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1)
    at_once = np.maximum(most // size, 1)
    firsts = np.flatnonzero((np.arange(len(boxes)) - np.repeat(starts, lengths)) % at_once == 0)
    joined = boxes[firsts]
    joined[:, axis, 1] = boxes[np.append(firsts[1:], len(boxes)) - 1, axis, 1]
    return joined
