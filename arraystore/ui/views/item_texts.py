"""Items of arrays as strings, for tables and labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore.ui.views.limits import MAX_TABLE

__all__ = ["Table", "digits_of", "durations", "table_of", "texts_of"]

Table = tuple[tuple[str, ...], ...]
"""Items as strings, in rows."""

_LONGEST = 80
_EXACT = 1 << 53
"""Integers up to this are told apart by their 64-bit floating-point numbers."""

_UNITS = ("D", "h", "m", "s", "ms", "us", "ns")


def digits_of(dtype: np.dtype[Any]) -> int:
    """Return how many digits tell numbers of a data type apart, without those that are noise."""
    return 7 if dtype.kind == "f" and dtype.itemsize <= 4 else 12


def texts_of(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return items as strings."""
    texts = np.empty(values.shape, dtype=object)
    if values.dtype.kind == "m":
        texts.reshape(-1)[:] = durations(values.reshape(-1))
        return texts
    for place in np.ndindex(values.shape):
        texts[place] = str(values[place])
    return texts


def durations(values: npt.NDArray[Any]) -> list[str]:
    """Return spans of time as strings, in the largest unit of which all are integer counts."""
    known = values[~np.isnat(values)]
    if np.datetime_data(values.dtype)[0] not in _UNITS:  # months and years have no number of days
        return [str(item) for item in values]
    unit = next((unit for unit in _UNITS if (known.astype(f"m8[{unit}]") == known).all()), None)
    if unit is None:
        return [str(item) for item in values]
    numbers = values.astype(f"m8[{unit}]").astype(np.int64).tolist()
    return ["NaT" if lacks else f"{number} {unit}" for number, lacks in zip(numbers, np.isnat(values), strict=True)]


def table_of(values: npt.NDArray[Any], digits: int) -> Table:
    """Return the first items as strings, in rows."""
    rows = np.atleast_2d(values) if values.ndim < 2 else values
    side = math.isqrt(MAX_TABLE)
    few = rows[:side, :side] if values.ndim > 1 else rows[:, :MAX_TABLE]
    return tuple([tuple([_item_text(item, digits) for item in row]) for row in few.tolist()])


def _item_text(item: Any, digits: int) -> str:
    if isinstance(item, float):
        whole = item.is_integer() and abs(item) <= _EXACT
        return "" if math.isnan(item) else str(int(item)) if whole else f"{item:.{digits}g}"
    text = "" if item is None else str(item)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
