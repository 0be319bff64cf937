"""Reducers: partial results of blocks, which are combined in order and finished at the end.

Sums of integers are exact, and those of floats are in double precision, with the rounding error of each addition of two
blocks carried along, so that they are no worse for being cut into many.  Variances are combined from means
and squared deviations of blocks (Chan, Golub and LeVeque 1983), never from sums of squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from arraystore._format.types import Array, Bools
from arraystore.errors import InvalidInputError
from arraystore.transforms.integer_sums import (
    add_words,
    mean_of_words,
    rounded_mean,
    sum_words,
    whole_sum,
    wide_integers,
)

Parts = tuple[Array, ...]
"""Partial result: arrays of the shape of the output, of which one may have a further dimension in front."""
Axes = tuple[int, ...]

_INT64: np.dtype[Any] = np.dtype("i8")


class Reducer(Protocol):
    """A reduction along axes."""

    @property
    def cell_bytes(self) -> int:
        """Bytes of a partial result for each cell of the output."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the result."""
        ...

    def reduce(self, values: Array, valid: Bools | None, axes: Axes) -> Parts:
        """Return the partial result of a block."""
        ...

    def combine(self, one: Parts, other: Parts) -> Parts:
        """Return the partial result of two blocks, the earlier one first."""
        ...

    def finish(self, parts: Parts) -> Array:
        """Return the result."""
        ...

    def accepts(self, parts: Parts, empty: Parts) -> bool:
        """Return whether arrays of a worker are a partial result, given that of no cells of the same box."""
        ...


class SameLayout:
    """Reducers whose partial results have the same shapes and types, whatever they are of."""

    def accepts(self, parts: Parts, empty: Parts) -> bool:
        """Return whether arrays of a worker are a partial result, given that of no cells of the same box."""
        return [_layout(part) for part in parts] == [_layout(part) for part in empty]


def _layout(part: Array) -> tuple[tuple[int, ...], str, int]:
    return part.shape, part.dtype.kind, part.dtype.itemsize


def _count(values: Array, valid: Bools | None, axes: Axes) -> Array:
    if valid is not None:
        return np.sum(valid, axis=axes, dtype=np.int64)
    shape = [size for axis, size in enumerate(values.shape) if axis not in axes]
    return np.full(shape, np.prod([values.shape[axis] for axis in axes], dtype=np.int64))


def _only_valid(values: Array, valid: Bools | None, other: Any) -> Array:
    return values if valid is None else np.where(valid, values, values.dtype.type(other))


def _two_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """Return a sum and its rounding error (Knuth)."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = one + other
        virtual = total - one
        error = (one - (total - virtual)) + (other - virtual)
    return total, np.where(np.isfinite(total), error, 0.0)


@dataclass(frozen=True)
class Sum(SameLayout):
    """Sum, or mean; of floats in double precision, of integers exactly."""

    source: np.dtype[Any]
    mean: bool = False
    rounded: bool = False
    """Whether means of integers are integers: the nearest one, of two the even one."""
    cell_bytes: int = 24

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the result: that of floats, 64 bits of integers; of means of integers double precision."""
        if self.source.kind == "f":
            return self.source
        return np.dtype("f8") if self.mean and not self.rounded else wide_integers(self.source)

    @property
    def _exact(self) -> bool:
        return self.source.kind != "f"

    def reduce(self, values: Array, valid: Bools | None, axes: Axes) -> Parts:
        """Return sum, its error (of integers: the words of the sum), and count."""
        there, count = _only_valid(values, valid, 0), _count(values, valid, axes)
        if self._exact:
            high, low = sum_words(there, axes)
            return high, low, count
        rough = np.sum(there, axis=axes, dtype=np.float64)
        return rough, np.zeros_like(rough), count

    def combine(self, one: Parts, other: Parts) -> Parts:
        """Add two sums."""
        if self._exact:
            high, low = add_words((one[0], one[1]), (other[0], other[1]))
            return high, low, one[2] + other[2]
        total, error = _two_sum(one[0], other[0])
        return total, one[1] + other[1] + error, one[2] + other[2]

    def finish(self, parts: Parts) -> Array:
        """Return sums, or means, which are NaN where there is no value, or 0 of means that are integers."""
        if self._exact:
            return self._finish_exactly(parts)
        total = parts[0] + parts[1]
        if not self.mean:
            return np.asarray(total).astype(self.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.true_divide(total, parts[2])).astype(self.dtype)

    def _finish_exactly(self, parts: Parts) -> Array:
        high, low, count = parts
        if not self.mean:
            return whole_sum((high, low), self.dtype)
        return rounded_mean(high, low, count, self.dtype) if self.rounded else mean_of_words(high, low, count)


@dataclass(frozen=True)
class Deviation(SameLayout):
    """Variance, or standard deviation."""

    source: np.dtype[Any]
    ddof: int = 0
    root: bool = False
    cell_bytes: int = 24

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the result: that of floats, and double precision of integers."""
        return self.source if self.source.kind == "f" else np.dtype("f8")

    def reduce(self, values: Array, valid: Bools | None, axes: Axes) -> Parts:
        """Return count, mean and sum of squared deviations."""
        count = _count(values, valid, axes)
        numbers = values.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.sum(_only_valid(numbers, valid, 0), axis=axes) / count
            away = numbers - np.expand_dims(mean, axes)
            squares = np.sum(_only_valid(away, valid, 0) ** 2, axis=axes)
        return count, np.where(count == 0, 0.0, mean), np.where(count == 0, 0.0, squares)

    def combine(self, one: Parts, other: Parts) -> Parts:
        """Combine two variances."""
        count = one[0] + other[0]
        share = other[0] / np.maximum(count, 1)
        with np.errstate(invalid="ignore"):
            away = np.where((one[0] == 0) | (other[0] == 0), 0.0, other[1] - one[1])
            mean = np.where(one[0] == 0, other[1], one[1] + away * share)
            return count, mean, one[2] + other[2] + away**2 * one[0] * share

    def finish(self, parts: Parts) -> Array:
        """Return variances or deviations, which are NaN where there are too few values."""
        with np.errstate(divide="ignore", invalid="ignore"):
            free = parts[0] - self.ddof
            variance = np.where(free > 0, parts[2] / np.maximum(free, 1), np.nan)
            return np.asarray(np.sqrt(variance) if self.root else variance).astype(self.dtype)


@dataclass(frozen=True)
class Extreme(SameLayout):
    """Minimum or maximum."""

    source: np.dtype[Any]
    largest: bool
    skipna: bool = True
    missing: Any = None
    """Result where there is no value; NaN for floats."""
    cell_bytes: int = 16

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the result."""
        return self.source

    @property
    def _neutral(self) -> Any:
        if self.source.kind == "b":
            return not self.largest
        if self.source.kind == "f":
            return -np.inf if self.largest else np.inf
        return np.iinfo(self.source).min if self.largest else np.iinfo(self.source).max

    @property
    def _better(self) -> np.ufunc:
        return np.maximum if self.largest else np.minimum

    def reduce(self, values: Array, valid: Bools | None, axes: Axes) -> Parts:
        """Return extreme and count."""
        there = _only_valid(values, valid, self._neutral)
        best = self._better.reduce(there, axis=axes, initial=self.source.type(self._neutral))
        return np.asarray(best), np.asarray(_count(values, valid, axes))

    def combine(self, one: Parts, other: Parts) -> Parts:
        """Return the better of two."""
        return self._better(one[0], other[0]), one[1] + other[1]

    def finish(self, parts: Parts) -> Array:
        """Return extremes; raise `InvalidInputError` where there is no value and no value that could say so."""
        empty = parts[1] == 0
        if not bool(empty.any()):
            return parts[0]
        if self.missing is None and self.source.kind != "f":
            raise InvalidInputError("there is no value to reduce, and no missing value among integers to say so")
        return np.where(empty, self.source.type(np.nan if self.missing is None else self.missing), parts[0])


@dataclass(frozen=True)
class Count(SameLayout):
    """Count of values that are not missing."""

    source: np.dtype[Any]
    cell_bytes: int = 8
    dtype: np.dtype[Any] = _INT64

    def reduce(self, values: Array, valid: Bools | None, axes: Axes) -> Parts:
        """Return the count."""
        return (_count(values, valid, axes),)

    def combine(self, one: Parts, other: Parts) -> Parts:
        """Add two counts."""
        return (one[0] + other[0],)

    def finish(self, parts: Parts) -> Array:
        """Return the count."""
        return parts[0]


@dataclass(frozen=True)
class Histogram(SameLayout):
    """Counts of values between edges; the last bin includes its upper edge, as in numpy."""

    edges: tuple[float, ...]
    dtype: np.dtype[Any] = _INT64

    @property
    def cell_bytes(self) -> int:
        """Bytes of a partial result for each cell of the output."""
        return 8 * (len(self.edges) - 1)

    def reduce(self, values: Array, valid: Bools | None, axes: Axes) -> Parts:
        """Return counts, with the bins in front."""
        edges, bins = np.array(self.edges), len(self.edges) - 1
        number = np.asarray(np.searchsorted(edges, values, side="right") - 1)
        number[values == edges[-1]] = bins - 1
        inside = (number >= 0) & (number < bins) & (values <= edges[-1])
        inside = inside if valid is None else inside & valid
        kept = [axis for axis in range(values.ndim) if axis not in axes]
        shape = [values.shape[axis] for axis in kept]
        size = int(np.prod(shape, dtype=np.int64))
        cell = np.arange(size, dtype=np.int64).reshape(
            [n if axis in kept else 1 for axis, n in enumerate(values.shape)]
        )
        flat = (number * size + cell)[inside]
        return (np.bincount(flat, minlength=bins * size).reshape(bins, *shape),)

    def combine(self, one: Parts, other: Parts) -> Parts:
        """Add two histograms."""
        return (one[0] + other[0],)

    def finish(self, parts: Parts) -> Array:
        """Return the counts."""
        return parts[0]


def make_reducer(name: str, source: np.dtype[Any], *, skipna: bool, ddof: int, missing: Any) -> Reducer:
    """Return the reducer of a name for a data type; raise `InvalidInputError`."""
    makers: dict[str, Callable[[], Reducer]] = {
        "sum": lambda: Sum(source),
        "mean": lambda: Sum(source, mean=True),
        "var": lambda: Deviation(source, ddof),
        "std": lambda: Deviation(source, ddof, root=True),
        "min": lambda: Extreme(source, False, skipna, missing),
        "max": lambda: Extreme(source, True, skipna, missing),
        "count": lambda: Count(source),
    }
    if name not in makers:
        raise InvalidInputError(f"function={name!r} must be one of {', '.join(map(repr, makers))}")
    return makers[name]()
