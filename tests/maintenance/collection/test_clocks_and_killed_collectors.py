"""Collections under clocks that differ, and after collectors that died: the next one ends well, and cleans up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import numpy as np
import pytest
import zarr

from arraystore import Repository, SnapshotNotFoundError, in_memory_storage
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._format.ids import IdSource
from arraystore.errors import StorageError
from arraystore.storage import Storage
from tests.commit.support import copy_of, keys
from tests.history.worlds import commit, put, world
from tests.maintenance.collection.test_collection import _Mortal
from tests.maintenance.model import now
from tests.maintenance.worlds import Meanwhile
from tests.simulation.mutations.patching import all_outside, patched
from tests.simulation.runs.run import simulate

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let manifests and change logs be objects, so that a collection has them to delete."""
    for owner, name, value in all_outside():
        monkeypatch.setattr(owner, name, value)


@contextmanager
def _clock(ahead: timedelta) -> Iterator[None]:
    """Let processes have clocks that are ahead."""

    async def no_sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    def now_us() -> int:
        return time.time_ns() // 1000 + int(ahead.total_seconds() * 1e6)

    token = ENVIRONMENT.set(Environment(now_us, no_sleep, new_id=IdSource(lambda: now_us() // 1000)))
    try:
        yield
    finally:
        ENVIRONMENT.reset(token)


def _now(ahead: timedelta = timedelta(0)) -> datetime:
    return now() + ahead


def _values(repository: Repository) -> list[int]:
    session = repository.readonly_session("main")
    return [int(each) for each in np.asarray(zarr.open_array(session.store, path="g/a", mode="r")[...])]


def _expired_by_a_clock_ahead() -> Storage:
    """Make a repository whose expiries left checkpoints with ids of tomorrow."""
    storage = in_memory_storage()
    repository = world(storage)
    for value in range(6):
        commit(repository, put("g/a", 0, value))
        with _clock(DAY):
            Repository.open(storage).expire_snapshots(_now(DAY))
        Repository.open(storage).compact()  # from here on nothing has the manifests that there were
    return storage


@pytest.mark.parametrize("lost", [False, True], ids=["before", "after"])
def test_a_collection_by_a_slow_clock_completes_one_by_a_fast_clock_that_died(lost: bool) -> None:
    original = _expired_by_a_clock_ahead()
    whole = copy_of(original)
    with _clock(DAY):
        Repository.open(whole).garbage_collect(_now(DAY), full=True)
    expected = {kind: set(keys(whole, kind)) for kind in ("chunks/", "manifests/", "snapshots/", "transactions/")}
    died = 0
    for lives in range(60):
        storage = copy_of(original)
        mortal = _Mortal(storage, lives, lost=lost)
        with _clock(DAY):
            try:
                Repository.open(mortal).garbage_collect(_now(DAY), full=True)
            except StorageError:
                died += 1
        for full in (False, True):
            Repository.open(storage).garbage_collect(_now(), full=full)
        assert _values(Repository.open(storage)) == [5, 2, 3, 4, 5, 6]
        found = {kind: set(keys(storage, kind)) for kind in expected}
        if died and lives > 4:  # it had published its watermark
            assert found == expected, lives
        if mortal.left >= 0:
            break
    assert died > 5


def test_the_watermark_of_a_repository_never_falls() -> None:
    storage = _expired_by_a_clock_ahead()
    with _clock(DAY):
        first = Repository.open(storage).garbage_collect(_now(DAY)).watermark
    commit(Repository.open(storage), put("g/a", 1, 1))
    assert Repository.open(storage).garbage_collect(_now() - DAY, dry_run=True).watermark == first
    summary = Repository.open(storage).garbage_collect(_now() - DAY)
    assert summary.watermark == first
    assert not summary.full


def test_an_announcement_that_was_refused_is_no_hindrance_to_collections_with_an_old_cut_off() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    snapshot = commit(repository, put("g/a", 0, 10), branch="other")

    def collect() -> None:
        Repository.open(storage).delete_branch("other")
        Repository.open(storage).garbage_collect(_now(), full=True)

    meanwhile = Meanwhile(storage, "put", "snapshots/", collect)  # the announcement comes after it
    with pytest.raises(SnapshotNotFoundError):
        Repository.open(meanwhile).create_tag("too late", snapshot)
    assert meanwhile.happened
    for full in (False, True):
        summary = Repository.open(storage).garbage_collect(_now() - DAY, full=full)
        assert not summary.failures
    assert _values(Repository.open(storage)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("collections", [(True,), (True, False), (True, False, True), (True, False, False)], ids=str)
def test_a_snapshot_announced_before_any_number_of_collections_keeps_its_history(collections: tuple[bool, ...]) -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    for value in range(12):
        newest = commit(repository, put("g/a", 0, value), branch="other")
    history = [info.id for info in repository.ancestry(branch="other")]

    def collect() -> None:
        Repository.open(storage).delete_branch("other")
        for full in collections:
            Repository.open(storage).garbage_collect(_now() - DAY, full=full)

    meanwhile = Meanwhile(storage, "put_if_absent", "/repository/", collect)  # which is where the tag is created
    Repository.open(meanwhile).create_tag("kept", newest)
    assert meanwhile.happened
    repository = Repository.open(storage)
    assert [info.id for info in repository.ancestry(tag="kept")] == history


def test_a_snapshot_announced_since_the_last_collection_keeps_its_history_while_other_logs_are_retired() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    for branch in ("idle", "other"):
        repository.create_branch(branch, repository.lookup_branch("main"))
        for value in range(12):
            newest = commit(repository, put("g/a", 0, value), branch=branch)
    history = [info.id for info in repository.ancestry(branch="other")]
    Repository.open(storage).garbage_collect(_now() - DAY)

    def collect() -> None:
        for branch in ("idle", "other"):
            Repository.open(storage).delete_branch(branch)
        Repository.open(storage).garbage_collect(_now() - DAY)

    meanwhile = Meanwhile(storage, "put_if_absent", "/repository/", collect)
    Repository.open(meanwhile).create_tag("kept", newest)
    assert meanwhile.happened
    assert [info.id for info in Repository.open(storage).ancestry(tag="kept")] == history


@pytest.mark.parametrize("seed", [6, 40])
def test_simulated_clocks_a_day_apart_and_killed_collectors_hinder_nobody(seed: int) -> None:
    with patched(*all_outside()):
        assert simulate(seed, profile="clocks").violations == ()
