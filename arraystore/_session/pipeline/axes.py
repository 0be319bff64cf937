"""Selections along one axis by an index or a slice: chunks, and items within them."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.projection import Group


@dataclass(frozen=True)
class AxisSelection:
    """Selection along one axis."""

    coords: Int64s
    """Coordinates of chunks, ascending."""
    groups: tuple[Group, ...]
    complete: npt.NDArray[np.bool_]
    """Whether all items of each chunk that are in the array are selected, as zarr decides it."""


def select_along(part: slice | int, side: int, length: int) -> AxisSelection:
    """Return what an index or a slice selects of an axis of some length, in chunks of one side."""
    if isinstance(part, int):
        number, within = divmod(part, side)
        alone = min(side, length - number * side) == 1
        return AxisSelection(np.array([number]), (Group(0, 1, slice(within, within + 1, 1), 0, 1),), np.array([alone]))
    return _run(part, side, length) if part.step == 1 else _stepped(part, side)


def _run(part: slice, side: int, length: int) -> AxisSelection:
    """Return what a slice with step 1 selects: of the first and last chunk a part, of those in between all."""
    (first, low), last = divmod(part.start, side), (part.stop - 1) // side
    high, count = part.stop - last * side, last - first + 1
    complete = np.ones(count, dtype=bool)
    complete[0] = low == 0
    complete[-1] &= part.stop >= min((last + 1) * side, length)
    cuts = [(0, low, high if count == 1 else side)]
    if count > 1:
        cuts += [(1, 0, side), (count - 1, 0, high)]
    return AxisSelection(np.arange(first, last + 1), _grouped(cuts, count), complete)


def _grouped(cuts: list[tuple[int, int, int]], count: int) -> tuple[Group, ...]:
    """Return groups of neighbouring chunks of which the same items are selected: position, first item, end."""
    groups: list[Group] = []
    at = 0
    for (position, low, high), (following, _, _) in itertools.pairwise([*cuts, (count, 0, 0)]):
        if position == following:  # nothing lies between the first chunk and the last
            continue
        number, before = following - position, groups[-1] if groups else None
        if before is not None and before.within == slice(low, high, 1):
            groups[-1] = Group(before.first, before.count + number, before.within, before.start, before.size)
        else:
            groups.append(Group(position, number, slice(low, high, 1), at, high - low))
        at += number * (high - low)
    return tuple(groups)


def _stepped(part: slice, side: int) -> AxisSelection:
    """Return what a slice with a larger step selects: of each chunk other items."""
    coords = np.arange(part.start // side, (part.stop - 1) // side + 1)
    begin = np.maximum(coords * side, part.start)
    first = (begin - part.start + part.step - 1) // part.step  # items before each chunk
    low = part.start + first * part.step - coords * side
    sizes = (np.minimum(side, part.stop - coords * side) - low + part.step - 1) // part.step
    kept = sizes > 0
    coords, first, low, sizes = coords[kept], first[kept], low[kept], sizes[kept]
    changes = np.flatnonzero((low[1:] != low[:-1]) | (sizes[1:] != sizes[:-1])) + 1
    groups = []
    for begin, end in itertools.pairwise([0, *changes.tolist(), len(coords)]):
        start, size = int(low[begin]), int(sizes[begin])
        within = slice(start, start + (size - 1) * part.step + 1, part.step)
        groups.append(Group(begin, end - begin, within, int(first[begin]), size))
    return AxisSelection(coords, tuple(groups), np.zeros(len(coords), dtype=bool))
