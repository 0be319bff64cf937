"""Real processes that append and write at the same time: everything is there, exactly once."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, Storage, local_filesystem_storage
from tests.commit.race_workers import CELLS, ITEMS, append_and_write, count_up, transfer_rows
from tests.commit.rivals import latest, values
from tests.storage.workers import call_in_processes

WRITERS, TURNS = 5, 12

multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.commit.race_workers", "tests.storage.workers"])


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = local_filesystem_storage(tmp_path / "repository")
    with Repository.create(storage).transaction("main", message="create") as store:
        root = zarr.create_group(store)
        root.create_array("time", shape=(0,), chunks=(ITEMS,), dtype="i8", dimension_names=["time"])
        root.create_array("t", shape=(0, 3), chunks=(ITEMS, 3), dtype="i8", dimension_names=["time", "x"])
        root.create_array("cells", shape=(CELLS,), chunks=(1,), dtype="i8", fill_value=-1)
    return storage


def _acknowledged(results: list[Any], each: int) -> list[str]:
    assert [len(result) if isinstance(result, list) else result for result in results] == [each] * len(results)
    return [snapshot for result in results for snapshot in result]


def test_appends_and_disjoint_chunks_of_many_processes_are_all_there_exactly_once(storage: Storage) -> None:
    results = call_in_processes("forkserver", append_and_write, [(storage, who, TURNS) for who in range(WRITERS)])
    acknowledged = _acknowledged(results, TURNS)
    history = list(Repository.open(storage).ancestry(branch="main"))
    assert Counter(info.id for info in history[:-2]) == Counter(acknowledged)
    assert [info.parent_id for info in history] == [info.id for info in history[1:]] + [None]
    order = [tuple(map(int, info.message.split("/"))) for info in history[-3::-1]]
    for who in range(WRITERS):
        assert [turn for other, turn in order if other == who] == list(range(TURNS))
    reader = latest(storage)
    expected = np.array([(who * 1000 + turn) * 10 + i for who, turn in order for i in range(ITEMS)])
    np.testing.assert_array_equal(values(reader, "time"), expected)
    np.testing.assert_array_equal(values(reader, "t"), np.repeat(expected[:, None], 3, axis=1))
    cells = values(reader, "cells")
    for who in range(WRITERS):
        for turn in range(TURNS):
            assert cells[who * 100 + turn] == turn
    assert (cells >= 0).sum() == WRITERS * TURNS


@pytest.mark.thorough
def test_processes_that_change_the_same_chunk_and_try_again_count_every_change(storage: Storage) -> None:
    _acknowledged(call_in_processes("forkserver", count_up, [(storage, TURNS) for _ in range(WRITERS)]), TURNS)
    assert int(values(latest(storage), "cells")[0]) == WRITERS * TURNS
    assert len(list(Repository.open(storage).ancestry(branch="main"))) == 2 + WRITERS * TURNS


@pytest.mark.thorough
def test_threads_of_several_processes_share_records_and_lose_nothing(storage: Storage) -> None:
    results = call_in_processes("forkserver", transfer_rows, [(storage, who, 4, 6) for who in range(4)])
    acknowledged = _acknowledged(results, 24)
    history = [info.id for info in Repository.open(storage).ancestry(branch="main")]
    assert sorted(history[:-2]) == sorted(acknowledged)
    cells = values(latest(storage), "cells")
    assert [int(v) for v in cells[:96]] == [row % 24 for row in range(96)]


def test_a_reader_in_the_middle_of_it_sees_arrays_of_one_length(storage: Storage) -> None:
    call_in_processes("forkserver", append_and_write, [(storage, who, 4) for who in range(4)])
    repository = Repository.open(storage)
    for info in repository.ancestry(branch="main"):
        if "/" not in info.message:
            continue
        session = repository.readonly_session(snapshot_id=info.id)
        time, t = values(session, "time"), values(session, "t")
        assert len(time) == len(t)
        assert len(set(time.tolist())) == len(time)
        np.testing.assert_array_equal(t[:, 0], time)
