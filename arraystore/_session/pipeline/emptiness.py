"""Chunks that consist of the fill value, which are not written: found by one reduction instead of one for each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Array
from arraystore._runtime.values import dataclass

_ITEMS = 1 << 22
"""Items of chunks that are gathered at a time."""


@dataclass(frozen=True)
class FillValue:
    """The fill value of an array.

    Parameters
    ----------
    value
        The value.
    writes_empty
        Whether chunks that consist of it are written all the same.
    buffers
        zarr's class of array buffers, which decides where equal values have different bytes.
    """

    value: Any
    writes_empty: bool
    buffers: Any

    def find(self, chunks: Array, dimensions: int) -> npt.NDArray[np.bool_] | None:
        """Return which chunks are empty, in row-major order; None if none is.

        Parameters
        ----------
        chunks
            Chunks: an axis of chunks for each dimension, then their items.
        dimensions
            Number of dimensions.
        """
        if self.writes_empty:
            return None
        counts = chunks.shape[:dimensions]
        # Most chunks differ in their first item, which costs one comparison each.
        candidates = self._equal(chunks[(slice(None),) * dimensions + (0,) * dimensions]).reshape(-1)
        if not candidates.any():
            return None
        at = np.flatnonzero(candidates)
        if len(at) == len(candidates):
            empty = self._equal(chunks).all(axis=tuple(range(dimensions, 2 * dimensions))).reshape(-1)
        else:
            empty = np.zeros(len(candidates), dtype=bool)
            for part in np.array_split(at, max(1, len(at) * math.prod(chunks.shape[dimensions:]) // _ITEMS)):
                some = chunks[np.unravel_index(part, counts)]
                empty[part] = self._equal(some).all(axis=tuple(range(1, dimensions + 1)))
        if empty.any():
            self._decide(chunks, dimensions, empty)
        return empty if empty.any() else None

    def _equal(self, items: Array) -> Array:
        """Tell which items equal the value, NaN with NaN."""
        equal: Array = np.asarray(items == self.value)
        if items.dtype.kind in "fcmM" and bool(np.isnan(self.value)):
            equal |= np.isnan(items)
        return equal

    def _decide(self, chunks: Array, dimensions: int, empty: npt.NDArray[np.bool_]) -> None:
        """Ask zarr about chunks of zeros with both signs, of which its releases think differently."""
        if chunks.dtype.kind != "f" or self.value != 0:
            return
        items = tuple(range(dimensions, 2 * dimensions))
        mixed = (np.signbit(chunks) != np.signbit(self.value)).any(axis=items).reshape(-1)
        for at in np.flatnonzero(mixed & empty).tolist():
            chunk = chunks[np.unravel_index(at, chunks.shape[:dimensions])]
            empty[at] = self.buffers.from_ndarray_like(chunk).all_equal(self.value)
