"""Batches get into the history once: after crashes at any point, to two writers at a time, over resets and rebases."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import zarr

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    Fault,
    FaultyStorage,
    InvalidInputError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    StorageError,
    StreamRestartedError,
    in_memory_storage,
)
from arraystore.spark.streams.batches import exactly_once
from arraystore.spark.streams.progress import last_batch


def new_repo(storage: Any = None) -> Repository:
    repo = Repository.create(in_memory_storage() if storage is None else storage)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(16,), chunks=(1,), dtype="i8")
    session.commit("an array")
    return repo


@pytest.fixture
def repo() -> Repository:
    return new_repo()


def adding(batch: int, cell: int | None = None) -> Callable[[Session], int]:
    """Return a write that adds one to a cell, so that a batch that is written twice shows."""

    def write(session: Session) -> int:
        array = zarr.open_array(session.store, path="a")
        where = batch if cell is None else cell
        array[where] = int(array[where]) + 1  # type: ignore[call-overload]
        return batch

    return write


def values(repo: Repository, branch: str = "main") -> list[int]:
    found: list[int] = np.asarray(zarr.open_array(repo.readonly_session(branch).store, path="a", mode="r")[:]).tolist()
    return found


def batches(repo: Repository, branch: str = "main") -> list[int]:
    found = [info.metadata.get("spark.batch") for info in repo.ancestry(branch=branch)]
    return [number for number in found[::-1] if number is not None]


# -- once -------------------------------------------------------------------------------------------------------


def test_each_batch_is_a_commit_that_says_what_it_is(repo: Repository) -> None:
    told: list[tuple[int, str]] = []
    for batch in range(3):
        snapshot = exactly_once(
            repo, "s", batch, adding(batch), metadata=lambda result: {"result": result},
            on_commit=lambda result, snapshot: told.append((result, snapshot)),
        )  # fmt: skip
        assert snapshot == repo.lookup_branch("main") == told[-1][1]
    newest = next(iter(repo.ancestry(branch="main")))
    assert newest.message == "batch 2 of stream s"
    assert newest.metadata == {"spark.stream": "s", "spark.batch": 2, "result": 2}
    assert [result for result, _ in told] == [0, 1, 2]


def test_a_batch_that_comes_again_is_neither_written_nor_told(repo: Repository) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("written twice")

    exactly_once(repo, "s", 0, adding(0))
    before = repo.lookup_branch("main")
    assert exactly_once(repo, "s", 0, never, on_commit=never) is None
    assert repo.lookup_branch("main") == before


def test_a_batch_that_writes_nothing_leaves_nothing(repo: Repository) -> None:
    before = repo.lookup_branch("main")
    assert exactly_once(repo, "s", 0, lambda session: None) is None
    assert repo.lookup_branch("main") == before
    exactly_once(repo, "s", 1, adding(1))
    assert batches(repo) == [1]


def test_a_write_that_fails_leaves_nothing_and_can_come_again(repo: Repository) -> None:
    def broken(session: Session) -> None:
        adding(0)(session)
        raise ZeroDivisionError

    before = repo.lookup_branch("main")
    with pytest.raises(ZeroDivisionError):
        exactly_once(repo, "s", 0, broken)
    assert repo.lookup_branch("main") == before
    exactly_once(repo, "s", 0, adding(0))
    assert values(repo)[0] == 1


def test_a_write_that_commits_by_itself_is_an_error_and_does_not_pass_for_a_batch_that_was_there(
    repo: Repository,
) -> None:
    def committing(session: Session) -> None:
        adding(0)(session)
        session.commit("by itself")

    with pytest.raises(SessionStateError, match="written again"):
        exactly_once(repo, "s", 0, committing)
    assert batches(repo) == []


def test_a_crash_after_the_commit_does_not_write_the_batch_again(repo: Repository) -> None:
    def crash(*_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exactly_once(repo, "s", 0, adding(0), on_commit=crash)
    assert exactly_once(repo, "s", 0, adding(0), on_commit=crash) is None
    assert values(repo)[0] == 1


@pytest.mark.parametrize("times", [1, 2, 8])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_storage_that_fails_at_any_request_leaves_the_batch_once_in_the_end(
    when: Literal["before", "after"], times: int
) -> None:
    for first in range(1, 200):
        inner = in_memory_storage()
        exactly_once(new_repo(inner), "s", 0, adding(0))
        storage = FaultyStorage(inner, [Fault("*", when=when, first=first, times=times)])
        with contextlib.suppress(StorageError):
            exactly_once(Repository.open(storage), "s", 1, adding(1))
        repo = Repository.open(inner)  # the process is started again
        exactly_once(repo, "s", 1, adding(1))
        assert values(repo)[:2] == [1, 1]
        assert batches(repo) == [0, 1]
        if not storage.injected:
            assert first > 5
            return
    raise AssertionError("the batch takes more requests than were made to fail")


# -- at a time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [None, ConflictDetector(), BasicConflictSolver()], ids=["default", "none", "ours"])
def test_two_writers_of_one_batch_at_a_time_make_one_commit(repo: Repository, solver: Any) -> None:
    barrier, found = threading.Barrier(2), []

    def write(session: Session) -> None:
        if len(found) == 0:
            barrier.wait(20)  # both have seen that the batch is not there
        adding(0)(session)

    def drive() -> None:
        found.append(exactly_once(Repository.open(repo.storage), "s", 0, write, rebase_with=solver))

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(60)
    assert sorted(snapshot is None for snapshot in found) == [False, True]
    assert values(repo)[0] == 1
    assert batches(repo) == [0]


def test_a_batch_goes_on_top_of_what_others_have_committed_meanwhile(repo: Repository) -> None:
    calls: list[int] = []

    def write(session: Session) -> None:
        calls.append(1)
        other = repo.writable_session("main")
        adding(9)(other)
        other.commit("meanwhile")
        adding(0)(session)

    exactly_once(repo, "s", 0, write)
    assert (values(repo)[0], values(repo)[9], len(calls)) == (1, 1, 1)
    assert exactly_once(repo, "s", 0, write) is None


def test_a_batch_that_collides_is_written_again_on_top_of_the_others(repo: Repository) -> None:
    """Both add to one cell; with the older value written, one of the two would be lost."""
    calls: list[int] = []

    def write(session: Session) -> None:
        calls.append(1)
        if len(calls) < 3:
            other = repo.writable_session("main")
            adding(0)(other)
            other.commit("meanwhile")
        adding(0)(session)

    exactly_once(repo, "s", 0, write)
    assert (values(repo)[0], len(calls)) == (3, 3)
    assert batches(repo) == [0]


def test_a_batch_that_collides_for_ever_is_an_error(repo: Repository) -> None:
    def write(session: Session) -> None:
        other = repo.writable_session("main")
        adding(0)(other)
        other.commit("meanwhile")
        adding(0)(session)

    with pytest.raises(RebaseFailedError, match="/a"):
        exactly_once(repo, "s", 0, write)
    assert last_batch(repo.readonly_session("main"), "s") is None


def test_streams_of_one_branch_go_on_side_by_side(repo: Repository) -> None:
    def drive(name: str, cell: int) -> None:
        own = Repository.open(repo.storage)
        for batch in range(8):
            exactly_once(own, name, batch, adding(batch, cell))

    drivers = [threading.Thread(target=drive, args=(f"stream {cell}", cell)) for cell in range(3)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(60)
    assert values(repo)[:4] == [8, 8, 8, 0]


# -- over resets and restarts -----------------------------------------------------------------------------------


def test_a_reset_takes_the_stream_back_to_where_the_data_is(repo: Repository) -> None:
    snapshots = [exactly_once(repo, "s", batch, adding(batch)) for batch in range(4)]
    assert snapshots[1] is not None
    repo.reset_branch("main", snapshots[1])
    assert values(repo)[:4] == [1, 1, 0, 0]
    assert exactly_once(repo, "s", 1, adding(1)) is None
    for batch in (2, 3):
        assert exactly_once(repo, "s", batch, adding(batch)) is not None
    assert values(repo)[:4] == [1, 1, 1, 1]


def test_a_branch_goes_on_from_where_it_was_made(repo: Repository) -> None:
    exactly_once(repo, "s", 0, adding(0))
    repo.create_branch("copy", repo.lookup_branch("main"))
    assert exactly_once(repo, "s", 0, adding(0), branch="copy") is None
    exactly_once(repo, "s", 1, adding(1), branch="copy")
    assert (values(repo)[:2], values(repo, "copy")[:2]) == ([1, 0], [1, 1])


def test_a_stream_without_its_checkpoint_is_told_and_not_dropped(repo: Repository) -> None:
    for batch in range(3):
        exactly_once(repo, "s", batch, adding(batch), run="first query")
    before = repo.lookup_branch("main")
    with pytest.raises(StreamRestartedError, match=r"'s'.*new stream_id"):
        exactly_once(repo, "s", 0, adding(8), run="second query")
    with pytest.raises(StreamRestartedError):
        exactly_once(repo, "s", 0, adding(8))
    assert repo.lookup_branch("main") == before
    for _ in range(2):
        exactly_once(repo, "s", 0, adding(8), run="second query", restarted=True)
    exactly_once(repo, "s", 1, adding(9), run="second query", restarted=True)
    exactly_once(repo, "another", 0, adding(10), run="third query")
    assert values(repo)[:11] == [1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1]


def test_a_restarted_stream_is_refused_unless_its_run_is_known(repo: Repository) -> None:
    """Batch 2 may be the last one, which comes again after a crash, or another one of the new stream."""
    exactly_once(repo, "s", 2, adding(2))
    before = repo.lookup_branch("main")
    for batch in (0, 2, 3):
        with pytest.raises(InvalidInputError, match=r"restarted=True.*run="):
            exactly_once(repo, "s", batch, adding(8), restarted=True)
    assert repo.lookup_branch("main") == before
    for _ in range(2):
        exactly_once(repo, "s", 2, adding(8), run="after the checkpoint was deleted", restarted=True)
    assert (values(repo)[2], values(repo)[8]) == (1, 1)


def test_arguments_that_cannot_be_used_are_refused_before_anything_is_written(repo: Repository) -> None:
    def never(session: Session) -> None:
        raise AssertionError("written")

    for stream, batch in (("", 0), ("s", -1), ("s", True)):
        with pytest.raises(InvalidInputError):
            exactly_once(repo, stream, batch, never)
    with pytest.raises(InvalidInputError, match="ConflictSolver"):
        exactly_once(repo, "s", 0, never, rebase_with="ours")  # type: ignore[arg-type]
