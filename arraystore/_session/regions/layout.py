"""Layout of an array, for reads and writes of its regions, decoded once from its metadata documents."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
from zarr.core.buffer.cpu import NDBuffer
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import ArrayV3Metadata

from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle
from arraystore._session.pipeline.chains import chunk_codec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.shards import ArrayCodec

_CACHED_BYTES = 1 << 16
"""Longest document that is kept beyond the handle of its array."""


@dataclass(frozen=True)
class ArrayLayout:
    """Shape, data type and codec of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Data type of what is read."""
    codec: ArrayCodec | None
    """Codec for many chunks; None if the chain of codecs is not known."""
    fill: Any
    """Fill value."""
    order: str | None
    """Memory order of what is read; None for the one configured in zarr."""
    metadata: Any
    """The metadata in zarr, of which the shape may be that of an array before it grew."""

    def fill_value(self, *, writes_empty: bool) -> FillValue:
        """Return the fill value, which decides what chunks are empty."""
        return FillValue(self.fill, writes_empty, NDBuffer)


def layout_of(handle: ArrayHandle) -> ArrayLayout:
    """Return the layout of an array; raises the error of zarr for metadata that it does not understand."""
    if handle.layout is None:
        handle.layout = decode_layout(handle.node.documents)
    layout: ArrayLayout = handle.layout
    return layout


def decode_layout(documents: dict[str, bytes]) -> ArrayLayout:
    """Return the layout that metadata documents describe; raises the error of zarr for those it does not understand."""
    name = "zarr.json" if "zarr.json" in documents else ".zarray"  # as zarr chooses
    document = documents[name]
    return _decode(name, document) if len(document) > _CACHED_BYTES else _cached(name, document)


def _decode(name: str, document: bytes) -> ArrayLayout:
    values = json.loads(document)
    metadata = ArrayV3Metadata.from_dict(values) if name == "zarr.json" else ArrayV2Metadata.from_dict(values)
    kind = metadata.data_type if isinstance(metadata, ArrayV3Metadata) else metadata.dtype
    fill = kind.default_scalar() if metadata.fill_value is None else metadata.fill_value
    order = metadata.order if isinstance(metadata, ArrayV2Metadata) else None
    return ArrayLayout(tuple(metadata.shape), kind.to_native_dtype(), chunk_codec(metadata), fill, order, metadata)


_cached = lru_cache(maxsize=512)(_decode)
"""Decoded documents: zarr takes 0.1 ms for one, and sessions of one repository have the same ones."""
