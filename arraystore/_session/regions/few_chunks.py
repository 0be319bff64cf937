"""Regions of few chunks: a step for each, which costs less than making a whole of them.

Uncompressed chunks of 16 KiB of a session in memory: one is read in 21 µs and written in 39, as a whole in 155 and 235;
four are read in 55 µs, as a whole in 265.  Large chunks are worth the threads that share a whole.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arraystore._format.types import Array
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.single_chunks import chunk_items, kept_items, put_chunk
from arraystore._session.regions.chunk_pieces import ChunkPieces
from arraystore._session.regions.selection import Selected

_MOST, _MOST_BYTES, _MOST_IN_PART, _MOST_COMPRESSED = 8, 1 << 20, 8 << 20, 1 << 18
"""Chunks that are read or written one by one, and bytes of them; one alone is in any case.

Sixteen would take no longer than a whole, but a whole reads neighbours together.  Chunks of which parts are read are
worth no second thread for longer: a crop out of one to eight chunks of 1 MiB takes 0.55 of the processor time, each
read into the same memory, which stays in the processor's cache.
"""


def are_few(hierarchy: Hierarchy, selected: Selected, codec: ChunkCodec, *, writing: bool) -> bool:
    """Tell whether a region has few chunks, or one where requests take time and are better made together."""
    count = math.prod(map(len, selected.chunk_ranges(codec.shape)))
    if count == 1 or count > _MOST or not hierarchy.reader.storage.cheap_probes:
        return count == 1
    if not codec.is_raw:
        return count * codec.nbytes <= _MOST_COMPRESSED
    in_part = not writing and any(length < side for length, side in zip(selected.lengths, codec.shape, strict=True))
    return count * codec.nbytes <= (_MOST_IN_PART if in_part else _MOST_BYTES)


def read_few(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, pieces: ChunkPieces, out: Array, fill: Any
) -> bool:
    """Read chunks one by one into an array with all axes; returns whether all of them exist.

    Raises `UndecodableError`, also for virtual chunks beside others, and the errors of the storage.
    """
    complete, chunks = True, list(pieces)
    for coords, parts in chunks:
        items = chunk_items(hierarchy, handle, codec, coords, virtual=len(chunks) == 1)
        outside = tuple([part.outside for part in parts])
        if items is None:
            out[outside], complete = fill, False
        else:
            out[outside] = items[tuple([part.within for part in parts])]
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
            chunk[...] = kept_items(hierarchy, handle, codec, coords, fill)
        elif not all(part.is_whole for part in parts):
            chunk[...] = fill.value
        chunk[tuple([part.within for part in parts])] = values[tuple([part.outside for part in parts])]
        put_chunk(hierarchy, handle, codec, coords, chunk, fill)
