"""What forks and their session do to the same thing never gets lost without a word."""

from __future__ import annotations

from typing import Any

import pytest
import zarr

from arraystore import ConflictDetector, MergeConflictError, Repository, SessionStateError, in_memory_storage
from arraystore._session.handoff import hand_off
from arraystore._session.session import Session


def _session(*, filled: bool) -> Session:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(4, 8), chunks=(1, 1), dtype="i4", compressors=None, fill_value=-1
    )
    if filled:
        array[:] = 0
    session.commit("an array")
    return repository.writable_session("main")


@pytest.mark.parametrize("recreate", [False, True])
def test_a_fork_that_deletes_an_array_conflicts_with_one_that_wrote_to_it(recreate: bool) -> None:
    session = _session(filled=True)
    first, second = session.fork(), session.fork()
    del zarr.open_group(first.store)["a"]
    if recreate:
        zarr.create_array(first.store, name="a", shape=(4, 8), chunks=(1, 1), dtype="i4")
    zarr.open_array(second.store, path="a")[1, 1] = 99
    with pytest.raises(MergeConflictError):
        session.merge(first, second)


def test_a_fork_that_deletes_an_array_conflicts_with_chunks_that_were_merged_before() -> None:
    session = _session(filled=True)
    first, second = session.fork(), session.fork()
    zarr.open_array(first.store, path="a")[1, 1] = 99
    del zarr.open_group(second.store)["a"]
    session.merge(first)
    with pytest.raises(MergeConflictError):
        session.merge(second)


def test_a_fork_that_deletes_an_array_conflicts_with_chunks_that_the_session_wrote_meanwhile() -> None:
    session = _session(filled=True)
    fork = session.fork()
    zarr.open_array(session.store, path="a")[1, 1] = 99
    del zarr.open_group(fork.store)["a"]
    with pytest.raises(MergeConflictError):
        session.merge(fork)


@pytest.mark.parametrize("by", ["fork", "session"])
def test_a_chunk_outside_of_a_grid_that_shrank_meanwhile_is_a_conflict(by: str) -> None:
    session = _session(filled=False)
    shrinking, writing = session.fork(), session.fork()
    zarr.open_array(writing.store, path="a")[0, 2] = 77
    zarr.open_array((shrinking if by == "fork" else session).store, path="a").resize((4, 1))
    with pytest.raises(MergeConflictError):
        session.merge(*([shrinking] if by == "fork" else []), writing)


@pytest.mark.parametrize("on_overlap", ["error", "last"])
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("by", ["fork", "session"])
def test_a_fork_cuts_off_no_chunk_that_was_written_since_it_was_taken(by: str, filled: bool, on_overlap: Any) -> None:
    session = _session(filled=filled)
    shrinking, writing = session.fork(), session.fork()
    zarr.open_array((writing if by == "fork" else session).store, path="a")[0, 2] = 77
    if by == "fork":
        session.merge(writing)
    zarr.open_array(shrinking.store, path="a").resize((4, 1))
    with pytest.raises(MergeConflictError, match="cut off"):
        session.merge(shrinking, on_overlap=on_overlap)
    assert zarr.open_array(session.store, path="a")[0, 2] == 77


def test_a_fork_cuts_off_what_it_has_seen_and_what_others_deleted_since() -> None:
    session = _session(filled=False)
    zarr.open_array(session.store, path="a")[:] = 7
    fork = session.fork()
    zarr.open_array(session.store, path="a")[0, 2] = -1
    zarr.open_array(fork.store, path="a").resize((4, 1))
    session.merge(fork)
    assert zarr.open_array(session.store, path="a")[:].tolist() == [[7]] * 4


def test_a_fork_that_only_resized_an_empty_array_comes_home() -> None:
    session = _session(filled=False)
    fork = session.fork()
    zarr.open_array(fork.store, path="a").resize((6, 8))
    session.merge(fork)
    assert zarr.open_array(session.store, path="a").shape == (6, 8)


def test_no_array_is_merged_below_an_array() -> None:
    session = _session(filled=False)
    zarr.create_group(session.store, path="h")
    fork = session.fork()
    zarr.create_array(fork.store, name="h/x", shape=(4,), chunks=(1,), dtype="i4")
    del zarr.open_group(session.store)["h"]
    zarr.create_array(session.store, name="h", shape=(4,), chunks=(1,), dtype="i4")
    with pytest.raises(MergeConflictError):
        session.merge(fork)


def test_nothing_is_merged_below_a_group_that_another_fork_deleted() -> None:
    session = _session(filled=False)
    zarr.create_group(session.store, path="h")
    first, second = session.fork(), session.fork()
    del zarr.open_group(first.store)["h"]
    zarr.create_array(second.store, name="h/x", shape=(4,), chunks=(1,), dtype="i4")
    with pytest.raises(MergeConflictError):
        session.merge(first, second)


def test_what_was_written_after_discarding_is_not_overwritten_by_an_older_fork() -> None:
    session = _session(filled=True)
    fork = session.fork()
    zarr.open_array(fork.store, path="a")[0, 0] = 5
    session.discard_changes()
    zarr.open_array(session.store, path="a")[0, 0] = 7
    with pytest.raises(MergeConflictError):
        session.merge(fork)


@pytest.mark.parametrize("by", ["fork", "deletion", "move"])
def test_nothing_is_merged_into_a_group_that_is_gone_since_the_fork(by: str) -> None:
    session = _session(filled=False)
    zarr.create_group(session.store, path="h")
    fork, other = session.fork(), session.fork()
    zarr.create_array(fork.store, name="h/x", shape=(4,), chunks=(1,), dtype="i4")
    if by == "move":
        session.move("h", "k")
    else:
        del zarr.open_group((other if by == "fork" else session).store)["h"]
        session.merge(other)
    with pytest.raises(MergeConflictError, match="deleted or moved"):
        session.merge(fork)
    assert session.hierarchy.node("h/x") is None


def test_a_session_that_was_rebased_since_its_forks_is_not_handed_off() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    fork = session.fork()
    zarr.create_array(fork.store, name="a", shape=(4,), chunks=(1,), dtype="i4")
    with repository.transaction("main", message="theirs") as store:
        zarr.create_group(store)
    session.rebase(ConflictDetector())
    with pytest.raises(SessionStateError, match="rebased"):
        hand_off(session)


def test_deletions_outside_of_a_grid_that_shrank_meanwhile_are_merged_beside_what_the_session_wrote() -> None:
    session = _session(filled=True)
    fork = session.fork()
    fork.store.delete_sync("a/c/0/7")
    array = zarr.open_array(session.store, path="a")
    array[1, 1] = 99
    array.resize((4, 4))
    session.merge(fork)
    assert array[1, :3].tolist() == [0, 99, 0]
