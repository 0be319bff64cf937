"""Decoding of single chunks through Zarr, by the metadata documents of their array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zarr.api.asynchronous
from zarr.core.buffer import Buffer
from zarr.core.buffer.core import default_buffer_prototype
from zarr.storage import MemoryStore

from arraystore._format.node import Documents
from arraystore._format.zarr_metadata import ArrayInfo, array_info
from arraystore.errors import InvalidInputError
from arraystore.storage.protocol import BytesLike

Bounds = Callable[[int], tuple[int, int]]
"""Maps the number of a chunk along an axis to its first item and the one after its last."""


class Decoder:
    """Array of which one chunk at a time is present."""

    def __init__(self, array: Any, chunks: dict[str, Buffer], info: ArrayInfo, bounds: list[Bounds]) -> None:
        self._array = array
        self._chunks = chunks
        self._info = info
        self._bounds = bounds

    async def problem(self, coords: tuple[int, ...], data: BytesLike) -> str | None:
        """Try to decode a chunk; returns the reason if that fails, else None."""
        if not self._info.inside(coords):
            return "it is outside of the grid"
        key = self._info.key(coords)
        self._chunks[key] = default_buffer_prototype().buffer.from_bytes(bytes(data))
        spans = [bounds(c) for bounds, c in zip(self._bounds, coords, strict=True)]
        shape = tuple([min(stop, size) - start for (start, stop), size in zip(spans, self._info.shape, strict=True)])
        try:
            items = await self._array.getitem(tuple(slice(start, stop) for start, stop in spans))
        except Exception as error:  # noqa: BLE001 - codecs are anybody's, and raise what they like
            return f"{type(error).__name__}: {error}"
        finally:
            del self._chunks[key]
        return None if items.shape == shape else f"it has the shape {items.shape}, not {shape}"


async def open_decoder(documents: Documents) -> Decoder | str:
    """Open an array from its documents; returns the reason in place of a decoder if that fails."""
    make = default_buffer_prototype().buffer.from_bytes
    chunks: dict[str, Buffer] = {name: make(content) for name, content in documents.items()}
    try:
        info = array_info(documents)
        zarr_format: Any = 3 if "zarr.json" in documents else 2
        array = await zarr.api.asynchronous.open_array(
            store=MemoryStore(chunks), mode="r", zarr_format=zarr_format
        )  # fmt: skip
        return Decoder(array, chunks, info, _bounds(array))
    except (InvalidInputError, ImportError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _bounds(array: Any) -> list[Bounds]:
    try:
        sides = array.shards or array.chunks
    except NotImplementedError:
        return [_varying(sizes) for sizes in array.write_chunk_sizes]
    return [_regular(side) for side in sides]


def _regular(side: int) -> Bounds:
    return lambda c: (c * side, (c + 1) * side)


def _varying(sizes: tuple[int, ...]) -> Bounds:
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return lambda c: (ends[c], ends[c + 1])
