"""Chains of codecs in the metadata of arrays, as codecs for many chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numcodecs.abc
import numpy as np
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import ArrayV3Metadata

from arraystore._session.pipeline.byte_codecs import ByteCodec, byte_codec
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.shards import ArrayCodec, ShardCodec

_KINDS = "biufcMm"
"""Kinds of data types whose items are their bytes, and equal to the fill value as numpy compares them."""

_ZARR_CLASSES = (BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec)
_NUMCODECS_PREFIX = "numcodecs."
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def chunk_codec(metadata: Any) -> ArrayCodec | None:
    """Return the codec for the chunks of an array; None for a chain of codecs or a data type that is not known."""
    if isinstance(metadata, ArrayV3Metadata):
        return _codec_v3(metadata)
    return _codec_v2(metadata) if isinstance(metadata, ArrayV2Metadata) else None


# -- version 3 --------------------------------------------------------------------------------------------------


def _codec_v3(metadata: ArrayV3Metadata) -> ArrayCodec | None:
    shape = getattr(metadata.chunk_grid, "chunk_shape", None)
    dtype = metadata.data_type.to_native_dtype()
    if type(metadata.chunk_grid).__name__ not in ("RegularChunkGrid", "RegularChunkGridMetadata"):
        return None
    if not isinstance(shape, tuple) or not _is_plain(shape, dtype):
        return None
    if len(metadata.codecs) == 1 and type(metadata.codecs[0]) is ShardingCodec:
        return _shard_codec(shape, dtype, metadata.codecs[0])
    return _chain(shape, dtype, metadata.codecs)


def _chain(shape: tuple[int, ...], dtype: np.dtype[Any], codecs: Sequence[Any]) -> ChunkCodec | None:
    """Return the codec of transpositions, a byte order and codecs of bytes; None for any other chain."""
    rest = list(codecs)
    order = in_order = list(range(len(shape)))
    while rest and type(rest[0]) is TransposeCodec:
        order = [order[axis] for axis in rest.pop(0).order]
    if not rest or type(rest[0]) is not BytesCodec:
        return None
    endian = getattr(rest[0].endian, "value", rest[0].endian)
    if dtype.itemsize > 1:
        if endian not in ("little", "big"):
            return None
        dtype = dtype.newbyteorder("<" if endian == "little" else ">")
    stages = _stages([_stage_v3(codec) for codec in rest[1:]])
    return None if stages is None else ChunkCodec(shape, dtype, None if order == in_order else tuple(order), stages)


def _stages(stages: list[ByteCodec | None]) -> tuple[ByteCodec, ...] | None:
    known = tuple([stage for stage in stages if stage is not None])
    return known if len(known) == len(stages) else None


def _stage_v3(codec: Any) -> ByteCodec | None:
    """Return a codec of bytes as numcodecs configures it: those of zarr itself, and those that it wraps."""
    if not isinstance(codec, BytesBytesCodec):
        return None
    document: dict[str, Any] = codec.to_dict()
    name = str(document["name"])
    config: dict[str, Any] = {**document.get("configuration", {})}
    if type(codec) in _ZARR_CLASSES:
        if "shuffle" in config:
            config["shuffle"] = _SHUFFLES.index(config["shuffle"])
        return byte_codec(name, config)
    if not name.startswith(_NUMCODECS_PREFIX) or type(codec).__module__.partition(".")[0] not in ("zarr", "numcodecs"):
        return None
    name = name.removeprefix(_NUMCODECS_PREFIX)
    if name == "blosc":
        config.setdefault("typesize", 1)  # zarr hands it bytes, not items
    return byte_codec(name, config)


# -- version 2 --------------------------------------------------------------------------------------------------


def _codec_v2(metadata: ArrayV2Metadata) -> ChunkCodec | None:
    shape, dtype = tuple(metadata.chunks), metadata.dtype.to_native_dtype()
    codecs: list[Any] = [*(metadata.filters or ()), *([] if metadata.compressor is None else [metadata.compressor])]
    stages = _stages([_stage_v2(codec) for codec in codecs])
    if stages is None or not _is_plain(shape, dtype) or metadata.order not in ("C", "F"):
        return None
    order = tuple(reversed(range(len(shape)))) if metadata.order == "F" else None
    return ChunkCodec(shape, dtype, order, stages)


def _stage_v2(codec: Any) -> ByteCodec | None:
    known = isinstance(codec, numcodecs.abc.Codec) and type(codec).__module__.startswith("numcodecs.")
    if not known:
        return None
    config = dict(codec.get_config())
    return byte_codec(str(config.pop("id")), config)


def _is_plain(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _KINDS and len(shape) > 0 and min(shape) > 0 and not dtype.hasobject


# -- shards -----------------------------------------------------------------------------------------------------


def _shard_codec(shape: tuple[int, ...], dtype: np.dtype[Any], sharding: ShardingCodec) -> ShardCodec | None:
    inner_shape = tuple(sharding.chunk_shape)
    sides = tuple([outer // side for outer, side in zip(shape, inner_shape, strict=True)])
    inner = _chain(inner_shape, dtype, sharding.codecs)
    index = _chain((*sides, 2), np.dtype(np.uint64), sharding.index_codecs)
    if inner is None or index is None or index.encoded_size is None:
        return None
    at_start = getattr(sharding.index_location, "value", sharding.index_location) == "start"
    return ShardCodec(shape, inner, index, at_start, str(getattr(sharding, "subchunk_write_order", "morton")))
