"""Basic selections as products: slices and integers along each axis, without a tuple for each chunk."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.projection import Group, Projection
from arraystore.errors import SelectionError

_WHOLE = slice(None)


@dataclass(frozen=True)
class Selected:
    """What a basic selection selects of an array."""

    shape: tuple[int, ...]
    """Shape of what is read or written."""
    parts: tuple[slice | int, ...]
    """The selection along each axis: an index that is not negative, or a slice with bounds."""
    is_scalar: bool
    """Whether one item is read as a scalar, not as an array without dimensions: zarr does so for some selections."""

    def with_all_axes(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of an array of this shape with the axes that integers select, too."""
        return array[tuple([np.newaxis if isinstance(part, int) else _WHOLE for part in self.parts])]

    def project(self, chunk_shape: tuple[int, ...], array_shape: tuple[int, ...]) -> Projection:
        """Return the chunks, and the items within them, that are selected; there must be some."""
        axes = [_axis(*each) for each in zip(self.parts, chunk_shape, array_shape, strict=True)]
        complete = np.ones((), dtype=bool)
        for axis in axes:
            complete = complete[..., np.newaxis] & axis.complete
        coords, groups = tuple([axis.coords for axis in axes]), tuple([axis.groups for axis in axes])
        return Projection(coords, groups, tuple([isinstance(part, int) for part in self.parts]), complete)


@dataclass(frozen=True)
class _Axis:
    """What is selected along one axis."""

    coords: Int64s
    """Coordinates of chunks, ascending."""
    groups: tuple[Group, ...]
    complete: npt.NDArray[np.bool_]
    """Whether all items of each chunk that are in the array are selected, as zarr decides it."""


def select(path: str, selection: Any, shape: tuple[int, ...]) -> Selected | None:
    """Return what integers, slices and an ellipsis select; None for any other selection.

    Raises `SelectionError` for what numpy, or zarr, would not accept either.
    """
    given = selection if isinstance(selection, tuple) else (selection,)
    if not all(part is Ellipsis or type(part) in (int, slice) or isinstance(part, np.integer) for part in given):
        return None
    expanded = _expanded(path, given, shape)
    parts = tuple([_bounded(path, selection, *each) for each in zip(expanded, shape, itertools.count())])
    shape = tuple([len(_range(part)) for part in parts if isinstance(part, slice)])
    return Selected(shape, parts, not shape and not all(isinstance(part, int) for part in given))


def _range(part: slice) -> range:
    return range(part.start, part.stop, part.step)


def _expanded(path: str, given: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Replace an ellipsis, and the axes that are left out at the end, by whole axes."""
    count = sum(part is Ellipsis for part in given)
    if count > 1 or len(given) - count > len(shape):
        raise SelectionError(
            f"{_named(path, given)} must have at most one ellipsis and {len(shape)} integers or slices, one for each "
            f"dimension of shape {shape}"
        )
    at = next((i for i, part in enumerate(given) if part is Ellipsis), len(given))
    rest = given[at + 1 :]
    return (*given[:at], *[_WHOLE] * (len(shape) - at - len(rest)), *rest)


def _named(path: str, selection: Any) -> str:
    return f"selection {str(selection)[:200]} of array {path!r}"


def _bounded(path: str, selection: Any, part: Any, length: int, axis: int) -> slice | int:
    """Return an index that is not negative, or a slice with bounds."""
    if not isinstance(part, slice):
        index = int(part)
        if not -length <= index < length:
            raise SelectionError(
                f"{_named(path, selection)}: {index} must be an index of dimension {axis}, which has {length} items"
            )
        return index + length if index < 0 else index
    try:
        start, stop, step = part.indices(length)
    except (TypeError, ValueError) as error:
        raise SelectionError(f"{_named(path, selection)}: the bounds of {part} must be integers: {error}") from error
    if step < 1:
        raise SelectionError(
            f"{_named(path, selection)}: the step of {part} must be positive: read forwards, and reverse the result"
        )
    return slice(start, max(start, stop), step)


# -- axes -------------------------------------------------------------------------------------------------------


def _axis(part: slice | int, side: int, length: int) -> _Axis:
    if isinstance(part, int):
        number, within = divmod(part, side)
        alone = min(side, length - number * side) == 1
        return _Axis(np.array([number]), (Group(0, 1, slice(within, within + 1, 1), 0, 1),), np.array([alone]))
    return _run(part, side, length) if part.step == 1 else _stepped(part, side)


def _run(part: slice, side: int, length: int) -> _Axis:
    """Return what a slice with step 1 selects: of the first and last chunk a part, of those in between all."""
    (first, low), last = divmod(part.start, side), (part.stop - 1) // side
    high, count = part.stop - last * side, last - first + 1
    complete = np.ones(count, dtype=bool)
    complete[0] = low == 0
    complete[-1] &= part.stop >= min((last + 1) * side, length)
    cuts = [(0, low, high if count == 1 else side)]
    if count > 1:
        cuts += [(1, 0, side), (count - 1, 0, high)]
    return _Axis(np.arange(first, last + 1), _grouped(cuts, count), complete)


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


def _stepped(part: slice, side: int) -> _Axis:
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
    return _Axis(coords, tuple(groups), np.zeros(len(coords), dtype=bool))
