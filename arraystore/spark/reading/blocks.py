"""Reading the chunks of a plan: several small ones at a time, within bounds of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import zarr

from arraystore._format.types import Array, Int64s
from arraystore.spark.codec_pipeline import fused_codec_pipeline
from arraystore.spark.reading.decoding import Column
from arraystore.spark.reading.frame_plan import FramePlan, FrameVariable
from arraystore.spark.reading.selection import Boxes, boxes_of

_BLOCK_BYTES = 8 << 20
"""Bytes of values that are read at once, unless a single chunk has more."""

_NUMBERS_AT_ONCE = 1 << 16
"""Chunks whose coordinates are in memory at a time."""


@dataclass(frozen=True)
class Block:
    """Values of all variables in some chunks that are next to each other."""

    box: Int64s
    """The chunks, shape (dimensions, 2): see `arraystore.spark.reading.selection.Boxes`."""
    bounds: tuple[tuple[int, int], ...]
    """For each dimension the ordinals of the first selected position, and of the one past the last."""
    columns: tuple[Column, ...]
    """By variable; of the shape of `bounds`, in row-major order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Count of selected positions along each dimension."""
        return tuple(stop - start for start, stop in self.bounds)

    def chunks(self, plan: FramePlan) -> Iterator[Block]:
        """Yield each chunk as a block of its own; values are views."""
        for place in product(*(range(first, stop) for first, stop in self.box.tolist())):
            bounds = tuple(axis.within(at, at + 1) for axis, at in zip(plan.axes, place, strict=True))
            inside: tuple[Any, ...] = tuple(
                slice(start - own, stop - own) for (start, stop), (own, _) in zip(bounds, self.bounds, strict=True)
            )
            inside = (*inside, ...)  # without it, the value of an array without dimensions would be a scalar
            columns = tuple(column.map(itemgetter(inside)) for column in self.columns)
            box = np.array([(at, at + 1) for at in place], dtype=np.int64).reshape(-1, 2)
            yield Block(box, bounds, columns)


def blocks_of_task(plan: FramePlan, task: int, tasks: int) -> Iterator[Block]:
    """Yield what one task reads, a block at a time."""
    reader = _Reader(plan)
    for box in _boxes(plan, task, tasks):
        yield reader.read(box)


def _boxes(plan: FramePlan, task: int, tasks: int) -> Iterator[Boxes]:
    count = len(plan.chunks)
    first, stop = count * task // tasks, count * (task + 1) // tasks
    shape = tuple(axis.chunks for axis in plan.axes)
    most = max(_BLOCK_BYTES // max(plan.chunk_cells * plan.cell_bytes, 1), 1)
    for start in range(first, stop, _NUMBERS_AT_ONCE):
        numbers = plan.chunks.between(start, min(start + _NUMBERS_AT_ONCE, stop))
        yield from boxes_of(numbers, shape, most)


class _Reader:
    """Reads blocks from the arrays of a plan."""

    def __init__(self, plan: FramePlan) -> None:
        self._plan = plan
        store = plan.session.store
        with fused_codec_pipeline():
            self._arrays = [zarr.open_array(store, path=variable.path, mode="r") for variable in plan.variables]
        self._last: dict[str, tuple[Any, Column]] = {}

    def read(self, box: Int64s) -> Block:
        axes = self._plan.axes
        bounds = tuple(axis.within(int(first), int(stop)) for axis, (first, stop) in zip(axes, box, strict=True))
        shape = tuple(stop - start for start, stop in bounds)
        columns = tuple(
            _lay_out(self._column(variable, array, bounds), variable.dims, shape)
            for variable, array in zip(self._plan.variables, self._arrays, strict=True)
        )
        return Block(box, bounds, columns)

    def _column(self, variable: FrameVariable, array: zarr.Array[Any], bounds: tuple[tuple[int, int], ...]) -> Column:
        """Return a variable within bounds, in its own dimensions; those that lack a dimension are read once."""
        own = tuple(bounds[axis] for axis in variable.dims)
        if len(own) == len(bounds):
            return variable.decoder.decode(self._read_stored(variable, array, own))
        last = self._last.get(variable.column)
        if last is None or last[0] != own:
            last = self._last[variable.column] = own, variable.decoder.decode(self._read_stored(variable, array, own))
        return last[1]

    def _read_stored(self, variable: FrameVariable, array: zarr.Array[Any], own: tuple[tuple[int, int], ...]) -> Array:
        region: list[Any] = []
        for axis, (start, stop) in zip(variable.dims, own, strict=True):
            positions = self._plan.axes[axis].positions[start:stop]
            if not isinstance(positions, range) and positions[-1] - positions[0] + 1 == len(positions):
                positions = range(int(positions[0]), int(positions[-1]) + 1)
            region.append(slice(positions.start, positions.stop) if isinstance(positions, range) else positions)
        if all(isinstance(part, slice) for part in region):
            return np.asarray(self._plan.session.read(variable.path, tuple(region)))
        return np.asarray(array.oindex[tuple(region)])


def _lay_out(column: Column, dims: tuple[int, ...], shape: tuple[int, ...]) -> Column:
    """Return a column with all dimensions in order, repeated along those that it lacks."""
    order = np.argsort(dims)
    full = tuple(size if axis in dims else 1 for axis, size in enumerate(shape))
    return column.map(lambda part: np.ascontiguousarray(np.broadcast_to(part.transpose(order).reshape(full), shape)))
