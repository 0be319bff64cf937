"""Bounds of the boxes of many layers as columns, to find those that may have a cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arraystore._format.layer import Layer
from arraystore._format.types import Bools, Int64s

FEW = 16
"""Layers up to which each is looked at by itself: columns cost as much as some fifteen."""


class LayerBounds:
    """Bounds of layers; an array of 100,000,000 chunks has 1,500, one between two folds may have more."""

    __slots__ = ("_high", "_layers", "_low")

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self._low = _columns([layer.box.low for layer in layers])
        self._high = _columns([layer.box.high for layer in layers])

    def around(self, low: Sequence[int], high: Sequence[int]) -> list[Layer]:
        """Return the layers whose boxes share a cell with the box from `low` to `high` (exclusive), oldest first."""
        shared: Bools = np.ones(len(self._layers), dtype=bool)
        for axis, (first, end) in enumerate(zip(low, high, strict=True)):
            shared &= self._low[axis] < end
            shared &= self._high[axis] > first
        return [self._layers[at] for at in np.flatnonzero(shared).tolist()]


def _columns(bounds: list[tuple[int, ...]]) -> Int64s:
    return np.ascontiguousarray(np.array(bounds, dtype=np.int64).reshape(len(bounds), -1).T)
