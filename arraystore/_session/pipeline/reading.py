"""Reads of whole selections: look up, read blocks, decode, and copy runs of chunks into the user's array."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Array
from arraystore._runtime import lazy_module
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.blocks import Block, for_each_block
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.large_chunks import read_large_chunks, whole_chunks_in
from arraystore._session.pipeline.lookup import OTHER, Located, locate
from arraystore._session.pipeline.projection import Projection
from arraystore._session.pipeline.scatter import Scatter
from arraystore._session.pipeline.shards import ArrayCodec, ShardCodec

if TYPE_CHECKING:
    from arraystore._session.pipeline import shard_reading
else:
    shard_reading = lazy_module("arraystore._session.pipeline.shard_reading")


def read_selection(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ArrayCodec, selection: Projection, out: Array, fill: Any
) -> npt.NDArray[np.bool_]:
    """Read the chunks of a selection into an array with all axes; returns which of them do not exist.

    Raises `UndecodableError`, `UnsoundBlockError` and the errors of the storage; the general path says more of them.
    """
    if isinstance(codec, ShardCodec):
        return shard_reading.read_shards(hierarchy, handle, codec, selection, out, fill)
    located = locate(hierarchy, handle, selection.axes)
    return read_located(hierarchy, located, codec, selection, out, fill)


def read_located(
    hierarchy: Hierarchy, located: Located, codec: ChunkCodec, selection: Projection, out: Array, fill: Any
) -> npt.NDArray[np.bool_]:
    """Read chunks that were looked up."""
    use = block_reader(located, codec, selection, out, fill)
    for_each_block(hierarchy, read_large_chunks(hierarchy, located, codec, whole_chunks_in(selection, codec, out)), use)
    return located.missing


def block_reader(
    located: Located, codec: ChunkCodec, selection: Projection, out: Array, fill: Any
) -> Callable[[Block], None]:
    """Set the items of chunks that do not exist, and return what decodes blocks of the others into the array.

    Raises `UndecodableError` for chunks that only the general path can read, before a byte is read.
    """
    if bool((located.place == OTHER).any()) or not codec.may_have(located.length[located.place >= 0]):
        raise UndecodableError
    scatter = Scatter(selection, out)
    if bool(located.missing.any()):
        scatter.put_scalar(np.flatnonzero(located.missing), fill)

    def use(block: Block) -> None:
        for decoded in codec.decode(block):
            scatter.put(block.at[decoded.first : decoded.first + len(decoded.chunks)], decoded.chunks)

    return use
