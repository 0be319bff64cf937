"""Selections by arrays of indices as few regions: of each chunk what lies between the items that are wanted of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore._session.base import SessionBase
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.shards import ShardCodec
from arraystore._session.regions.access import open_array
from arraystore._session.regions.layout import ArrayLayout, layout_of
from arraystore._session.regions.zarr_regions import zarr_array
from arraystore.errors import SelectionError
from arraystore.xarray.batches import batches

_MOST_REGIONS = 4096
"""Regions of one selection by arrays along each axis; zarr reads what would take more."""

_WHOLE = slice(None)


@dataclass(frozen=True)
class _Run:
    """Items of neighbouring chunks along one axis."""

    part: slice | int
    """What is read of the array."""
    inner: Int64s | slice
    """Items of what is read."""
    outer: slice
    """Their place in the result."""
    size: int
    """Count of items that are read."""


def pick_outer(session: SessionBase, path: str, key: Sequence[Any]) -> Any:
    """Read what integers, slices and lists of indices select along each axis."""
    layout = layout_of(open_array(session, path))
    if not any(isinstance(part, np.ndarray) for part in key):
        return session.read(path, tuple(key))
    if layout.codec is None:
        return zarr_array(session.store, path, layout).oindex[tuple(key)]
    sorted_key, inverse = _sorted(path, key, layout.shape)
    axes = [_runs(*each) for each in zip(sorted_key, _readable(layout.codec), layout.shape, strict=True)]
    if math.prod(map(len, axes)) > _MOST_REGIONS:
        return zarr_array(session.store, path, layout).oindex[tuple(key)]
    found = _joined(session, path, layout, axes)
    for axis, order in enumerate(inverse):
        if order is not None:
            found = found.take(order, axis)
    return found


def _readable(codec: ChunkCodec | ShardCodec) -> tuple[int, ...]:
    """Return the shape of what is read as a whole: a chunk, also of those in a shard."""
    return codec.shape if isinstance(codec, ChunkCodec) else codec.inner.shape


def _sorted(
    path: str, key: Sequence[Any], shape: tuple[int, ...]
) -> tuple[list[slice | int | Int64s], list[Int64s | None]]:
    """Return the parts with indices ascending and each there once, and for axes that are kept how to undo that."""
    parts: list[slice | int | Int64s] = []
    inverse: list[Int64s | None] = []
    for part, length in zip(key, shape, strict=True):
        if not isinstance(part, np.ndarray):
            parts.append(part)
            if isinstance(part, slice):
                inverse.append(None)
            continue
        wanted = _positive(path, part, length)
        if wanted.size < 2 or (np.diff(wanted) > 0).all():
            parts.append(wanted)
            inverse.append(None)
        else:
            unique, order = np.unique(wanted, return_inverse=True)
            parts.append(unique)
            inverse.append(order.reshape(-1))
    return parts, inverse


def _positive(path: str, indices: npt.NDArray[Any], length: int) -> Int64s:
    """Return indices that are not negative; raises `SelectionError` for one out of bounds."""
    wanted = indices.astype(np.int64)
    wanted = np.where(wanted < 0, wanted + length, wanted)
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < length:
        raise SelectionError(f"indices of array {path!r} must be of a dimension that has {length} items")
    return wanted


def _runs(part: slice | int | Int64s, side: int, length: int) -> list[_Run]:
    """Cut ascending indices where chunks lie between them of which nothing is wanted."""
    if isinstance(part, slice):
        count = len(range(*part.indices(length)))
        return [_Run(part, _WHOLE, slice(0, count), count)]
    if not isinstance(part, np.ndarray):
        return [_Run(int(part), _WHOLE, slice(0, 1), 1)]
    if not part.size:
        return [_Run(slice(0, 0), _WHOLE, slice(0, 0), 0)]
    bounds = [0, *(np.flatnonzero(np.diff(part // side) > 1) + 1).tolist(), len(part)]
    return [_run(part[low:high], low) for low, high in itertools.pairwise(bounds)]


def _run(indices: Int64s, start: int) -> _Run:
    low, high = int(indices[0]), int(indices[-1]) + 1
    inner = _WHOLE if high - low == len(indices) else indices - low
    return _Run(slice(low, high), inner, slice(start, start + len(indices)), high - low)


def _joined(session: SessionBase, path: str, layout: ArrayLayout, axes: Sequence[Sequence[_Run]]) -> Any:
    """Read the product of runs along each axis, as one array."""
    kept = [runs for runs in axes if not isinstance(runs[0].part, int)]
    out = np.empty([runs[-1].outer.stop for runs in kept], layout.dtype)
    itemsize = layout.dtype.itemsize
    regions = itertools.product(*axes)
    for batch in batches(regions, lambda runs: itemsize * math.prod(run.size for run in runs)):
        found = session.read_many([(path, tuple([run.part for run in runs])) for runs in batch])
        for runs, values in zip(batch, found, strict=True):
            runs_kept = [run for run in runs if not isinstance(run.part, int)]
            for axis, run in enumerate(runs_kept):
                if not isinstance(run.inner, slice):
                    values = values.take(run.inner, axis)  # noqa: PLW2901
            out[tuple([run.outer for run in runs_kept])] = values
    return out


def pick_points(session: SessionBase, path: str, key: Sequence[Any]) -> Any:
    """Read single items, by an array of indices for each axis, all of which broadcast to the shape of the result."""
    layout = layout_of(open_array(session, path))
    if layout.codec is None or not all(isinstance(part, np.ndarray) for part in key):
        return zarr_array(session.store, path, layout).vindex[tuple(key)]
    indices = [_positive(path, part, length) for part, length in zip(key, layout.shape, strict=True)]
    points = np.stack([each.reshape(-1) for each in np.broadcast_arrays(*indices)], axis=1)
    out = np.empty(len(points), layout.dtype)
    itemsize = layout.dtype.itemsize
    for batch in batches(_boxes(points, _readable(layout.codec)), lambda box: itemsize * box.size):
        found = session.read_many([(path, box.selection) for box in batch])
        for box, values in zip(batch, found, strict=True):
            out[box.at] = values[tuple((points[box.at] - box.low).T)]
    return out.reshape(np.broadcast_shapes(*[each.shape for each in indices]))


@dataclass(frozen=True)
class _Box:
    """Points of one chunk, and what lies between them."""

    at: Int64s
    """Positions of the points."""
    low: Int64s
    high: Int64s

    @property
    def size(self) -> int:
        """Count of items between them."""
        return math.prod((self.high - self.low).tolist())

    @property
    def selection(self) -> tuple[slice, ...]:
        """The box."""
        return tuple([slice(low, high) for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True)])


def _boxes(points: Int64s, chunk_shape: tuple[int, ...]) -> list[_Box]:
    """Return the boxes of points, shape (n, d), chunk by chunk."""
    if not len(points):
        return []
    chunks = points // np.array(chunk_shape, dtype=np.int64)
    order = np.lexsort(chunks.T[::-1])
    points, chunks = points[order], chunks[order]
    first = np.concatenate([[0], np.flatnonzero((chunks[1:] != chunks[:-1]).any(axis=1)) + 1])
    low, high = np.minimum.reduceat(points, first), np.maximum.reduceat(points, first) + 1
    bounds = itertools.pairwise([*first.tolist(), len(points)])
    return [_Box(order[start:stop], *each) for (start, stop), *each in zip(bounds, low, high, strict=True)]
