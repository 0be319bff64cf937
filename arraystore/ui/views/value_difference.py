"""Values of a part of an array in two snapshots, and their difference."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.ui.views.coordinates import Axis, text_of
from arraystore.ui.views.differences import counterparts, load_both
from arraystore.ui.views.hierarchy import attributes_of
from arraystore.ui.views.item_texts import Table, table_of
from arraystore.ui.views.packing import for_page, unpacked
from arraystore.ui.views.preview import Plane, Summary, read_plane, summary_of

__all__ = ["ValueDifference", "value_difference"]

_AT_A_TIME = 1 << 18
"""Items that are compared at a time: as numbers of 64 bits they take up to eight times the bytes that they take."""

Floats = npt.NDArray[np.floating[Any]]
_Comparison = tuple[
    Floats | None,
    Floats | None,
    Floats | None,
    tuple[Summary, Summary, Summary] | None,
    int,
    tuple[Table, Table] | None,
]


@dataclass(frozen=True, eq=False)
class ValueDifference:
    """Values of a part of an array in two snapshots, thinned out alike."""

    before: Floats | None
    """Values before; NaN where there is none, at places that the array did not have yet, for instance."""
    after: Floats | None
    difference: Floats | None
    """After minus before; NaN where one of them has no value."""
    summaries: tuple[Summary, Summary, Summary] | None
    differing: int
    """Items of the part that differ, also those that are not drawn."""
    tables: tuple[Table, Table] | None
    """Text of items before and after, of an array of anything but numbers, which has none of the above."""
    kind: str
    axes: tuple[Axis, ...]
    others: tuple[Axis, ...]
    clipped: bool
    units: str | None
    title: str | None


async def value_difference(
    repository: Repository,
    before: str,
    after: str,
    path: str,
    axes: Sequence[int] | None = None,
    index: Sequence[int] | None = None,
) -> ValueDifference:
    """Return the values of a part of an array in both snapshots, and their difference.

    Raises `InvalidInputError` if one does not have the array with items of the same kind and number of dimensions.
    """
    first, second = await load_both(repository, before, after)
    was, now = counterparts(first, second, path)
    if was is None or now is None or (was.kind, now.kind) != (NodeKind.ARRAY, NodeKind.ARRAY):
        raise InvalidInputError(f"array '/{path}' is in one of the two snapshots only: there is nothing to subtract")
    ours, theirs = await _read_both(path, (first, was), (second, now), axes, index)
    old, new = _same_part(path, ours, theirs)
    numeric = old.dtype.kind == "f"
    attributes = attributes_of(now)
    return ValueDifference(
        *(await asyncio.to_thread(_compare_numbers, ours, theirs, old, new) if numeric else _compare_texts(old, new)),
        theirs.kind,
        tuple([mine if mine.stop > other.stop else other for mine, other in zip(ours.axes, theirs.axes, strict=True)]),
        ours.others if _lacks(theirs, ours) else theirs.others,
        ours.clipped or theirs.clipped,
        text_of(attributes, "units"),
        text_of(attributes, "long_name", "standard_name"),
    )


async def _read_both(
    path: str,
    first: tuple[Session, Node],
    second: tuple[Session, Node],
    axes: Sequence[int] | None,
    index: Sequence[int] | None,
) -> tuple[Plane, Plane]:
    """Read the same part of an array in two snapshots, thinned out alike."""
    before, after = (array_info(node.documents).shape for _, node in (first, second))
    if len(before) != len(after):
        raise InvalidInputError(
            f"array '/{path}' has {len(before)} dimensions before and {len(after)} after: there is nothing to subtract"
        )
    among = tuple(map(max, before, after))
    ours, theirs = await asyncio.gather(*(read_plane(*each, axes, index, among) for each in (first, second)))
    return ours, theirs


def _same_part(path: str, ours: Plane, theirs: Plane) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the values of both at the same places, none at those that only the other one has: an array may have grown.

    Raises `InvalidInputError` where there is nothing to compare.
    """
    old, new = ours.values, theirs.values
    if old.dtype != new.dtype:
        raise InvalidInputError(f"array '/{path}' holds numbers in one of the two snapshots only: nothing to subtract")
    if [(axis.start, axis.step) for axis in ours.axes] != [(axis.start, axis.step) for axis in theirs.axes]:
        raise InvalidInputError(
            f"array '/{path}' has another shape in each snapshot, too large to be shown whole: choose other axes"
        )
    if _lacks(ours, theirs) and _lacks(theirs, ours):
        raise InvalidInputError(f"array '/{path}' has this index in neither snapshot: choose another one")
    shape = tuple(map(max, old.shape, new.shape))
    return _padded(old, shape, empty=_lacks(ours, theirs)), _padded(new, shape, empty=_lacks(theirs, ours))


def _lacks(plane: Plane, other: Plane) -> bool:
    """Tell whether an array ends before the index at which the other one is shown."""
    return any(mine.start < its.start for mine, its in zip(plane.others, other.others, strict=True))


def _padded(values: npt.NDArray[Any], shape: tuple[int, ...], *, empty: bool) -> npt.NDArray[Any]:
    """Return values in an array of a shape, with NaN or None elsewhere."""
    result = np.full(shape, np.nan if values.dtype.kind == "f" else None, values.dtype)
    if not empty:
        result[tuple(map(slice, values.shape))] = values
    return result


def _compare_numbers(
    ours: Plane, theirs: Plane, old: npt.NDArray[np.float64], new: npt.NDArray[np.float64]
) -> _Comparison:
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.asarray(new - old)
    difference[old == new] = 0  # infinite ones, too
    before, after = ours.integers, theirs.integers
    if before is not None and after is not None and not _lacks(ours, theirs) and not _lacks(theirs, ours):
        part = tuple(map(slice, map(min, before.shape, after.shape)))
        difference[part] = np.asarray(after[part].astype(object) - before[part].astype(object), dtype=np.float64)
    return (
        for_page(old),
        for_page(new),
        for_page(difference),
        (summary_of(old), summary_of(new), summary_of(difference)),
        _count_differing(ours, theirs) if _is_thin(ours) or _is_thin(theirs) else _differing(old, new, difference != 0),
        None,
    )


def _differing(old: npt.NDArray[Any], new: npt.NDArray[Any], differs: npt.NDArray[np.bool_]) -> int:
    """Count items that differ, of which those that have no value in either do not."""
    both = np.isnan(old) & np.isnan(new) if old.dtype.kind == "f" else False
    return int(np.count_nonzero(differs & ~np.asarray(both)))


def _is_thin(plane: Plane) -> bool:
    return plane.stored.size < plane.whole.size


def _count_differing(ours: Plane, theirs: Plane) -> int:
    """Count the items of the whole part that differ, some rows at a time."""
    sides = ours.whole[: 0 if _lacks(ours, theirs) else None], theirs.whole[: 0 if _lacks(theirs, ours) else None]
    shape = tuple(map(max, sides[0].shape, sides[1].shape))
    step = max(1, _AT_A_TIME // max(1, math.prod(shape[1:])))
    alike = ours.packing == theirs.packing and sides[0].dtype == sides[1].dtype
    total = 0
    for start in range(0, shape[0], step):
        before, after = (side[start : start + step] for side in sides)
        if not alike or before.shape != after.shape:
            rows = (min(step, shape[0] - start), *shape[1:])
            before, after = (
                _padded(unpacked(values, plane.packing), rows, empty=False)
                for values, plane in ((before, ours), (after, theirs))
            )
        total += _differing(before, after, before != after)
    return total


def _compare_texts(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> _Comparison:
    return None, None, None, None, int((old != new).sum()), (table_of(old, digits=0), table_of(new, digits=0))
