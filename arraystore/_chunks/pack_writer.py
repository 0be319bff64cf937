"""Packs: small chunks gathered into large objects and uploaded in the background, each with its checksum.

Chunks of `PackSettings.own_object` bytes and more become objects of their own. Smaller ones are copied into a buffer
that is uploaded when it is full, while the next one fills; of packs of several parts each part is uploaded once it is
full, where the storage can. The bytes that wait for upload are bounded: a writer that is
faster than the storage waits for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np

from arraystore._chunks.chunk_table import ChunkReference
from arraystore._chunks.spare_buffers import pack_buffers
from arraystore._environment import Environment
from arraystore._format.ids import PackId, id_to_text
from arraystore._format.pack import framed_pieces, pack_seed, padded_size, put_trailers, trailer
from arraystore._format.types import Int64s
from arraystore._runtime import lazy_module, submit
from arraystore._runtime.values import dataclass
from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    from arraystore._chunks import statistics_log
    from arraystore._chunks.statistics_log import StatisticsLog, StatisticsRows
    from arraystore._format.chunk_statistics import ChunkStatistics
    from arraystore.storage import part_stream
else:
    part_stream = lazy_module("arraystore.storage.part_stream")
    statistics_log = lazy_module("arraystore._chunks.statistics_log")

MiB = 1 << 20
_NO_BUFFER = memoryview(b"")
_WRITERS = 2
"""Threads that write to a local directory: two keep a disk and memory busy."""

RowCopy = Callable[[memoryview, int, int, int, int], None]
"""Copies chunks into a buffer: takes the buffer, an offset, the stride, and the range of numbers of the chunks."""

_writers: ThreadPoolExecutor | None = None


def _forget_writers() -> None:
    global _writers
    _writers = None


os.register_at_fork(after_in_child=_forget_writers)


@dataclass(frozen=True)
class PackSettings:
    """Sizes, in bytes, that decide into which objects chunks are written."""

    inline: int = 512
    """Chunks of at most this size are stored in the manifest."""
    own_object: int = 1 * MiB
    """Chunks of at least this size become objects of their own."""
    target: int = 8 * MiB
    """Size of a pack."""
    in_flight: int = 64 * MiB
    """Most bytes that may wait for upload; beyond it, writers wait."""
    statistics: bool = False
    """Whether to keep least and greatest values of chunks."""


def pack_key(identifier: PackId) -> str:
    """Return the key of a pack."""
    return "chunks/" + id_to_text(identifier)


def start_upload(storage: Storage, key: str, data: memoryview) -> Future[None]:
    """Upload in the background: on the event loop, or, where there is no latency to hide, in a thread."""
    global _writers
    if not storage.cheap_probes:
        return submit(storage.put(key, data))
    if _writers is None:
        _writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="arraystore-write")
    return _writers.submit(storage.put_sync, key, data)


class _GrowingUpload:
    """Upload of the open buffer, part by part as it fills; given up when its writer is no more."""

    def __init__(self, writer: PackWriter, key: str, part_bytes: int) -> None:
        self._parts = part_stream.PartStream()
        self._part_bytes = part_bytes
        self._abandon = weakref.finalize(writer, self._parts.abandon)
        self._abandon.atexit = False  # nobody would send the request
        self.sent = 0
        self.done = submit(writer.storage.put_stream(key, self._parts))

    def advance(self, buffer: memoryview, used: int) -> None:
        """Send the parts of a buffer that are full; their bytes must not change any more."""
        while used - self.sent >= self._part_bytes:
            self._parts.push(buffer[self.sent : self.sent + self._part_bytes])
            self.sent += self._part_bytes

    def finish(self, buffer: memoryview, used: int) -> Future[None]:
        """Send the rest; returns the future that is done when the object is durable."""
        if used > self.sent:
            self._parts.push(buffer[self.sent : used])
        self._parts.close()
        self.forget()
        return self.done

    def forget(self) -> None:
        """Leave the upload to itself when its writer is no more."""
        self._abandon.detach()


class PackWriter:
    """Takes chunks from any thread and writes them to packs, which `start` uploads in the background."""

    def __init__(
        self,
        storage: Storage,
        environment: Environment,
        settings: PackSettings,
        start: Callable[[Storage, str, memoryview], Future[None]] = start_upload,
    ) -> None:
        self.storage = storage
        self.environment = environment
        self.settings = settings
        self.packs: list[PackId] = []
        self.committed: set[PackId] = set()
        self._statistics: StatisticsLog | None = None
        self._start = start
        self._lock = threading.RLock()  # an upload may complete, and call back, in the very call that starts it
        self._open = -1
        self._seed = 0
        self._buffer = self._memory = _NO_BUFFER
        self._used = 0
        self._settled = 0
        self._pending: dict[int, memoryview] = {}
        self._uploads: dict[int, Future[None]] = {}
        self._waiting = 0
        self._growing: _GrowingUpload | None = None
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock in a forked child, which may read what its parent has written, and uploads it by itself."""
        self._lock = threading.RLock()
        growing, self._growing = self._growing, None
        if growing is not None:
            growing.forget()  # it is the parent's

    # -- writing ----------------------------------------------------------------------------------------------

    def add(self, data: memoryview) -> ChunkReference:
        """Take a chunk, whose bytes may change after return."""
        size = len(data)
        if size >= self.settings.own_object:
            return ChunkReference(self._add_object(data), 0, size)
        padded = padded_size(size)
        with self._lock:
            if self._used + padded > len(self._buffer):
                self._seal()
                self._open_buffer(padded)
            at = self._used
            self._put(at, data)
            self._fill(padded)
            where = ChunkReference(self._open, at, size)
        if self._waiting > self.settings.in_flight:
            self._wait_for_room()
        return where

    def add_many(self, chunks: Sequence[memoryview]) -> Int64s:
        """Take chunks smaller than an object of their own, like `add`; returns where each is, shape (n, 3)."""
        where = np.empty((len(chunks), 3), dtype=np.int64)
        with self._lock:
            for i, data in enumerate(chunks):
                where[i] = self._reserve(padded_size(len(data)))[0], self._used, len(data)
                self._put(self._used, data)
                self._fill(padded_size(len(data)))
        if self._waiting > self.settings.in_flight:
            self._wait_for_room()
        return where

    def add_rows(self, count: int, size: int, copy: RowCopy) -> Int64s:
        """Take chunks of one size, smaller than an object of their own; returns where each is, shape (n, 3).

        `copy` puts the chunks from one number up to another into a buffer, from an offset on and at one stride.  It is
        called once for each pack, so that a run of chunks can be one strided copy.
        """
        where = np.empty((count, 3), dtype=np.int64)
        where[:, 2] = size
        padded = padded_size(size)
        first = 0
        while first < count:
            with self._lock:
                source, room = self._reserve(padded)
                last = min(count, first + room // padded)
                copy(self._buffer, self._used, padded, first, last)
                offsets = self._used + padded * np.arange(last - first, dtype=np.int64)
                put_trailers(self._seed, np.frombuffer(self._buffer, dtype=np.uint8), offsets.tolist(), size)
                where[first:last, 0], where[first:last, 1] = source, offsets
                self._fill(padded * (last - first))
            first = last
            if self._waiting > self.settings.in_flight:
                self._wait_for_room()
        return where

    @property
    def open_source(self) -> int:
        """Number of the pack that is being filled; negative for none."""
        return self._open

    def _reserve(self, padded: int) -> tuple[int, int]:
        """Return the open pack and the bytes that are free in it, enough for a chunk; the lock is held."""
        if self._used + padded > len(self._buffer):
            self._seal()
            self._open_buffer(padded)
        return self._open, len(self._buffer) - self._used

    def _fill(self, size: int) -> None:
        """Count bytes that were put into the open buffer, and send the parts that are full; the lock is held."""
        self._used += size
        part = self.storage.part_bytes
        if not part or self.settings.target < 2 * part or self._used < part:
            return
        if self._growing is None:
            self._growing = _GrowingUpload(self, pack_key(self.packs[self._open]), part)
        self._growing.advance(self._buffer, self._used)
        self._settled = max(self._settled, self._growing.sent)

    def replace(
        self, source: int, offset: int, length: int, data: memoryview, statistics: StatisticsRows | None = None
    ) -> bool:
        """Overwrite a chunk in place where it still is in the open buffer and has the same size."""
        if source != self._open or len(data) != length:
            return False
        with self._lock:
            if source != self._open or offset < self._settled:
                return False
            self._put(offset, data)
            if self._statistics is not None or statistics is not None:
                self._noted().replace(source, offset, length, statistics)
        return True

    def _put(self, offset: int, data: memoryview) -> None:
        """Put a chunk and its checksum into the open buffer; the lock is held."""
        end = offset + len(data)
        self._buffer[offset:end] = data
        checksum = trailer(self._seed, offset, self._buffer[offset:end])  # the caller may be changing its own bytes
        self._buffer[end : end + len(checksum)] = checksum

    def settle(self) -> dict[str, int]:
        """Overwrite no chunk written so far; returns the number of each pack that is not yet uploaded, by key."""
        with self._lock:
            self._settled = self._used
            waiting = [*self._pending, self._open] if self._open >= 0 else list(self._pending)
            return {pack_key(self.packs[source]): source for source in waiting}

    async def add_async(self, data: memoryview) -> ChunkReference:
        """Take a chunk like `add`; large ones are uploaded while other tasks go on."""
        if len(data) < self.settings.own_object:
            if self._waiting > self.settings.in_flight:
                await asyncio.to_thread(self._wait_for_room)
            return self.add(data)
        with self._lock:
            source = self._new_pack()
        pack = self.packs[source]
        await self.storage.put_parts(pack_key(pack), tuple(framed_pieces(pack_seed(pack), 0, data)))
        return ChunkReference(source, 0, len(data))

    def note_statistics(self, entries: Int64s, rows: StatisticsRows) -> None:
        """Keep the statistics of chunks, which no table refers to yet, by source, offset and length, shape (n, 3)."""
        with self._lock:
            self._noted().add(entries, rows)

    def adopt_statistics(self, tables: Sequence[ChunkStatistics]) -> None:
        """Keep the statistics of chunks in packs that others have completed."""
        with self._lock:
            if tables:
                self._noted().adopt(tables)

    def statistics_tables(self) -> list[ChunkStatistics]:
        """Return all statistics, a table for each encoding."""
        with self._lock:
            return [] if self._statistics is None else self._statistics.tables(self.packs)

    def _noted(self) -> StatisticsLog:
        """Return the statistics of chunks in these packs, and of those that forks have brought; the lock is held."""
        if self._statistics is None:
            self._statistics = statistics_log.StatisticsLog()
        return self._statistics

    def adopt(self, packs: Sequence[PackId], *, committed: bool = False) -> int:
        """Number packs that others have written; returns the number of the first one."""
        with self._lock:  # other threads number packs of their own meanwhile
            if committed:
                self.committed.update(packs)
            first = len(self.packs)
            self.packs.extend(packs)
            return first

    def _new_pack(self) -> int:
        self.packs.append(PackId(self.environment.new_id()))
        return len(self.packs) - 1

    def _add_object(self, data: memoryview) -> int:
        size = len(data)
        if self._waiting and self._waiting + size > self.settings.in_flight:
            self._wait_for_room(size)
        with self._lock:
            source = self._new_pack()
            if not self.storage.cheap_probes:
                buffer = pack_buffers.take(padded_size(size))
                view = buffer[: padded_size(size)]
                view[:size] = data  # the caller may change its bytes as soon as this returns
                view[size:] = trailer(pack_seed(self.packs[source]), 0, view[:size])
                self._upload(source, view, buffer)
                return source
        pack = self.packs[source]
        pieces = framed_pieces(pack_seed(pack), 0, data)
        self.storage.put_parts_sync(pack_key(pack), pieces)  # no latency to hide: a whole copy would only cost
        return source

    def _open_buffer(self, size: int) -> None:
        room = max(self.settings.target, size)
        self._memory = pack_buffers.take(room)
        self._buffer = self._memory[:room]
        self._used = self._settled = 0
        self._open = self._new_pack()
        self._seed = pack_seed(self.packs[self._open])

    def _seal(self) -> None:
        """Start the upload of the open buffer; the lock is held."""
        if self._used:
            self._upload(self._open, self._buffer[: self._used], self._memory)
        self._open = -1
        self._buffer = self._memory = _NO_BUFFER
        self._used = self._settled = 0

    def _upload(self, source: int, view: memoryview, buffer: memoryview | None) -> None:
        """Start an upload; the lock is held."""
        self._pending[source] = view
        self._waiting += len(view)
        growing, self._growing = (self._growing, None) if source == self._open else (None, self._growing)
        if growing is None:
            future = self._start(self.storage, pack_key(self.packs[source]), view)
        else:
            future = growing.finish(view, len(view))
        self._uploads[source] = future
        future.add_done_callback(lambda done: self._uploaded(source, buffer, done))

    def _uploaded(self, source: int, buffer: memoryview | None, done: Future[None]) -> None:
        with self._lock:
            if done.cancelled() or done.exception() is not None:
                return  # reported by `flush`, or when there is no room; until then the bytes stay readable, and count
            view = self._pending[source]
            self._waiting -= len(view)
            del self._pending[source], self._uploads[source]
            if buffer is not None:
                pack_buffers.give_back(buffer)

    def _wait_for_room(self, size: int = 0) -> None:
        repeated = False
        while self._waiting and self._waiting + size > self.settings.in_flight:
            with self._lock:
                running = [future for future in self._uploads.values() if not future.done()]
                failed = [] if running else self._failed()
                if failed and repeated:
                    self._uploads[failed[0]].result()  # raises
                repeated = repeated or bool(failed)
                self._repeat(failed)
            if running:
                wait(running, return_when="FIRST_COMPLETED")
            elif not failed:
                return

    def _failed(self) -> list[int]:
        """Return the packs whose upload failed; the lock is held."""
        return [s for s, f in self._uploads.items() if f.done() and (f.cancelled() or f.exception() is not None)]

    def _repeat(self, failed: list[int]) -> None:
        """Start uploads again; the lock is held."""
        for source in failed:
            view = self._pending[source]
            self._waiting -= len(view)
            self._upload(source, view, None)

    # -- reading back, finishing --------------------------------------------------------------------------------

    def read(self, source: int, start: int, stop: int) -> bytes | None:
        """Return bytes of a pack that is not uploaded yet; None where the storage has it."""
        with self._lock:
            if source == self._open:
                return bytes(self._buffer[start:stop])
            view = self._pending.get(source)
            return None if view is None else bytes(view[start:stop])

    async def flush(self) -> None:
        """Upload the open buffer and wait for all uploads; after an error, the next `flush` repeats the failed ones."""
        with self._lock:
            self._seal()
            self._repeat(self._failed())
            running = list(self._uploads.values())
        if running:
            results = await asyncio.gather(*map(asyncio.wrap_future, running), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
