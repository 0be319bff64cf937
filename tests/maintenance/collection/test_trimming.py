"""Logs of which the oldest part is gone: nobody takes what is missing for the end of the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import zarr

from arraystore import ConflictDetector, Repository, SessionExpiredError, in_memory_storage
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._log.branch_log import LONGEST_PAUSE
from arraystore.storage import Storage
from arraystore.storage.memory import MemoryStorage
from tests.commit.support import (
    DistantStorage,
    commit_number,
    commit_rows,
    create_repository,
    keys,
    number,
    put_number,
)
from tests.keys import log_of
from tests.maintenance.model import now

NO_GRACE = timedelta(0)


class _Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.ahead = 0

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self.ahead


@pytest.fixture
def clock() -> Iterator[_Clock]:
    clock = _Clock()
    token = ENVIRONMENT.set(Environment(now_us=clock.now_us))
    yield clock
    ENVIRONMENT.reset(token)


def _forget(storage: Storage, grace: timedelta = NO_GRACE) -> int:
    """Let all but the newest snapshot of each branch expire, and collect; returns how many records went."""
    repository = Repository.open(storage)
    repository.expire_snapshots(now() + timedelta(seconds=1))
    return repository.garbage_collect(now(), record_grace=grace, nobody_writes=True).records_deleted


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("last", [40, 63, 64, 69, 130, 530])
def test_whoever_comes_afresh_finds_the_newest_record(last: int, far: bool) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_rows(repository, 0, last - 2)
    repository.wait_for_maintenance()
    assert _forget(storage) > 0
    left = [int(key[-12:]) for key in keys(storage, log_of(storage))]
    assert left == list(range(left[0], left[-1] + 1)), "what is left has no gaps"
    newest = repository.lookup_branch("main")
    place = DistantStorage(storage) if far else storage
    assert Repository.open(place).lookup_branch("main") == newest
    commit_number(Repository.open(place), 5000, 1)
    history = [info.message for info in Repository.open(place).ancestry(branch="main")]
    assert history == ["row 5000", f"row {last - 2}", "Repository initialized"]
    assert number(Repository.open(place).readonly_session("main"), 0) == 0


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_whoever_slept_sees_the_newest_snapshot_and_loses_no_commit(clock: _Clock, far: bool) -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 0, 5)
    place = DistantStorage(storage) if far else storage
    sleeper = Repository.open(place)
    old = sleeper.writable_session("main")
    put_number(old, 7, 7)
    commit_rows(Repository.open(storage), 10, 60)
    assert _forget(storage) > 0
    clock.ahead += int(LONGEST_PAUSE * 1_000_000)
    assert sleeper.lookup_branch("main") == Repository.open(storage).lookup_branch("main")
    commit_number(sleeper, 8, 8)
    assert number(Repository.open(storage).readonly_session("main"), 8) == 8
    old.commit("late", rebase_with=ConflictDetector())  # over bodies that records carry which are left
    assert number(Repository.open(storage).readonly_session("main"), 7) == 7


def test_a_writer_that_slept_between_looking_and_writing_is_told_that_its_place_was_forgotten(clock: _Clock) -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 0, 5)
    sleeper = Repository.open(storage)
    session = sleeper.writable_session("main")
    put_number(session, 7, 7)
    commit_rows(Repository.open(storage), 10, 60)
    assert _forget(storage) > 0
    clock.ahead += int(LONGEST_PAUSE * 1_000_000)
    with pytest.raises(SessionExpiredError):
        session.commit("late")
    assert number(Repository.open(storage).readonly_session("main"), 7) is None


def test_records_stay_until_their_grace_is_over_by_the_clock_of_the_storage() -> None:
    storage = in_memory_storage()
    assert isinstance(storage, MemoryStorage)
    commit_rows(create_repository(storage), 0, 30)
    assert _forget(storage, timedelta(hours=1)) == 0
    for key in keys(storage, log_of(storage))[:20]:
        storage._written[key] -= 4000
    assert Repository.open(storage).garbage_collect(now()).records_deleted == 20
    assert number(Repository.open(storage).readonly_session("main"), 3) == 3


def test_sessions_rebase_over_what_has_expired_as_long_as_its_records_are_there() -> None:
    storage = in_memory_storage()
    commit_rows(create_repository(storage), 0, 5)
    session = Repository.open(storage).writable_session("main")
    put_number(session, 7, 7)
    commit_rows(Repository.open(storage), 10, 30)
    _forget(storage, timedelta(hours=1))
    session.commit("rebased", rebase_with=ConflictDetector())
    assert number(Repository.open(storage).readonly_session("main"), 7) == 7
    assert number(Repository.open(storage).readonly_session("main"), 20) == 20


def test_manifests_that_were_attached_to_forgotten_records_are_read_on() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    for first in range(0, 300, 50):
        session = repository.writable_session("main")
        for row in range(first, first + 50):
            put_number(session, row, row)
        made = session.commit(f"{first}")
        if first == 100:
            repository.create_tag("v1", made)
    assert _forget(storage) > 0
    opened = Repository.open(storage)
    found = zarr.open_array(opened.readonly_session("main").store, path="a", mode="r")[:300]
    assert found.tolist() == list(range(300))
    tagged = zarr.open_array(opened.readonly_session(tag="v1").store, path="a", mode="r")[:300]
    assert tagged.tolist() == [*range(150), *[-1] * 150]
