"""Boxes of cells: a grid of them, the ones that touch stored chunks, and their assignment to tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Bools, Int64s

Slices = tuple[slice, ...]


def as_slices(bounds: Int64s) -> Slices:
    """Return the bounds of one box, shape (d, 2), as slices."""
    return tuple(slice(low, high) for low, high in bounds.tolist())


def box_text(bounds: Int64s, dims: Sequence[str]) -> str:
    """Return a box as a string for messages: ``time[0:60], lat[0:37]``."""
    return ", ".join(f"{name}[{low}:{high}]" for name, (low, high) in zip(dims, bounds.tolist(), strict=True)) or "()"


def grid_shape(shape: Sequence[int], step: Sequence[int]) -> tuple[int, ...]:
    """Return the count of boxes along each dimension."""
    return tuple(-(-size // side) for size, side in zip(shape, step, strict=True))


def cut_boxes(shape: Sequence[int], step: Sequence[int]) -> Int64s:
    """Cut a shape into boxes, shape (n, d, 2), in row-major order; the last ones are cut off at the end."""
    counts = grid_shape(shape, step)
    place = np.stack(np.unravel_index(np.arange(math.prod(counts)), counts), axis=1) if counts else _ONE_PLACE
    low = place * np.array(step, dtype=np.int64)
    return np.stack([low, np.minimum(low + np.array(step, dtype=np.int64), np.array(shape, dtype=np.int64))], axis=2)


_ONE_PLACE = np.empty((1, 0), dtype=np.int64)


def touched_boxes(shape: Sequence[int], step: Sequence[int], unit: Sequence[int], coords: Int64s) -> Bools:
    """Tell which boxes of `cut_boxes` hold cells of chunks that are at `coords` in a grid of chunks of size `unit`."""
    counts = grid_shape(shape, step)
    touched = np.zeros(counts, dtype=bool)
    sides, steps = np.array(unit, dtype=np.int64), np.array(step, dtype=np.int64)
    low = coords * sides // steps
    high = (np.minimum((coords + 1) * sides, np.array(shape, dtype=np.int64)) - 1) // steps
    inside = (coords * sides < np.array(shape, dtype=np.int64)).all(axis=1)
    low, high = low[inside], high[inside]
    spans = (high - low).max(axis=0, initial=0) + 1
    for offset in product(*(range(span) for span in spans.tolist())):
        place = low + np.array(offset, dtype=np.int64)
        place = place[(place <= high).all(axis=1)]
        if len(place):  # without dimensions, no index would stand for all
            touched[tuple(place.T)] = True
    return touched.reshape(-1)


def cells(bounds: Int64s) -> Int64s:
    """Return the count of cells of each box."""
    return np.asarray((bounds[..., 1] - bounds[..., 0]).prod(axis=-1))


def share_out(weights: npt.NDArray[np.int64], tasks: int) -> list[slice]:
    """Cut a sequence of weights into at most `tasks` runs of about equal weight, none of them empty."""
    count = len(weights)
    if count <= tasks:
        return [slice(at, at + 1) for at in range(count)]
    middle = np.cumsum(weights, dtype=np.float64) - weights / 2
    owner = np.minimum(tasks - 1, (middle * tasks / max(1.0, float(weights.sum()))).astype(np.int64))
    edges = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), count]
    return [slice(start, stop) for start, stop in pairwise(edges)]
