"""Inputs that are virtual and larger than memory: each byte is read once, and none of it is kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, local_filesystem_storage
from arraystore.storage import CountingStorage
from arraystore.transforms import ThreadsEngine, coarsen, rechunk, reduce_array, transform_chunks
from tests.commit.support import keys

MiB = 1 << 20
SIDE = 512
MEMORY = 4 * MiB


class Source:
    """Maps of a mebibyte in one file, and a repository that refers to them."""

    def __init__(self, directory: Path, maps: int) -> None:
        self.nbytes = maps * MiB
        directory.mkdir()
        with (directory / "maps.bin").open("wb") as file:
            for number in range(maps):
                file.write(np.full(MiB // 4, number, "<f4").tobytes())
        prefix = f"file://{directory}/"
        self.counting = CountingStorage(local_filesystem_storage(directory), log=False)
        self.storage = local_filesystem_storage(directory.with_name("repository"), fsync=False)
        self.repo = Repository.create(self.storage, authorize_virtual_chunk_access={prefix: self.counting})
        with self.repo.transaction("main", message="references") as store:
            zarr.create_array(
                store, name="maps", shape=(maps, SIDE, SIDE), chunks=(1, SIDE, SIDE), dtype="<f4", compressors=None,
                dimension_names=("t", "y", "x"),
            )  # fmt: skip
            offsets = MiB * np.arange(maps)
            store.set_virtual_refs_arr("maps", (maps, 1, 1), [f"{prefix}maps.bin"] * maps, offsets, [MiB] * maps)

    def stored(self) -> int:
        """Return the bytes of all chunks in the repository."""
        return sum(len(self.storage.get_sync(key)) for key in keys(self.storage, "chunks/"))


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Note the most memory that Python had allocated within the block, above that before."""
    found: list[int] = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield found
        found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


def mean_of_blocks(values: Any) -> Any:
    return values.reshape(len(values), 32, SIDE // 32, 32, SIDE // 32).mean(axis=(2, 4))


@pytest.fixture(params=[16, 64], ids=["16 MiB", "64 MiB"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """Four and sixteen times of what a task may hold."""
    return Source(tmp_path / "source", request.param)


def _transform(source: Source, engine: ThreadsEngine) -> None:
    session = source.repo.writable_session("main")
    shape = (source.nbytes // MiB, 32, 32)
    zarr.create_array(
        session.store, name="out", shape=shape, chunks=(1, 32, 32), dtype="<f4", dimension_names=("t", "y", "x")
    )
    factors = {"y": SIDE // 32, "x": SIDE // 32}
    transform_chunks(session, "maps", "out", mean_of_blocks, factors=factors, memory=MEMORY, engine=engine)
    session.commit("blocks")


def _reduce(source: Source, engine: ThreadsEngine) -> None:
    session = source.repo.writable_session("main")
    reduce_array(session, "maps", "out", "mean", ["y", "x"], memory=MEMORY, engine=engine)
    session.commit("means")


def _coarsen(source: Source, engine: ThreadsEngine) -> None:
    session = source.repo.writable_session("main")
    coarsen(session, "maps", "out", {"y": 16, "x": 16}, "first", memory=MEMORY, engine=engine)
    session.commit("coarse")


@pytest.mark.parametrize("function", [_transform, _reduce, _coarsen])
def test_what_is_virtual_is_read_once_in_bounded_memory_and_not_stored(source: Source, function: Any) -> None:
    with peak_memory() as peak:
        function(source, ThreadsEngine(1))
    assert source.counting.counts.bytes_read == source.nbytes
    assert source.stored() < source.nbytes / 64
    assert peak[0] < 4 * MEMORY
    values = source.repo.readonly_session("main").read("out")
    assert np.array_equal(values.reshape(len(values), -1)[:, 0], np.arange(len(values)))


@pytest.mark.usefixtures("small_costs")
def test_what_is_virtual_is_rechunked_in_bounded_memory(tmp_path: Path) -> None:
    source = Source(tmp_path / "source", 32)
    with peak_memory() as peak:
        report = rechunk(
            source.repo, "maps", {"t": -1, "y": 64, "x": 64}, target="out", memory=2 * MEMORY, engine=ThreadsEngine(1)
        )
    assert report.plan.intermediate is not None
    assert source.counting.counts.bytes_read == source.nbytes
    assert peak[0] < source.nbytes
    values = source.repo.readonly_session("main").read("out", (slice(None), 3, 4))
    assert np.array_equal(values, np.arange(32))
