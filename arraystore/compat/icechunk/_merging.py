"""Merges of forks: chunks that several have written are no conflict where they have written the same.

The same values may have been compressed at different levels of zstd, see docs/decisions/066-open-levels-of-zstd.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from arraystore._format.node import NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.shards import ArrayCodec, ShardCodec
from arraystore._session.regions.layout import decode_layout
from arraystore.errors import MergeConflictError

__all__ = ["merge_forks"]

_AT_ONCE = 64

Written = dict[tuple[str, tuple[int, ...]], list[Any]]
"""Sessions that have written a chunk, by path and coordinates."""


async def merge_forks(session: Any, forks: Sequence[Any]) -> None:
    """Merge forks of arraystore into a session or fork of arraystore."""
    try:
        await session.merge_async(*forks)
    except MergeConflictError as error:
        if not error.chunks or not await _wrote_the_same(session, forks):
            raise
        await session.merge_async(*forks, on_overlap="last")


async def _wrote_the_same(session: Any, forks: Sequence[Any]) -> bool:
    """Tell whether each chunk that several of them have written has the same bytes or values in all."""
    written: Written = defaultdict(list)
    for each in (session, *forks):
        for path, coords in each.status().updated_chunks.items():
            for row in coords.tolist():
                written[path, tuple(row)].append(each)
    shared = [(*chunk, owners) for chunk, owners in written.items() if len(owners) > 1]
    for start in range(0, len(shared), _AT_ONCE):
        some = shared[start : start + _AT_ONCE]
        if not all(await asyncio.gather(*(_is_same(path, coords, owners) for path, coords, owners in some))):
            return False
    return True


async def _is_same(path: str, coords: tuple[int, ...], owners: Sequence[Any]) -> bool:
    encoded = [await _bytes_of(owner, path, coords) for owner in owners]
    chunks = [data for data in encoded if data is not None]
    if all(data == encoded[0] for data in encoded):
        return True
    if len(chunks) < len(encoded):
        return False
    codec = decode_layout(owners[0].hierarchy.node(path.strip("/")).documents).codec
    if codec is None:  # Zarr compresses the same values to the same bytes
        return False
    try:
        values = [_values_of(codec, data) for data in chunks]
    except UndecodableError:  # stores take any bytes
        return False
    return all(each == values[0] for each in values)


async def _bytes_of(session: Any, path: str, coords: tuple[int, ...]) -> bytes | None:
    """Return the encoded bytes of a chunk; None where it was deleted."""
    node = session.hierarchy.node(path.strip("/"))
    if node is None or node.kind != NodeKind.ARRAY:
        return None
    data = await session.hierarchy.get(f"{node.path}/{array_info(node.documents).key(coords)}".lstrip("/"))
    return None if data is None else bytes(data)


def _values_of(codec: ArrayCodec, data: bytes) -> list[bytes | None]:
    """Return the values of a chunk, or of each chunk of a shard; raises `UndecodableError`."""
    if isinstance(codec, ShardCodec):
        chunks = codec.decode_chunks(np.frombuffer(data, dtype=np.uint8))
        return [None if chunk is None else chunk.tobytes() for chunk in chunks]
    return [codec.decode_one(data).tobytes()]
