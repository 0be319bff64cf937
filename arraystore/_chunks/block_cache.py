"""Coalesced reads of packs: one request reads neighbouring chunks, and reads ahead for a sequential reader.

For storages where a request costs more than the bytes that it transfers. The first read of a pack requests only its own
range; a read that continues where a block ends requests a larger block, up to the next one, and so on from pack to
pack. A read within a block that is being fetched waits for it. Threads that share a sequential read may arrive in any
order.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from arraystore._chunks import cache_budget
from arraystore._chunks.single_flight import AbandonedError, SharedLoad
from arraystore._runtime.values import dataclass
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.protocol import BytesLike, Storage

KiB, MiB = 1 << 10, 1 << 20

_GAP = 64 * KiB
"""Bytes that may be read and unused before a read counts as a new sequence: half a millisecond's worth."""

_FIRST_BLOCK, _LARGEST_BLOCK = 256 * KiB, 4 * MiB

_FIRST_OF_NEXT = 1 * MiB
"""Size of the first block of a pack where the one before was read to its end."""


OVERHEAD = 3072
"""Bytes that the Python objects of a block take, which count as well, since chunks may be small."""


@dataclass
class _Block:
    """Range of a pack; `ahead` is the size of the block that continues it."""

    start: int
    stop: int
    ahead: int
    data: SharedLoad[BytesLike]

    @property
    def weight(self) -> int:
        """Bytes that it takes in memory."""
        return self.stop - self.start + OVERHEAD


class BlockCache:
    """Reads ranges of packs in blocks, of which it keeps at most `room` bytes, Python objects included."""

    def __init__(self, storage: Storage, room: int = 64 * MiB) -> None:
        self.storage = storage
        self.room = room
        self._lock = threading.Lock()
        self._packs: OrderedDict[str, list[_Block]] = OrderedDict()
        self.account = cache_budget.PROCESS.open(self)
        self._hits = self._misses = self._evictions = 0
        self._read_through = False
        cache_budget.PROCESS.join(self)

    def read_sync(self, key: str, start: int, stop: int, limit: int) -> BytesLike:
        """Read a range of a pack of which at least `limit` bytes exist."""
        while True:
            block, mine = self._plan(key, start, stop, limit, in_thread=True)
            if mine:
                self.account.settle()
                try:
                    block.data.succeed(self.storage.get_range_sync(key, block.start, block.stop))
                except BaseException as error:
                    self._failed(key, block, error)
                    raise
            elif block.data.may_block:
                return self.storage.get_range_sync(key, start, stop)
            try:
                return memoryview(block.data.result())[start - block.start : stop - block.start]
            except AbandonedError:
                continue

    async def read(self, key: str, start: int, stop: int, limit: int) -> BytesLike:
        """Read a range of a pack of which at least `limit` bytes exist."""
        while True:
            block, mine = self._plan(key, start, stop, limit, in_thread=False)
            if mine:
                self.account.settle()
                try:
                    block.data.succeed((await self.storage.get_ranges(key, [(block.start, block.stop)]))[0])
                except BaseException as error:
                    self._failed(key, block, error)
                    raise
            try:
                return memoryview(await block.data.wait())[start - block.start : stop - block.start]
            except AbandonedError:
                continue

    def _plan(self, key: str, start: int, stop: int, limit: int, *, in_thread: bool) -> tuple[_Block, bool]:
        """Return the block that contains a range, and whether the caller has to fetch it."""
        with self._lock:
            blocks = self._packs.setdefault(key, [])
            self._packs.move_to_end(key)
            before: _Block | None = None
            bound = limit
            for block in blocks:
                if block.start <= start and stop <= block.stop:
                    self._hits += 1
                    return block, False
                if block.start > start:
                    bound = min(bound, block.start)
                elif before is None or block.stop > before.stop:
                    before = block  # it may end within the range: blocks know nothing of chunks
            self._misses += 1
            data: SharedLoad[BytesLike] = SharedLoad(in_thread=in_thread)
            if self._read_through and not blocks:
                before = _Block(0, 0, _FIRST_OF_NEXT, data)
            if before is not None and start - before.stop <= (_GAP if blocks else _FIRST_OF_NEXT):
                first = min(before.stop, start)
                last = max(stop, min(first + before.ahead, bound))
                block = _Block(first, last, min(before.ahead * 4, _LARGEST_BLOCK), data)
                self._read_through = last >= limit and before.ahead == _LARGEST_BLOCK
            else:
                block = _Block(start, stop, _FIRST_BLOCK, data)
                self._read_through = False
            blocks.append(block)
            self.account.add(block.weight)
            self._evict(self.account.bytes - self.room)
            return block, True

    def evict(self, excess: int) -> int:
        """Drop blocks of the packs used least recently until `excess` bytes are free; returns their count.

        The newest block of the pack used most recently stays.
        """
        with self._lock:
            return self._evict(excess)

    def _evict(self, excess: int) -> int:
        before = self._evictions
        while excess > 0 and self._packs:
            key, blocks = next(iter(self._packs.items()))
            last = len(self._packs) == 1
            while blocks and excess > 0 and not (last and len(blocks) == 1):
                block = blocks.pop(0)
                self._evictions += 1
                self.account.add(-block.weight)
                excess -= block.weight
            if last:
                break
            if not blocks:
                del self._packs[key]
        return self._evictions - before

    @property
    def usage(self) -> CacheUsage:
        """Return what it holds, and how often it helped."""
        with self._lock:
            entries = sum(map(len, self._packs.values()))
            return CacheUsage(entries, self.account.bytes, self.room, self._hits, self._misses, self._evictions)

    def forget(self, key: str) -> None:
        """Drop the blocks of a pack, which are damaged, so that it is read again."""
        with self._lock:
            self.account.add(-sum(block.weight for block in self._packs.pop(key, [])))
        self.storage.forget(key)

    def _failed(self, key: str, block: _Block, error: BaseException) -> None:
        with self._lock:
            blocks = self._packs.get(key, [])
            if any(kept is block for kept in blocks):
                self._packs[key] = [kept for kept in blocks if kept is not block]
                if not self._packs[key]:
                    del self._packs[key]
                self.account.add(-block.weight)
        block.data.fail(error)
