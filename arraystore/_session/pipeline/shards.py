"""Shards: chunks that consist of chunks, with an index of these."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from arraystore._format.ids import NodeId
from arraystore._format.types import Array, Bytes, Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.threads import share, thread_count

_NONE = (1 << 64) - 1
"""Offset and length of chunks that a shard does not have."""


@dataclass(frozen=True)
class ShardCodec:
    """Encodes shards, and finds chunks in them."""

    shape: tuple[int, ...]
    """Shape of a shard."""
    inner: ChunkCodec
    """Codec of its chunks."""
    index: ChunkCodec
    """Codec of the index: offset and length of each chunk."""
    index_is_first: bool
    write_order: str
    """Order of chunks in shards, as zarr names it."""

    @property
    def nbytes(self) -> int:
        """Bytes of the items of a shard."""
        return math.prod(self.shape) * self.inner.dtype.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of items as they are stored."""
        return self.inner.dtype

    @property
    def sides(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return self.index.shape[:-1]

    @property
    def count(self) -> int:
        """Number of chunks."""
        return math.prod(self.sides)

    @property
    def is_raw(self) -> bool:
        """Tell whether shards are their items, one after the other."""
        return False

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of a shard that `encode` takes."""
        return self.shape

    def stored(self, shards: Array) -> Array:
        """Return a view of shards, behind any axes that count them, as `encode` takes them."""
        return shards

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def index_size(self) -> int:
        """Bytes of an index."""
        size = self.index.encoded_size
        assert size is not None
        return size

    def index_offset(self, length: Any) -> Any:
        """Return where the index begins in shards of some length."""
        return length * 0 if self.index_is_first else length - self.index_size

    def references(self, index: Bytes, length: int) -> Int64s:
        """Return offset and length of each chunk of a shard, -1 for those that it does not have.

        Raises `UndecodableError` for an index that is damaged, or refers to bytes outside of the shard.
        """
        entries = self.index.decode_one(index.data).reshape(-1, 2)
        absent = (entries == _NONE).all(axis=1)
        end = np.uint64(length)
        if not (
            ((entries <= end).all(axis=1) & (entries[:, 1] <= end - np.minimum(entries[:, 0], end))) | absent
        ).all():
            raise UndecodableError
        references = entries.astype(np.int64)
        references[absent] = -1
        return references

    def decode_chunks(self, shard: Bytes) -> list[Array | None]:
        """Return the items of each chunk of a shard, None for those that are absent; raises `UndecodableError`."""
        if len(shard) < self.index_size:
            raise UndecodableError
        start = self.index_offset(len(shard))
        references = self.references(shard[start : start + self.index_size], len(shard)).tolist()
        return [None if at < 0 else self.inner.decode_one(shard[at : at + length].data) for at, length in references]

    # -- writing ------------------------------------------------------------------------------------------------

    def writing_to(self, node_id: NodeId) -> ShardCodec:
        """Return the codec that writes shards of an array."""
        return replace(self, inner=self.inner.writing_to(node_id))

    def encode(self, shards: Array, fill: FillValue) -> list[memoryview]:
        """Encode shards that are contiguous; chunks that are empty are left out."""
        count, dimensions = len(shards), len(self.shape)
        cut = [size for pair in zip(self.sides, self.inner.shape, strict=True) for size in pair]
        split = shards.reshape(count, *cut).transpose(0, *range(1, 2 * dimensions, 2), *range(2, 2 * dimensions + 1, 2))
        threads = thread_count()
        each = threads if count < threads else 1  # many shards are encoded side by side
        encoded = [memoryview(b"")] * count

        def one(number: int) -> None:
            encoded[number] = self._encode(split[number], fill, each)

        share(range(count), lambda: one, threads if each == 1 else 1)
        return encoded

    def _encode(self, chunks: Array, fill: FillValue, threads: int) -> memoryview:
        """Encode one shard: an axis of chunks for each dimension, then their items."""
        empty = fill.find(chunks, len(self.sides))
        order = _order(self.sides, self.write_order)
        kept = order if empty is None else order[~empty[order]]
        picked = np.ascontiguousarray(self.inner.stored(chunks)[np.unravel_index(kept, self.sides)])
        return self._assemble(kept, self.inner.encode(picked, threads))

    def _assemble(self, kept: Int64s, chunks: list[memoryview]) -> memoryview:
        """Put encoded chunks one after the other, and the index before or behind them."""
        ends = np.cumsum([len(chunk) for chunk in chunks] or [0], dtype=np.int64)
        size, base = int(ends[-1]), self.index_size if self.index_is_first else 0
        shard = np.empty(size + self.index_size, dtype=np.uint8)
        view, at = shard.data, base
        for chunk in chunks:
            view[at : at + len(chunk)] = chunk
            at += len(chunk)
        entries = np.full((self.count, 2), _NONE, dtype=np.uint64)
        lengths = np.diff(ends, prepend=0)[: len(kept)]
        entries[kept, 0], entries[kept, 1] = base + ends[: len(kept)] - lengths, lengths
        start = 0 if self.index_is_first else size
        view[start : start + self.index_size] = self.index.encode_one(entries.reshape(*self.sides, 2))
        return view


ArrayCodec = ChunkCodec | ShardCodec
"""Codec of the chunks of an array."""


@lru_cache(maxsize=64)
def _order(sides: tuple[int, ...], name: str) -> Int64s:
    """Return the numbers of chunks in the order in which they are written."""
    numbers = np.arange(math.prod(sides), dtype=np.int64)
    if name == "colexicographic":
        return numbers.reshape(sides).transpose().reshape(-1)
    if name != "morton":
        return numbers
    coords = np.unravel_index(numbers, sides)
    key, bit = np.zeros(len(numbers), dtype=np.int64), 0
    widths = [(side - 1).bit_length() for side in sides]
    for level in range(max(widths, default=0)):
        for axis, width in enumerate(widths):
            if level < width:
                key |= ((coords[axis] >> level) & 1) << bit
                bit += 1
    return np.argsort(key, kind="stable")
