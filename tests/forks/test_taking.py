"""Taking a fork costs no request, and it sees what its session has not committed, uploaded or not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

import arraystore as ars
from arraystore.errors import SessionStateError
from tests.forks.support import (
    chunked,
    counted,
    fill,
    fill_elsewhere,
    fill_inherited,
    pickle_inherited,
    values,
    values_elsewhere,
)
from tests.session.conftest import FarMemory
from tests.storage.workers import call_in_process
from tests.tiers import mostly_thorough

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

STORAGES = [ars.in_memory_storage, FarMemory]


def clean(session: ars.Session) -> list[int]:
    return [1] * 8 + [0] * 8


def with_metadata(session: ars.Session) -> list[int]:
    zarr.open_array(session.store, path="a").attrs["units"] = "K"
    chunked(session.store, "new", 4)
    return [1] * 8 + [0] * 8


def with_chunks(session: ars.Session) -> list[int]:
    for number in (0, 9):
        fill(session, number, 5)
    session.store.delete_sync("a/c/1")
    return [5, 0, *[1] * 6, 0, 5, *[0] * 6]


def with_shrunk(session: ars.Session) -> list[int]:
    array = zarr.open_array(session.store, path="a", mode="r+")
    array.resize((4000,))
    array.resize((16_000,))
    fill(session, 5, 7)
    return [1] * 4 + [0, 7] + [0] * 10


STATES = [clean, with_metadata, with_chunks, with_shrunk]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("change", STATES)
def test_a_fork_costs_no_request_and_reads_right(
    storage: Callable[[], ars.Storage], change: Callable[[ars.Session], list[int]]
) -> None:
    repo, counting = counted(storage())
    session = repo.writable_session("main")
    expected = change(session)
    before = counting.counts
    forks = [session.fork() for _ in range(3)]
    assert (counting.counts - before).requests == {}
    assert values(forks[0]) == expected
    assert (counting.counts - before)["put"] == 0
    assert values(pickle.loads(pickle.dumps(forks[1]))) == expected


@pytest.mark.parametrize("method", mostly_thorough(["fork", "spawn"]))
@pytest.mark.parametrize("change", STATES)
def test_a_fork_reads_right_in_another_process(
    tmp_path: Path, method: str, change: Callable[[ars.Session], list[int]]
) -> None:
    repo, _ = counted(ars.local_filesystem_storage(tmp_path, fsync=False))
    session = repo.writable_session("main")
    expected = change(session)
    fork = session.fork()
    assert call_in_process(method, values_elsewhere, fork) == expected
    session.merge(call_in_process(method, fill_elsewhere, fork, 3, 9))
    session.commit("from elsewhere")
    assert values(repo.readonly_session("main")) == [*expected[:3], 9, *expected[4:]]


def test_forks_that_are_sent_away_upload_once() -> None:
    repo, counting = counted(FarMemory())
    session = repo.writable_session("main")
    fill(session, 0, 5)
    forks = [session.fork() for _ in range(5)]
    before = counting.counts
    for fork in forks:
        pickle.dumps(fork)
    assert (counting.counts - before).requests == {"put": 1, "sync": 1}


def test_a_fork_keeps_what_it_saw_when_its_session_writes_the_same_chunk_again() -> None:
    repo, _ = counted(ars.in_memory_storage())
    session = repo.writable_session("main")
    fill(session, 0, 5)
    first = session.fork()
    fill(session, 0, 6)
    second = session.fork()
    fill(session, 0, 7)
    assert [values(each)[0] for each in (first, second, session)] == [5, 6, 7]
    assert values(pickle.loads(pickle.dumps(first)))[0] == 5


def test_a_fork_keeps_what_it_saw_when_its_session_discards_it() -> None:
    repo, _ = counted(FarMemory())
    session = repo.writable_session("main")
    fill(session, 0, 5)
    fork = session.fork()
    session.discard_changes()
    fill(session, 0, 6)
    assert values(fork)[0] == 5
    assert values(pickle.loads(pickle.dumps(fork)))[0] == 5


def test_a_fork_sees_what_was_moved_and_replaced() -> None:
    repo, _ = counted(ars.in_memory_storage())
    session = repo.writable_session("main")
    session.move("a", "b")
    chunked(session.store, "a", 4)[:] = 3
    for fork in (session.fork(), pickle.loads(pickle.dumps(session.fork()))):
        assert values(fork, "b") == [1] * 8 + [0] * 8
        assert values(fork) == [3] * 4
        fill(fork, 15, 9, "b")
    session.merge(fork)
    session.commit("moved")
    assert values(repo.readonly_session("main"), "b") == [1] * 8 + [0] * 7 + [9]


def test_a_forked_child_reads_and_writes_through_a_fork_with_chunks_that_wait_for_upload(tmp_path: Path) -> None:
    repo, _ = counted(ars.local_filesystem_storage(tmp_path, fsync=False))
    session = repo.writable_session("main")
    fill(session, 0, 5)
    fork = session.fork()
    before, payload = call_in_process("fork", lambda: fill_inherited(fork, 15, 9))
    assert before[0] == 5
    fill(session, 1, 6)
    session.merge(payload)
    session.commit("both")
    assert values(repo.readonly_session("main")) == [5, 6, *[1] * 6, *[0] * 7, 9]


def test_a_forked_child_does_not_upload_what_waits_in_its_parent(tmp_path: Path) -> None:
    """It has only the beginning of a pack that its parent goes on to fill."""
    repo, _ = counted(ars.local_filesystem_storage(tmp_path, fsync=False))
    session = repo.writable_session("main")
    fill(session, 0, 5)
    fork = session.fork()
    for inherited in (session, fork):
        assert "wait for upload" in call_in_process("fork", lambda thing=inherited: pickle_inherited(thing))
    fill(session, 1, 6)
    session.commit("both")
    assert values(repo.readonly_session("main"))[:2] == [5, 6]


def test_only_the_session_commits_rebases_appends_and_moves() -> None:
    repo, _ = counted(ars.in_memory_storage())
    session = repo.writable_session("main")
    fork = session.fork()
    for name in ("commit", "amend", "flush", "rebase", "append", "appending", "move"):
        with pytest.raises(SessionStateError, match=r"session"):
            getattr(fork, name)()
    fork.discard_changes()
    fill(fork, 0, 4)
    session.merge(fork)
    assert values(session)[0] == 4


def test_workers_write_what_their_session_has_appended(tmp_path: Path) -> None:
    storage = ars.local_filesystem_storage(tmp_path, fsync=False)
    repo = ars.Repository.create(storage)
    with repo.transaction("main", message="an array") as store:
        chunked(store, "a", 2, dimension_names=["x"])[:] = 1
    session = repo.writable_session("main")
    with session.appending("x"):
        zarr.open_array(session.store, path="a", mode="r+").resize((4000,))
    forks = [session.fork(), session.fork()]
    with repo.transaction("main", message="somebody else appends") as store:
        other = store.session
        with other.appending("x"):
            array = zarr.open_array(store, path="a", mode="r+")
            array.resize((3000,))
            array[2000:] = 2
    session.merge([fill_elsewhere(fork, 2 + number, 3 + number) for number, fork in enumerate(forks)])
    session.commit("appended by workers", rebase_with=ars.ConflictDetector())
    assert values(repo.readonly_session("main")) == [1, 1, 2, 3, 4]
