"""Copies of chunks of a selection into the user's array."""

from __future__ import annotations

from itertools import pairwise
from operator import lt
from typing import Any

import numpy as np

from arraystore._format.types import Array, Int64s
from arraystore._session.pipeline.projection import GroupBox, Projection, boxes_of_run

_SHORT_RUN = 4
"""Average of chunks in a run below which one indexed assignment of all is faster than one of each run."""


class Scatter:
    """Copies chunks of a selection, by their positions in row-major order, into the user's array."""

    def __init__(self, selection: Projection, out: Array) -> None:
        self.sides = selection.sides
        self.boxes = [(box, box.low, box.high) for box in selection.boxes()]
        self.out = out

    def put(self, at: Int64s, chunks: Array) -> None:
        """Copy chunks, one strided copy for each box that a run of neighbours consists of."""
        cuts = np.flatnonzero(at[1:] != at[:-1] + 1) + 1
        if len(at) < _SHORT_RUN * (len(cuts) + 1) and len(cuts):
            self._put_indexed(at, chunks)
            return
        bounds = [0, *cuts.tolist(), len(at)]
        for first, last in pairwise(bounds):
            self._put_run(int(at[first]), chunks[first:last])

    def put_scalar(self, at: Int64s, value: Any) -> None:
        """Set all items of chunks to one value."""
        if len(at) == np.prod(self.sides):
            self.out[...] = value
        else:
            self.put(at, np.broadcast_to(np.asarray(value, dtype=self.out.dtype), (len(at), *[1] * len(self.sides))))

    def _put_run(self, start: int, chunks: Array) -> None:
        done = 0
        for low, high in boxes_of_run(self.sides, start, start + len(chunks)):
            shape = tuple([b - a for a, b in zip(low, high, strict=True)])
            count = int(np.prod(shape))
            shaped = chunks[done : done + count].reshape(*shape, *chunks.shape[1:])
            for box, first, last in self.boxes:
                if all(map(lt, first, high)) and all(map(lt, low, last)):
                    self._put_box(box, low, high, shaped)
            done += count

    def _put_box(self, box: GroupBox, low: tuple[int, ...], high: tuple[int, ...], chunks: Array) -> None:
        """Copy the part of a box of chunks that is in a box of the selection."""
        first, last = tuple(map(max, low, box.low)), tuple(map(min, high, box.high))
        part = tuple([slice(a - base, b - base) for a, b, base in zip(first, last, low, strict=True)])
        box.items(first, last, self.out)[...] = chunks[(*part, *_within(box, chunks))]

    def _put_indexed(self, at: Int64s, chunks: Array) -> None:
        """Copy chunks in any order."""
        coords = np.unravel_index(at, self.sides)
        for box, _, _ in self.boxes:
            inside = np.ones(len(at), dtype=bool)
            for axis, a, b in zip(coords, box.low, box.high, strict=True):
                inside &= (axis >= a) & (axis < b)
            if inside.all():  # without a copy of the chunks
                local = tuple([axis - a for axis, a in zip(coords, box.low, strict=True)])
                box.items(box.low, box.high, self.out)[local] = chunks[(slice(None), *_within(box, chunks))]
            elif inside.any():
                local = tuple([axis[inside] - a for axis, a in zip(coords, box.low, strict=True)])
                part = (slice(None), *_within(box, chunks))
                box.items(box.low, box.high, self.out)[local] = chunks[inside][part]


def _within(box: GroupBox, chunks: Array) -> tuple[slice, ...]:
    """Return the items of each chunk that are selected; all of the one that stands for all items."""
    sides = chunks.shape[-len(box.groups) :]
    return tuple([slice(None) if side == 1 else items for side, items in zip(sides, box.within, strict=True)])
