"""Regions of an array: the chunks that they touch, and their assignment to tasks.

A region is a box of cells.  Two tasks must never write the same chunk, since each would write all of it.  So regions
that cover whole chunks are free to go anywhere, and those that share a chunk go to one task together.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Literal

import numpy as np

from arraystore._format.types import Int64s
from arraystore.errors import InvalidInputError

Align = Literal["own", "error"]
RegionLike = Sequence[slice | int | EllipsisType] | Mapping[str, slice | int] | slice | int | EllipsisType

_MOST_IN_A_CHUNK = 20_000
"""Regions that may share a chunk: each of them reads, decodes, encodes and writes all of it."""
_MOST_TOUCHED = 200_000_000


def region_text(bounds: Int64s | Sequence[tuple[int, int]], dims: Sequence[str | None] | None = None) -> str:
    """Return a region as a string for messages: ``time[0:60], lat[0:37]``."""
    names = dims if dims is not None else [None] * len(bounds)
    return ", ".join(f"{name or ''}[{a}:{b}]" for name, (a, b) in zip(names, bounds, strict=True)) or "()"


def as_slices(bounds: Int64s) -> tuple[slice, ...]:
    """Return the bounds of one region, shape (d, 2), as slices."""
    return tuple(slice(a, b) for a, b in bounds.tolist())


def as_bounds(
    regions: Iterable[RegionLike] | Int64s, shape: Sequence[int], dims: Sequence[str | None] | None = None
) -> Int64s:
    """Return regions as bounds, shape (n, d, 2): first item, and the one after the last, along each dimension."""
    ndim = len(shape)
    if isinstance(regions, np.ndarray):
        bounds = np.ascontiguousarray(regions, dtype=np.int64)
        if regions.dtype.kind not in "iu" or bounds.ndim != 3 or bounds.shape[1:] != (ndim, 2):
            raise InvalidInputError(
                f"an array of regions has integers and the shape (regions, {ndim}, 2), not {regions.dtype} "
                f"{regions.shape}"
            )
    else:
        rows = [_row(region, shape, dims) for region in _as_list(regions)]
        try:
            bounds = np.array(rows, dtype=np.int64).reshape(len(rows), ndim, 2)
        except OverflowError:
            raise InvalidInputError(f"regions end far beyond the array, whose shape is {tuple(shape)}") from None
    bad = (bounds[..., 0] < 0) | (bounds[..., 1] > np.array(shape, dtype=np.int64)) | (bounds[..., 0] >= bounds[..., 1])
    wrong = np.flatnonzero(bad.any(axis=1))
    if len(wrong):
        raise InvalidInputError(
            f"region {region_text(bounds[wrong[0]], dims)} (number {wrong[0]}) is empty or not within the array, whose "
            f"shape is {tuple(shape)}"
        )
    return bounds


def _row(region: RegionLike, shape: Sequence[int], dims: Sequence[str | None] | None) -> list[tuple[int, int]]:
    if isinstance(region, Mapping):
        unknown = set(region) - set(dims or ())
        if unknown:
            raise InvalidInputError(f"region {region!r}: the array has no dimension {min(map(str, unknown))!r}")
        parts: list[Any] = [region.get(str(name), slice(None)) for name in dims or ()]
    else:
        parts = _spell_out(list(region) if isinstance(region, Sequence) else [region], len(shape))
    if len(parts) > len(shape):
        raise InvalidInputError(f"region {region!r} has {len(parts)} dimensions, and the array {len(shape)}")
    parts += [slice(None)] * (len(shape) - len(parts))
    return [_interval(part, size, region) for part, size in zip(parts, shape, strict=True)]


def _as_list(regions: Iterable[RegionLike]) -> Iterable[RegionLike]:
    """Return regions as an iterable of them; refuse a single region, whose parts would pass for regions."""
    if isinstance(regions, Mapping | str) or (
        isinstance(regions, tuple) and regions and all(isinstance(part, slice | EllipsisType) for part in regions)
    ):
        raise InvalidInputError(f"{regions!r} is one region; give a list of regions: [{regions!r}]")
    if not isinstance(regions, Iterable):
        raise InvalidInputError(f"{regions!r} is not a list of regions")
    return regions


def _spell_out(parts: list[Any], ndim: int) -> list[Any]:
    """Replace an ellipsis by slices of whole dimensions."""
    places = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(places) != 1:  # two of them are refused as what is no slice
        return parts
    (at,) = places
    return [*parts[:at], *[slice(None)] * (ndim - len(parts) + 1), *parts[at + 1 :]]


def _interval(part: Any, size: int, region: RegionLike) -> tuple[int, int]:
    if isinstance(part, slice):
        if part.step not in (None, 1):
            raise InvalidInputError(f"region {region!r} has a step; regions are boxes")
        try:
            start = 0 if part.start is None else operator.index(part.start)
            stop = size if part.stop is None else operator.index(part.stop)
        except TypeError:
            raise InvalidInputError(f"region {region!r}: the ends of slices must be integers") from None
        return start + size if start < 0 else start, stop + size if stop < 0 else stop
    try:
        at = operator.index(part)
    except TypeError:
        raise InvalidInputError(f"region {region!r}: {part!r} is neither a slice nor a number") from None
    return (at + size, at + size + 1) if at < 0 else (at, at + 1)


def pack_bounds(bounds: Int64s) -> bytes:
    """Pack regions into few bytes, as differences between neighbours repeat."""
    sides = np.stack([bounds[..., 0], bounds[..., 1] - bounds[..., 0]])
    steps = np.diff(sides, axis=1, prepend=0).transpose(0, 2, 1)
    return zlib.compress(steps.astype("<i8").tobytes(), 1)


def unpack_bounds(data: bytes, ndim: int) -> Int64s:
    """Return the regions that `pack_bounds` packed."""
    if not ndim:  # there is one region of an array without dimensions
        return np.empty((1, 0, 2), dtype=np.int64)
    steps = np.frombuffer(zlib.decompress(data), dtype="<i8").reshape(2, ndim, -1).astype(np.int64)
    low, length = np.cumsum(steps, axis=2)
    return np.stack([low.T, (low + length).T], axis=2)


def cut_regions(shape: Sequence[int], unit: Sequence[int], itemsize: int, most_bytes: int) -> Int64s:
    """Cut an array into regions of whole chunks of at most `max_bytes`, or of one larger chunk."""
    steps = [max(1, side) for side in unit]
    for axis in reversed(range(len(steps))):
        fitting = max(1, most_bytes // max(1, math.prod(steps) * itemsize))
        steps[axis] *= min(fitting, max(1, -(-shape[axis] // steps[axis])))
    starts = [np.arange(0, size, step, dtype=np.int64) for size, step in zip(shape, steps, strict=True)]
    if not starts:
        return np.empty((1, 0, 2), dtype=np.int64)
    low = np.stack([axis.reshape(-1) for axis in np.meshgrid(*starts, indexing="ij")], axis=1)
    high = np.minimum(low + np.array(steps, dtype=np.int64), np.array(shape, dtype=np.int64))
    return np.stack([low, high], axis=2)


@dataclass(frozen=True, eq=False)
class Ownership:
    """Grouping of regions that must be written by the same task."""

    group: Int64s
    """Number of the group of each region: the first region of it."""
    chunks: int
    """Count of chunks that are touched by any region."""


def ownership(
    bounds: Int64s,
    shape: Sequence[int],
    unit: Sequence[int],
    align: Align = "own",
    dims: Sequence[str | None] | None = None,
) -> Ownership:
    """Group regions that share chunks, and check that none overlap."""
    sides = np.array(unit, dtype=np.int64)
    if align == "error":
        _check_aligned(bounds, np.array(shape, dtype=np.int64), sides, dims)
    elif align != "own":
        raise InvalidInputError(f"align={align!r}: it is 'own' or 'error'")
    region, chunk = _touched(bounds, shape, sides)
    order = np.argsort(chunk, kind="stable")
    region, chunk = region[order], chunk[order]
    same = chunk[1:] == chunk[:-1]
    if not bool(same.any()):
        return Ownership(np.arange(len(bounds), dtype=np.int64), len(chunk))
    _check_overlap(bounds, region, chunk, dims)
    group = _components(len(bounds), region[:-1][same], region[1:][same])
    return Ownership(group, int(len(chunk) - same.sum()))


def _check_aligned(bounds: Int64s, shape: Int64s, sides: Int64s, dims: Sequence[str | None] | None) -> None:
    low, high = bounds[..., 0], bounds[..., 1]
    ragged = ((low % sides != 0) | ((high % sides != 0) & (high != shape))).any(axis=1)
    if bool(ragged.any()):
        first = int(np.flatnonzero(ragged)[0])
        raise InvalidInputError(
            f"{int(ragged.sum())} of {len(bounds)} regions do not cover whole chunks of {tuple(sides.tolist())}, the "
            f"first is {region_text(bounds[first], dims)} (number {first}): let regions begin and end where chunks do, "
            "or pass align='own' to have those that share a chunk written by one task"
        )


def _touched(bounds: Int64s, shape: Sequence[int], sides: Int64s) -> tuple[Int64s, Int64s]:
    """Return pairs of region and chunk, the chunk as its row-major number."""
    low = bounds[..., 0] // sides
    counts = -(-bounds[..., 1] // sides) - low
    totals = counts.prod(axis=1, dtype=np.float64)
    if totals.sum() > _MOST_TOUCHED:
        raise InvalidInputError(
            f"the regions touch {totals.sum():.0f} chunks; more than {_MOST_TOUCHED:,} in one job are not supported: "
            "make chunks larger, or write in several jobs"
        )
    sizes = counts.prod(axis=1)
    region = np.repeat(np.arange(len(bounds), dtype=np.int64), sizes)
    rest = np.arange(len(region), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chunk = np.zeros(len(region), dtype=np.int64)
    stride = 1
    for axis in reversed(range(bounds.shape[1])):
        width = counts[region, axis]
        chunk += (low[region, axis] + rest % width) * stride
        rest //= width
        stride *= max(1, -(-int(shape[axis]) // int(sides[axis])))
    return region, chunk


def _check_overlap(bounds: Int64s, region: Int64s, chunk: Int64s, dims: Sequence[str | None] | None) -> None:
    """Compare the regions of each chunk with each other, all chunks at a time."""
    group = np.cumsum(np.concatenate([[False], chunk[1:] != chunk[:-1]]))
    most = int(np.bincount(group).max())
    if most > _MOST_IN_A_CHUNK:
        raise InvalidInputError(f"{most} regions share one chunk: make regions larger, or chunks smaller")
    order, following = _swept(bounds[region], group)
    region = region[order]
    for distance in range(1, int(following.max()) + 1):
        a = np.flatnonzero(following >= distance)
        one, other = region[a], region[a + distance]
        apart = (bounds[one, :, 1] <= bounds[other, :, 0]) | (bounds[other, :, 1] <= bounds[one, :, 0])
        shared = np.flatnonzero(~apart.any(axis=1))
        if len(shared):
            i, j = sorted((int(one[shared[0]]), int(other[shared[0]])))
            raise InvalidInputError(
                f"regions {region_text(bounds[i], dims)} (number {i}) and {region_text(bounds[j], dims)} (number {j}) "
                "overlap: their order would decide which values are kept"
            )


def _swept(bounds: Int64s, group: Int64s) -> tuple[Int64s, Int64s]:
    """Sort boxes along the dimension that keeps most of a group apart."""
    count = len(bounds)
    last = np.searchsorted(group, group, side="right")
    pairs = np.arange(count, dtype=np.int64), last - np.arange(count, dtype=np.int64) - 1
    for axis in range(bounds.shape[1]):
        levels, ranks = np.unique(bounds[:, axis], return_inverse=True)  # ranks: products of coordinates may not fit
        low, high = ranks.reshape(count, 2).T
        key = group * len(levels) + low
        order = np.argsort(key, kind="stable")
        beyond = np.searchsorted(key[order], (group * len(levels) + high)[order])
        following = beyond - np.arange(count, dtype=np.int64) - 1
        if following.sum() < pairs[1].sum():
            pairs = order, following
    return pairs


def _components(count: int, one: Int64s, other: Int64s) -> Int64s:
    """Return for each node of a graph the first node of its component."""
    label = np.arange(count, dtype=np.int64)
    while len(one):
        low, high = np.minimum(label[one], label[other]), np.maximum(label[one], label[other])
        np.minimum.at(label, high, low)  # both are the first of what is connected so far: the later joins the earlier
        while not np.array_equal(further := label[label], label):
            label = further
        apart = label[one] != label[other]
        one, other = one[apart], other[apart]
    return label


def join_groups(groups: Sequence[Int64s]) -> Int64s:
    """Join groupings: regions that share a group in any of them share one in the result."""
    count = len(groups[0])
    return _components(count, np.tile(np.arange(count, dtype=np.int64), len(groups)), np.concatenate(groups))


def assign_to_tasks(group: Int64s, weight: Int64s, tasks: int) -> list[Int64s]:
    """Assign regions to at most `tasks` tasks of about equal weight, keeping groups and neighbours together."""
    order = np.argsort(group, kind="stable")
    labels, start = np.unique(group[order], return_index=True)
    if not len(labels):
        return []
    hand = np.arange(len(labels))
    if len(labels) > tasks:
        heavy = np.add.reduceat(weight[order].astype(np.float64), start)
        middle = np.cumsum(heavy) - heavy / 2
        hand = np.minimum(tasks - 1, (middle * tasks / max(1.0, float(heavy.sum()))).astype(np.int64))
    of_region = np.repeat(hand, np.diff(np.append(start, len(order))))
    edges = np.flatnonzero(np.diff(of_region)) + 1
    return np.split(order, edges)
