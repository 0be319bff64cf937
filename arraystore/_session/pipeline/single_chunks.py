"""Few chunks of a selection in files: a step for each, which costs less than making a whole of them.

Through `zarr.Array`, crops out of 1 to 8 uncompressed chunks take half of the time where these have 16 KiB, and two
thirds where they have 1 MiB.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arraystore._chunks.read_memory import kept
from arraystore._format.types import Array, Bools
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy, VirtualChunkError
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.projection import Batch
from arraystore.errors import ArrayStoreError

_MOST, _MOST_BYTES, _MOST_SHARED = 8, 8 << 20, 1 << 18
"""Chunks, bytes of them, and those of chunks that several threads decompress or write in less time."""

_LARGE = 1 << 18
"""Bytes from which a chunk that is selected as a whole is read straight into the user's array."""


@dataclass(frozen=True)
class SingleChunks:
    """Chunks that are read or written one by one, as zarr names them."""

    batch: Batch
    drop_axes: tuple[int, ...]
    """Axes of what is selected of a chunk that the user's array does not have."""

    @property
    def count(self) -> int:
        """Number of chunks."""
        return len(self.batch)


def are_few(hierarchy: Hierarchy, batch: Batch, codec: ChunkCodec, *, writing: bool) -> bool:
    """Tell whether a step for each chunk of a selection costs less."""
    if len(batch) > _MOST or not hierarchy.reader.storage.cheap_probes:
        return False
    if codec.nbytes >= _LARGE and any(is_complete for *_, is_complete in batch):
        return False
    most = _MOST_BYTES if codec.is_raw and not writing else _MOST_SHARED
    return len(batch) * codec.nbytes <= most


def read_single_chunks(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, few: SingleChunks, out: Array, fill: Any
) -> Bools:
    """Read the items that are selected into the user's array; returns which chunks do not exist.

    Raises `UndecodableError` and the errors of the storage; the general path says more of them.
    """
    missing = np.zeros(few.count, dtype=bool)
    for number, (path, _, within, outside, _) in enumerate(few.batch):
        items = chunk_items(hierarchy, handle, codec, _coords(hierarchy, handle, path.path))
        if items is None:
            out[outside], missing[number] = fill, True
        else:
            out[outside] = items[within].squeeze(few.drop_axes) if few.drop_axes else items[within]
    return missing


def write_single_chunks(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, few: SingleChunks, values: Array, fill: FillValue
) -> None:
    """Write values to the items that are selected.

    Raises `UndecodableError` if a chunk of which a part is kept cannot be read here.
    """
    axes = tuple([None if axis in few.drop_axes else slice(None) for axis in range(len(codec.shape))])
    for path, _, within, outside, is_complete in few.batch:
        coords = _coords(hierarchy, handle, path.path)
        chunk = np.empty(codec.shape, dtype=codec.dtype)
        chunk[...] = fill.value if is_complete else kept_items(hierarchy, handle, codec, coords, fill)
        value = values if values.shape == () else values[outside]
        chunk[within] = value[axes] if few.drop_axes and values.shape != () else value
        put_chunk(hierarchy, handle, codec, coords, chunk, fill)


def chunk_items(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, coords: tuple[int, ...], *, virtual: bool = False
) -> Array | None:
    """Return the items of a chunk, valid until this thread reads the next one; None for a missing chunk.

    Raises `UndecodableError`, without `virtual` also for a chunk in another storage, and the errors of the storage.
    """
    try:
        data = hierarchy.get_chunk_sync(handle, coords, virtual=virtual, memory=kept.memory)
    except VirtualChunkError:
        raise UndecodableError from None  # the general path reads several at once
    return None if data is None else codec.decode_one(data)


def kept_items(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, coords: tuple[int, ...], fill: FillValue
) -> Any:
    """Return the items of a chunk before it is changed; raises `UndecodableError`."""
    try:
        items = chunk_items(hierarchy, handle, codec, coords)
    except ArrayStoreError as error:
        raise UndecodableError from error
    return fill.value if items is None else items


def put_chunk(
    hierarchy: Hierarchy,
    handle: ArrayHandle,
    codec: ChunkCodec,
    coords: tuple[int, ...],
    chunk: Array,
    fill: FillValue,
) -> None:
    """Write a chunk, or delete it if it is empty."""
    if fill.find(chunk.reshape(*[1] * chunk.ndim, *chunk.shape), chunk.ndim) is None:
        hierarchy.set_chunk_sync(handle, coords, codec.writing_to(handle.node.id).encode_one(chunk))
    else:
        hierarchy.delete_chunk(handle, coords)


def _coords(hierarchy: Hierarchy, handle: ArrayHandle, key: str) -> tuple[int, ...]:
    target = hierarchy.chunk(key)
    if target is None or target[0].node is not handle.node or not handle.inside(target[1]):
        raise UndecodableError
    return target[1]
