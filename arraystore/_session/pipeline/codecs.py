"""Codecs that work on many chunks at once, for the chains of codecs that they are known to be the same as."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from arraystore._chunks.read_memory import KeptMemory, ReadMemory
from arraystore._format.ids import NodeId
from arraystore._format.types import Array, Bytes, Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.blocks import Block
from arraystore._session.pipeline.byte_codecs import ByteCodec, UndecodableError, zstd_options
from arraystore._session.pipeline.threads import share
from arraystore.storage.protocol import BytesLike

_NOTHING = memoryview(b"")

_FEW = 64 << 10
"""Bytes for which threads cost more than they save."""

_DECODED = 2 << 20
"""Bytes that are decoded at a time: few enough to be copied from a cache."""

_PIECE = 1 << 18
"""Bytes that a thread encodes at a time."""


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
    stages: tuple[ByteCodec, ...] = ()
    """Codecs of the bytes, in the order in which they encode; none for chunks that are stored as they are."""

    @property
    def is_raw(self) -> bool:
        """Tell whether chunks are stored as they are, so that a run of them is one strided copy."""
        return not self.stages

    @property
    def has_frames(self) -> bool:
        """Tell whether chunks are frames of zstd, of which the C library takes many in one call."""
        return len(self.stages) == 1 and self.stages[0].kind == "zstd"

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
        if self.is_raw:
            return bool((lengths == self.nbytes).all())
        return not len(lengths) or int(lengths.max()) <= self._most(len(self.stages))

    @property
    def encoded_size(self) -> int | None:
        """Bytes of an encoded chunk; None if they depend on the items."""
        growths = [stage.growth for stage in self.stages]
        return None if None in growths else self.nbytes + sum(growth for growth in growths if growth is not None)

    def _most(self, stages: int) -> int:
        """Return the bytes that the first codecs make of a chunk at most: no compressor makes it much larger."""
        exact = [stage.growth for stage in self.stages[:stages]]
        if None not in exact:
            return self.nbytes + sum(growth for growth in exact if growth is not None)
        return self.nbytes + stages * (self.nbytes // 128 + 1024)

    # -- decoding -----------------------------------------------------------------------------------------------

    def decode(self, block: Block) -> Iterator[Decoded]:
        """Decode the chunks of a block; raises `UndecodableError`."""
        if self.is_raw:
            yield from self._view(block)
        elif self.has_frames:
            yield from self._decompress(block)
        else:
            yield from self._decode_each(block)

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

    # Chunk by chunk instead, with a context that is kept, into new memory or through a stream reader into memory that
    # is there: 1.0 to 1.2 of the processor time of many in one call at 4 KiB, 1.0 at 16 KiB, 0.9 to 0.95 from 64 KiB
    # on, and the interpreter's lock is handed over for each.  numcodecs, into memory that is there: 1.1, 0.95 at 1 MiB.

    def _decompress(self, block: Block) -> Iterator[Decoded]:
        """Decompress bounded parts of a block, of which a few bytes may be a thousand times as many."""
        step = max(1, _DECODED // self.nbytes)
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

    def _decode_each(self, block: Block) -> Iterator[Decoded]:
        """Decode chunk by chunk into memory from which bounded parts of a block are copied."""
        size = self.nbytes
        step = max(1, _DECODED // size)
        memory = _scratch.at(size * min(step, len(block.at)), 0, ReadMemory())
        offsets, lengths = block.offset.tolist(), block.length.tolist()
        for first in range(0, len(offsets), step):
            last = min(first + step, len(offsets))
            for at in range(first, last):
                row = memory[size * (at - first) : size * (at - first + 1)]
                decoded = self._decode_bytes(block.data[offsets[at] : offsets[at] + lengths[at]], row)
                if decoded is not row:
                    row[:] = decoded
            yield Decoded(first, self._unstored(self.rows(memory, 0, last - first, size)))

    def _decode_bytes(self, data: Bytes, out: Bytes | None = None) -> Bytes:
        """Return the bytes of a chunk, in `out` where the last codec can; raises `UndecodableError`."""
        for number in range(len(self.stages) - 1, -1, -1):
            data = self.stages[number].decode(data, self._most(number), None if number else out)
        if len(data) != self.nbytes:
            raise UndecodableError
        return data

    def decode_into(self, data: Bytes, out: Bytes) -> None:
        """Decode the bytes of a chunk into memory; raises `UndecodableError`."""
        decoded = self._decode_bytes(data, out)
        if decoded is not out:
            out[:] = decoded

    def decode_one(self, data: BytesLike) -> Array:
        """Return the items of one chunk; raises `UndecodableError`."""
        decoded = self._decode_bytes(np.frombuffer(data, dtype=np.uint8))
        return self._unstored(self.rows(decoded, 0, 1, self.nbytes))[0]  # type: ignore[no-any-return]

    # -- encoding -----------------------------------------------------------------------------------------------

    def writing_to(self, node_id: NodeId) -> ChunkCodec:
        """Return the codec that writes chunks of an array."""
        if self.is_raw:
            return self
        return replace(self, stages=tuple([stage.writing_to(node_id) for stage in self.stages]))

    def encode_one(self, chunk: Array) -> memoryview:
        """Return the bytes of one chunk; they may be those of the array."""
        return self._encode(np.ascontiguousarray(self.stored(chunk), dtype=self.dtype), self.nbytes)

    def encode_stored(self, data: memoryview, batch_nbytes: int) -> memoryview:
        """Return the encoded bytes of a chunk of a write, of which `data` are the bytes as they are stored."""
        return self._encode(np.frombuffer(data, dtype=self.dtype), batch_nbytes)

    def _encode(self, chunk: Array, batch_nbytes: int) -> memoryview:
        data = chunk.reshape(-1)
        for stage in self.stages:
            data = stage.encode(data, batch_nbytes)
        return data.view(np.uint8).data

    def encode(self, chunks: Array, threads: int) -> list[memoryview]:
        """Encode chunks that are contiguous, as they are stored."""
        if self.has_frames:
            return self._compress(chunks, threads)
        encoded: list[memoryview] = [_NOTHING] * len(chunks)

        def piece(numbers: range) -> None:
            for number in numbers:
                encoded[number] = self._encode(chunks[number], chunks.nbytes)

        step = max(1, _PIECE // self.nbytes)
        pieces = [range(first, min(first + step, len(chunks))) for first in range(0, len(chunks), step)]
        share(pieces, lambda: piece, threads)
        return encoded

    def _compress(self, chunks: Array, threads: int) -> list[memoryview]:
        """Compress chunks into frames."""
        count, size = len(chunks), self.nbytes
        config = self.stages[0].config_for(chunks.reshape(count, math.prod(self.shape)), count * size)
        level, checksum = zstd_options(config)
        segments = np.stack([np.arange(count) * size, np.full(count, size)], axis=1).astype(np.uint64)
        compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum)
        data = chunks.reshape(-1).view(np.uint8).data
        frames = compressor.multi_compress_to_buffer(
            zstandard.BufferWithSegments(data, segments.tobytes()),
            threads=0 if threads == 1 or count * size < _FEW else threads,
        )
        return [memoryview(frames[i]) for i in range(count)]  # type: ignore[arg-type]  # its stubs do not say so


_scratch = KeptMemory()
"""Memory that a thread decodes into."""


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
