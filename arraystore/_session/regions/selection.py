"""Basic selections as products: slices and integers along each axis, without a tuple for each chunk."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.axes import select_along
from arraystore._session.pipeline.projection import Projection
from arraystore.errors import SelectionError

_WHOLE = slice(None)


@dataclass(frozen=True)
class Selected:
    """Cells that a basic selection selects of an array."""

    shape: tuple[int, ...]
    """Shape of what is read or written."""
    parts: tuple[slice | int, ...]
    """The selection along each axis: an index >= 0, or a slice with bounds."""
    is_scalar: bool
    """Whether one item is read as a scalar, not as an array without dimensions: zarr does so for some selections."""

    def with_all_axes(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of an array of this shape with the axes that integers select, too."""
        return array[tuple([np.newaxis if isinstance(part, int) else _WHOLE for part in self.parts])]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Items that are selected along each axis."""
        return tuple([1 if isinstance(part, int) else len(_range(part)) for part in self.parts])

    def chunk_ranges(self, chunk_shape: tuple[int, ...]) -> tuple[range, ...]:
        """Return the chunks from the first to the last one along each axis; there must be some."""
        return tuple([_chunks(part, side) for part, side in zip(self.parts, chunk_shape, strict=True)])

    def chunk_axes(self, chunk_shape: tuple[int, ...]) -> list[Int64s]:
        """Return the coordinates of these chunks along each axis."""
        return [np.arange(each.start, each.stop) for each in self.chunk_ranges(chunk_shape)]

    def project(self, chunk_shape: tuple[int, ...], array_shape: tuple[int, ...]) -> Projection:
        """Return the chunks, and the items within them, that are selected; there must be some."""
        axes = [select_along(*each) for each in zip(self.parts, chunk_shape, array_shape, strict=True)]
        complete = np.ones((), dtype=bool)
        for axis in axes:
            complete = complete[..., np.newaxis] & axis.complete
        coords, groups = tuple([axis.coords for axis in axes]), tuple([axis.groups for axis in axes])
        return Projection(coords, groups, tuple([isinstance(part, int) for part in self.parts]), complete)


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


def _chunks(part: slice | int, side: int) -> range:
    first, last = (part, part) if isinstance(part, int) else (part.start, part.stop - 1)
    return range(first // side, last // side + 1)


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
    """Return an index >= 0, or a slice with bounds."""
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
