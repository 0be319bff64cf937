"""Writes of whole selections: leave out empty chunks, encode, and copy runs of chunks into packs.

Compressed chunks are gathered in slabs, compressed by several threads in one call, and taken into packs.  From 256 KiB
on each thread compresses and writes a chunk by itself, out of the user's array where it is contiguous: 0.75 of the time
at 1 MiB and 0.45 at 16 MiB, where a slab is one chunk and one thread; 0.95 at 64 KiB, for more processor time.  Tried
and thrown away: pieces of 1 MiB that each thread gathers and compresses, taken in order while the next ones are
compressed, so that no thread waits for another.  48 MiB in chunks of 64 KiB and 1 MiB took 0.95 to 1.0 of the time and
1.05 to 1.11 of the processor time, with a context for each piece or one that each thread keeps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from arraystore._chunks.chunk_table import ChunkReference
from arraystore._format.references import tile_shape
from arraystore._format.types import Array, Int64s
from arraystore._runtime import lazy_module
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.emptiness import FillValue
from arraystore._session.pipeline.projection import GroupBox, Projection, boxes_of_run, whole_chunks
from arraystore._session.pipeline.reading import read_selection
from arraystore._session.pipeline.shards import ArrayCodec, ShardCodec
from arraystore._session.pipeline.threads import share, thread_count
from arraystore.errors import ArrayStoreError

if TYPE_CHECKING:
    from arraystore._chunks.statistics_log import StatisticsRows
    from arraystore._session.pipeline import chunk_measure
else:
    chunk_measure = lazy_module("arraystore._session.pipeline.chunk_measure")


_SLAB = 16 << 20
"""Bytes of chunks that are put together in memory at a time."""

_LARGE = 1 << 18
"""Bytes from which a chunk is compressed and written by one thread, without waiting for its neighbours."""

_SHORT_RUN = 4
"""Average of chunks in a run below which one indexed copy of all is faster than one of each run."""

_PIECE = 1 << 20
"""Bytes that a thread copies at a time; fewer cost less than handing them over."""


class SelectionWriter:
    """Writes values to the chunks of one selection of an array."""

    def __init__(self, hierarchy: Hierarchy, handle: ArrayHandle, codec: ArrayCodec, fill: FillValue) -> None:
        self.hierarchy = hierarchy
        self.handle = handle
        self.codec = codec.writing_to(handle.node.id)
        self.fill = fill
        self.changes = hierarchy.writable()
        measured = self.changes.packs.settings.statistics
        self.measure = chunk_measure.ChunkMeasure.of(handle.node, codec, fill) if measured else None

    def write(self, selection: Projection, values: Array) -> None:
        """Write values with all axes.

        Raises `UndecodableError` or `UnsoundBlockError` if a chunk of which a part is kept cannot be read here.
        """
        for box in selection.boxes():
            for low, high in _slabs(box, self._most_chunks(box)):
                axes = [axis[a:b] for axis, a, b in zip(selection.axes, low, high, strict=True)]
                items = box.items(low, high, values)
                if not box.is_whole(self.codec.shape):
                    items = self._merged(box, axes, items, selection.are_complete(low, high))
                elif self.measure is not None:
                    items = self.measure.own(items)
                self._put(axes, items)

    def _most_chunks(self, box: GroupBox) -> int:
        """Return the chunks to put together at a time; no bound for those copied from the user's array into packs."""
        size = self.codec.nbytes
        direct = box.is_whole(self.codec.shape) and (self.codec.is_raw or self._is_large) and self.measure is None
        return box.count if direct else max(thread_count() if self._is_large else 1, _SLAB // size)

    @property
    def _is_large(self) -> bool:
        return isinstance(self.codec, ChunkCodec) and self.codec.nbytes >= _LARGE

    def _merged(self, box: GroupBox, axes: list[Int64s], items: Array, complete: bool) -> Array:
        """Return whole chunks: what is kept of them, or the fill value, with values put over it."""
        counts = tuple(map(len, axes))
        shape = tuple([count * side for count, side in zip(counts, self.codec.shape, strict=True)])
        region = np.empty(shape, dtype=items.dtype)
        whole = whole_chunks(axes, self.codec.shape)
        if complete:
            region[...] = self.fill.value
        elif isinstance(self.codec, ShardCodec):
            raise UndecodableError  # zarr encodes only those chunks of the shard that change
        else:
            try:
                read_selection(self.hierarchy, self.handle, self.codec, whole, region, self.fill.value)
            except ArrayStoreError as error:
                raise UndecodableError from error
        chunks = next(whole.boxes()).items((0,) * len(axes), counts, region)
        chunks[(*[slice(None)] * len(axes), *box.within)] = items
        return chunks

    # -- putting chunks -----------------------------------------------------------------------------------------

    def _put(self, axes: list[Int64s], chunks: Array) -> None:
        """Write whole chunks: an axis of chunks for each dimension, then their items."""
        self._put_numbered(lambda at: _numbered(axes, at), chunks)

    def _put_numbered(self, coords_of: Callable[[Int64s], Int64s], chunks: Array) -> None:
        """Write whole chunks, of which the coordinates are given by their positions in row-major order."""
        dimensions = chunks.ndim // 2
        counts = chunks.shape[:dimensions]
        empty = self.fill.find(chunks, dimensions)
        stored = self.codec.stored(chunks)
        at = np.arange(math.prod(counts), dtype=np.int64)
        if empty is not None:
            self.changes.delete_chunks(self.handle.node, coords_of(np.flatnonzero(empty)))
            at = np.flatnonzero(~empty)
        rows = None if self.measure is None or not len(at) else self.measure.rows(chunks, dimensions, at)
        left = self._overwrite(stored, counts, at, coords_of(at), rows)
        if len(left):
            entries = self._add(stored, counts, left)
            if rows is not None:
                self._note(entries, rows.take(np.searchsorted(at, left)))
            self.changes.put_chunks(self.handle.node, coords_of(left), entries)
        self.handle.changes = self.changes.arrays.get(self.handle.node.id)

    def _note(self, entries: Int64s, rows: StatisticsRows) -> None:
        """Keep the statistics of chunks in packs, before a table refers to them and they may be overwritten."""
        in_packs = entries[:, 0] >= 0
        if bool(in_packs.any()):
            self.changes.packs.note_statistics(entries[in_packs], rows.take(in_packs))

    def _overwrite(
        self, stored: Array, counts: tuple[int, ...], at: Int64s, coords: Int64s, rows: StatisticsRows | None
    ) -> Int64s:
        """Overwrite chunks that are still in the open pack and have the same size; returns the others."""
        written, packs = self.handle.changes, self.changes.packs
        if written is None or not self.codec.is_raw or not len(at):
            return at
        with self.changes.lock:
            known, entries = written.table.get_many(written.table.numbers(coords))
            there = known & (entries[:, 0] >= 0) & (entries[:, 0] == packs.open_source)
            for i in np.flatnonzero(there).tolist():
                source, offset, length = entries[i].tolist()
                chunk = _gathered(stored, counts, at[i : i + 1], self.codec)
                row = None if rows is None else rows.take([i])
                there[i] = packs.replace(source, offset, length, chunk.reshape(-1).view(np.uint8).data, row)
        others: Int64s = at[~there]
        return others

    def _add(self, stored: Array, counts: tuple[int, ...], at: Int64s) -> Int64s:
        """Take chunks into packs; returns source, offset and length of each, shape (n, 3)."""
        packs, size = self.changes.packs, self.codec.nbytes
        if not self.codec.is_raw and self._is_large:
            nbytes = len(at) * size
            return self._add_each(
                len(at), lambda: _encoder(_Gatherer(stored, counts, at, self.codec), self.codec, nbytes)
            )
        if not self.codec.is_raw:
            return self._add_frames(self._encoded(_gathered(stored, counts, at, self.codec)))
        if size >= packs.settings.own_object:
            return self._add_each(len(at), lambda: _Gatherer(stored, counts, at, self.codec))
        if size <= packs.settings.inline:
            gathered = _gathered(stored, counts, at, self.codec).reshape(len(at), -1).view(np.uint8)
            return self._add_frames([row.data for row in gathered])

        def copy(buffer: memoryview, offset: int, stride: int, first: int, last: int) -> None:
            assert isinstance(self.codec, ChunkCodec)
            rows = self.codec.rows(buffer, offset, last - first, stride)

            def part(piece: tuple[int, int]) -> None:
                _copy_rows(stored, counts, at[first + piece[0] : first + piece[1]], rows[piece[0] : piece[1]])

            share(_pieces(last - first, size), lambda: part, thread_count())

        return packs.add_rows(len(at), size, copy)

    def _encoded(self, chunks: Array) -> list[memoryview]:
        if isinstance(self.codec, ShardCodec):
            return self.codec.encode(chunks, self.fill)
        return self.codec.encode(chunks, thread_count())

    def _add_frames(self, frames: Sequence[memoryview]) -> Int64s:
        """Take encoded chunks."""
        packs = self.changes.packs
        lengths = np.fromiter(map(len, frames), np.int64, len(frames))
        if int(lengths.max()) >= packs.settings.own_object:
            return self._add_each(len(frames), lambda: frames.__getitem__)
        if int(lengths.min()) > packs.settings.inline:
            return packs.add_many(frames)
        return np.array([self._add_one(frame) for frame in frames], dtype=np.int64)

    def _add_each(self, count: int, chunks: Callable[[], Callable[[int], memoryview]]) -> Int64s:
        """Take encoded chunks by their numbers, of which some become objects, written in several threads.

        Each thread has a source of chunks of its own, which may use the memory of one for the next.
        """
        entries = np.empty((count, 3), dtype=np.int64)

        def adder() -> Callable[[int], None]:
            chunk = chunks()

            def one(number: int) -> None:
                entries[number] = self._add_one(chunk(number))

            return one

        share(range(count), adder, thread_count())
        return entries

    def _add_one(self, frame: memoryview) -> ChunkReference:
        packs = self.changes.packs
        return self.changes.put_inline(frame) if len(frame) <= packs.settings.inline else packs.add(frame)


class _Gatherer:
    """Returns chunks one after the other as contiguous memory.

    A chunk that is contiguous in the user's array is taken from there; others are copied to memory that stays in the
    processor's cache until it is written.  Writing 48 MiB in chunks of 1 MiB takes 20 % less processor time than from
    slabs of 16 MiB, whose pages the kernel clears each time.
    """

    def __init__(self, stored: Array, counts: tuple[int, ...], at: Int64s, codec: ArrayCodec) -> None:
        self.stored = stored
        self.places = np.unravel_index(at, counts)
        self.codec = codec
        self.scratch: Array | None = None

    def __call__(self, number: int) -> memoryview:
        chunk: Array = self.stored[tuple([int(place[number]) for place in self.places])]
        if not chunk.flags.c_contiguous or chunk.dtype != self.codec.dtype:
            if self.scratch is None:
                self.scratch = np.empty(self.codec.stored_shape, dtype=self.codec.dtype)
            self.scratch[...] = chunk
            chunk = self.scratch
        return chunk.reshape(-1).view(np.uint8).data


def _encoder(chunks: _Gatherer, codec: ArrayCodec, batch_nbytes: int) -> Callable[[int], memoryview]:
    assert isinstance(codec, ChunkCodec)
    return lambda number: codec.encode_stored(chunks(number), batch_nbytes)


def _numbered(axes: list[Int64s], at: Int64s) -> Int64s:
    """Return the coordinates of chunks by their positions, shape (n, d)."""
    places = np.unravel_index(at, tuple(map(len, axes)))
    return np.stack([axis[place] for axis, place in zip(axes, places, strict=True)], axis=1)


def _slabs(box: GroupBox, most: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut a box of chunks into boxes of at most so many chunks."""
    low, high = box.low, box.high
    side = tile_shape(tuple([b - a for a, b in zip(low, high, strict=True)]), most)
    steps = [range(a, b, step) for a, b, step in zip(low, high, side, strict=True)]
    for first in itertools.product(*steps):
        yield first, tuple([min(a + step, b) for a, b, step in zip(first, high, side, strict=True)])


def _copy_rows(stored: Array, counts: tuple[int, ...], at: Int64s, rows: Array) -> None:
    """Copy chunks by their ascending positions into rows: one strided copy for each box of a run of neighbours."""
    cuts = np.flatnonzero(at[1:] != at[:-1] + 1) + 1
    if len(at) < _SHORT_RUN * (len(cuts) + 1) and len(cuts):
        rows[...] = stored[np.unravel_index(at, counts)]
        return
    bounds = [0, *cuts.tolist(), len(at)]
    for first, last in itertools.pairwise(bounds):
        done = first
        for low, high in boxes_of_run(counts, int(at[first]), int(at[first]) + last - first):
            part = stored[tuple([slice(a, b) for a, b in zip(low, high, strict=True)])]
            count = math.prod(part.shape[: len(counts)])
            rows[done : done + count].reshape(part.shape)[...] = part
            done += count


def _pieces(count: int, size: int) -> list[tuple[int, int]]:
    """Cut a number of chunks into pieces for several threads."""
    step = max(1, _PIECE // size)
    return [(first, min(first + step, count)) for first in range(0, count, step)]


def _gathered(stored: Array, counts: tuple[int, ...], at: Int64s, codec: ArrayCodec) -> Array:
    """Return chunks one after the other in memory."""
    gathered = np.empty((len(at), *codec.stored_shape), dtype=codec.dtype)
    _copy_rows(stored, counts, at, gathered)
    return gathered
