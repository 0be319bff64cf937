"""Checks of computed values, and values with missing ones told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore.transforms.report import TransformError


def fitting(values: Any, dtype: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """Return values as an array that can be cast without changing numbers but for the precision of floats."""
    if values is None:
        raise TransformError(f"the function returned None where values for {path!r} are expected")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise TransformError(
            f"values for {path!r} are masked in {np.ma.count_masked(values)} places: fill them, with the fill value of "
            "the array for instance (numpy.ma.filled)"
        )
    array = np.asarray(values)
    if array.dtype.kind in "biufc" and dtype.kind in "biufc" and not _fits(array, dtype):
        raise TransformError(
            f"values of type {array.dtype} do not fit into {path!r}, which holds {dtype}: convert them in the function"
        )
    return array


def _fits(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    if values.dtype.kind in "iu" and dtype.kind in "iu":
        held = np.iinfo(dtype)
        return not values.size or (int(values.min()) >= held.min and int(values.max()) <= held.max)
    return np.can_cast(values.dtype, dtype, "same_kind")
