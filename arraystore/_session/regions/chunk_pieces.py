"""Regions of few chunks, cut into what is selected of each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from arraystore._session.regions.selection import Selected


class Piece(NamedTuple):
    """Selection of one chunk along one axis."""

    number: int
    within: slice
    """Items of the chunk."""
    outside: slice
    """Items of the user's array."""
    is_whole: bool
    """Whether these are all items of the chunk."""
    is_complete: bool
    """Whether these are all items of the chunk that are in the array."""


ChunkPieces = Iterator[tuple[tuple[int, ...], tuple[Piece, ...]]]
"""Coordinates of chunks, and what is selected of each along each axis."""


def pieces_of(selected: Selected, chunk_shape: tuple[int, ...], array_shape: tuple[int, ...]) -> ChunkPieces:
    """Yield the chunks of a region, in row-major order."""
    axes = [list(_along(*each)) for each in zip(selected.parts, chunk_shape, array_shape, strict=True)]
    for parts in itertools.product(*axes):
        yield tuple([part.number for part in parts]), parts


def _along(part: slice | int, side: int, length: int) -> Iterator[Piece]:
    if isinstance(part, int):
        number, at = divmod(part, side)
        yield Piece(number, slice(at, at + 1), slice(0, 1), side == 1, min(side, length - number * side) == 1)
        return
    done, step = 0, part.step
    for number in range(part.start // side, (part.stop - 1) // side + 1):
        low, high = part.start + done * step - number * side, min(side, part.stop - number * side)
        if low < high:
            size = -(-(high - low) // step)
            whole, end = low == 0 and step == 1, min(side, length - number * side)
            yield Piece(
                number, slice(low, high, step), slice(done, done + size), whole and high == side, whole and high == end
            )
            done += size
