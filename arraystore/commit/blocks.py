"""Coalesced reads of packs: neighbours come in one request, and a sequential reader gets what it will want next.

For storages where a request costs more than the bytes that it brings.  The first read of a pack takes just what is
asked for; a read that goes on where the last one ended takes a block, and blocks grow while this lasts.  A read
within a block that is on its way waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field

from arraystore.storage.protocol import BytesLike, Storage

__all__ = ["BlockCache"]

KiB, MiB = 1 << 10, 1 << 20

_GAP = 64 * KiB
"""Bytes that may be skipped, and read in vain, before a read counts as a new beginning: half a millisecond's worth."""

_FIRST_BLOCK, _LARGEST_BLOCK = 256 * KiB, 4 * MiB


class _AbandonedError(Exception):
    """The caller that fetched a block was cancelled; whoever waits for it has to fetch it."""


def _bytes_to_come() -> Future[BytesLike]:
    future: Future[BytesLike] = Future()
    future.set_running_or_notify_cancel()  # else one who waits and is cancelled would cancel it for all
    return future


@dataclass
class _Block:
    """A range of a pack; `in_thread` if a thread fetches it, which needs no event loop of a caller to finish."""

    start: int
    stop: int
    in_thread: bool
    data: Future[BytesLike] = field(default_factory=_bytes_to_come)


@dataclass
class _Pack:
    """What is known of one pack: its blocks, and where the last read ended."""

    blocks: list[_Block] = field(default_factory=list)
    end: int = -1
    ahead: int = _FIRST_BLOCK


class BlockCache:
    """Reads ranges of packs in blocks.

    Parameters
    ----------
    storage
        Where packs are.
    room
        Most bytes of blocks that are kept.
    """

    def __init__(self, storage: Storage, room: int = 64 * MiB) -> None:
        self.storage = storage
        self.room = room
        self._lock = threading.Lock()
        self._packs: OrderedDict[str, _Pack] = OrderedDict()
        self._bytes = 0

    def read_sync(self, key: str, start: int, stop: int, limit: int) -> BytesLike:
        """Read a range of a pack of which at least `limit` bytes exist."""
        while True:
            block, mine = self._plan(key, start, stop, limit, in_thread=True)
            if mine:
                try:
                    block.data.set_result(self.storage.get_range_sync(key, block.start, block.stop))
                except BaseException as error:
                    self._failed(key, block, error)
                    raise
            elif not block.in_thread and not block.data.done():
                # To wait could be for ever: the event loop that fetches it may be the one that this call holds up.
                return self.storage.get_range_sync(key, start, stop)
            try:
                return memoryview(block.data.result())[start - block.start : stop - block.start]
            except _AbandonedError:
                continue

    async def read(self, key: str, start: int, stop: int, limit: int) -> BytesLike:
        """Read a range of a pack of which at least `limit` bytes exist."""
        while True:
            block, mine = self._plan(key, start, stop, limit, in_thread=False)
            if mine:
                try:
                    block.data.set_result((await self.storage.get_ranges(key, [(block.start, block.stop)]))[0])
                except BaseException as error:
                    self._failed(key, block, error)
                    raise
            try:
                data = block.data.result() if block.data.done() else await asyncio.wrap_future(block.data)
                return memoryview(data)[start - block.start : stop - block.start]
            except _AbandonedError:
                continue

    def _plan(self, key: str, start: int, stop: int, limit: int, *, in_thread: bool) -> tuple[_Block, bool]:
        """Return the block that holds a range, and whether the caller has to fetch it."""
        with self._lock:
            pack = self._packs.get(key)
            if pack is None:
                pack = self._packs[key] = _Pack()
            else:
                self._packs.move_to_end(key)
            sequential = pack.end >= 0 and 0 <= start - pack.end <= _GAP
            pack.end = max(stop, pack.end) if sequential else stop
            for block in pack.blocks:
                if block.start <= start and stop <= block.stop:
                    return block, False
            end = stop
            if sequential:
                end = max(stop, min(start + pack.ahead, limit))
                pack.ahead = min(pack.ahead * 4, _LARGEST_BLOCK)
            else:
                pack.ahead = _FIRST_BLOCK
            block = _Block(start, end, in_thread)
            pack.blocks.append(block)
            self._bytes += end - start
            self._evict(key)
            return block, True

    def _evict(self, newest: str) -> None:
        while self._bytes > self.room:
            key, pack = next(iter(self._packs.items()))
            while pack.blocks and self._bytes > self.room and not (key == newest and len(pack.blocks) == 1):
                block = pack.blocks.pop(0)
                self._bytes -= block.stop - block.start
            if key == newest:
                return
            del self._packs[key]

    def _failed(self, key: str, block: _Block, error: BaseException) -> None:
        with self._lock:
            pack = self._packs.get(key)
            if pack is not None and block in pack.blocks:
                pack.blocks.remove(block)
                self._bytes -= block.stop - block.start
        block.data.set_exception(error if isinstance(error, Exception) else _AbandonedError())
