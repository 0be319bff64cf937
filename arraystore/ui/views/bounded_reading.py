"""Reads of regions in bounded memory and time, whatever their chunks claim to be.

The library's own codecs take memory for as many bytes as a chunk has and no more.  What they cannot decode, zarr
decodes by anybody's codecs, in a process of its own (`arraystore.ui.decoder`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.box import Box
from arraystore._format.node import Node
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime.concurrency import bounded
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.regions.access import Region, open_region
from arraystore._session.regions.layout import decode_layout
from arraystore._session.session import Session
from arraystore.ui.decoder.process import DECODER
from arraystore.ui.views.chunk_sides import chunks_between
from arraystore.ui.views.hierarchy import chunk_shape, document_of
from arraystore.ui.views.limits import MAX_CHUNKS_READ, MAX_ENCODED_BYTES, TooLargeError
from arraystore.ui.views.manifests import visible_chunks

__all__ = ["read_bounded"]

_REQUESTS = 32


async def read_bounded(session: Session, found: Node, selection: Sequence[slice | int]) -> npt.NDArray[Any]:
    """Read a region of an array; items that only zarr can decode, and that are no numbers, as text.

    Raises `TooLargeError` for too many bytes or seconds, and `UndecodableChunksError`.
    """
    region = open_region(session, found.path, tuple(selection))
    values = _read_directly(region) if region.is_quick else await asyncio.to_thread(_read_directly, region)
    if values is not None:
        return np.asarray(values)
    assert region.selected is not None
    chunks = await _fetch(session, found, _touched(found, selection))
    if not selection and (item := _read_scalar(found, chunks, region.layout.fill)) is not None:
        return item
    return await asyncio.to_thread(DECODER.decode, found.documents, chunks, selection, region.selected.shape)


def _read_directly(region: Region) -> Any:
    """Return what the library's own codecs read; None where zarr has to."""
    target = region.target(None)
    return region.result(target) if region.is_empty or region.read_into(target) else None


def _read_scalar(found: Node, chunks: dict[str, bytes], fill: Any) -> npt.NDArray[Any] | None:
    """Return the item of an array without dimensions, as that of one with one item; None where zarr has to decode."""
    document, name = document_of(found), "zarr.json" if "zarr.json" in found.documents else ".zarray"
    grid = {"name": "regular", "configuration": {"chunk_shape": [1]}}
    line = {"chunk_grid": grid, "dimension_names": None} if name == "zarr.json" else {"chunks": [1]}
    documents = {name: json.dumps({**document, "shape": [1], **line}).encode()}
    codec = decode_layout(documents).codec
    if not isinstance(codec, ChunkCodec):
        return None
    try:
        return np.asarray([codec.decode_one(data) for data in chunks.values()] or fill).reshape(())
    except UndecodableError:
        return None


def _touched(found: Node, selection: Sequence[slice | int]) -> list[range]:
    """Return the chunks that a region touches along each axis: all of them where their lengths are unknown."""
    info, sides = array_info(found.documents), chunk_shape(document_of(found))
    bounds = [(each.start, each.stop) if isinstance(each, slice) else (each, each + 1) for each in selection]
    if (varying := chunks_between(document_of(found), bounds)) is not None:
        return varying
    if sides is None or 0 in sides:
        return [range(count) for count in info.grid]
    return [range(low // side, -(-high // side)) for (low, high), side in zip(bounds, sides, strict=True)]


async def _fetch(session: Session, found: Node, touched: Sequence[range]) -> dict[str, bytes]:
    """Return the encoded chunks of a box by key."""
    count = int(np.prod([float(len(each)) for each in touched]))
    if count > MAX_CHUNKS_READ:
        raise TooLargeError(
            f"array '/{found.path}' has {count:,} chunks here, and a page reads at most {MAX_CHUNKS_READ:,}"
        )
    await _check_size(session, found, touched)
    info = array_info(found.documents)
    keys = [info.key(coords) for coords in itertools.product(*touched)]

    async def get(key: str) -> tuple[str, bytes | None]:
        value = await session.store.get(f"{found.path}/{key}".lstrip("/"))
        return key, None if value is None else value.to_bytes()

    return {key: data for key, data in await bounded(get, keys, _REQUESTS) if data is not None}


async def _check_size(session: Session, found: Node, touched: Sequence[range]) -> None:
    if not touched or not all(touched):
        return
    box, total = Box(tuple([each.start for each in touched]), tuple([each.stop for each in touched])), 0
    async for chunks in visible_chunks(session.context.manifests, found.layers, box):
        total += int(chunks.length[box.inside(chunks.coords)].sum())
        if total > MAX_ENCODED_BYTES:
            raise TooLargeError(
                f"the chunks of array '/{found.path}' here have more than {MAX_ENCODED_BYTES:,} bytes, which a page "
                "does not decode at once: read them with a session"
            )
