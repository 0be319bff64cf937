"""Codecs from bytes to bytes: one table of those that are known, by their names in metadata.

Each does what the codec of zarr or numcodecs of its name does.  A codec more is an entry of `KINDS`.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import google_crc32c
import numcodecs
import numpy as np
import zstandard

from arraystore._format.ids import NodeId
from arraystore._format.types import Array, Bytes
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.zstd_levels import DEFAULT_LEVEL, SampledLevel, level_of_array

_KEPT_LEVEL = 9
"""Highest level of zstd of which a thread keeps the memory: higher ones may take hundreds of megabytes."""

_CRC_BYTES = 4

_LARGE = 1 << 18
"""Bytes from which numcodecs, with a context for each chunk, compresses in 0.92 to 0.96 of zstandard's time."""

_COPIED_FROM_CACHE = 2 << 20
"""Bytes up to which a context that is kept, and a copy of what it returns, take less than memory that is there."""


class UndecodableError(Exception):
    """Chunks are not as this package writes them, or cannot be encoded; the general path says what is wrong."""


@dataclass(frozen=True)
class ByteCodec:
    """A codec from bytes to bytes."""

    kind: str
    """Name in `KINDS`."""
    config: tuple[tuple[str, Any], ...] = ()
    """Configuration, as numcodecs has it."""
    open_level: SampledLevel | None = field(default=None, compare=False)
    """Level of zstd of the array that chunks are written to; None if the configuration says it, and for readers."""

    def writing_to(self, node_id: NodeId) -> ByteCodec:
        """Return the codec that writes chunks of an array."""
        leaves_it_open = self.kind == "zstd" and not dict(self.config).get("level", 0)
        return replace(self, open_level=level_of_array(node_id)) if leaves_it_open else self

    @property
    def growth(self) -> int | None:
        """Bytes that encoding adds to any data; None if that depends on the data."""
        return KINDS[self.kind].growth

    def encode(self, data: Array, batch_nbytes: int) -> Bytes:
        """Return encoded data, whose memory may be that of `data`; raises `UndecodableError`.

        `batch_nbytes` are the bytes of all chunks of the same write.
        """
        try:
            config = self.config_for(data.reshape(1, -1), batch_nbytes)
            return _bytes_of(KINDS[self.kind].encode(config, data))
        except Exception as error:
            raise UndecodableError(str(error)) from error

    def config_for(self, chunks: Array, batch_nbytes: int) -> Config:
        """Return the configuration that encodes chunks, an axis of them before their items."""
        if self.open_level is None:
            return self.config
        level = self.open_level.level(chunks.view(np.uint8), batch_nbytes, partial(_frame_size, self.config))
        return _at_level(self.config, level)

    def decode(self, data: Bytes, most: int, out: Bytes | None = None) -> Bytes:
        """Return decoded data of `most` bytes at most, in `out` or the memory of `data` where the codec can.

        Raises `UndecodableError`.
        """
        try:
            return _bytes_of(KINDS[self.kind].decode(self.config, data, most, out))
        except UndecodableError:
            raise
        except Exception as error:  # C libraries have many
            raise UndecodableError(str(error)) from error


def byte_codec(name: str, config: Mapping[str, Any]) -> ByteCodec | None:
    """Return the codec of a name and configuration of numcodecs; None if it is not known."""
    kind = KINDS.get(name)
    if kind is None or not kind.accepts(config):
        return None
    codec = ByteCodec(name, tuple(sorted(config.items())))
    try:
        _codec(name, codec.config)
    except (TypeError, ValueError):  # a configuration of another release
        return None
    return codec


def _bytes_of(data: Any) -> Bytes:
    if isinstance(data, np.ndarray):
        return data if data.dtype == np.uint8 and data.ndim == 1 else data.reshape(-1).view(np.uint8)
    return np.frombuffer(data, dtype=np.uint8)


# -- as numcodecs does it ---------------------------------------------------------------------------------------

Config = tuple[tuple[str, Any], ...]


@lru_cache(maxsize=128)
def _codec(name: str, config: Config) -> Any:
    return numcodecs.get_codec({"id": name, **dict(config)})


def _encode(name: str, config: Config, data: Array) -> Any:
    return _codec(name, config).encode(data)


def _decode_sized(name: str, header: struct.Struct, config: Config, data: Bytes, most: int, out: Bytes | None) -> Any:
    """Decode what begins with its decoded size, which is how much memory it takes."""
    (size,) = header.unpack_from(data)
    if not 0 <= size <= most:
        raise UndecodableError
    return _decode_into(name, config, data, size, out)


def _decode_into(name: str, config: Config, data: Bytes, size: int, out: Bytes | None) -> Any:
    if out is None or len(out) != size:
        return _codec(name, config).decode(data)
    _codec(name, config).decode(data, out)
    return out


def _decode_blosc(config: Config, data: Bytes, most: int, out: Bytes | None) -> Any:
    if _BLOSC_ENCODED.unpack_from(data)[0] != len(data):  # which the C library reads, whatever there is
        raise UndecodableError
    return _decode_sized("blosc", _BLOSC_DECODED, config, data, most, out)


_LZ4_DECODED, _BLOSC_DECODED, _BLOSC_ENCODED = struct.Struct("<i"), struct.Struct("<4xI"), struct.Struct("<12xI")


def _decode_shuffled(config: Config, data: Bytes, _most: int, out: Bytes | None) -> Any:
    return _decode_into("shuffle", config, data, len(data), out)


# -- zlib and gzip ----------------------------------------------------------------------------------------------


def _inflate(window: int, _config: Config, data: Bytes, most: int, _out: Bytes | None) -> Any:
    """Decompress one stream, of bounded size; several, one after the other, are for the general path."""
    stream = zlib.decompressobj(window)
    decoded = stream.decompress(data, most + 1)
    if not stream.eof or stream.unused_data or len(decoded) > most:
        raise UndecodableError
    return decoded


# -- zstd -------------------------------------------------------------------------------------------------------


def zstd_options(config: Config) -> tuple[int, bool]:
    """Return level, where 0 is the default of the C library, and whether frames have checksums."""
    options = dict(config)
    return int(options.get("level", 0)) or DEFAULT_LEVEL, bool(options.get("checksum", False))


class _Contexts(threading.local):
    """Contexts of the C library for one chunk at a time, kept for the next: the memory of a new one takes 20 µs."""

    def __init__(self) -> None:
        self.key: tuple[int, bool] | None = None
        self.last: zstandard.ZstdCompressor | None = None
        self._decompressor: zstandard.ZstdDecompressor | None = None

    def compressor(self, level: int, checksum: bool) -> zstandard.ZstdCompressor:
        """Return a compressor, of which this thread keeps the last one."""
        compressor = self.last if self.key == (level, checksum) else None
        if compressor is None:
            compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum)
            if level <= _KEPT_LEVEL:
                self.key, self.last = (level, checksum), compressor
        return compressor

    def decompressor(self) -> zstandard.ZstdDecompressor:
        """Return the decompressor of this thread."""
        if self._decompressor is None:
            self._decompressor = zstandard.ZstdDecompressor()
        return self._decompressor


_contexts = _Contexts()


def _compress(config: Config, data: Array) -> Any:
    (level, checksum), data = zstd_options(config), data.reshape(-1).view(np.uint8)
    if len(data) >= _LARGE:
        return numcodecs.zstd.compress(data, level, checksum)
    return _contexts.compressor(level, checksum).compress(data.data)


def _at_level(config: Config, level: int) -> Config:
    return tuple({**dict(config), "level": level}.items())


def _frame_size(config: Config, level: int, data: Bytes) -> int:
    return len(_compress(_at_level(config, level), data))


def _decompress(_config: Config, data: Bytes, most: int, out: Bytes | None) -> Any:
    size = zstandard.frame_content_size(data.data)  # which is as much memory as it would take
    if not 0 <= size <= most:
        raise UndecodableError
    if out is not None and size == len(out) > _COPIED_FROM_CACHE:
        numcodecs.zstd.decompress(data.data, out)
        return out
    return _contexts.decompressor().decompress(data.data)


# -- CRC-32C ----------------------------------------------------------------------------------------------------


def _append_crc(_config: Config, data: Array) -> Any:
    data = data.reshape(-1).view(np.uint8)
    framed = np.empty(len(data) + _CRC_BYTES, dtype=np.uint8)
    framed[:-_CRC_BYTES] = data
    framed[-_CRC_BYTES:].view("<u4")[:] = google_crc32c.value(data)
    return framed


def _check_crc(_config: Config, data: Bytes, _most: int, _out: Bytes | None) -> Any:
    if len(data) < _CRC_BYTES:
        raise UndecodableError
    kept = data[:-_CRC_BYTES]
    if google_crc32c.value(kept) != int.from_bytes(data[-_CRC_BYTES:], "little"):
        raise UndecodableError
    return kept


# -- the table --------------------------------------------------------------------------------------------------


def _any(_config: Mapping[str, Any]) -> bool:
    return True


def _is_at_end(config: Mapping[str, Any]) -> bool:
    return bool(config.get("location", "end") == "end")


def _is_level(config: Mapping[str, Any]) -> bool:
    return isinstance(config.get("level", 0), int) and int(config.get("level", 0)) <= zstandard.MAX_COMPRESSION_LEVEL


class _Kind(NamedTuple):
    """Implementation of a codec."""

    encode: Callable[[Config, Array], Any]
    decode: Callable[[Config, Bytes, int, Bytes | None], Any]
    growth: int | None = None
    """Bytes that encoding adds to any data; None if that depends on the data."""
    accepts: Callable[[Mapping[str, Any]], bool] = _any
    """Whether a configuration is known."""


KINDS: Mapping[str, _Kind] = {
    "blosc": _Kind(partial(_encode, "blosc"), _decode_blosc),
    "crc32c": _Kind(_append_crc, _check_crc, _CRC_BYTES, _is_at_end),
    "gzip": _Kind(partial(_encode, "gzip"), partial(_inflate, 16 + zlib.MAX_WBITS)),
    "lz4": _Kind(partial(_encode, "lz4"), partial(_decode_sized, "lz4", _LZ4_DECODED)),
    "shuffle": _Kind(partial(_encode, "shuffle"), _decode_shuffled, 0),
    "zlib": _Kind(partial(_encode, "zlib"), partial(_inflate, zlib.MAX_WBITS)),
    "zstd": _Kind(_compress, _decompress, accepts=_is_level),
}
"""Codecs from bytes to bytes, by their names in numcodecs."""
