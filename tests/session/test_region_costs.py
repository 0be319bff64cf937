"""What regions cost, in counts: requests, bytes, and calls of Python functions for each chunk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec

from arraystore import CountingStorage, Repository, RepositoryConfig, Session, in_memory_storage
from tests.session.conftest import FarMemory

COMPRESSORS: dict[str, Any] = {"raw": None, "zstd": ZstdCodec()}
SIDE = 32


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let the caller's thread do all the work, so that it can be counted."""
    with zarr.config.set({"threading.max_workers": 1}):
        yield


def count_calls(action: Callable[[], Any]) -> int:
    """Count the calls of functions, of Python and of C, that an action makes in this thread."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def square(storage: Any, chunks: int, compressors: Any) -> Session:
    """Return a session with a square array of so many chunks along each side, all of one value."""
    repo = Repository.create(storage, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    side = chunks * SIDE
    zarr.create_array(
        session.store, name="a", shape=(side, side), chunks=(SIDE, SIDE), dtype="i4", compressors=compressors
    )
    return session


@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
def test_a_chunk_more_takes_little_more_than_its_checksum(compressors: Any) -> None:
    square(in_memory_storage(), 8, compressors).write("a", ..., 1)  # imports
    calls: dict[str, list[int]] = {"write": [], "read": []}
    for chunks in (8, 24):
        session = square(in_memory_storage(), chunks, compressors)
        data = np.arange(session.read("a").size, dtype="i4").reshape(chunks * SIDE, -1)
        calls["write"].append(count_calls(lambda: session.write("a", ..., data)))  # noqa: B023
        session.commit("data")
        session.read("a", (0, 0))  # the manifest
        calls["read"].append(count_calls(lambda: session.read("a")))  # noqa: B023
    more = 24 * 24 - 8 * 8
    each = {name: (many - few) / more for name, (few, many) in calls.items()}
    # a checksum takes two calls of C and one for its bytes; a compressed chunk is put into a pack alone
    assert each["read"] < 5
    assert each["write"] < (10 if compressors is None else 30)


def test_one_chunk_takes_fewer_calls_than_the_callers_part_of_what_zarr_does() -> None:
    session = square(in_memory_storage(), 4, None)
    session.write("a", ..., 1)
    session.commit("data")
    array = zarr.open_array(session.store, path="a", mode="r")
    selection = (slice(0, 8), slice(0, 8))
    assert session.read("a", selection).tolist() == array[selection].tolist()
    ours, theirs = count_calls(lambda: session.read("a", selection)), count_calls(lambda: array[selection])
    assert ours < 160
    assert ours < theirs


@pytest.mark.parametrize("compressors", COMPRESSORS.values(), ids=COMPRESSORS)
def test_a_region_takes_a_request_and_the_bytes_of_its_chunks(compressors: Any) -> None:
    storage = CountingStorage(FarMemory())
    session = square(storage, 16, compressors)
    rng = np.random.default_rng(0)
    session.write("a", ..., rng.integers(0, 1 << 30, (16 * SIDE, 16 * SIDE), dtype="i4"))
    session.commit("data")
    session = Repository.open(storage).readonly_session("main")
    session.read("a", (0, 0))  # the manifest
    storage.reset()
    session.read("a", slice(8 * SIDE, 10 * SIDE))  # two rows of 16 chunks, neighbours in a pack
    assert storage.counts.requests == {"get_ranges": 1}
    assert storage.counts.bytes_read < 1.1 * 2 * 16 * SIDE * SIDE * 4
    storage.reset()
    session.read("a", (slice(8 * SIDE, 10 * SIDE), 5))  # of blocks that are in memory
    assert storage.counts.requests == {}
