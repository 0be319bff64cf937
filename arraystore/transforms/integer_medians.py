"""Medians of integers, of which a float would lose the last bits."""

from __future__ import annotations

import numpy as np

from arraystore._format.types import Array, Bools
from arraystore.transforms.integer_sums import wide_integers


def median_of_integers(values: Array, valid: Bools, axes: tuple[int, ...], *, rounded: bool) -> Array:
    """Return medians along axes of integers or booleans that are valid; 0 where none is.

    With `rounded` they are integers of 64 bits, of two equally near ones the even one; otherwise floats.
    """
    kind = wide_integers(values.dtype)
    ordered = np.sort(_last(np.where(valid, values.astype(kind), np.iinfo(kind).max), axes), axis=-1)
    count = np.sum(_last(valid, axes), axis=-1)
    lower, upper = (_picked(ordered, np.maximum(count + step, 0) // 2) for step in (-1, 0))
    apart = (upper.astype(np.uint64) - lower.astype(np.uint64)) * (count > 0)
    middle, odd = lower + (apart >> np.uint64(1)).astype(kind), (apart & np.uint64(1)).astype(bool)
    middle = np.where(count > 0, middle, 0).astype(kind)
    if not rounded:
        return np.asarray(middle + 0.5 * odd)
    return np.asarray(middle + (odd & (middle & kind.type(1)).astype(bool)).astype(kind))


def _last(values: Array, axes: tuple[int, ...]) -> Array:
    """Return an array with axes joined to one at the end."""
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    return values.transpose(*kept, *axes).reshape([values.shape[axis] for axis in kept] + [-1])


def _picked(ordered: Array, at: Array) -> Array:
    found: Array = np.take_along_axis(ordered, np.minimum(at, ordered.shape[-1] - 1)[..., None], axis=-1)[..., 0]
    return found
