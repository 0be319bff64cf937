"""Lookup of labels: by arithmetic where a coordinate is regular, else by search.

A coordinate is regular only if the arithmetic reproduces each of its labels exactly. So Spark can compute indices
before a shuffle, with the same results as a search in the coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arraystore._format.types import Array, Int64s
from arraystore.errors import InvalidInputError
from arraystore.spark.writing.chunk_grid import NOWHERE


@dataclass(frozen=True)
class RegularLabels:
    """Labels at even distances: ``start + index * step``, in 64-bit integers or floats."""

    start: int | float
    step: int | float
    """Python integers, or floats."""
    count: int
    """Number of labels."""
    single: bool = False
    """Whether the labels are those numbers rounded to 32-bit floats."""

    def sql(self, label: str, tolerance: float) -> str:
        """Return the index of a label as an expression of Spark SQL, `NOWHERE` where there is none."""
        if isinstance(self.step, int):
            return self._sql_of_integers(label, int(tolerance))
        return self._sql_of_floats(label, tolerance)

    def _sql_of_integers(self, label: str, tolerance: int) -> str:
        ends = int(self.start), int(self.start + (self.count - 1) * self.step)
        low, high = max(min(ends) - tolerance, -(2**63)), min(max(ends) + tolerance, 2**63 - 1)
        step = abs(self.step)
        # Within the bounds nothing overflows; labels of more than half of the range of integers are not regular.
        since = f"({label} - {_long(int(self.start))})" if self.step > 0 else f"({_long(int(self.start))} - {label})"
        index = since if step == 1 and not tolerance else f"(({since} + {tolerance}L) DIV {step}L)"
        bounds = f"{label} BETWEEN {_long(low)} AND {_long(high)}"
        if step == 1 and not tolerance:
            return f"CASE WHEN {bounds} THEN {index} ELSE {NOWHERE}L END"
        return (
            f"CASE WHEN {bounds} THEN CASE WHEN {since} - {index} * {step}L <= {tolerance}L "
            f"THEN {index} ELSE {NOWHERE}L END ELSE {NOWHERE}L END"
        )

    def _sql_of_floats(self, label: str, tolerance: float) -> str:
        start, step = _double(self.start), _double(self.step)
        if self.single:
            label = f"CAST(CAST({label} AS FLOAT) AS DOUBLE)"
        index = f"rint(({label} - {start}) / {step})"
        there = f"({start} + {index} * {step})"
        if self.single:
            match = f"CAST({there} AS FLOAT) = CAST({label} AS FLOAT)"
        else:
            match = f"abs({label} - {there}) <= {_double(tolerance)}" if tolerance else f"{label} = {there}"
        inside = f"{index} BETWEEN 0D AND {_double(self.count - 1)}"
        return f"CASE WHEN {inside} AND {match} THEN CAST({index} AS BIGINT) ELSE {NOWHERE}L END"


def _long(value: int) -> str:
    # The least integer has no literal of its own: its digits alone are one too many.
    return f"{value}L" if value > -(2**63) else f"({value + 1}L - 1L)"


def _double(value: float) -> str:
    return f"{float(value)!r}D"


@dataclass(frozen=True)
class LabelIndex:
    """Index of the labels of a dimension, in the type in which they are compared."""

    name: str
    """Name of the coordinate, for errors."""
    values: Array
    """Shape (n,): int64, float64, float32 or strings (`object`)."""
    tolerance: float = 0
    """Largest distance of a value from its label, an integer for integers; 0 for exact labels."""

    def __post_init__(self) -> None:
        if self.tolerance and self.values.dtype.kind == "O":
            raise InvalidInputError(f"coordinate {self.name!r} holds strings: a tolerance needs numbers or times")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InvalidInputError(
                f"the tolerance for {self.name!r} must be a finite number >= 0, not {self.tolerance!r}"
            )
        order = self._order
        ordered = self.values if order is None else self.values[order]
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(twice):
            raise InvalidInputError(
                f"coordinate {self.name!r} has the label {ordered[twice[0]]!s} more than once, so it does not "
                "identify a cell; use coords='index'"
            )

    @cached_property
    def _order(self) -> Int64s | None:
        """Order that sorts the labels; None if they are sorted."""
        if len(self.values) < 2 or bool(np.all(self.values[1:] > self.values[:-1])):
            return None
        return np.argsort(self.values, kind="stable").astype(np.int64)

    @cached_property
    def _sorted(self) -> Array:
        return self.values if self._order is None else self.values[self._order]

    def indices(self, labels: Array) -> Int64s:
        """Return the index of each label, `NOWHERE` where there is none."""
        if not len(self.values):
            return np.full(len(labels), NOWHERE, np.int64)
        if self.values.dtype.kind == "O":
            return self._of_texts(labels)
        index = np.searchsorted(self._sorted, labels)
        after = np.minimum(index, len(self._sorted) - 1)
        if not self.tolerance:
            index, matches = after, self._sorted[after] == labels
        else:
            before = np.maximum(index - 1, 0)
            down, up = _distance(labels, self._sorted[before]), _distance(labels, self._sorted[after])
            index = np.where(down <= up, before, after)
            matches = np.minimum(down, up) <= self.tolerance
        if self._order is not None:
            index = self._order[index]
        return np.where(matches, index, NOWHERE).astype(np.int64, copy=False)

    def near_each_other(self) -> tuple[int, int] | None:
        """Return the indices of two labels that are within the tolerance of each other; None if there are none."""
        if not self.tolerance or len(self.values) < 2:
            return None
        gaps = _distance(self._sorted[1:], self._sorted[:-1])
        close = np.flatnonzero(gaps <= self.tolerance)[:1]
        pair = np.append(close, close + 1) if self._order is None else self._order[np.append(close, close + 1)]
        return (int(pair[0]), int(pair[1])) if len(pair) else None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.values.tolist())}

    def _of_texts(self, labels: Array) -> Int64s:
        places = self._places
        return np.fromiter((places.get(text, NOWHERE) for text in labels.tolist()), np.int64, len(labels))

    @cached_property
    def regular(self) -> RegularLabels | None:
        """Arithmetic that reproduces the labels and finds the same indices as `indices`; None if there is none."""
        values = self.values
        if values.dtype.kind == "O" or not len(values):
            return None
        regular = _regular_integers(values) if values.dtype.kind == "i" else _regular_floats(values)
        if regular is None or (len(values) > 1 and not self.tolerance < 0.49 * abs(regular.step)):
            return None
        return regular if len(values) > 1 or not self.tolerance else None


def _distance(labels: Array, values: Array) -> Array:
    """Return absolute distances of labels from values, without overflow; infinity where one of them is NaN."""
    if labels.dtype.kind != "i":
        with np.errstate(invalid="ignore"):
            distance = np.abs(labels - values)
        return np.where(labels == values, 0.0, np.where(np.isnan(distance), np.inf, distance))
    high, low = np.maximum(labels, values), np.minimum(labels, values)
    return high.view(np.uint64) - low.view(np.uint64)


def _regular_integers(values: Int64s) -> RegularLabels | None:
    start = int(values[0])
    step = int(values[1]) - start if len(values) > 1 else 1
    end = start + (len(values) - 1) * step
    if step == 0 or max(abs(start), abs(end)) >= 2**62:
        return None
    there = start + np.arange(len(values), dtype=np.int64) * step
    return RegularLabels(start, step, len(values)) if np.array_equal(there, values) else None


def _regular_floats(values: Array) -> RegularLabels | None:
    wide = values.astype(np.float64)
    start, count = float(wide[0]), len(wide)
    if not np.isfinite(wide).all() or max(abs(start), abs(float(wide[-1]))) > 1e15:
        return None
    if count == 1:
        return RegularLabels(start, 1.0, 1, values.dtype == np.float32)
    mean = (float(wide[-1]) - start) / (count - 1)
    index = np.arange(count, dtype=np.float64)
    for step in (mean, float(wide[1]) - start, float(f"{mean:.12g}"), float(f"{mean:.6g}")):
        if not abs(step) > 1e-15 * max(abs(start), abs(float(wide[-1])), 1e-280):
            continue
        single = values.dtype == np.float32
        there = start + index * step
        exact = np.array_equal(there.astype(np.float32) if single else there, values)
        if exact and np.array_equal(np.rint((wide - start) / step), index):
            return RegularLabels(start, step, count, single)
    return None
