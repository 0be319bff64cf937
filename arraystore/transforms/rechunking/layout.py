"""The chunk grid that a caller asks for, and arrays made with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.transforms.arrays import ArrayShape

ChunksLike: TypeAlias = Mapping[str, int] | Sequence[int] | int

WHOLE = -1
"""Side of a chunk that is as long as the dimension."""


def resolve_chunks(array: ArrayShape, chunks: ChunksLike, name: str = "chunks") -> tuple[int, ...]:
    """Return the sides of chunks for an array; raise `InvalidInputError`."""
    ndim = len(array.shape)
    if isinstance(chunks, Mapping):
        sides = list(array.read_unit)
        for dim, side in chunks.items():
            sides[array.axis(dim)] = side
    elif isinstance(chunks, int):
        sides = [chunks] * ndim
    else:
        sides = list(chunks)
    if len(sides) != ndim:
        raise InvalidInputError(f"{name}={chunks!r} has {len(sides)} sides, and array {array.path!r} {ndim} dimensions")
    for side in sides:
        if type(side) is not int or (side < 1 and side != WHOLE):
            raise InvalidInputError(f"{name}={chunks!r} must have integers >= 1, or -1 for a whole dimension")
    return tuple(max(1, size if side == WHOLE else side) for side, size in zip(sides, array.shape, strict=True))


def resolve_shards(array: ArrayShape, chunks: tuple[int, ...], shards: ChunksLike | None) -> tuple[int, ...] | None:
    """Return the sides of shards, which hold whole chunks; raise `InvalidInputError`."""
    if shards is None:
        return None
    sides = (
        resolve_chunks(array, shards, "shards") if not isinstance(shards, Mapping) else _given(array, chunks, shards)
    )
    whole = tuple(
        -(-side // inner) * inner if side >= size else side
        for side, inner, size in zip(sides, chunks, array.shape, strict=True)
    )
    if any(side % inner for side, inner in zip(whole, chunks, strict=True)):
        raise InvalidInputError(f"shards of {sides} do not hold whole chunks of {chunks}")
    return whole


def _given(array: ArrayShape, chunks: tuple[int, ...], shards: Mapping[str, int]) -> tuple[int, ...]:
    """Return shards that are as long as chunks in dimensions that are not named."""
    sides = list(chunks)
    for dim, side in shards.items():
        sides[array.axis(dim)] = side
    return resolve_chunks(array, sides, "shards")


def create_rechunked(
    session: SessionBase,
    source: zarr.Array[Any],
    path: str,
    chunks: tuple[int, ...],
    shards: tuple[int, ...] | None,
    *,
    overwrite: bool = False,
) -> None:
    """Create an array like another one with other chunks: data type, codecs, fill value, names and attributes stay."""
    zarr.from_array(
        session.store, data=source, name=path, write_data=False, chunks=chunks, shards=shards, overwrite=overwrite,
        fill_value=source.metadata.fill_value, attributes=source.attrs.asdict(),  # zarr 3.1 keeps neither
    )  # fmt: skip


def create_intermediate(session: SessionBase, source: zarr.Array[Any], path: str, chunks: tuple[int, ...]) -> None:
    """Create an array for values on their way: where they are numbers, with the codec that takes least time."""
    codecs: dict[str, Any] = {}
    if source.metadata.zarr_format == 3 and np.dtype(source.dtype).kind in "biufc":
        codecs = {
            "filters": None,
            "serializer": "auto",
            "compressors": BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"),
        }
    zarr.from_array(
        session.store, data=source, name=path, write_data=False, chunks=chunks, shards=None, overwrite=True,
        fill_value=source.metadata.fill_value, attributes={}, **codecs,
    )  # fmt: skip
