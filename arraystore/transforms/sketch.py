"""Quantiles of any number of values in bounded memory, by a deterministic sketch.

Values are kept in sorted levels, where one of level n stands for 2**n values.  A level that is full is compacted: every
other value moves up one level (Munro and Paterson 1980; Manku, Rajagopalan and Lindsay 1998).  A compaction of level n
moves no rank by more than 2**n, so the sum of these is a bound of the error, which is kept and told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.types import Array, Bools

_FLOAT64: np.dtype[Any] = np.dtype("f8")
LEVEL_SIZE = 8192
"""Values of a level: below that many values, quantiles are exact."""


@dataclass(frozen=True)
class QuantileSketch:
    """Reducer of all values to some quantiles."""

    quantiles: tuple[float, ...]
    several: bool = True
    """Whether the result has a dimension for the quantiles."""
    dtype: np.dtype[Any] = _FLOAT64
    cell_bytes: int = 64 * LEVEL_SIZE * 16

    def reduce(self, values: Array, valid: Bools | None, axes: tuple[int, ...]) -> tuple[Array, ...]:
        """Return the sketch of a block: values, their levels, and the bound of the rank error with the count."""
        flat = (values if valid is None else values[valid]).reshape(-1).astype(np.float64)
        levels = np.zeros(len(flat), dtype=np.int64)
        return _compact(np.sort(flat), levels, np.array([0, len(flat)], dtype=np.int64))

    def combine(self, one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the sketch of two blocks."""
        values = np.concatenate([one[0], other[0]])
        levels = np.concatenate([one[1], other[1]])
        order = np.argsort(values, kind="stable")
        return _compact(values[order], levels[order], one[2] + other[2])

    def finish(self, parts: tuple[Array, ...]) -> Array:
        """Return the quantiles, interpolated as numpy does; NaN without values."""
        found = self._find(parts)
        return found if self.several else np.asarray(found[0])

    def _find(self, parts: tuple[Array, ...]) -> Array:
        values, levels, (_, count) = parts[0], parts[1], parts[2].tolist()
        if not count:
            return np.full(len(self.quantiles), np.nan)
        if np.isnan(values).any():
            return np.full(len(self.quantiles), np.nan)
        ends = np.cumsum(np.int64(1) << levels)
        place = np.array(self.quantiles) * (count - 1)
        low, high = (
            values[np.searchsorted(ends, np.minimum(rank, ends[-1] - 1), side="right")]
            for rank in (np.floor(place), np.ceil(place))
        )
        part = place - np.floor(place)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(low == high, low, low + (high - low) * part))

    def accepts(self, parts: tuple[Array, ...], empty: tuple[Array, ...]) -> bool:
        """Return whether arrays of a worker are a sketch: sorted values whose levels add up to their count."""
        if [(part.ndim, part.dtype) for part in parts] != [(part.ndim, part.dtype) for part in empty]:
            return False
        values, levels, totals = parts
        if values.shape != levels.shape or totals.shape != (2,) or not np.all((levels >= 0) & (levels < 63)):
            return False
        error, count = totals.tolist()
        weights = sum(many << level for level, many in enumerate(np.bincount(levels).tolist()))
        return error >= 0 and count == weights and bool(np.array_equal(values, np.sort(values), equal_nan=True))

    @staticmethod
    def rank_error(parts: tuple[Array, ...]) -> float:
        """Return the bound of the rank error, as a fraction of the count."""
        error, count = parts[2].tolist()
        return float(error / count) if count else 0.0


def _compact(values: Array, levels: Array, totals: Array) -> tuple[Array, ...]:
    """Halve levels that are full, from the lowest; values are sorted."""
    if np.isnan(values[-1:]).any():  # it is the result, and must not be dropped
        return values[-1:], np.zeros(1, dtype=np.int64), np.array([0, 1], dtype=np.int64)
    error, count = totals.tolist()
    level = 0
    while level <= int(levels.max(initial=-1)):
        here = np.flatnonzero(levels == level)
        if len(here) >= 2 * LEVEL_SIZE:
            here = here[: len(here) // 2 * 2]
            first = (error >> level) & 1  # in turn, so that errors of one direction do not add up
            keep = np.ones(len(values), dtype=bool)
            keep[here[1 - first :: 2]] = False
            levels[here[first::2]] = level + 1
            values, levels = values[keep], levels[keep]
            error += 1 << level
        level += 1
    return values, levels, np.array([error, count], dtype=np.int64)
