"""How many objects and requests chunks cost, counted exactly where it matters."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from arraystore import Repository
from arraystore.storage import CountingStorage, Storage
from tests.session.conftest import FarMemory

KiB, MiB = 1 << 10, 1 << 20


def new_array(count: int, size: int, storage: Storage | None = None) -> tuple[CountingStorage, Repository]:
    """Commit an array of chunks of a size, each different; nothing counts yet."""
    counting = CountingStorage(storage or FarMemory())
    repo = Repository.create(counting)
    counting.reset()
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(count * size,), chunks=(size,), dtype="u1", compressors=None)
    for number in range(count):
        session.store.set_sync(f"a/c/{number}", cpu.Buffer.from_bytes(number.to_bytes(8, "little") * (size // 8)))
    session.commit("all")
    return counting, repo


def requests(storage: CountingStorage, prefix: str) -> Counter[str]:
    return Counter(operation for operation, key in storage.log if key.startswith(prefix))


def test_fifty_thousand_small_chunks_make_few_objects() -> None:
    storage, repo = new_array(50_000, 4 * KiB)
    puts = requests(storage, "chunks/")
    assert puts.keys() == {"put"}
    assert 25 <= puts["put"] <= 40
    assert sum(requests(storage, "").values()) <= puts["put"] + 8
    assert storage.counts.bytes_written < 50_000 * 4 * KiB * 1.01
    store = repo.readonly_session("main").store
    for number in (0, 1, 2047, 2048, 49_999):
        found = store.get_sync(f"a/c/{number}")
        assert found is not None
        assert found.to_bytes() == number.to_bytes(8, "little") * 512


@pytest.mark.parametrize("size", [8, 512])
def test_tiny_chunks_make_no_objects_of_chunks(size: int) -> None:
    storage, repo = new_array(300, size)
    assert not requests(storage, "chunks/")
    storage.reset()
    assert repo.readonly_session("main").store.get_sync("a/c/7") is not None
    assert not requests(storage, "chunks/")


def test_a_chunk_just_above_the_threshold_goes_into_a_pack() -> None:
    storage, _ = new_array(300, 520)
    assert requests(storage, "chunks/") == {"put": 1}


def test_large_chunks_are_objects_of_their_own() -> None:
    storage, repo = new_array(5, MiB)
    assert requests(storage, "chunks/") == {"put": 5}
    storage.reset()
    repo.readonly_session("main").store.get_sync("a/c/3")
    assert requests(storage, "chunks/") == {"get_ranges": 1}


@pytest.mark.parametrize("size", [4 * KiB, 16 * KiB])
def test_a_sequential_read_of_small_chunks_takes_few_requests(pipeline: str, size: int) -> None:
    storage, _ = new_array(2000, size)
    storage.reset()
    array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    found = array[:].reshape(2000, size)
    np.testing.assert_array_equal(found[:, :8].copy().view("<u8")[:, 0], np.arange(2000))
    took = requests(storage, "chunks/")["get_ranges"]
    packs = -(-2000 * size // (8 * MiB))
    assert took <= max(12, 8 * packs)


def test_a_reader_that_goes_chunk_by_chunk_takes_few_requests_too() -> None:
    storage, repo = new_array(2000, 4 * KiB)
    storage.reset()
    store = repo.readonly_session("main").store
    for number in range(2000):
        assert store.get_sync(f"a/c/{number}") is not None
    assert requests(storage, "chunks/")["get_ranges"] <= 12


def test_a_single_small_read_brings_only_what_it_wants() -> None:
    storage, repo = new_array(2000, 4 * KiB)
    storage.reset()
    store = repo.readonly_session("main").store
    store.get_sync("a/c/1234")
    before = storage.counts.bytes_read
    store.get_sync("a/c/17")
    assert storage.counts.bytes_read - before == 4 * KiB + 4  # with the checksum


def test_what_was_read_in_a_block_is_not_fetched_twice() -> None:
    storage, repo = new_array(200, 4 * KiB)
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    array[:]
    storage.reset()
    array[:]
    assert storage.counts.total == 0


def test_absent_chunks_are_never_asked_for(pipeline: str) -> None:
    storage = CountingStorage(FarMemory())
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(1000,), chunks=(10,), dtype="i8", compressors=None)
    zarr.create_array(session.store, name="empty", shape=(1000,), chunks=(10,), dtype="i8")
    array[200:210] = 5
    session.commit("one chunk")
    storage.reset()
    root = zarr.open_group(Repository.open(storage).readonly_session("main").store, mode="r")
    assert not root["empty"][:].any()
    assert not root["a"][:200].any()
    assert not root["a"][210:].any()
    assert not requests(storage, "chunks/")
    opened = storage.counts.total
    root["a"][::7], root["empty"][::7]
    assert storage.counts.total == opened  # whether a chunk is there is known by now


def test_reading_part_of_a_shard_reads_part_of_it(pipeline: str) -> None:
    storage = CountingStorage(FarMemory())
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    shape = {"shape": (1024, 1024), "chunks": (64, 64), "shards": (1024, 1024)}
    values = np.arange(1024 * 1024, dtype="i4").reshape(1024, 1024)
    zarr.create_array(session.store, name="a", dtype="i4", compressors=None, **shape)[:] = values
    session.commit("one shard of 4 MiB")
    array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    storage.reset()
    np.testing.assert_array_equal(array[64:128, 128:192], values[64:128, 128:192])
    assert requests(storage, "chunks/") == {"get_ranges": 2}  # the index, and the inner chunk
    assert storage.counts.bytes_read < 64 * 64 * 4 + 16 * KiB


def test_writing_part_of_a_shard_keeps_the_rest(pipeline: str) -> None:
    repo = Repository.create(FarMemory())
    shape = {"shape": (1024, 1024), "chunks": (64, 64), "shards": (1024, 1024)}
    values = np.arange(1024 * 1024, dtype="i4").reshape(1024, 1024)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", dtype="i4", compressors=None, **shape)[:] = values
    session.commit("one shard")
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a", mode="r+")
    array[70:75, :] = values[70:75, :] = -1
    array[128:192, 64:128] = values[128:192, 64:128] = 0
    np.testing.assert_array_equal(array[:], values)
    session.commit("a part")
    np.testing.assert_array_equal(zarr.open_array(session.store, path="a", mode="r")[:], values)
