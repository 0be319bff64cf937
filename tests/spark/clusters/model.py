"""A repository whose chunks are objects of their own, what is written into it, and what must be true of it after."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore import Repository, RepositoryConfig, Storage, local_filesystem_storage
from tests.commit.support import keys

ROWS, Y, X = 24, 8, 32
HALF = ROWS // 2

CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=512, own_object_threshold_bytes=1024, pack_target_bytes=1024, max_bytes_in_flight=0
)
"""What a task writes is stored before it goes on, each chunk as one object: what it leaves behind can be counted."""

Region = tuple[slice, ...]
Values = npt.NDArray[np.float64]


def numbers(rows: int = ROWS) -> Values:
    """The values that are written, none of which is the fill value."""
    return np.arange(1.0, rows * Y * X + 1).reshape(rows, Y, X)


def values(region: Region) -> Values:
    """The values of a region."""
    return numbers()[region]


def regions(first: int = 0, end: int = ROWS) -> list[Region]:
    """One region for each chunk."""
    return [(slice(row, row + 1), slice(0, Y), slice(0, X)) for row in range(first, end)]


def storage_at(path: str | Path) -> Storage:
    return local_filesystem_storage(path, fsync=False)


def new_repository(storage: Storage, rows: int = ROWS) -> Repository:
    """Create a repository with an array ``cube`` that nothing is written to: two snapshots."""
    repository = Repository.create(storage, config=CONFIG)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store,
        name="cube",
        shape=(rows, Y, X),
        chunks=(1, Y, X),
        dtype="f8",
        compressors=None,
        dimension_names=("t", "y", "x"),
    )
    session.commit("an empty cube")
    return repository


def cube(storage: Storage) -> npt.NDArray[Any]:
    """What the newest snapshot holds."""
    session = Repository.open(storage).readonly_session("main")
    return np.asarray(zarr.open_array(session.store, path="cube", mode="r")[:])


def history(storage: Storage) -> list[str]:
    """Messages of the commits after the one that made the cube, oldest first."""
    return [info.message for info in Repository.open(storage).ancestry(branch="main")][-3::-1]


def stored_chunks(storage: Storage) -> int:
    """How many objects with chunks there are, needed or not."""
    return len(keys(storage, "chunks/"))


def collected(storage: Storage, needed: int) -> int:
    """Collect garbage, check that just what is needed remains, and return how many chunks were not.

    Parameters
    ----------
    needed
        Chunks of all snapshots together.
    """
    repository = Repository.open(storage)
    before = stored_chunks(storage)
    summary = repository.garbage_collect(datetime.now(UTC))
    after = stored_chunks(storage)
    assert (after, summary.chunks_deleted) == (needed, before - needed), f"{after} of {before} left: {summary}"
    report = repository.verify("chunks")
    left = {kind: leak for kind, leak in report.leaks.items() if leak.objects}
    assert (report.findings, left) == ((), {}), report
    return summary.chunks_deleted
