"""Forks are merged: everything they wrote, and nothing twice."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore.errors import FormatError, MergeConflictError, ReadOnlyError, SessionStateError


@pytest.fixture
def repo() -> ars.Repository:
    repo = ars.Repository.create(ars.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a", shape=(8, 4), chunks=(1, 4), dtype="i4", fill_value=0)
    return repo


def write(session: ars.Session, row: int, value: int, path: str = "a") -> None:
    zarr.open_array(session.store, path=path)[row] = value


def rows(repo: ars.Repository, path: str = "a") -> list[int]:
    array = zarr.open_array(repo.readonly_session("main").store, path=path, mode="r")
    return [int(value) for value in np.asarray(array[:])[:, 0]]


def test_merge_takes_an_iterator_that_waits_for_threads_which_use_the_same_loop(repo: ars.Repository) -> None:
    session = repo.writable_session("main")

    def work(row: int) -> bytes:
        fork = forks[row]
        write(fork, row, row + 1)
        return fork.changes()

    forks = [session.fork() for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        session.merge(pool.map(work, range(8)))
    session.commit("all rows")
    assert rows(repo) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_fork_brings_arrays_created_before_it_and_chunks_of_arrays_created_in_it(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="b", shape=(4, 4), chunks=(1, 4), dtype="i4", fill_value=0)
    write(session, 0, 9, "b")
    fork = pickle.loads(pickle.dumps(session.fork()))
    assert int(zarr.open_array(fork.store, path="b")[0, 0]) == 9
    write(fork, 1, 5, "b")
    zarr.create_array(fork.store, name="c", shape=(2, 4), chunks=(1, 4), dtype="i4", fill_value=0)
    write(fork, 1, 3, "c")
    session.merge(fork.changes())
    session.commit("both")
    assert rows(repo, "b") == [9, 5, 0, 0]
    assert rows(repo, "c") == [0, 3]


def test_a_chunk_that_two_forks_wrote_is_refused_and_nothing_is_merged(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    one, two = session.fork(), session.fork()
    write(one, 2, 1)
    write(two, 2, 2)
    write(two, 3, 2)
    with pytest.raises(MergeConflictError) as caught:
        session.merge(one, two)
    assert caught.value.path == "a"
    assert caught.value.chunks == ((2, 0),)
    assert not session.has_uncommitted_changes


def test_a_payload_that_was_merged_is_not_merged_again(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    write(fork, 2, 1)
    changes = fork.changes()
    session.merge(changes)
    with pytest.raises(MergeConflictError):
        session.merge(changes)
    session.commit("once")
    assert rows(repo)[2] == 1


def test_of_several_payloads_of_one_fork_the_newest_counts(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    write(fork, 2, 1)
    write(fork, 3, 1)
    zarr.create_array(fork.store, name="b", shape=(2, 4), chunks=(1, 4), dtype="i4", fill_value=0)
    first = fork.changes()
    write(fork, 2, 5)
    write(fork, 3, 0)
    write(fork, 1, 4, "b")
    second = fork.changes()
    session.merge(second, first)
    other = session.fork()
    write(other, 4, 4)
    session.merge(other)
    write(fork, 5, 6)
    session.merge(fork.changes())
    with pytest.raises(MergeConflictError, match="already"):
        session.merge(first)
    session.commit("the newest")
    assert rows(repo) == [0, 0, 5, 0, 4, 6, 0, 0]
    assert rows(repo, "b") == [0, 4]


def test_chunks_outside_of_the_grid_in_a_payload_are_refused(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    write(fork, 7, 1)
    payload = fork.changes()
    zarr.open_array(session.store, path="a").resize((4, 4))
    with pytest.raises(MergeConflictError, match="outside of its grid"):
        session.merge(payload)


def test_a_fork_may_overwrite_what_the_session_wrote_before_the_fork_was_taken(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    write(session, 1, 1)
    fork = session.fork()
    write(fork, 1, 2)
    session.merge(fork)
    session.commit("later wins")
    assert rows(repo)[1] == 2


def test_a_chunk_that_fork_and_session_both_wrote_since_the_fork_is_refused(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    early = session.fork()
    write(session, 1, 7)
    late = session.fork()
    write(early, 1, 2)
    write(late, 1, 3)
    with pytest.raises(MergeConflictError):
        session.merge(early)
    session.merge(late)
    session.commit("the late one knew what it overwrote")
    assert rows(repo)[1] == 3


def test_attributes_that_fork_and_session_both_changed_since_the_fork_are_refused(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.open_array(session.store, path="a").attrs["units"] = "K"
    zarr.open_array(fork.store, path="a").attrs["units"] = "degC"
    with pytest.raises(MergeConflictError, match="both changed"):
        session.merge(fork)


def test_forks_of_another_session_are_refused(repo: ars.Repository) -> None:
    one, two = repo.writable_session("main"), repo.writable_session("main")
    fork = one.fork()
    write(fork, 0, 1)
    with pytest.raises(MergeConflictError, match="another session"):
        two.merge(fork)


def test_a_damaged_payload_is_refused_and_changes_nothing(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    write(fork, 0, 1)
    payload = bytearray(fork.changes())
    payload[-1] ^= 1
    with pytest.raises(FormatError):
        session.merge(bytes(payload))
    assert not session.has_uncommitted_changes


def test_a_write_during_a_commit_is_refused_and_not_lost_without_a_word(repo: ars.Repository) -> None:
    storage = repo.storage
    started, go_on = threading.Event(), threading.Event()

    class Slow(ars.WrapperStorage):
        async def put_if_absent(self, key: str, data: ars.BytesLike) -> bool:
            started.set()
            await asyncio.to_thread(go_on.wait)
            return await super().put_if_absent(key, data)

    slow = ars.Repository.open(Slow(storage))
    session = slow.writable_session("main")
    write(session, 0, 1)
    array = zarr.open_array(session.store, path="a")
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(session.commit, "slow")
        started.wait()
        with pytest.raises(SessionStateError, match="being committed"):
            array[1] = 2
        go_on.set()
        commit.result()
    with pytest.raises(ReadOnlyError):
        array[1] = 2
    assert rows(repo)[:2] == [1, 0]
