"""The part of an array that a page shows: two axes, and an index along each other one."""

from __future__ import annotations

from collections.abc import Sequence

from arraystore.errors import InvalidInputError

__all__ = ["check_index", "choose_axes"]


def choose_axes(sizes: Sequence[int], axes: Sequence[int] | None) -> tuple[int, int]:
    """Return the axes down and across: those passed, or the last two that are longer than 1.

    Raises `InvalidInputError` if `axes` are not two different axes.
    """
    if axes is not None:
        if len(axes) != 2 or axes[0] == axes[1] or not all(0 <= axis < len(sizes) for axis in axes):
            raise InvalidInputError(f"axes={tuple(axes)} must be two different axes of {len(sizes)} dimensions")
        return axes[0], axes[1]
    long = [axis for axis, size in enumerate(sizes) if size > 1]
    rest = [axis for axis in range(len(sizes)) if axis not in long]
    chosen = sorted((rest + long)[-2:])
    return chosen[0], chosen[1]


def check_index(index: Sequence[int] | None, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return an index along every axis, moved into the array; 0 along each by default.

    Raises `InvalidInputError` if it has another number of dimensions.
    """
    if index is None:
        return (0,) * len(sizes)
    if len(index) != len(sizes):
        raise InvalidInputError(f"index={tuple(index)} must have {len(sizes)} dimensions")
    return tuple([min(max(at, 0), max(size - 1, 0)) for at, size in zip(index, sizes, strict=True)])
