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
    if all(each == encoded[0] for each in encoded):
        return True
    if None in encoded:
        return False
    values = [await _values_of(owner, path, coords) for owner in owners]
    return values[0] is not None and all(each == values[0] for each in values)


async def _bytes_of(session: Any, path: str, coords: tuple[int, ...]) -> bytes | None:
    """Return the encoded bytes of a chunk; None where it was deleted."""
    node = session.hierarchy.node(path.strip("/"))
    if node is None or node.kind != NodeKind.ARRAY:
        return None
    data = await session.hierarchy.get(f"{node.path}/{array_info(node.documents).key(coords)}".lstrip("/"))
    return None if data is None else bytes(data)


async def _values_of(session: Any, path: str, coords: tuple[int, ...]) -> bytes | None:
    """Return the bytes of a chunk's values; None for a chunk that cannot be decoded."""
    node = session.hierarchy.node(path.strip("/"))
    codec = decode_layout(node.documents).codec
    if codec is None:  # Zarr's own pipeline compresses the same values to the same bytes
        return None
    region = tuple([slice(at * side, (at + 1) * side) for at, side in zip(coords, codec.shape, strict=True)])
    try:
        return np.asarray(await session.read_async(node.path, region)).tobytes()
    except Exception:  # noqa: BLE001 - stores take any bytes, and codecs raise errors of many kinds for them
        return None
