"""Choosing the chunks of arrays that are created."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from arraystore.errors import InvalidInputError
from arraystore.spark.creation.new_arrays import NewArrays


def chunks_by_dimension(choice: NewArrays, dims: Sequence[str]) -> dict[str, int]:
    """Return the chosen side of chunks by dimension, without dimensions that have no choice."""
    chunks = choice.chunks
    if isinstance(chunks, str):
        return {}
    if isinstance(chunks, Mapping):
        if unknown := set(chunks) - set(dims):
            raise InvalidInputError(f"chunks names {sorted(unknown)}; the dimensions are {list(dims)}")
        return dict(chunks)
    if len(chunks) != len(dims):
        raise InvalidInputError(f"chunks={tuple(chunks)} must have {len(dims)} sizes, one for each of {list(dims)}")
    return dict(zip(dims, chunks, strict=True))


def choose_chunks(
    shape: Sequence[int], dims: Sequence[str], chosen: Mapping[str, int], cell_bytes: int, target: int
) -> tuple[int, ...]:
    """Return the shape of chunks of at most `target` bytes, halving the longest side that is not chosen."""
    sides = [chosen.get(name, max(1, size)) for name, size in zip(dims, shape, strict=True)]
    pieces = [1] * len(sides)
    free = [axis for axis, name in enumerate(dims) if name not in chosen]
    while math.prod(sides) * cell_bytes > target:
        axis = max(free, key=lambda axis: sides[axis], default=None)
        if axis is None or sides[axis] == 1:
            break
        pieces[axis] *= 2
        sides[axis] = -(-shape[axis] // pieces[axis])
    return tuple(sides)
