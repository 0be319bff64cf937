"""Sessions that wrote something before the cut-off of a collection: an error on every way to commit."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable

import numpy as np
import pytest
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer.core import default_buffer_prototype

from arraystore import (
    ConflictDetector,
    ObjectNotFoundError,
    Repository,
    SessionExpiredError,
    SnapshotExpiredError,
    in_memory_storage,
)
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._format.ids import IdSource
from arraystore._session.fork import ForkSession
from arraystore._session.handoff import hand_off
from arraystore._session.session import Session
from arraystore.storage import Storage
from tests.commit.support import keys
from tests.maintenance.model import CONFIG, now
from tests.simulation.mutations.patching import all_outside

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


def _commit_solving(session: Session) -> None:
    session.commit("late", rebase_with=ConflictDetector())


def _rebase(session: Session) -> None:
    session.rebase(ConflictDetector())


@pytest.mark.parametrize("commit", [_commit_solving, _rebase])
def test_a_session_that_is_too_old_hears_so_and_not_of_conflicts(
    storage: Storage, commit: Callable[[Session], None]
) -> None:
    """Nobody is asked to solve what cannot be committed: what the session has written may be deleted already."""
    session = Repository.open(storage).writable_session("main")
    _write(session, 3, 3)
    _write(theirs := Repository.open(storage).writable_session("main"), 3, 5)
    theirs.commit("theirs")
    assert Repository.open(storage).garbage_collect(now()).chunks_deleted == 1
    with pytest.raises(SessionExpiredError, match="Open a new session and write the changes again"):
        commit(session)
    assert _value(storage, 3) == 5


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


def _stored(session: Session) -> ForkSession:
    """Send a fork of the session to another process, as its pickle does."""
    found = pickle.loads(pickle.dumps(session.fork()))
    assert isinstance(found, ForkSession)
    return found


def _gathered(session: Session) -> object:
    async def get() -> object:
        wanted = [(f"a/c/{chunk}", None) for chunk in (0, 5)]
        return await session.store.get_partial_values(default_buffer_prototype(), wanted)

    return asyncio.run(get())


READS: dict[str, Callable[[Session], object]] = {
    "sync": lambda session: session.store.get_sync("a/c/5"),
    "range": lambda session: session.store.get_sync("a/c/5", byte_range=RangeByteRequest(8, 16)),
    "async": lambda session: asyncio.run(session.store.get("a/c/5")),
    "several": _gathered,
    "array": lambda session: zarr.open_array(session.store, path="a", mode="r")[:],
    "fork": lambda session: session.fork().store.get_sync("a/c/5"),
    "fork elsewhere": lambda session: _stored(session).store.get_sync("a/c/5"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_session_whose_own_chunk_was_collected_is_told_to_start_again(
    storage: Storage, read: Callable[[Session], object]
) -> None:
    session = Repository.open(storage).writable_session("main")
    _write(session, 5, 5)
    read(session)
    Repository.open(storage).garbage_collect(now())
    with pytest.raises(SessionExpiredError, match="nothing that was committed is lost"):
        read(session)
    assert session.store.get_sync("a/c/0") is not None


def test_a_chunk_of_its_own_that_the_storage_has_lost_is_damage_and_not_an_old_session(storage: Storage) -> None:
    session = Repository.open(storage).writable_session("main")
    before = set(keys(storage, "chunks/"))
    _write(session, 5, 5)
    (own,) = set(keys(storage, "chunks/")) - before
    asyncio.run(storage.delete([own]))
    with pytest.raises(ObjectNotFoundError, match=own):
        session.store.get_sync("a/c/5")


LOOKS: dict[str, Callable[[Session], object]] = {
    "exists": lambda session: asyncio.run(session.store.exists("a/c/1")),
    "size": lambda session: asyncio.run(session.store.getsize("a/c/1")),
    "sizes": lambda session: asyncio.run(session.store.getsize_prefix("a")),
    "listing": lambda session: asyncio.run(_listed(session)),
    "coordinates": lambda session: session.chunk_coordinates("a"),
}


async def _listed(session: Session) -> list[str]:
    return [key async for key in session.store.list_prefix("a/")]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_whoever_looks_at_what_has_expired_without_reading_chunks_is_told_so(
    storage: Storage, look: Callable[[Session], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, value in all_outside():
        monkeypatch.setattr(owner, name, value)
    repository = Repository.open(storage)
    repository.create_branch("side", repository.lookup_branch("main"))
    _write(session := repository.writable_session("side"), 1, 1)
    session.commit("on side")
    reader = Repository.open(storage).readonly_session("side")
    repository.delete_branch("side")
    repository.garbage_collect(now(), full=True)
    with pytest.raises(SnapshotExpiredError, match=reader.snapshot_id):
        look(reader)


def _left_behind(storage: Storage) -> Session:
    """Return a session of a snapshot that a reset leaves behind, and a collection takes."""
    repository = Repository.open(storage)
    first = repository.lookup_branch("main")
    _write(session := repository.writable_session("main"), 1, 1)
    session.commit("left behind")
    reader = Repository.open(storage).readonly_session("main")
    _write(session := repository.writable_session("main"), 2, 2)
    session.commit("left behind, too")
    repository.wait_for_maintenance()
    repository.reset_branch("main", first)
    return reader


@pytest.mark.parametrize("way", ["by id", "pickled"])
def test_whoever_opens_what_was_left_behind_and_collected_is_told_that_it_has_expired(
    storage: Storage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, value in all_outside():
        monkeypatch.setattr(owner, name, value)
    reader = _left_behind(storage)
    pickled = pickle.dumps(reader)
    Repository.open(storage).garbage_collect(now(), full=True)
    monkeypatch.setattr("arraystore._session.pickling._states", {})
    ways: dict[str, Callable[[], object]] = {
        "by id": lambda: Repository.open(storage).readonly_session(snapshot_id=reader.snapshot_id),
        "pickled": lambda: pickle.loads(pickled).snapshot_id,
    }
    with pytest.raises(SnapshotExpiredError, match=reader.snapshot_id):
        ways[way]()


def _orphaned(storage: Storage, end: Callable[[Repository, str], None]) -> Session:
    """Return a session of a branch at a snapshot of main, whose record of it was collected since."""
    repository = Repository.open(storage)
    kept = repository.lookup_branch("main")
    repository.create_branch("side", kept)
    session = Repository.open(storage).writable_session("side")
    end(repository, kept)
    Repository.open(storage).garbage_collect(now())
    return session


def _reset(repository: Repository, kept: str) -> None:
    repository.reset_branch("side", kept)


def _delete(repository: Repository, kept: str) -> None:
    repository.delete_branch("side")


def _reset_and_go_on(repository: Repository, kept: str) -> None:
    repository.reset_branch("side", kept)
    _write(session := repository.writable_session("side"), 1, 1)
    session.commit("went on")


_ENDS = pytest.mark.parametrize("end", [_reset, _delete, _reset_and_go_on])


@_ENDS
def test_a_pickled_fork_of_a_collected_branch_reads_its_snapshot_where_it_is_kept(
    storage: Storage, end: Callable[[Repository, str], None]
) -> None:
    session = _orphaned(storage, end)
    fork = pickle.loads(pickle.dumps(session.fork()))
    assert fork.snapshot_id == session.snapshot_id
    assert zarr.open_array(fork.store, path="a", mode="r")[0] == 1


@_ENDS
def test_a_pickled_reader_of_a_collected_branch_reads_its_snapshot_where_it_is_kept(
    storage: Storage, end: Callable[[Repository, str], None]
) -> None:
    kept = Repository.open(storage).lookup_branch("main")
    Repository.open(storage).create_branch("side", kept)
    reader = Repository.open(storage).readonly_session("side")
    end(Repository.open(storage), kept)
    Repository.open(storage).garbage_collect(now())
    copy = pickle.loads(pickle.dumps(reader))
    assert zarr.open_array(copy.store, path="a", mode="r")[0] == 1


def test_a_handed_off_session_of_a_collected_record_is_told_that_it_comes_too_late(storage: Storage) -> None:
    session = _orphaned(storage, _reset)
    handoff = pickle.loads(pickle.dumps(hand_off(session)))
    with pytest.raises(SessionExpiredError, match="'side'"):
        handoff.open()
