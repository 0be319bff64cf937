"""Choice of the chunks of new arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from arraystore.errors import InvalidInputError
from arraystore.ingest.model import VariableInfo

TARGET_BYTES = 4 * 2**20
"""Chunk size that is large enough to be worth a request and small enough to be read for one value."""
LARGEST_NATIVE_BYTES = 64 * 2**20
"""Size up to which a source's own chunks are kept; larger ones are cut."""
_SIZE = re.compile("[0-9]{1,18}")


def parse_chunks(text: str) -> dict[str, int]:
    """Parse ``time=60,lat=37``.

    Raises
    ------
    InvalidInputError
        If the text has another form.
    """
    chunks: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        dim, _, size = part.partition("=")
        if not dim.strip() or not _SIZE.fullmatch(size.strip()) or int(size.strip()) < 1:
            raise InvalidInputError(
                f"chunks {part!r}: write DIMENSION=SIZE with a size of 1 or more, as in time=60,lat=37"
            )
        chunks[dim.strip()] = int(size.strip())
    return chunks


def choose_chunks(
    variable: VariableInfo, wanted: Mapping[str, int], append_dim: str | None, append_lengths: Sequence[int]
) -> tuple[int, ...]:
    """Choose the chunk shape of a new array.

    The source's own chunks, or the whole, are grown and cut to about `TARGET_BYTES`.  Along the append dimension
    the chunk divides the length of every source, so that the end stays aligned and the next append is possible.
    `wanted` overrides all this, dimension by dimension.
    """
    chunks = _fit(variable, set(wanted), {dim: size for dim, size in wanted.items() if dim in variable.dims})
    for axis, dim in enumerate(variable.dims):
        if dim == append_dim and dim not in wanted:
            chunks[axis] = _divisor_up_to(math.gcd(*append_lengths), chunks[axis])
    return tuple(chunks)


def _fit(variable: VariableInfo, fixed: set[str], wanted: Mapping[str, int]) -> list[int]:
    shape = [max(1, size) for size in variable.shape]
    native = variable.chunks
    base = [min(a, b) for a, b in zip(native, shape, strict=True)] if native else list(shape)
    for axis, dim in enumerate(variable.dims):
        base[axis] = wanted.get(dim, base[axis])
    free = [axis for axis, dim in enumerate(variable.dims) if dim not in fixed]
    _grow(base, shape, free, variable.itemsize)
    _cut(base, free, variable.itemsize, LARGEST_NATIVE_BYTES if native else TARGET_BYTES)
    return base


def _grow(chunks: list[int], shape: Sequence[int], free: Sequence[int], itemsize: int) -> None:
    """Join chunks of the source, last dimension first, while the result stays small."""
    for axis in reversed(free):
        others = math.prod(chunks) // chunks[axis] * itemsize
        if others * shape[axis] <= TARGET_BYTES:
            chunks[axis] = shape[axis]
        else:
            chunks[axis] *= max(1, TARGET_BYTES // (others * chunks[axis]))


def _cut(chunks: list[int], free: Sequence[int], itemsize: int, limit: int) -> None:
    """Halve sides, first dimension first, until the chunk is at most `TARGET_BYTES` large."""
    if math.prod(chunks) * itemsize <= limit:
        return
    for axis in free:
        while chunks[axis] > 1 and math.prod(chunks) * itemsize > TARGET_BYTES:
            chunks[axis] = -(-chunks[axis] // 2)


def _divisor_up_to(length: int, limit: int) -> int:
    return next((size for size in range(min(length, limit), 0, -1) if length % size == 0), 1)
