"""Reading ahead: who reads the regions of an array one after the other gets the chunks that come next.

Packs are read in growing blocks as it is, which makes fewer requests of small chunks.  Large chunks are objects of
their own: each would be a request that a sequential reader waits for.  Here the next ones are on their way while it
works with what it has.  Only of sessions that read one snapshot on a storage where a request takes time.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from arraystore._chunks.block_cache import OVERHEAD
from arraystore._format.types import Int64s
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.blocks import spans_to_fetch
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.lookup import locate
from arraystore._session.regions.selection import Selected
from arraystore.errors import ArrayStoreError

_STEPS = 2
"""Steps in one direction that make a sequence: two regions side by side are often all that somebody wants."""

_MOST_STEPS_AHEAD = 8
_MOST_BYTES = 32 << 20
_THREADS = 8

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _forget_after_fork() -> None:
    """Drop the threads in a forked child, which has none of them."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="arraystore-ahead")
        return _pool


class Scan:
    """The regions of one array that were read last, as ranges of chunks along each axis."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[range, ...] = ()
        self._axis = -1
        self._steps = 0
        self._until = 0

    def advance(self, chunks: tuple[range, ...], grid: tuple[int, ...], most: int) -> tuple[range, ...] | None:
        """Note a region, and return the chunks to read ahead, at most so many; None for none."""
        with self._lock:
            if chunks == self._last:  # a part of the same chunks
                return None
            axis = _step(self._last, chunks)
            self._last = chunks
            if axis is None or axis != self._axis:
                self._axis, self._steps = -1 if axis is None else axis, 0
            if axis is None:
                return None
            self._steps += 1
            now = chunks[axis]
            if self._steps == 1:
                self._until = now.stop
            if self._steps < _STEPS:
                return None
            each = math.prod(len(part) for at, part in enumerate(chunks) if at != axis)
            ahead = min(len(now) * 2 ** (self._steps - _STEPS), len(now) * _MOST_STEPS_AHEAD, most // each)
            first, stop = max(self._until, now.stop), min(now.stop + ahead, grid[axis])
            if first >= stop:
                return None
            self._until = stop
            return (*chunks[:axis], range(first, stop), *chunks[axis + 1 :])


def _step(before: tuple[range, ...], now: tuple[range, ...]) -> int | None:
    """Return the axis along which a region goes on where another ended; None if there is none.

    They may share a chunk, which one of them ends in.
    """
    differ = [axis for axis, (a, b) in enumerate(zip(before, now, strict=False)) if a != b]
    if len(before) != len(now) or len(differ) != 1:
        return None
    was, is_ = before[differ[0]], now[differ[0]]
    follows = was.start < is_.start and is_.stop > was.stop and is_.start <= was.stop
    return differ[0] if follows else None


def read_ahead(hierarchy: Hierarchy, handle: ArrayHandle, selected: Selected, codec: ChunkCodec) -> None:
    """Note that a region is read, and begin to read what comes next if it is one of a sequence."""
    reader = hierarchy.reader
    if hierarchy.changes is not None or hierarchy.reads is not None or reader.storage.cheap_probes:
        return
    if handle.scan is None:
        handle.scan = Scan()
    # until a chunk is used, as many again are read ahead, and as many that were used are kept as long
    most = min(_MOST_BYTES, reader.blocks.room // 3) // (codec.nbytes + OVERHEAD)
    ahead = handle.scan.advance(selected.chunk_ranges(codec.shape), handle.grid, most)
    if ahead is not None:
        axes = [np.arange(part.start, part.stop) for part in ahead]
        with suppress(RuntimeError):  # the process ends, and takes no more work
            _threads().submit(_read, hierarchy, handle, axes)


def _read(hierarchy: Hierarchy, handle: ArrayHandle, axes: Sequence[Int64s]) -> None:
    """Look chunks up, and read each into the cache of blocks."""
    try:
        spans = spans_to_fetch(locate(hierarchy, handle, axes))
    except ArrayStoreError:
        return  # who reads these chunks gets the error
    for key, start, stop, extent in spans:
        _threads().submit(_fetch, hierarchy, key, start, stop, extent)


def _fetch(hierarchy: Hierarchy, key: str, start: int, stop: int, extent: int) -> None:
    try:
        hierarchy.reader.blocks.read_sync(key, start, stop, extent)
    except ArrayStoreError:
        return  # as above: a block that failed is not kept
