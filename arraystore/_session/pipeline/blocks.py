"""Blocks: neighbouring chunks of one place, read at once and verified.

Locally a block is small enough to stay in the processor's cache between the system call that fills it, the checksum and
the copy, and its memory is used again for the next one: 6.4 GB/s here.  A new buffer for each block costs twice as
much, in pages that the kernel clears; a memory map of 8 MiB was as fast and one of 1 MiB three times slower, and a file
truncated or unreadable under a map kills the process where `pread` returns an error.

Of 25 ms of processor time for 48 MiB that are not compressed, into memory that is there, some 11 are the kernel's copy,
5 the copy into the caller's array and 3 checksums; a copy in memory of as much takes 4.5.  New memory for the result
costs a page fault for each 2 MiB, since numpy asks for huge pages, not one for each 4 KiB.  Large chunks that are
contiguous in the caller's array need no block: `large_chunks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from arraystore._chunks.read_memory import ReadMemory, kept
from arraystore._chunks.reader import ChunkReader
from arraystore._format.pack import all_sound
from arraystore._format.types import Bytes, Int64s
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.pipeline.lookup import Located, Place
from arraystore._session.pipeline.threads import share, thread_count
from arraystore.storage.protocol import BytesLike

KiB, MiB = 1 << 10, 1 << 20

_LOCAL_BLOCK = 1 * MiB
"""Of 256 KiB to 1 MiB all are equally fast; larger ones leave the cache."""

_BYTES_OF_A_THREAD = 256 * KiB
"""Bytes that take as long as it takes to have another thread read, check and decode them."""

_REMOTE_BLOCK = 4 * MiB
"""Bytes of a request: beyond it, requests in parallel are faster than a longer one."""

_REMOTE_WINDOW = 16
"""Requests in parallel, and blocks in memory."""

_LOCAL_GAP, _REMOTE_GAP = 4 * KiB, 64 * KiB
"""Bytes that are cheaper to read and drop than to begin another read."""


class UnsoundBlockError(Exception):
    """A chunk does not match its checksum; the general path reads it again and says which one it is."""


@dataclass(frozen=True)
class Block:
    """Chunks of one place in order of their offsets."""

    data: Bytes
    """Bytes, valid while the block is used."""
    at: Int64s
    """Positions of the chunks in the selection."""
    offset: Int64s
    """Offsets of the chunks in `data`."""
    length: Int64s


@dataclass(frozen=True)
class _Span:
    """Range of a place to read, and its chunks."""

    place: Place
    start: int
    stop: int
    at: Int64s


def for_each_block(hierarchy: Hierarchy, located: Located, use: Callable[[Block], None]) -> None:
    """Read chunks block by block, verified as the reader is set to, and use each, in several threads.

    Raises `UnsoundBlockError`, the errors of the storage, and those of the use.
    """
    if hierarchy.reader.storage.cheap_probes:
        spans = list(_spans(located, _LOCAL_BLOCK, _LOCAL_GAP))
        share(spans, lambda: _LocalReader(hierarchy, located, use), _threads_for(spans))
    else:
        _read_remote(hierarchy, located, use)


def _threads_for(spans: list[_Span]) -> int:
    """Return the threads that are worth waking: a crop of a few small chunks takes less than to hand it over."""
    return min(thread_count(), 1 + sum(span.stop - span.start for span in spans) // _BYTES_OF_A_THREAD)


class _LocalReader:
    """Reads spans one after the other into the same memory."""

    def __init__(self, hierarchy: Hierarchy, located: Located, use: Callable[[Block], None]) -> None:
        self.hierarchy = hierarchy
        self.located = located
        self.use = use
        self.large = ReadMemory()

    def __call__(self, span: _Span) -> None:
        data = _at_hand(self.hierarchy, span)
        if data is not None:
            self.use(_block(span, self.located, data))
            return
        reader, size = self.hierarchy.reader, span.stop - span.start
        memory = kept.at(size, span.start, self.large)
        data = reader.storage.get_range_into(span.place.key, span.start, memory.data)
        self.use(_verified(reader, span, self.located, data))


def _read_remote(hierarchy: Hierarchy, located: Located, use: Callable[[Block], None]) -> None:
    spans: list[_Span] = []
    for span in _spans(located, _REMOTE_BLOCK, _REMOTE_GAP):
        data = _at_hand(hierarchy, span)
        if data is None:
            spans.append(span)
        else:
            use(_block(span, located, data))
    for first in range(0, len(spans), _REMOTE_WINDOW):
        window = spans[first : first + _REMOTE_WINDOW]
        _use_fetched(hierarchy.reader, located, list(zip(window, _fetch(hierarchy.reader, window), strict=True)), use)


def spans_to_fetch(located: Located) -> list[tuple[str, int, int, int]]:
    """Return the requests that reading chunks of the storage takes: key, range, and known size of the object."""
    return [
        (span.place.key, span.start, span.stop, max(span.stop, span.place.extent))
        for span in _spans(located, _REMOTE_BLOCK, _REMOTE_GAP)
        if span.place.data is None and span.place.own < 0
    ]


def _use_fetched(
    reader: ChunkReader, located: Located, fetched: list[tuple[_Span, BytesLike]], use: Callable[[Block], None]
) -> None:
    def one(item: tuple[_Span, BytesLike]) -> None:
        use(_verified(reader, item[0], located, item[1]))

    share(fetched, lambda: one, _threads_for([span for span, _ in fetched]))


def _fetch(reader: ChunkReader, window: list[_Span]) -> list[BytesLike]:
    """Read spans in parallel through the cache of blocks, which reads ahead."""

    async def one(span: _Span) -> BytesLike:
        return await reader.blocks.read(span.place.key, span.start, span.stop, max(span.stop, span.place.extent))

    return run(bounded(one, window, _REMOTE_WINDOW))


def _at_hand(hierarchy: Hierarchy, span: _Span) -> BytesLike | None:
    """Return bytes that are in memory: inlined, or of a pack that waits for upload."""
    if span.place.data is not None:
        return span.place.data[span.start : span.stop]
    if span.place.own < 0:
        return None
    assert hierarchy.changes is not None
    return hierarchy.changes.packs.read(span.place.own, span.start, span.stop)


def _spans(located: Located, limit: int, gap: int) -> Iterator[_Span]:
    """Yield ranges of places with the chunks in them, in order of their offsets."""
    there = np.flatnonzero(located.place >= 0)
    there = there[np.lexsort((located.offset[there], located.place[there]))]
    places = located.place[there]
    bounds = [0, *(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(there)]
    for low, high in pairwise(bounds):
        if low < high:
            yield from _spans_of(located, located.places[int(places[low])], there[low:high], limit, gap)


def _spans_of(located: Located, place: Place, at: Int64s, limit: int, gap: int) -> Iterator[_Span]:
    offset = located.offset[at]
    stop = offset + located.length[at] + place.trailer
    for first, last in _cuts(offset, stop, limit, gap):
        yield _Span(place, int(offset[first]), int(stop[first:last].max()), at[first:last])


def _cuts(start: Int64s, stop: Int64s, limit: int, gap: int) -> Iterator[tuple[int, int]]:
    """Cut ascending ranges into runs without large gaps, of about `limit` bytes or one range.

    Several regions that are read together may want one range, which is read once.
    """
    breaks = np.flatnonzero(start[1:] - np.maximum.accumulate(stop)[:-1] > gap) + 1
    bounds = [0, *breaks.tolist(), len(start)]
    for low, high in pairwise(bounds):
        first = low
        while first < high:
            last = max(first + 1, low + int(stop[low:high].searchsorted(int(start[first]) + limit, "right")))
            last = low + int(start[low:high].searchsorted(start[min(last, high) - 1], "right"))
            yield first, last
            first = last


def _block(span: _Span, located: Located, data: BytesLike) -> Block:
    return Block(
        np.frombuffer(data, dtype=np.uint8), span.at, located.offset[span.at] - span.start, located.length[span.at]
    )


def _verified(reader: ChunkReader, span: _Span, located: Located, data: BytesLike) -> Block:
    block = _block(span, located, data)
    if reader.verify and span.place.trailer:
        offsets = located.offset[span.at]
        other = np.diff(offsets, prepend=-1) != 0
        offset, length = offsets[other].tolist(), block.length[other].tolist()
        if not all_sound(span.place.seed, span.start, block.data, offset, length):
            raise UnsoundBlockError(span.place.key)
    return block
