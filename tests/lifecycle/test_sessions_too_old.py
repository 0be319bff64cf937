"""Sessions that wrote something before the cut-off of a collection: an error on every way to commit."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, Repository, SessionExpiredError, in_memory_storage
from arraystore.commit.environment import ENVIRONMENT, Environment
from arraystore.format.ids import IdSource
from arraystore.session import Session
from arraystore.storage import Storage
from tests.lifecycle.model import CONFIG, now

CHUNK = 1000
"""Numbers of a chunk, which is an object of its own and written at once."""


@pytest.fixture
def storage() -> Storage:
    storage = in_memory_storage()
    repository = Repository.create(storage, config=CONFIG)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name="a", shape=(20 * CHUNK,), chunks=(CHUNK,), dtype="f8", compressors=None, fill_value=-1
    )
    session.commit("create")
    _write(session := repository.writable_session("main"), 0, 1)
    session.commit("first")
    return storage


def _write(session: Session, chunk: int, value: float) -> None:
    zarr.open_array(session.store, path="a", mode="r+")[chunk * CHUNK : (chunk + 1) * CHUNK] = value


def _value(storage: Storage, chunk: int) -> float:
    array = zarr.open_array(Repository.open(storage).readonly_session("main").store, path="a", mode="r")
    (found,) = np.unique(np.asarray(array[chunk * CHUNK : (chunk + 1) * CHUNK])).tolist()
    return float(found)


def _commit_elsewhere(storage: Storage) -> None:
    session = Repository.open(storage).writable_session("main")
    _write(session, 9, 9)
    session.commit("elsewhere")


def _plain(session: Session) -> None:
    session.commit("late")


def _rebasing(session: Session) -> None:
    _commit_elsewhere(session.context.storage)
    session.commit("late", rebase_with=ConflictDetector())


def _rebased(session: Session) -> None:
    _commit_elsewhere(session.context.storage)
    session.rebase(ConflictDetector())
    session.commit("late")


def _amending(session: Session) -> None:
    session.amend("late")


def _flushing(session: Session) -> None:
    session.flush("late")


def _together(session: Session) -> None:
    """Commit with others of the same process, of which one has a place left in the record."""
    context = session.context
    young = Repository.open(context.storage).writable_session("main")
    _write(young, 5, 5)

    async def commit() -> None:
        await asyncio.gather(
            young.commit_async("young", rebase_with=ConflictDetector()),
            session.commit_async("late", rebase_with=ConflictDetector()),
        )

    asyncio.run(commit())


@pytest.mark.parametrize("commit", [_plain, _rebasing, _rebased, _amending, _flushing, _together])
@pytest.mark.parametrize("fenced", ["by another process", "by its own"])
def test_a_session_that_is_too_old_says_so_and_nothing_of_it_is_committed(
    storage: Storage, commit: Callable[[Session], None], fenced: str
) -> None:
    repository = Repository.open(storage)
    session = repository.writable_session("main")
    _write(session, 3, 3)
    collector = repository if fenced == "by its own" else Repository.open(storage)
    assert collector.garbage_collect(now()).chunks_deleted == 1
    with pytest.raises(SessionExpiredError, match="Open a new session and write the changes again"):
        commit(session)
    assert _value(storage, 3) == -1
    assert _value(storage, 0) == 1
    assert "late" not in [info.message for info in Repository.open(storage).ancestry(branch="main")]
    again = repository.writable_session("main")
    _write(again, 3, 4)
    again.commit("again")
    assert _value(storage, 3) == 4


def test_what_forks_wrote_before_the_cut_off_cannot_be_committed(storage: Storage) -> None:
    session = Repository.open(storage).writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    _write(fork, 3, 3)
    Repository.open(storage).garbage_collect(now())
    session.merge(fork)
    with pytest.raises(SessionExpiredError):
        session.commit("late")
    assert _value(storage, 3) == -1


def test_a_session_that_wrote_only_after_the_cut_off_commits(storage: Storage) -> None:
    session = Repository.open(storage).writable_session("main")
    Repository.open(storage).garbage_collect(now())
    _write(session, 3, 3)
    session.commit("in time")
    assert _value(storage, 3) == 3


@pytest.mark.parametrize("way", ["plain", "fork"])
def test_a_new_session_commits_even_if_its_clock_is_an_hour_behind(storage: Storage, way: str) -> None:
    Repository.open(storage).garbage_collect(now())
    behind = _behind()
    token = ENVIRONMENT.set(behind)
    try:
        session = Repository.open(storage).writable_session("main")
        if way == "plain":
            _write(session, 3, 3)
        else:
            sent = pickle.dumps(session.fork())
            ENVIRONMENT.set(_behind())  # the worker's own, which has seen nothing yet
            fork = pickle.loads(sent)
            _write(fork, 3, 3)
            session.merge(fork)
        session.commit("by a slow clock")
    finally:
        ENVIRONMENT.reset(token)
    assert _value(storage, 3) == 3


def _behind() -> Environment:
    def now_us() -> int:
        return time.time_ns() // 1000 - 3_600_000_000

    return Environment(now_us=now_us, new_id=IdSource(lambda: now_us() // 1000))
