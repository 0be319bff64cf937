"""What hot paths may cost, in figures that are the same on every machine: Python calls, requests and bytes."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import CountingStorage, Repository, in_memory_storage

FEW, MANY = 256, 512
"""Chunks of two arrays, of which the difference shows what one more chunk costs."""

MOST_CALLS = {"write": 50, "read": 45}
"""Calls for one more chunk; nearly all of them are zarr's indexer, which makes a projection for each chunk."""


def _calls(work: Callable[[], object]) -> int:
    """Count the Python functions that are called, in all threads."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    everywhere = getattr(threading, "setprofile_all_threads", threading.setprofile)
    everywhere(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        everywhere(None)
    return calls


def _costs(chunks: int, *, compressed: bool) -> dict[str, int]:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    data = np.arange(1, chunks * 1024 + 1, dtype="f4")
    array = zarr.create_array(
        session.store,
        name="a",
        shape=data.shape,
        chunks=(1024,),
        dtype="f4",
        compressors="auto" if compressed else None,
    )
    written = _calls(lambda: array.__setitem__(slice(None), data))
    session.commit("written")
    reader = Repository.open(repository.storage).readonly_session("main")
    source = zarr.open_array(reader.store, path="a", mode="r")
    return {"write": written, "read": _calls(lambda: source[:])}


def _least_of_three(chunks: int, *, compressed: bool) -> dict[str, int]:
    """Return the least of three runs, since background work and other threads are counted, too."""
    runs = [_costs(chunks, compressed=compressed) for _ in range(3)]
    return {part: min(run[part] for run in runs) for part in MOST_CALLS}


@pytest.mark.parametrize("compressed", [False, True], ids=["raw", "zstd"])
def test_one_more_chunk_costs_few_python_calls_besides_those_of_zarr(compressed: bool) -> None:
    _costs(8, compressed=compressed)  # imports, and what is made once
    few, many = (_least_of_three(count, compressed=compressed) for count in (FEW, MANY))
    for part, most in MOST_CALLS.items():
        assert (many[part] - few[part]) / (MANY - FEW) <= most, (few, many)


def test_a_thousand_small_chunks_are_one_pack_and_read_with_one_request_for_each_mib() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    data = np.arange(1, 1000 * 1024 + 1, dtype="f4")
    zarr.create_array(session.store, name="a", shape=data.shape, chunks=(1024,), dtype="f4", compressors=None)
    session.commit("created")
    storage.reset()
    session = repository.writable_session("main")
    session.write("a", slice(None), data)
    session.commit("written")
    written = Counter(operation for operation, key in storage.log if key.startswith("chunks/"))
    assert sum(written.values()) == 1, storage.log
    reader = Repository.open(storage).readonly_session("main")
    storage.reset()
    np.testing.assert_array_equal(reader.read("a", slice(None)), data)
    read = [entry for entry in storage.log if entry[1].startswith("chunks/")]
    assert len(read) <= 4, read
