"""Bytes, requests and memory of many references, at a scale that takes a moment."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import CountingStorage, Repository, Session, SourceChangedError, in_memory_storage
from arraystore.storage import Counts

PREFIX = "s3://archive/model/"
COUNT, FILES = 400_000, 100
"""More than the cells from which a session packs what it keeps."""


def urls() -> list[str]:
    return [f"{PREFIX}year={1980 + n % 40}/part-{n:07d}.nc" for n in range(FILES) for _ in range(COUNT // FILES)]


def ranges(lengths: np.ndarray) -> np.ndarray:
    by_file = lengths.reshape(FILES, -1)
    starts: np.ndarray = np.cumsum(by_file, axis=1) - by_file + 8192
    return starts.reshape(-1)


def lengths_of(kind: str) -> np.ndarray:
    if kind == "of one length":
        return np.full(COUNT, 800_000)
    return np.random.default_rng(5).integers(700_000, 1_000_000, COUNT)


def new_session(repo: Repository, count: int) -> Session:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="data", shape=(count,), chunks=(1,), dtype="uint8", compressors=None)
    return session


def refer(session: Session, locations: list[str], lengths: np.ndarray, offsets: np.ndarray | None = None) -> None:
    offsets = ranges(lengths) if offsets is None else offsets
    session.store.set_virtual_refs_arr(
        "data", (len(locations),), locations, offsets, lengths, validate_containers=False, checksum=None
    )


@pytest.mark.parametrize(("kind", "most"), [("of one length", 0.05), ("of any length", 3.0)])
def test_a_reference_is_stored_in_three_bytes(kind: str, most: float) -> None:
    storage = CountingStorage(in_memory_storage())
    session = new_session(Repository.create(storage), COUNT)
    refer(session, urls(), lengths_of(kind))
    before = storage.counts
    session.commit("all")
    spent = storage.counts - before
    assert spent.bytes_written <= most * COUNT
    assert spent["put"] <= COUNT // (1 << 16) + 3


def test_a_session_keeps_references_in_few_bytes_and_commits_them_piece_by_piece() -> None:
    locations, lengths = urls(), lengths_of("of any length")
    offsets = ranges(lengths)
    session = new_session(Repository.create(in_memory_storage()), COUNT)
    gc.collect()
    tracemalloc.start()
    try:
        refer(session, locations, lengths, offsets)
        gc.collect()
        kept, setting = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        session.commit("all")
        _, committing = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept <= 14 * COUNT, "in columns of integers they would be 32 bytes each"
    assert setting - kept <= 4 * COUNT
    assert committing - kept <= 32 * (1 << 16) * 6 + 8 * COUNT, "a manifest at a time, and what they are encoded to"


def spend(storage: CountingStorage, repo: Repository, number: int) -> Counts:
    """Overwrite a chunk in a session and commit; return what that took."""
    before = storage.counts
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="data", mode="r+")[number] = 1
    session.commit("one more")
    return storage.counts - before


def test_one_more_chunk_costs_what_it_costs_in_an_empty_repository() -> None:
    full, empty = CountingStorage(in_memory_storage()), CountingStorage(in_memory_storage())
    repos = [Repository.create(storage) for storage in (full, empty)]
    session = new_session(repos[0], COUNT)
    refer(session, urls(), lengths_of("of one length"))
    session.commit("all")
    new_session(repos[1], COUNT).commit("nothing")
    for number in (0, COUNT // 2):
        mine, theirs = spend(full, repos[0], number), spend(empty, repos[1], number)
        assert mine.requests == theirs.requests
        assert mine.bytes_written <= theirs.bytes_written + 256, "what records carry of the one before"


def test_one_chunk_is_read_with_its_own_manifest_alone() -> None:
    storage = CountingStorage(in_memory_storage())
    session = new_session(Repository.create(storage), COUNT)
    refer(session, urls(), lengths_of("of any length"))
    session.commit("all")
    repo = Repository.open(storage, authorize_virtual_chunk_access={PREFIX: in_memory_storage()})
    array = zarr.open_array(repo.readonly_session("main").store, path="data", mode="r")
    before = storage.counts
    with pytest.raises(SourceChangedError):  # nobody has the files: the reference was looked up
        array[COUNT // 2]
    spent = storage.counts - before
    assert spent.total == 1
    assert spent.bytes_read <= 3 * (1 << 16)


def test_packed_references_are_read_overwritten_and_deleted_before_the_commit() -> None:
    archive = in_memory_storage()
    archive.put_sync("a.bin", bytes(range(256)) * 4096)
    repo = Repository.create(in_memory_storage(), authorize_virtual_chunk_access={PREFIX: archive})
    count = 300_000
    session = new_session(repo, count)
    offsets = np.arange(count) % 256 + 256 * (np.arange(count) % 1000)
    locations = [PREFIX + "a.bin"] * count
    locations[7] = ""
    session.store.set_virtual_refs_arr("data", (count,), locations, offsets, np.ones(count, dtype=np.int64))
    expected = (np.arange(count) % 256).astype(np.uint8)
    expected[7] = 0
    array = zarr.open_array(session.store, path="data", mode="r+")
    array[5:9] = 77
    expected[5:9] = 77
    session.store.delete_sync("data/c/100")
    expected[100] = 0
    for where in (slice(0, 200), slice(16_300, 16_500), slice(count - 3, None)):
        np.testing.assert_array_equal(array[where], expected[where])
    session.commit("all")
    array = zarr.open_array(repo.readonly_session("main").store, path="data", mode="r")
    for where in (slice(0, 200), slice(65_400, 65_700), slice(count - 3, None)):
        np.testing.assert_array_equal(array[where], expected[where])


def calls(work: Callable[[], object]) -> int:
    """Count the Python functions that are called and resumed, in all threads."""
    counted = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal counted
        counted += event == "call"

    everywhere = getattr(threading, "setprofile_all_threads", threading.setprofile)
    everywhere(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        everywhere(None)
    return counted


def calls_of_a_commit(arrays: int) -> int:
    """Count the calls of a commit of one chunk beside other arrays."""
    repo = Repository.create(in_memory_storage())
    session = new_session(repo, 10)
    document = session.store.get_sync("data/zarr.json")
    assert document is not None
    for number in range(arrays):
        session.store.set_sync(f"a{number}/zarr.json", document)
    session.commit("arrays")

    def one_more(number: int) -> None:
        session = repo.writable_session("main")
        session.write("data", slice(number, number + 1), np.ones(1, dtype="uint8"))
        session.commit("one more")

    one_more(0)
    return min(calls(lambda n=n: one_more(n)) for n in range(1, 4))  # type: ignore[misc]


def test_a_commit_looks_at_no_array_that_it_does_not_change() -> None:
    few, many = calls_of_a_commit(50), calls_of_a_commit(1050)
    assert many - few < 200, "a thousand arrays more"
