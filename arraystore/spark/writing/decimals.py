"""Decimals as numbers of arrays, with masks of those that do not fit and of those that are changed.

A decimal is not changed by becoming a float that gives it back, when that is rounded to the decimal's digits or, for
fractions, written with as few digits as tell it from other floats: 0.1 is the same as a float, and 16777217 is not as
one of 32 bits.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arraystore._format.types import Bools, Int64s
from arraystore.transforms.number_conversion import Converted, convert_numbers

_WIDE = Context(prec=2000)
"""Arithmetic that rounds no float and no decimal."""


def convert_decimals(array: pa.Array, dtype: np.dtype[Any], *, exact: bool = True) -> Converted:
    """Convert decimals without nulls, without a float in between where the target is an integer.

    Rounded ones count as changed only with `exact`; into integers, decimals with a fraction never fit.
    """
    if dtype.kind == "f":
        return _decimals_as_floats(array, dtype, exact=exact)
    truncated = array.cast(pa.decimal128(38, 0), safe=False)
    fraction = np.zeros(len(array), np.bool_)
    if array.type.scale > 0:
        fraction = _mask(pc.call_function("not_equal", [truncated.cast(pa.decimal128(38, array.type.scale)), array]))
    low, high = _halves(truncated)
    integers = low if dtype.kind == "u" and dtype.itemsize == 8 else low.view("<i8")
    wide = high != (0 if integers.dtype.kind == "u" else integers >> 63)
    narrowed = convert_numbers(np.where(wide, 0, integers), dtype)
    return Converted(narrowed.values, wide | fraction | (False if narrowed.unfit is None else narrowed.unfit))


def _mask(array: pa.Array) -> Bools:
    values: Bools = array.to_numpy(zero_copy_only=False)
    return values


def _halves(array: pa.Array) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """Return the lower and the upper half of decimals without a fraction, which are integers of 128 bits."""
    words = np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), 16 * array.offset).reshape(-1, 2)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]).view("<i8")


def _decimals_as_floats(array: pa.Array, dtype: np.dtype[Any], *, exact: bool) -> Converted:
    # Through text, which is parsed to the nearest float.
    nearest = array.cast(pa.string()).cast(pa.float32() if dtype.itemsize <= 4 else pa.float64())
    with np.errstate(over="ignore"):
        converted = nearest.to_numpy(zero_copy_only=False).astype(dtype)
    unfit = np.isinf(converted)
    if not exact:
        return Converted(converted, unfit)
    # Floats that are closer to each other than decimals with these digits are give each of them back.
    finer = np.spacing(np.abs(np.where(unfit, 0, converted))).astype("f8") < 10.0**-array.type.scale
    changed = ~finer & ~unfit
    rows = np.flatnonzero(changed)
    changed[rows] = [
        not _comes_back(*pair, array.type.scale)
        for pair in zip(converted[rows], array.take(pa.array(rows)).to_pylist(), strict=True)
    ]
    return Converted(converted, unfit, changed)


def _comes_back(number: np.floating[Any], decimal: Decimal, scale: int) -> bool:
    """Return whether a float gives this decimal back."""
    if decimal != decimal.to_integral_value() and Decimal(str(number)) == decimal:
        return True
    return Decimal(float(number)).quantize(Decimal(1).scaleb(-scale), context=_WIDE) == decimal
