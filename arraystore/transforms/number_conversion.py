"""Numbers of one type as numbers of another, with masks of those that do not fit and of those that are changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.types import Array, Bools


@dataclass(frozen=True, slots=True)
class Converted:
    """Values in another type."""

    values: Array
    """The values; any value where one does not fit."""
    unfit: Bools | None = None
    """Mask of values that the type cannot represent; None if there are none."""
    changed: Bools | None = None
    """Mask of values that the type does not represent exactly; None if there are none."""

    @property
    def bad(self) -> Bools:
        """Mask of values that do not arrive as they are; of shape () where all do."""
        nothing = np.zeros((), np.bool_)
        masks = [nothing if mask is None else mask for mask in (self.unfit, self.changed)]
        bad: Bools = np.asarray(masks[0] | masks[1])
        return bad


def convert_numbers(values: Array, dtype: np.dtype[Any], *, exact_floats: bool = False) -> Converted:
    """Convert integers, floats or booleans; floats that are rounded count as changed only with `exact_floats`."""
    # NumPy calls 64-bit integers safe in 64-bit floats, which they are not.
    if np.can_cast(values.dtype, dtype, "safe") and not (values.dtype.itemsize == 8 and values.dtype != dtype):
        return Converted(values.astype(dtype, copy=False))
    if values.dtype.kind in "iu" and dtype.kind in "iu":
        return _integers(values, dtype)
    if values.dtype.kind in "iuf" and dtype.kind == "f":
        return _floats(values, dtype, exact=exact_floats or values.dtype.kind != "f")
    return Converted(values.astype(dtype))


def _integers(values: Array, dtype: np.dtype[Any]) -> Converted:
    limits, own = np.iinfo(dtype), np.iinfo(values.dtype)
    low, high = max(limits.min, own.min), min(limits.max, own.max)
    if not values.size or (values.min() >= low and values.max() <= high):
        return Converted(values.astype(dtype))
    unfit = (values < low) | (values > high)
    return Converted(np.where(unfit, 0, values).astype(dtype), unfit)


def _floats(values: Array, dtype: np.dtype[Any], *, exact: bool) -> Converted:
    with np.errstate(over="ignore"):
        converted = values.astype(dtype)
    unfit = np.isinf(converted)
    unfit &= np.isfinite(values)
    if not exact or _all_exact(values, dtype):
        return Converted(converted, unfit if unfit.any() else None)
    changed = ~unfit & ~_same(values, np.where(unfit, 0, converted))
    return Converted(converted, unfit, changed)


def _all_exact(values: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether all values are integers so small that any float of this type holds them."""
    if values.dtype.kind == "f":
        return False
    limit = 2 ** (np.finfo(dtype).nmant + 1)
    return not values.size or (int(values.min()) >= -limit and int(values.max()) <= limit)


def _same(values: Array, converted: Array) -> Bools:
    """Return the mask of values that come back from floats."""
    same: Bools
    if values.dtype.kind == "f":
        same = (converted.astype(values.dtype) == values) | np.isnan(values)
        return same
    # The greatest integer of a type becomes a float beyond it, which must not be cast back.
    beyond = converted >= np.float64(2.0 ** (63 if values.dtype.kind == "i" else 64))
    back = np.where(beyond, 0, converted).astype(values.dtype)
    same = (back == values) & ~beyond
    return same
