"""Codecs that work on many chunks at once, for the chains of codecs that they are known to be the same as."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import ArrayV3Metadata

from arraystore._format.types import Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.blocks import Block
from arraystore._session.pipeline.threads import thread_count
from arraystore.storage.protocol import BytesLike

Array = npt.NDArray[Any]

_KINDS = "biufcMm"
"""Kinds of data types whose items are their bytes, and equal to the fill value as numpy compares them."""

_FEW = 64 << 10
"""Bytes for which threads cost more than they save."""

_KEPT_LEVEL = 9
"""Highest level of zstd of which a thread keeps the memory: higher ones may take hundreds of megabytes."""

_DECOMPRESSED = 2 << 20
"""Bytes that are decompressed at a time: few enough to be copied from a cache."""


class UndecodableError(Exception):
    """Chunks are not as this module writes them; the general path reads them, or says what is wrong."""


@dataclass(frozen=True)
class Decoded:
    """Decoded chunks."""

    first: int
    """Position of the first one in its block."""
    chunks: Array
    """Chunks, then items of each; a view, valid as long as the block."""


@dataclass(frozen=True)
class ChunkCodec:
    """Encodes and decodes chunks of one shape."""

    shape: tuple[int, ...]
    """Shape of a chunk."""
    dtype: np.dtype[Any]
    """Data type of items as they are stored."""
    order: tuple[int, ...] | None = None
    """Order in which axes are stored; None for C order."""
    zstd: tuple[int, bool] | None = None
    """Level and whether frames have checksums; None for chunks that are not compressed."""

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk that is not compressed."""
        return math.prod(self.shape) * self.dtype.itemsize

    def stored(self, chunks: Array) -> Array:
        """Return a view of chunks, behind any axes that count chunks, with the axes as they are stored."""
        if self.order is None:
            return chunks
        leading = chunks.ndim - len(self.shape)
        return chunks.transpose(*range(leading), *[leading + axis for axis in self.order])

    def _unstored(self, chunks: Array) -> Array:
        if self.order is None:
            return chunks
        return chunks.transpose(0, *[1 + axis for axis in np.argsort(self.order).tolist()])

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of a chunk as it is stored."""
        return self.shape if self.order is None else tuple([self.shape[axis] for axis in self.order])

    def rows(self, buffer: Array | memoryview, offset: int, count: int, stride: int) -> Array:
        """Return chunks that lie at one stride in a buffer, with the axes as they are stored."""
        sides = (*self.stored_shape[1:], self.dtype.itemsize)
        strides = [math.prod(sides[axis:]) for axis in range(len(sides))]
        return np.ndarray((count, *self.stored_shape), self.dtype, buffer, offset, (stride, *strides))

    def may_have(self, lengths: Int64s) -> bool:
        """Tell whether chunks may have these lengths: checked before a byte is read or memory for it is taken."""
        if self.zstd is None:
            return bool((lengths == self.nbytes).all())
        return not len(lengths) or int(lengths.max()) <= self.nbytes + self.nbytes // 128 + 1024

    # -- decoding -----------------------------------------------------------------------------------------------

    def decode(self, block: Block) -> Iterator[Decoded]:
        """Decode the chunks of a block; raises `UndecodableError`."""
        if self.zstd is None:
            yield from self._view(block)
        else:
            yield from self._decompress(block)

    def _view(self, block: Block) -> Iterator[Decoded]:
        """Yield runs of chunks at one stride: all of a block, unless chunks were written out of order."""
        steps = np.diff(block.offset)
        cuts = (np.flatnonzero(steps[1:] != steps[:-1]) + 2).tolist() if len(steps) > 1 else []
        first = 0
        for last in [*cuts, len(block.at)]:
            if first < last:
                stride = int(steps[first]) if last - first > 1 else self.nbytes
                rows = self.rows(block.data, int(block.offset[first]), last - first, stride)
                yield Decoded(first, self._unstored(rows))
                first = last

    def _decompress(self, block: Block) -> Iterator[Decoded]:
        """Decompress bounded parts of a block, of which a few bytes may be a thousand times as many."""
        step = max(1, _DECOMPRESSED // self.nbytes)
        for first in range(0, len(block.at), step):
            segments = np.stack([block.offset, block.length], axis=1)[first : first + step]
            yield from self._decompress_part(block, first, segments.astype(np.uint64))

    def _decompress_part(self, block: Block, start: int, segments: npt.NDArray[np.uint64]) -> Iterator[Decoded]:
        count, size = len(segments), self.nbytes
        sizes = np.full(count, size, dtype=np.uint64)
        try:
            frames = zstandard.BufferWithSegments(memoryview(block.data), segments.tobytes())
            chunks = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
                frames, decompressed_sizes=sizes.tobytes(), threads=0
            )
        except (zstandard.ZstdError, ValueError, TypeError) as error:
            raise UndecodableError from error
        for first, rows in _rows_of(chunks, size):
            yield Decoded(start + first, self._unstored(self.rows(rows, 0, len(rows) // size, size)))

    def decode_one(self, data: BytesLike) -> Array:
        """Return the items of one chunk; raises `UndecodableError`."""
        if self.zstd is not None:
            data = self._decompress_one(data)
        if len(data) != self.nbytes:
            raise UndecodableError
        return self._unstored(self.rows(np.frombuffer(data, dtype=np.uint8), 0, 1, self.nbytes))[0]  # type: ignore[no-any-return]

    def _decompress_one(self, data: BytesLike) -> bytes:
        try:
            if zstandard.frame_content_size(data) != self.nbytes:  # which is as much memory as it would take
                raise UndecodableError
            return _contexts.decompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise UndecodableError from error

    # -- encoding -----------------------------------------------------------------------------------------------

    def encode_one(self, chunk: Array) -> memoryview:
        """Return the bytes of one chunk; they may be those of the array."""
        data = np.ascontiguousarray(self.stored(chunk), dtype=self.dtype).reshape(-1).view(np.uint8).data
        if self.zstd is None:
            return data
        return memoryview(_contexts.compressor(*self.zstd).compress(data))

    def compress(self, chunks: Array) -> list[memoryview]:
        """Compress chunks that are contiguous, as they are stored; returns frames."""
        assert self.zstd is not None
        level, checksum = self.zstd
        count, size = len(chunks), self.nbytes
        segments = np.stack([np.arange(count) * size, np.full(count, size)], axis=1).astype(np.uint64)
        compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum)
        data = chunks.reshape(-1).view(np.uint8).data
        frames = compressor.multi_compress_to_buffer(
            zstandard.BufferWithSegments(data, segments.tobytes()), threads=_threads(count * size)
        )
        return [memoryview(frames[i]) for i in range(count)]  # type: ignore[arg-type]  # its stubs do not say so


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


def _threads(size: int) -> int:
    """Return the threads to use, 0 for this one."""
    return 0 if size < _FEW else thread_count()


def _rows_of(chunks: Any, size: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """Yield the buffers of a collection of segments of one size, each with the number of its first segment.

    Each thread fills one buffer, segment after segment, but the collection gives access to segments only.  A segment
    knows its offset, so the buffer of the first ends where offsets begin anew, and a view of the first segment is
    extended to the last one: a step per thread instead of one per chunk.
    """
    first, count = 0, len(chunks)
    while first < count:
        low, high = first, count - 1  # the last segment whose offset continues those of the buffer
        while low < high:
            middle = (low + high + 1) // 2
            if chunks[middle].offset == (middle - first) * size and middle - first < count:
                low = middle
            else:
                high = middle - 1
        head = np.frombuffer(chunks[first], dtype=np.uint8)
        yield first, np.lib.stride_tricks.as_strided(head, ((low - first + 1) * size,), (1,))
        first = low + 1


# -- which chains of codecs are known ---------------------------------------------------------------------------


def chunk_codec(metadata: Any) -> ChunkCodec | None:
    """Return the codec for the chunks of an array; None for a chain of codecs or a data type that is not known."""
    if isinstance(metadata, ArrayV3Metadata):
        return _codec_v3(metadata)
    return _codec_v2(metadata) if isinstance(metadata, ArrayV2Metadata) else None


def _codec_v3(metadata: ArrayV3Metadata) -> ChunkCodec | None:
    shape = getattr(metadata.chunk_grid, "chunk_shape", None)
    dtype = metadata.data_type.to_native_dtype()
    if not _is_known(metadata.chunk_grid, shape, dtype):
        return None
    assert shape is not None
    order: tuple[int, ...] | None = None
    codecs: list[Any] = list(metadata.codecs)
    if codecs and type(codecs[0]) is TransposeCodec:
        order = tuple(codecs.pop(0).order)
    if not codecs or type(codecs[0]) is not BytesCodec:
        return None
    endian = getattr(codecs[0].endian, "value", codecs[0].endian)
    if dtype.itemsize > 1:
        if endian not in ("little", "big"):
            return None
        dtype = dtype.newbyteorder("<" if endian == "little" else ">")
    return _with_compression(ChunkCodec(tuple(shape), dtype, order), codecs[1:])


def _with_compression(raw: ChunkCodec, codecs: list[Any]) -> ChunkCodec | None:
    if not codecs:
        return raw
    if len(codecs) == 1 and type(codecs[0]) is ZstdCodec:
        return ChunkCodec(raw.shape, raw.dtype, raw.order, (_level(codecs[0].level), codecs[0].checksum))
    return None


def _level(level: int) -> int:
    """Return a level of the C library, where 0 is the default."""
    return 3 if level == 0 else level


def _codec_v2(metadata: ArrayV2Metadata) -> ChunkCodec | None:
    dtype = metadata.dtype.to_native_dtype()
    if metadata.filters or metadata.compressor is not None or metadata.order != "C":
        return None
    shape = tuple(metadata.chunks)
    return ChunkCodec(shape, dtype) if _is_plain(shape, dtype) else None


def _is_known(grid: Any, shape: Any, dtype: np.dtype[Any]) -> bool:
    regular = type(grid).__name__ in ("RegularChunkGrid", "RegularChunkGridMetadata")
    return regular and isinstance(shape, tuple) and _is_plain(shape, dtype)


def _is_plain(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _KINDS and len(shape) > 0 and min(shape) > 0 and not dtype.hasobject
