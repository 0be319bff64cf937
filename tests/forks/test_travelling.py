"""A fork travels with what was written to it, and forks of forks are merged into their fork."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._session import pickling
from arraystore.errors import MergeConflictError, ReadOnlyError, SessionStateError, UnmergedForksWarning
from tests.forks.support import CHUNK, chunked, counted, fill, fill_and_return, values
from tests.forks.test_distributed import everything, rich_forks
from tests.session.conftest import FarMemory
from tests.storage.workers import call_in_processes

Travel = Callable[[ars.ForkSession], ars.ForkSession]


@pytest.fixture
def session() -> ars.Session:
    return counted(FarMemory(), 64)[0].writable_session("main")


def copied(fork: ars.ForkSession) -> ars.ForkSession:
    """Return what arrives of a fork."""
    copy: ars.ForkSession = pickle.loads(pickle.dumps(fork))
    assert copy is not fork
    return copy


def here(fork: ars.ForkSession) -> ars.ForkSession:
    return fork


TRAVEL = pytest.mark.parametrize("travel", [here, copied], ids=["here", "copied"])


# -- written forks ----------------------------------------------------------------------------------------------


def test_written_forks_that_processes_return_are_merged(tmp_path: Path) -> None:
    repo, _ = counted(ars.local_filesystem_storage(tmp_path, fsync=False))
    session = repo.writable_session("main")
    forks = call_in_processes("spawn", fill_and_return, [(session.fork(), 8, 5), (session.fork(), 9, 6)])
    assert all(isinstance(fork, ars.ForkSession) for fork in forks)
    assert values(forks[1])[7:10] == [1, 0, 6]
    session.merge(*forks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("from processes")
    assert values(repo.readonly_session("main")) == [1] * 8 + [5, 6] + [0] * 6


def test_all_that_a_fork_can_change_travels(session: ars.Session) -> None:
    other = counted(FarMemory(), 64)[0].writable_session("main")
    for found, travel in ((session, copied), (other, here)):
        forks = [travel(fork) for fork in rich_forks(found, 4)]
        grown = zarr.open_array(forks[0].store, path="made0", mode="r+")
        grown.resize((CHUNK,))
        grown.resize((3 * CHUNK,))
        found.merge(*map(travel, forks))
    assert everything(session) == everything(other)


def test_a_written_fork_takes_its_changes_along_and_not_its_chunks(session: ars.Session) -> None:
    fork = session.fork()
    zarr.open_array(fork.store, path="a", mode="r+")[:] = np.random.default_rng(1).integers(256, size=64 * CHUNK)
    assert len(pickle.dumps(fork)) < 3000


def test_a_fork_that_travelled_is_written_to_again(session: ars.Session) -> None:
    fork = session.fork()
    fill(fork, 0, 5)
    fill(fork, 1, 5)
    copy = copied(fork)
    fill(copy, 1, 6)
    copy = copied(copy)
    copy.store.delete_sync("a/c/2")
    assert values(copy)[:4] == [5, 6, 0, 1]
    session.merge(copy)
    assert values(session)[:4] == [5, 6, 0, 1]


def test_two_copies_of_what_was_written_are_not_both_merged(session: ars.Session) -> None:
    fork = session.fork()
    fill(fork, 0, 5)
    for others in ((fork, copied(fork)), (copied(fork), copied(fork))):
        with pytest.raises(MergeConflictError, match="more than one fork"):
            session.merge(*others)
    assert not session.has_uncommitted_changes


def test_what_a_fork_read_travels_with_what_it_wrote(session: ars.Session) -> None:
    repo = ars.Repository.open(session.context.storage)
    session = repo.writable_session("main", isolation="serializable")
    fork = session.fork()
    fill(fork, 9, values(fork)[0])
    session.merge(copied(copied(fork)))
    with repo.transaction("main", message="meanwhile") as store:
        fill(store.session, 0, 7)
    with pytest.raises(ars.RebaseFailedError):
        session.commit("depends on what is no more", rebase_with=ars.ConflictDetector())


def test_copies_of_a_fork_that_made_an_array_do_not_overwrite_its_metadata(session: ars.Session) -> None:
    fork = session.fork()
    chunked(fork.store, "b", 2)
    one, two = copied(fork), copied(fork)
    zarr.open_array(one.store, path="b").resize((4 * CHUNK,))
    fill(one, 3, 5, "b")
    fill(two, 0, 6, "b")
    session.merge(one)
    with pytest.raises(MergeConflictError, match="changed it since"):
        session.merge(two)
    assert values(session, "b") == [0, 0, 0, 5]


def test_copies_of_a_fork_bring_what_each_has_written_to_an_array_that_it_made(session: ars.Session) -> None:
    fork = session.fork()
    chunked(fork.store, "b", 2)
    for number, copy in enumerate((copied(fork), copied(fork))):
        fill(copy, number, 5 + number, "b")
        session.merge(copy)
    assert values(session, "b") == [5, 6]


# -- forks of forks ---------------------------------------------------------------------------------------------


@TRAVEL
def test_a_fork_of_a_fork_sees_its_changes_and_is_merged_into_it(session: ars.Session, travel: Travel) -> None:
    chunked(session.store, "by session", 4)[:CHUNK] = 2
    fork = travel(session.fork())
    chunked(fork.store, "by fork", 4)[:] = 3
    fill(fork, 1, 4, "by session")
    forks = [travel(fork.fork()) for _ in range(2)]
    for number, each in enumerate(forks):
        assert values(each, "by session") == [2, 4, 0, 0]
        assert values(each, "by fork") == [3] * 4
        fill(each, number, 5 + number, "by fork")
        fill(each, 2 * number + 1, 5 + number, "by session")
        zarr.open_array(each.store, path="by fork", mode="r+")
    fork.merge(*map(travel, forks))
    session.merge(travel(fork))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("a chain")
    assert values(session, "by fork") == [5, 6, 3, 3]
    assert values(session, "by session") == [2, 5, 0, 6]


@TRAVEL
def test_what_fork_and_fork_of_it_wrote_since_is_refused(session: ars.Session, travel: Travel) -> None:
    fork = session.fork()
    late = travel(fork.fork())
    fill(fork, 0, 4)
    fill(late, 0, 5)
    with pytest.raises(MergeConflictError) as caught:
        fork.merge(travel(late))
    assert caught.value.chunks == ((0,),)
    fork.merge(late, on_overlap="last")
    assert values(fork)[0] == 5


def test_a_fork_of_an_unwritten_fork_may_be_merged_into_the_session(session: ars.Session) -> None:
    fork = copied(session.fork())
    second = copied(fork.fork())
    chunked(fork.store, "first", 1)
    chunked(second.store, "second", 1)
    with pytest.warns(UnmergedForksWarning, match="1 fork of this fork"):
        session.merge(copied(fork), copied(second))
    assert sorted(zarr.open_group(session.store, mode="r").array_keys()) == ["a", "first", "second"]


@TRAVEL
def test_forks_of_one_session_may_be_merged_into_each_other(session: ars.Session, travel: Travel) -> None:
    forks = [session.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        fill(fork, number, 5 + number)
    forks[0].merge(travel(forks[1]))
    session.merge(travel(forks[0]), forks[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("by way of one another")
    assert values(session)[:4] == [5, 6, 7, 1]


@TRAVEL
def test_of_forks_of_one_session_none_overwrites_what_it_has_not_seen(session: ars.Session, travel: Travel) -> None:
    one, two = session.fork(), session.fork()
    fill(one, 0, 5)
    fill(two, 0, 6)
    zarr.open_array(two.store, path="a", mode="r+").attrs["title"] = "K"
    with pytest.raises(MergeConflictError, match="more than one fork"):
        one.merge(travel(two))
    one.discard_changes()
    zarr.open_array(one.store, path="a", mode="r+").attrs["units"] = "m"
    with pytest.raises(MergeConflictError, match="both changed the node 'a'"):
        one.merge(travel(two))


@TRAVEL
def test_a_late_fork_brings_of_an_early_one_nothing_that_the_session_overwrote(
    session: ars.Session, travel: Travel
) -> None:
    early = session.fork()
    fill(early, 0, 5)
    fill(session, 0, 6)
    late = session.fork()
    middle = late.fork()
    middle.merge(travel(early))
    late.merge(travel(middle))
    with pytest.raises(MergeConflictError) as caught:
        session.merge(travel(late))
    assert caught.value.chunks == ((0,),)


def test_a_fork_is_not_merged_into_itself_its_fork_or_another_session(session: ars.Session) -> None:
    fork = session.fork()
    second = fork.fork()
    fill(fork, 0, 5)
    for target in (fork, second):
        with pytest.raises(MergeConflictError, match="of the fork itself"):
            target.merge(fork.changes())
    stranger = counted(FarMemory(), 64)[0].writable_session("main").fork()
    with pytest.raises(MergeConflictError, match="another session"):
        fork.merge(stranger)


def test_a_fork_with_forks_that_are_not_merged_warns_when_it_is_sent(session: ars.Session) -> None:
    fork = session.fork()
    second, third = fork.fork(), fork.fork()
    fill(second, 0, 5)
    fill(third, 1, 5)
    fork.abandon(third)
    fill(fork, 2, 5)
    assert fork.has_forks
    with pytest.warns(UnmergedForksWarning, match="1 fork of"):
        pickle.dumps(fork)


# -- stores -----------------------------------------------------------------------------------------------------


def test_a_store_that_is_unpickled_in_its_process_is_one_of_the_same_fork(session: ars.Session) -> None:
    fork = session.fork()
    array = pickle.loads(pickle.dumps(zarr.open_array(fork.store, path="a", mode="r+")))
    array[:CHUNK] = 5
    again = pickle.loads(pickle.dumps(fork.store))
    assert again.session is fork
    assert not again.read_only
    assert values(fork)[0] == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fork.discard_changes()
        session.commit("nobody was sent a fork", allow_empty=True)


def test_a_store_of_a_fork_is_elsewhere_a_copy_to_read_that_says_what_to_do(session: ars.Session) -> None:
    for written in (False, True):
        fork = session.fork()
        if written:
            fill(fork, 0, 5)
        sent = pickle.dumps(zarr.open_array(fork.store, path="a", mode="r+"))
        with mock.patch.object(pickling, "_live", {}):  # as in another process
            array = pickle.loads(sent)
        assert array[0] == (5 if written else 1)
        with pytest.raises(ReadOnlyError, match="send the fork itself"):
            array[:CHUNK] = 6
        with mock.patch.object(pickling, "_live", {}):  # a worker sends it to another one
            again = pickle.loads(pickle.dumps(array))
        assert again[0] == array[0]
        assert pickle.loads(pickle.dumps(again)).store.session is fork


def test_a_forked_child_does_not_send_what_its_parent_has_not_uploaded(session: ars.Session) -> None:
    fork = session.fork()
    fill(fork, 0, 5)
    fork._pid -= 1
    for thing in (fork, fork.store):
        with pytest.raises(SessionStateError):
            pickle.dumps(thing)
