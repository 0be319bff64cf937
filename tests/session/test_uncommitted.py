"""What a session reads back before it commits, wherever the bytes are by then, and what many threads see."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from arraystore import ArrayStore, Repository, RepositoryConfig, StorageError
from arraystore._chunks import chunk_table
from arraystore._chunks.chunk_table import ChunkTable
from arraystore.storage import CountingStorage, Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.session.conftest import FarMemory

KiB = 1 << 10
SMALL = RepositoryConfig(own_object_threshold_bytes=32 * KiB, pack_target_bytes=64 * KiB)
SIZES = {"empty": 0, "inline": 100, "open pack": 4 * KiB, "own object": 40 * KiB}
PROTOTYPE = default_buffer_prototype()


async def _until(condition: Any) -> None:
    """Wait for something that another event loop or thread does."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def pattern(size: int, seed: int = 0) -> cpu.Buffer:
    return cpu.Buffer.from_bytes(((seed + 7 * np.arange(size)) % 251).astype("u1").tobytes())


def new_store(storage: Storage) -> ArrayStore:
    store = Repository.create(storage, SMALL).writable_session("main").store
    zarr.create_array(store, name="a", shape=(1000,), chunks=(1,), dtype="u1")
    return store


def in_places(storage: Storage) -> Iterator[tuple[str, ArrayStore]]:
    """The same chunks uncommitted, in a pack that is full and uploaded, and committed."""
    store = new_store(storage)
    for number, size in enumerate(SIZES.values()):
        store.set_sync(f"a/c/{number}", pattern(size, number))
    yield "uncommitted", store
    for number in range(10, 40):  # pushes the first pack out
        store.set_sync(f"a/c/{number}", pattern(4 * KiB))
    yield "pushed out", store
    store.session.commit("all")
    yield "committed", store


RANGES: list[ByteRequest | None] = [
    None,
    *(
        RangeByteRequest(start, stop)
        for start, stop in [(0, 0), (0, 1), (5, 50), (50, 200), (90, 10**9), (10**9, 10**10)]
    ),
    *(OffsetByteRequest(offset) for offset in [0, 1, 99, 100, 4096, 10**9]),
    *(SuffixByteRequest(suffix) for suffix in [0, 1, 100, 4096, 10**9]),
]


def test_byte_ranges_are_those_of_the_memory_store(storage: Storage) -> None:
    model = MemoryStore()
    for number, size in enumerate(SIZES.values()):
        sync(model.set(f"a/c/{number}", pattern(size, number)))
    for place, store in in_places(storage):
        for key, wanted in itertools.product([f"a/c/{number}" for number in range(len(SIZES))], RANGES):
            expected = sync(model.get(key, PROTOTYPE, wanted))
            assert expected is not None
            for found in (
                store.get_sync(key, byte_range=wanted),
                sync(store.get(key, PROTOTYPE, wanted)),
                *sync(store.get_partial_values(PROTOTYPE, [(key, wanted)])),
            ):
                assert found is not None, (place, key, wanted)
                assert found.to_bytes() == expected.to_bytes(), (place, key, wanted)


def test_partial_values_come_in_the_order_asked_for(storage: Storage) -> None:
    requests: list[tuple[str, ByteRequest | None]] = [
        ("a/c/3", SuffixByteRequest(3)),
        ("a/c/900", None),
        ("a/c/1", RangeByteRequest(5, 9)),
        ("nothing", OffsetByteRequest(1)),
        ("a/c/3", RangeByteRequest(0, 10)),
        ("a/c/2", OffsetByteRequest(4090)),
    ]
    values = {f"a/c/{number}": pattern(size, number).to_bytes() for number, size in enumerate(SIZES.values())}
    expected = [
        *(values["a/c/3"][-3:], None, values["a/c/1"][5:9], None),
        *(values["a/c/3"][:10], values["a/c/2"][4090:]),
    ]
    for _, store in in_places(storage):
        found = sync(store.get_partial_values(PROTOTYPE, iter(requests)))
        assert [value and value.to_bytes() for value in found] == expected


def test_sizes_are_known_without_reading_chunks() -> None:
    storage = CountingStorage(FarMemory())
    sizes = {f"a/c/{number}": size for number, size in enumerate(SIZES.values())}
    sizes |= {f"a/c/{number}": 4 * KiB for number in range(10, 40)}
    for place, store in in_places(storage):
        if place == "uncommitted":
            continue
        storage.reset()
        metadata = sync(store.getsize("a/zarr.json"))
        assert [sync(store.getsize(key)) for key in sizes] == list(sizes.values())
        assert sync(store.getsize_prefix("a/c")) == sum(sizes.values())
        assert sync(store.getsize_prefix("a")) == sum(sizes.values()) + metadata
        assert sync(store.getsize_prefix("a/c/1")) == 0
        asked = [key for operation, key in storage.log if operation != "put"]  # packs may still be on their way
        assert not [key for key in asked if key.startswith("chunks/")], place
        assert len(asked) <= 1, place


def test_a_chunk_overwritten_in_the_open_pack_takes_no_more_room() -> None:
    storage = CountingStorage(FarMemory())
    store = new_store(storage)
    for seed in range(50):
        store.set_sync("a/c/0", pattern(4 * KiB, seed))
        store.set_sync("a/c/1", pattern(4 * KiB, seed + 1))
    assert store.get_sync("a/c/0") == pattern(4 * KiB, 49)
    storage.reset()
    store.session.commit("two chunks")
    assert storage.counts.bytes_written < 2 * 4 * KiB + 4 * KiB
    assert store.get_sync("a/c/0") == pattern(4 * KiB, 49)
    assert store.get_sync("a/c/1") == pattern(4 * KiB, 50)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*SIZES.values(), 5000, 30 * KiB, None])), max_size=30))
def test_the_last_write_of_a_chunk_counts(writes: list[tuple[int, int | None]]) -> None:
    store, expected = new_store(FarMemory()), {}
    for seed, (number, size) in enumerate(writes):
        key = f"a/c/{number}"
        if size is None:
            store.delete_sync(key)
            expected.pop(key, None)
        else:
            store.set_sync(key, pattern(size, seed))
            expected[key] = pattern(size, seed)
        assert store.get_sync(key) == expected.get(key)
    store.session.commit("all", allow_empty=True)
    for number in range(5):
        assert store.get_sync(f"a/c/{number}") == expected.get(f"a/c/{number}")


# -- while an upload is under way -----------------------------------------------------------------------------


class SlowPuts(WrapperStorage):
    """Holds every pack back until it is let go, or fails it."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.fail = False
        self.started = threading.Event()

    async def put(self, key: str, data: BytesLike) -> None:
        self.started.set()
        await _until(self.gate.is_set)
        if self.fail:
            raise StorageError(f"{key}: refused")
        await super().put(key, data)


def test_a_pack_on_its_way_is_readable() -> None:
    storage = SlowPuts(FarMemory())
    store = new_store(storage)
    for number in range(40):
        store.set_sync(f"a/c/{number}", pattern(4 * KiB, number))
    store.set_sync("a/c/40", pattern(40 * KiB, 40))
    assert storage.started.wait(5)
    expected = {f"a/c/{number}": pattern(4 * KiB if number < 40 else 40 * KiB, number) for number in range(41)}
    assert {key: store.get_sync(key) for key in expected} == expected
    store.set_sync("a/c/0", pattern(4 * KiB, 99))  # of the pack that is under way
    expected["a/c/0"] = pattern(4 * KiB, 99)
    storage.gate.set()
    store.session.commit("all")
    assert {key: store.get_sync(key) for key in expected} == expected


def test_a_pack_that_failed_stays_readable_and_is_tried_again_by_the_next_commit() -> None:
    storage = SlowPuts(FarMemory())
    store = new_store(storage)
    storage.fail = True
    storage.gate.set()
    for number in range(40):
        store.set_sync(f"a/c/{number}", pattern(4 * KiB, number))
    with pytest.raises(StorageError, match="refused"):
        store.session.commit("fails")
    expected = {f"a/c/{number}": pattern(4 * KiB, number) for number in range(40)}
    assert {key: store.get_sync(key) for key in expected} == expected
    storage.fail = False
    store.session.commit("works")
    assert {key: store.get_sync(key) for key in expected} == expected


def test_a_storage_that_fails_for_good_stops_the_writer_before_memory_is_full() -> None:
    storage = SlowPuts(FarMemory())
    config = RepositoryConfig(
        own_object_threshold_bytes=32 * KiB, pack_target_bytes=64 * KiB, max_bytes_in_flight=256 * KiB
    )
    store = Repository.create(storage, config).writable_session("main").store
    zarr.create_array(store, name="a", shape=(1000,), chunks=(1,), dtype="u1")
    storage.fail = True
    storage.gate.set()
    written = []

    def write_on() -> None:
        for number in range(1000):
            store.set_sync(f"a/c/{number}", pattern(4 * KiB if number % 10 else 40 * KiB, number))
            written.append(number)

    with pytest.raises(StorageError, match="refused"):
        write_on()
    assert 10 < len(written) < 100
    storage.fail = False
    store.set_sync("a/c/999", pattern(4 * KiB))
    store.session.commit("the storage is back")
    for number in written:
        assert store.get_sync(f"a/c/{number}") == pattern(4 * KiB if number % 10 else 40 * KiB, number)
    assert store.get_sync("a/c/999") == pattern(4 * KiB)


# -- threads --------------------------------------------------------------------------------------------------


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def chunk_of(number: int, round_: int) -> cpu.Buffer:
    size = (40, 600, 4000, 33 * KiB)[number % 4]
    return pattern(size, number + round_)


@pytest.mark.usefixtures("eager_switching")
def test_threads_read_what_they_wrote_while_others_write(storage: Storage) -> None:
    store = new_store(storage)

    def work(worker: int) -> int:
        for round_ in range(3):
            mine = range(worker, 160, 8)
            for number in mine:
                store.set_sync(f"a/c/{number}", chunk_of(number, round_))
            for number in mine:
                assert store.get_sync(f"a/c/{number}") == chunk_of(number, round_)
        return worker

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))
    store.session.commit("all")
    for number in range(160):
        assert store.get_sync(f"a/c/{number}") == chunk_of(number, 2)


@pytest.mark.usefixtures("eager_switching")
def test_inlined_chunks_are_read_while_others_are_written() -> None:
    store = new_store(FarMemory())
    values = {f"a/c/{number}": pattern(100, number) for number in range(400)}
    store.set_sync("a/c/999", pattern(64))
    done = threading.Event()

    def read() -> int:
        count = 0
        while not done.is_set():
            assert store.get_sync("a/c/999") == pattern(64)
            count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for _ in range(20):
                for key, value in values.items():
                    store.set_sync(key, value)
        finally:
            done.set()
        assert all(reader.result() > 0 for reader in readers)


def test_a_table_answers_while_it_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take no lock, so a reference may at no moment be missing."""
    table = ChunkTable((1 << 20,))
    original, checked = chunk_table._sorted, []

    def look(*columns: Any) -> Any:
        for number in range(0, len(written), 997):
            assert table.get(number) == (0, number, 1)
        checked.append(len(written))
        return original(*columns)

    written: list[int] = []
    monkeypatch.setattr(chunk_table, "_sorted", look)
    for number in range(100_000):
        written.append(number)
        table.put(number, (0, number, 1))
    table.columns()
    assert len(checked) > 6


def test_threads_create_arrays_side_by_side(storage: Storage) -> None:
    session = Repository.create(storage).writable_session("main")
    root = zarr.open_group(session.store, mode="a")

    def work(worker: int) -> None:
        array = root.create_array(f"g{worker % 3}/a{worker}", shape=(20,), chunks=(3,), dtype="i4")
        array[:] = worker + 1
        array.attrs["worker"] = worker

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    session.commit("all")
    for worker in range(16):
        array = zarr.open_array(session.store, path=f"g{worker % 3}/a{worker}", mode="r")
        np.testing.assert_array_equal(array[:], worker + 1)
        assert array.attrs["worker"] == worker


# -- coalesced reads under concurrency ------------------------------------------------------------------------


class SlowReads(WrapperStorage):
    """Reads of packs wait on the reader's event loop until they are let go."""

    cheap_probes = False

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.cheap_probes = False
        self.gate = threading.Event()
        self.waiting = 0

    async def get_ranges(self, key: str, ranges: Any) -> list[BytesLike]:
        self.waiting += 1
        await _until(self.gate.is_set)
        return await super().get_ranges(key, ranges)


def committed(storage: Storage) -> ArrayStore:
    repo = Repository.create(storage, SMALL)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(1000,), chunks=(1,), dtype="u1")
    for number in range(16):
        session.store.set_sync(f"a/c/{number}", pattern(4 * KiB, number))
    session.commit("all")
    store = repo.readonly_session("main").store
    assert store.get_sync("a/c/900") is None  # manifests are loaded
    return store


def test_a_synchronous_read_does_not_wait_for_its_own_event_loop() -> None:
    storage = SlowReads(FarMemory())
    store = committed(storage)

    async def both() -> tuple[Buffer | None, Buffer | None]:
        first = asyncio.create_task(store.get("a/c/3", PROTOTYPE))
        await _until(lambda: storage.waiting)
        second = store.get_sync("a/c/3")  # blocks the loop that `first` needs
        storage.gate.set()
        return await first, second

    assert asyncio.run(asyncio.wait_for(both(), 10)) == (pattern(4 * KiB, 3), pattern(4 * KiB, 3))


def test_a_cancelled_reader_does_not_disturb_others() -> None:
    storage = SlowReads(FarMemory())
    store = committed(storage)

    async def three(cancelled: int) -> list[Buffer | None]:
        storage.gate.clear()
        number = 12 - 4 * cancelled  # backwards, so that nothing is read ahead
        readers = [asyncio.create_task(store.get(f"a/c/{number}", PROTOTYPE)) for _ in range(3)]
        before = storage.waiting
        await _until(lambda: storage.waiting > before)
        await asyncio.sleep(0.01)
        readers.pop(cancelled).cancel()
        await asyncio.sleep(0.01)
        storage.gate.set()
        return await asyncio.gather(*readers)

    for cancelled in range(3):
        found = asyncio.run(asyncio.wait_for(three(cancelled), 10))
        assert found == [pattern(4 * KiB, 12 - 4 * cancelled)] * 2
