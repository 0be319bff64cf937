"""Exact sums of integers of up to 64 bits, and their means.

A sum is two words of 64 bits, ``high * 2**32 + low`` with ``0 <= low < 2**32``: none of 2**31 cells overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arraystore._format.types import Array, Int64s
from arraystore.errors import InvalidInputError

Words = tuple[Array, Array]
"""High and low word of sums, both of 64 bits."""

_LOW = (1 << 32) - 1
_TOO_LARGE = "a sum of integers exceeds {} bits: reduce parts, or an array of floats"


def wide_integers(source: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of 64 bits of integers or booleans."""
    return np.dtype("u8" if source.kind == "u" else "i8")


def sum_words(values: Array, axes: tuple[int, ...]) -> Words:
    """Return the sums of integers or booleans along axes."""
    if values.dtype.itemsize < 8:
        total = np.asarray(np.sum(values, axis=axes, dtype=np.int64))
        return _carried(np.zeros_like(total), total)
    high = np.asarray(np.sum(values >> 32, axis=axes, dtype=np.int64))
    wrapped = np.asarray(np.sum(values, axis=axes, dtype=wide_integers(values.dtype)))
    with np.errstate(over="ignore"):
        low = np.subtract(wrapped.astype(np.uint64), np.left_shift(high.astype(np.uint64), np.uint64(32)))
    return _carried(high, np.asarray(low).astype(np.int64))


def add_words(one: Words, other: Words) -> Words:
    """Return the sum of two sums; raise `InvalidInputError` if it overflows."""
    with np.errstate(over="ignore"):
        high, low = _carried(one[0] + other[0], one[1] + other[1])
    if bool((((one[0] ^ high) & (other[0] ^ high)) < 0).any()):
        raise InvalidInputError(_TOO_LARGE.format(95))
    return high, low


def whole_sum(words: Words, dtype: np.dtype[Any]) -> Array:
    """Return sums in a type of 64 bits; raise `InvalidInputError` if one does not fit."""
    least, beyond = (0, 1 << 32) if dtype.kind == "u" else (-(1 << 31), 1 << 31)
    if not bool(((words[0] >= least) & (words[0] < beyond)).all()):
        raise InvalidInputError(_TOO_LARGE.format(64))
    return _joined(words[0], words[1], dtype)


def mean_of_words(high: Array, low: Array, count: Array) -> Array:
    """Return means in double precision, accurate to the last place; NaN of no cells."""
    quotient_high, quotient_low, rest, divisor = _divided(high, low, count)
    small = (high >= -(1 << 21)) & (high < 1 << 21)  # a sum that a float holds, of which one division is rounded once
    exactly = np.true_divide(np.where(small, high, 0) * (1 << 32) + low, divisor)
    piecewise = quotient_high * 2.0**32 + (quotient_low + rest / divisor)
    return np.where(count == 0, np.nan, np.where(small, exactly, piecewise))


def rounded_mean(high: Array, low: Array, count: Array, dtype: np.dtype[Any]) -> Array:
    """Return means as the nearest integers of 64 bits, of two equally near ones the even one; 0 of no cells."""
    quotient_high, quotient_low, rest, divisor = _divided(high, low, count)
    whole = _joined(quotient_high, quotient_low, dtype)
    odd = (whole & dtype.type(1)).astype(bool)
    up = (rest > divisor - rest) | ((rest == divisor - rest) & odd)
    return np.asarray(whole + up.astype(dtype))


def _carried(high: Array, low: Array) -> Words:
    return np.asarray(high + (low >> 32)), np.asarray(low & _LOW)


def _joined(high: Array, low: Array, dtype: np.dtype[Any]) -> Array:
    """Return what two words are together, where it fits into 64 bits."""
    joined = np.left_shift(np.asarray(high).astype(np.uint64), np.uint64(32)) | np.asarray(low).astype(np.uint64)
    return np.asarray(joined).astype(dtype)


def _divided(high: Array, low: Array, count: Array) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return words of the floor of means, the rest, and the divisor, of fewer than 2**47 cells: long division."""
    divisor = np.maximum(count, 1)
    quotient_high, rest = np.divmod(high, divisor)
    quotient_low = np.zeros_like(quotient_high)
    for shift in (16, 0):
        digit, rest = np.divmod((rest << 16) | ((low >> shift) & 0xFFFF), divisor)
        quotient_low = (quotient_low << 16) | digit
    return quotient_high, quotient_low, rest, divisor
