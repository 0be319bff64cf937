"""Regions of few chunks: a step for each, which costs less than making a whole of them.

Uncompressed chunks of 16 KiB of a session in memory: one is read in 21 µs and written in 39, as a whole in 155 and 235;
four are read in 55 µs, as a whole in 265.  Large chunks are worth the threads that share a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.regions.selection import Selected
from arraystore.errors import ArrayStoreError

Array = npt.NDArray[Any]

_MOST, _MOST_BYTES, _MOST_COMPRESSED = 8, 1 << 20, 1 << 18
"""Chunks that are read or written one by one, and bytes of them; one alone is in any case.

Sixteen would take no longer than a whole, but a whole reads neighbours together.
"""


class _Piece(NamedTuple):
    """What is selected of one chunk along one axis."""

    number: int
    within: slice
    """Items of the chunk."""
    outside: slice
    """Items of the user's array."""
    is_whole: bool
    """Whether these are all items of the chunk."""
    is_complete: bool
    """Whether these are all items of the chunk that are in the array."""


def are_few(hierarchy: Hierarchy, selected: Selected, codec: ChunkCodec) -> bool:
    """Tell whether a region has few chunks, or one where requests take time and are better made together."""
    count = 1
    for part, side in zip(selected.parts, codec.shape, strict=True):
        if isinstance(part, slice):
            count *= (part.stop - 1) // side - part.start // side + 1
    if count == 1 or count > _MOST or not hierarchy.reader.storage.cheap_probes:
        return count == 1
    return count * codec.nbytes <= (_MOST_BYTES if codec.is_raw else _MOST_COMPRESSED)


def read_few(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, pieces: ChunkPieces, out: Array, fill: Any
) -> bool:
    """Read chunks one by one into an array with all axes; returns whether all of them exist.

    Raises `UndecodableError` and the errors of the storage.
    """
    complete = True
    for coords, parts in pieces:
        data = hierarchy.get_chunk_sync(handle, coords)
        outside = tuple([part.outside for part in parts])
        if data is None:
            out[outside], complete = fill, False
        else:
            out[outside] = codec.decode_one(data)[tuple([part.within for part in parts])]
    return complete


def write_few(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, pieces: ChunkPieces, values: Array, fill: FillValue
) -> None:
    """Write values with all axes to chunks one by one.

    Raises `UndecodableError` if a chunk of which a part is kept cannot be read here.
    """
    for coords, parts in pieces:
        chunk = np.empty(codec.shape, dtype=codec.dtype)
        if not all(part.is_complete for part in parts):
            chunk[...] = _kept(hierarchy, handle, codec, coords, fill)
        elif not all(part.is_whole for part in parts):
            chunk[...] = fill.value
        chunk[tuple([part.within for part in parts])] = values[tuple([part.outside for part in parts])]
        if fill.find(chunk.reshape(*[1] * chunk.ndim, *chunk.shape), chunk.ndim) is None:
            hierarchy.set_chunk_sync(handle, coords, codec.encode_one(chunk))
        else:
            hierarchy.delete_chunk(handle, coords)


def _kept(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, coords: tuple[int, ...], fill: FillValue
) -> Any:
    """Return the items of a chunk before it is changed."""
    try:
        data = hierarchy.get_chunk_sync(handle, coords)
    except ArrayStoreError as error:
        raise UndecodableError from error
    return fill.value if data is None else codec.decode_one(data)


# -- chunks -----------------------------------------------------------------------------------------------------

ChunkPieces = Iterator[tuple[tuple[int, ...], tuple[_Piece, ...]]]
"""Coordinates of chunks, and what is selected of each along each axis."""


def pieces_of(selected: Selected, chunk_shape: tuple[int, ...], array_shape: tuple[int, ...]) -> ChunkPieces:
    """Yield the chunks of a region, in row-major order."""
    axes = [list(_along(*each)) for each in zip(selected.parts, chunk_shape, array_shape, strict=True)]
    for parts in itertools.product(*axes):
        yield tuple([part.number for part in parts]), parts


def _along(part: slice | int, side: int, length: int) -> Iterator[_Piece]:
    if isinstance(part, int):
        number, at = divmod(part, side)
        yield _Piece(number, slice(at, at + 1), slice(0, 1), side == 1, min(side, length - number * side) == 1)
        return
    done, step = 0, part.step
    for number in range(part.start // side, (part.stop - 1) // side + 1):
        low, high = part.start + done * step - number * side, min(side, part.stop - number * side)
        if low < high:
            size = -(-(high - low) // step)
            whole, end = low == 0 and step == 1, min(side, length - number * side)
            yield _Piece(
                number, slice(low, high, step), slice(done, done + size), whole and high == side, whole and high == end
            )
            done += size
