"""Packs: whatever the storage's timing, every chunk arrives, once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from arraystore import in_memory_storage
from arraystore._chunks.pack_writer import PackSettings, PackWriter, pack_key
from arraystore._environment import Environment
from arraystore._format.ids import IdSource
from arraystore.errors import StorageError
from arraystore.storage import Fault, FaultyStorage, Storage
from tests.commit.support import DistantStorage, keys

SMALL = PackSettings(inline=0, own_object=1000, target=100, in_flight=10_000)


def _run_at_once(storage: Storage, key: str, data: memoryview) -> Future[None]:
    """Return a future that is done already, as when the storage is faster than the caller."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, storage.put(key, data))


class _TellsLater(Future[None]):
    """Is done, and has not told anybody yet: a thread is about to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[Future[None]], object]] = []

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        if self.done() and not self.waiting:  # the packs' own; those that wait for the upload come later
            self.waiting.append(fn)
        else:
            super().add_done_callback(fn)


def _writer(storage: Storage, start: Callable[[Storage, str, memoryview], Future[None]]) -> PackWriter:
    return PackWriter(storage, Environment(), SMALL, start)


@pytest.mark.timeout(20)
def test_an_upload_that_ends_before_anybody_waits_for_it_blocks_nobody() -> None:
    storage = DistantStorage(in_memory_storage())
    packs = _writer(storage, _run_at_once)
    places = [packs.add(memoryview(bytes([i]) * size)) for i, size in enumerate((60, 60, 2000, 60))]
    asyncio.run(packs.flush())
    assert len(keys(storage, "chunks/")) == 4
    for i, (source, offset, length) in enumerate(places):
        assert packs.read(source, offset, offset + length) is None
        assert storage.get_range_sync(pack_key(packs.packs[source]), offset, offset + length) == bytes([i]) * length


def test_an_upload_that_has_just_succeeded_is_not_repeated() -> None:
    started: list[_TellsLater] = []

    def start(storage: Storage, key: str, data: memoryview) -> Future[None]:
        _run_at_once(storage, key, data).result()
        late = _TellsLater()
        late.set_result(None)
        started.append(late)
        return late

    storage = in_memory_storage()
    packs = _writer(storage, start)
    source, offset, length = packs.add(memoryview(b"x" * 60))
    packs.add(memoryview(b"y" * 60))
    asyncio.run(packs.flush())
    assert len(started) == 2
    for future in started:
        for tell in future.waiting:
            tell(future)
    assert packs.read(source, offset, offset + length) is None


def test_a_failed_upload_is_reported_by_flush_stays_readable_and_is_repeated_by_the_next_one() -> None:
    storage = FaultyStorage(in_memory_storage(), [Fault("put", "chunks/*", times=3)])
    packs = _writer(storage, _run_at_once)
    source, offset, length = packs.add(memoryview(b"x" * 60))
    for _ in range(2):  # the first one tries twice
        with pytest.raises(StorageError, match="on purpose"):
            asyncio.run(packs.flush())
        assert packs.read(source, offset, offset + length) == b"x" * 60
    asyncio.run(packs.flush())
    assert packs.read(source, offset, offset + length) is None
    assert storage.get_range_sync(pack_key(packs.packs[source]), offset, offset + length) == b"x" * 60


def test_packs_of_forks_are_numbered_behind_a_pack_that_another_thread_has_just_begun() -> None:
    writer = PackWriter(in_memory_storage(), Environment(), SMALL)
    ids = IdSource()
    with ThreadPoolExecutor(1) as pool:
        with writer._lock:  # as a thread does that begins a pack
            adopted = pool.submit(writer.adopt, [ids(), ids()])
            time.sleep(0.05)
            own = writer._new_pack()
        assert (own, adopted.result()) == (0, 1)
    assert len(writer.packs) == 3
