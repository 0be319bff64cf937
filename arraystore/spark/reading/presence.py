"""Chunks of a selection that exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

from arraystore._session.base import SessionBase
from arraystore.spark.reading.opening import OpenedArrays, sides_of
from arraystore.spark.reading.selection import AxisSelection, Int64s

__all__ = ["present_numbers"]


def present_numbers(session: SessionBase, opened: OpenedArrays, axes: Sequence[AxisSelection]) -> Int64s:
    """Return the rising numbers of chunks of the leading array in which any array has chunks.

    Arrays that lack a dimension do not count, as they have values for every position along it.
    """
    numbers = [
        _overlapped(session.chunk_coordinates(one.array.path), one.array, one.axes_in(opened.dims), axes)
        for one in opened.arrays
        if len(one.dims) == len(axes)
    ]
    return np.unique(np.concatenate(numbers))


def _overlapped(present: Int64s, array: zarr.Array[Any], dims: Sequence[int], axes: Sequence[AxisSelection]) -> Int64s:
    """Return the numbers of touched chunks that some chunks of an array, which may have another grid, overlap."""
    numbers = np.zeros(len(present), np.int64)
    owners = np.arange(len(present))
    for number, axis in enumerate(axes):
        own = dims.index(number)
        low, high = axis.spans_of(*_stretches(array, own, present[owners, own], axis.size))
        counts = high - low
        owners, numbers, low = (np.repeat(column, counts) for column in (owners, numbers, low))
        # The place of each chunk within the span that it is in.
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers = numbers * axis.chunks + low + within
    return np.unique(numbers)


def _stretches(array: zarr.Array[Any], axis: int, coordinates: Int64s, size: int) -> tuple[Int64s, Int64s]:
    """Return the bounds of stored chunks along a dimension."""
    sides = sides_of(array, axis, stored=True)
    if isinstance(sides, int):
        starts = coordinates * sides
        return starts, np.minimum(starts + sides, size)
    ends = np.cumsum(sides)
    return ends[coordinates] - sides[coordinates], np.minimum(ends[coordinates], size)
