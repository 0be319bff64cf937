"""Checks of computed values, which go into arrays unchanged but for the precision of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Array
from arraystore.errors import ArrayStoreError
from arraystore.transforms.number_conversion import convert_numbers
from arraystore.transforms.report import TransformError

_NUMBERS = frozenset("biufc")
_TIMES = frozenset("mM")
_TEXTS = {"U": frozenset("UTO"), "T": frozenset("UTO"), "S": frozenset("SUO")}
"""Kinds of values that may be text of a kind."""


def fitting(
    values: Any, dtype: np.dtype[Any], path: str, error: type[ArrayStoreError] = TransformError
) -> npt.NDArray[Any]:
    """Return values as an array of a type; raise an error if that changes them by more than the precision of floats."""
    if values is None:
        raise error(f"the function returned None where values for {path!r} are expected")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise error(
            f"values for {path!r} are masked in {np.ma.count_masked(values)} places: fill them, with the fill value of "
            "the array for instance (numpy.ma.filled)"
        )
    array = np.asarray(values)
    held = _held(array, dtype)
    if held is None:
        raise error(
            f"values of type {array.dtype} do not fit into {path!r}, which holds {dtype}: convert them in the function"
        )
    return held


def _held(values: Array, dtype: np.dtype[Any]) -> Array | None:
    """Return values in a type, None if it does not hold them."""
    if dtype.kind in _NUMBERS:
        return _held_numbers(values, dtype) if values.dtype.kind in _NUMBERS else None
    if dtype.kind in _TIMES:
        return _held_times(values, dtype) if values.dtype.kind == dtype.kind else None
    if dtype.kind in _TEXTS:
        return _held_texts(values, dtype) if values.dtype.kind in _TEXTS[dtype.kind] else None
    return values


def _held_numbers(values: Array, dtype: np.dtype[Any]) -> Array | None:
    if values.dtype.kind not in "iu" and not np.can_cast(values.dtype, dtype, "same_kind"):
        return None
    if dtype.kind == "c":
        part = dtype.type(0).real.dtype
        parts = [_held_numbers(each, part) for each in (np.real(values), np.imag(values))]
        return None if any(each is None for each in parts) else values.astype(dtype, copy=False)
    if values.dtype.kind in "iu" and dtype.kind not in "iuf":
        return None
    converted = convert_numbers(values, dtype)
    return None if converted.bad.any() else converted.values


def _held_times(values: Array, dtype: np.dtype[Any]) -> Array | None:
    try:
        stored = values.astype(dtype)
        same = stored.astype(values.dtype) == values
    except OverflowError:
        return None
    return stored if np.all(same | np.isnat(values)) else None


def _held_texts(values: Array, dtype: np.dtype[Any]) -> Array | None:
    if values.dtype.kind == "O" and not all(
        isinstance(each, bytes if dtype.kind == "S" else str) for each in values.flat
    ):
        return None
    try:
        stored = values.astype(dtype)
    except UnicodeError:
        return None
    # Text that is too long for a type of fixed length is cut.
    return stored if dtype.kind == "T" or np.all(stored.astype(values.dtype) == values) else None
