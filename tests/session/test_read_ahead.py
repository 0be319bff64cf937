"""Who reads an array region by region has the next ones on their way, and no chunk is requested twice or in vain."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import CountingStorage, Repository, RepositoryConfig, Session, in_memory_storage
from arraystore._chunks.block_cache import OVERHEAD
from arraystore._session.regions import read_ahead
from arraystore._session.regions.read_ahead import Scan
from tests.packs import delete_packs, pack_keys
from tests.session.conftest import FarMemory

STEPS, SIDE = 20, 8


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read ahead before the reader goes on, so that requests can be counted."""

    class Now:
        def submit(self, work: Any, *arguments: Any) -> None:
            thread = threading.Thread(target=work, args=arguments)
            thread.start()
            thread.join()

    monkeypatch.setattr(read_ahead, "_threads", Now)


def steps(storage: Any, **options: Any) -> Session:
    """Return a session of an array of which each step is one chunk, an object of its own."""
    config = RepositoryConfig(inline_chunk_threshold_bytes=0, own_object_threshold_bytes=64, **options)
    session = Repository.create(storage, config=config).writable_session("main")
    values = np.arange(STEPS * SIDE * SIDE, dtype="f8").reshape(STEPS, SIDE, SIDE)
    zarr.create_array(session.store, name="a", shape=values.shape, chunks=(1, SIDE, SIDE), dtype="f8", compressors=None)
    session.write("a", ..., values)
    snapshot = session.commit("steps")
    return Repository.open(storage).readonly_session(snapshot_id=snapshot)


def chunk_requests(storage: CountingStorage) -> int:
    return sum(key.startswith("chunks/") for operation, key in storage.log if operation in ("get", "get_ranges"))


def expected(step: Any) -> np.ndarray:
    return np.arange(STEPS * SIDE * SIDE, dtype="f8").reshape(STEPS, SIDE, SIDE)[step]


def test_steps_in_order_are_on_their_way_before_they_are_read() -> None:
    storage = CountingStorage(FarMemory())
    session = steps(storage)
    storage.reset()
    asked = []
    for step in range(STEPS):
        np.testing.assert_array_equal(session.read("a", step), expected(step))
        asked.append(chunk_requests(storage))
    assert asked[:2] == [1, 2]
    assert all(ready >= min(step + 2, STEPS) for step, ready in enumerate(asked[2:], 2))
    assert asked[-1] == STEPS
    assert session.context.cache_stats().chunks.hits >= STEPS - 4


def test_regions_of_several_steps_are_read_ahead_too() -> None:
    storage = CountingStorage(FarMemory())
    session = steps(storage)
    storage.reset()
    for first in range(0, STEPS, 2):
        np.testing.assert_array_equal(session.read("a", slice(first, first + 2)), expected(slice(first, first + 2)))
        if first == 4:
            assert chunk_requests(storage) == 8
    assert chunk_requests(storage) == STEPS


@pytest.mark.parametrize("order", [[0, 7, 3, 12, 5], [9, 8, 7, 6], [4, 4, 4, 4], [0, 1, 9, 10, 4, 5]])
def test_nothing_is_read_ahead_of_who_reads_in_another_order(order: list[int]) -> None:
    storage = CountingStorage(FarMemory())
    session = steps(storage)
    storage.reset()
    for step in order:
        session.read("a", step)
    assert chunk_requests(storage) == len(set(order))


def test_what_is_read_ahead_fits_into_a_third_of_the_cache() -> None:
    storage = CountingStorage(FarMemory())
    session = steps(storage, chunk_cache_bytes=3 * 3 * (SIDE * SIDE * 8 + OVERHEAD))
    storage.reset()
    for step in range(10):
        session.read("a", step)
    assert 10 < chunk_requests(storage) <= 10 + 3


def test_a_small_cache_turns_reading_ahead_off() -> None:
    storage = CountingStorage(FarMemory())
    session = steps(storage, chunk_cache_bytes=OVERHEAD)
    storage.reset()
    for step in range(10):
        session.read("a", step)
    assert chunk_requests(storage) == 10


def test_nothing_is_read_ahead_where_reads_are_tracked_or_requests_are_cheap() -> None:
    far, near = CountingStorage(FarMemory()), CountingStorage(in_memory_storage())
    tracked = Repository.open(steps(far).context.storage).writable_session("main", isolation="serializable")
    for storage, session in ((far, tracked), (near, steps(near))):
        storage.reset()
        for step in range(4):
            session.read("a", step)
        assert chunk_requests(storage) == 4


def test_nothing_is_read_ahead_of_shards_of_which_parts_are_wanted() -> None:
    storage = CountingStorage(FarMemory())
    config = RepositoryConfig(inline_chunk_threshold_bytes=0, own_object_threshold_bytes=64)
    session = Repository.create(storage, config=config).writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(4096.0), chunks=(16,), shards=(256,), compressors=None)
    snapshot = session.commit("shards")
    session = Repository.open(storage).readonly_session(snapshot_id=snapshot)
    storage.reset()
    for first in range(0, 8 * 256, 256):
        np.testing.assert_array_equal(session.read("a", slice(first, first + 16)), np.arange(first, first + 16.0))
    assert len({key for _, key in storage.log if key.startswith("chunks/")}) == 8


def test_a_chunk_that_is_missing_is_an_error_of_who_reads_it() -> None:
    storage = FarMemory()
    session = steps(storage)
    delete_packs(storage, pack_keys(storage)[6:])
    outcomes = []
    for step in range(STEPS):
        try:
            session.read("a", step)
            outcomes.append(True)
        except Exception:  # noqa: BLE001
            outcomes.append(False)
    assert outcomes.count(True) == 6


def test_a_sequence_that_begins_anew_is_noted_anew() -> None:
    scan = Scan()
    grid = (100, 4)

    def read(first: int) -> Any:
        return scan.advance((range(first, first + 1), range(4)), grid, 1000)

    assert [read(0), read(1)] == [None, None]
    assert read(2) == (range(3, 4), range(4))
    assert read(3) == (range(4, 6), range(4))
    assert read(50) is None
    assert read(51) is None
    assert read(52) == (range(53, 54), range(4))
    assert scan.advance((range(52, 53), range(4)), grid, 1000) is None
