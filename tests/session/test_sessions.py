"""Sessions: what they show, what they keep, what they refuse."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zarr

from arraystore import (
    ConflictError,
    InvalidInputError,
    ReadOnlyError,
    RefNotFoundError,
    Repository,
    SessionStateError,
    SnapshotNotFoundError,
    in_memory_storage,
)
from arraystore._maintenance.fold import fold
from arraystore.storage import CountingStorage
from tests.commit.support import (
    commit_number,
    commit_rows,
    commits_in,
    create_repository,
    keys,
    number,
    put_number,
    repository_at,
    rewrites_in,
    run_alone,
    tip_of,
    without_maintenance,
)
from tests.seams import context_of

# -- conflicts ----------------------------------------------------------------------------------------------------


def test_a_branch_that_moved_is_a_conflict_that_names_both_snapshots() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    base = repository.lookup_branch("main")
    loser = repository.writable_session("main")
    put_number(loser, 1, 11)
    winner = commit_number(Repository.open(storage), 1, 22)
    with pytest.raises(ConflictError) as caught:
        loser.commit("too late")
    assert (caught.value.expected_parent, caught.value.actual_parent) == (base, winner)
    assert caught.value.branch == "main"
    assert base in str(caught.value)


def test_the_actual_parent_is_the_newest_snapshot_however_far_the_branch_has_moved() -> None:
    storage = in_memory_storage()
    repository = without_maintenance(create_repository(storage))
    loser = repository.writable_session("main")
    put_number(loser, 1, 11)
    newest = commit_rows(without_maintenance(Repository.open(storage)), 1, 150)[-1]
    with pytest.raises(ConflictError) as caught:
        loser.commit("too late")
    assert caught.value.actual_parent == newest


def test_nothing_of_a_session_that_lost_becomes_visible() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    loser = repository.writable_session("main")
    zarr.open_group(loser.store).create_group("mine")
    put_number(loser, 1, 11)
    commit_number(repository, 2, 22)
    with pytest.raises(ConflictError):
        loser.commit("too late")
    for opened in (repository, Repository.open(storage)):
        reader = opened.readonly_session("main")
        assert (number(reader, 1), number(reader, 2)) == (None, 22)
        assert "mine" not in zarr.open_group(reader.store, mode="r")
    assert next(repository.ancestry(branch="main")).message == "row 2"


def test_a_session_that_lost_can_be_looked_at_and_written_again_elsewhere() -> None:
    repository = create_repository()
    loser = repository.writable_session("main")
    put_number(loser, 1, 11)
    commit_number(repository, 1, 22)
    for _ in range(2):
        with pytest.raises(ConflictError):
            loser.commit("too late")
    assert loser.has_uncommitted_changes
    assert number(loser, 1) == 11
    assert {path: coords.tolist() for path, coords in loser.status().updated_chunks.items()} == {"/a": [[1]]}
    again = repository.writable_session("main")
    put_number(again, 1, number(loser, 1) or 0)
    again.commit("again")
    assert number(repository.readonly_session("main"), 1) == 11


def test_a_fold_in_between_is_no_conflict() -> None:
    storage = in_memory_storage()
    repository = repository_at(storage, 64)
    session = repository.writable_session("main")
    put_number(session, 1, 11)
    for _ in range(2):
        tip = tip_of(Repository.open(storage))
        run_alone(fold(context_of(repository).log("main"), tip, context_of(repository).reader))
        parent = repository.lookup_branch("main")
    assert rewrites_in(storage) == [65]
    session.commit("after the fold")
    (newest, before, *_) = repository.ancestry(branch="main")
    assert (newest.message, newest.parent_id, before.id) == ("after the fold", parent, parent)
    reader = Repository.open(storage).readonly_session("main")
    assert [number(reader, row) for row in (1, 2, 64)] == [11, 2, 64]


def test_a_fold_and_a_commit_in_between_are_a_conflict() -> None:
    storage = in_memory_storage()
    repository = repository_at(storage, 64)
    session = repository.writable_session("main")
    put_number(session, 1, 11)
    tip = tip_of(Repository.open(storage))
    run_alone(fold(context_of(repository).log("main"), tip, context_of(repository).reader))
    other = commit_number(Repository.open(storage), 2, 2)
    with pytest.raises(ConflictError) as caught:
        session.commit("too late")
    assert caught.value.actual_parent == other


# -- states -------------------------------------------------------------------------------------------------------


def test_an_empty_commit_is_refused_unless_asked_for() -> None:
    repository = create_repository()
    session = repository.writable_session("main")
    with pytest.raises(SessionStateError, match="allow_empty"):
        session.commit("nothing")
    assert not session.read_only
    before = len(list(repository.ancestry(branch="main")))
    session.commit("nothing, on purpose", allow_empty=True)
    assert len(list(repository.ancestry(branch="main"))) == before + 1


def test_a_change_that_was_taken_back_is_nothing_to_commit() -> None:
    repository = create_repository()
    session = repository.writable_session("main")
    zarr.open_group(session.store).create_group("mine")
    assert session.has_uncommitted_changes
    del zarr.open_group(session.store)["mine"]
    assert not session.has_uncommitted_changes
    with pytest.raises(SessionStateError):
        session.commit("nothing")


def test_a_session_is_committed_once_and_shows_its_snapshot_afterwards() -> None:
    repository = create_repository()
    session = repository.writable_session("main")
    put_number(session, 1, 11)
    snapshot = session.commit("once")
    assert (session.snapshot_id, session.read_only, session.has_uncommitted_changes) == (snapshot, True, False)
    with pytest.raises(ReadOnlyError):
        session.commit("twice")
    with pytest.raises(ReadOnlyError):
        put_number(session, 1, 12)
    commit_number(repository, 1, 13)
    assert number(session, 1) == 11


def test_a_session_that_only_reads_refuses_to_write_and_to_commit() -> None:
    session = create_repository().readonly_session("main")
    assert session.read_only
    assert session.branch is None
    for refused in (lambda: session.commit("no"), lambda: put_number(session, 1, 1), session.discard_changes):
        with pytest.raises(ReadOnlyError):
            refused()


def test_discarding_leaves_the_snapshot_and_lets_the_session_go_on() -> None:
    repository = create_repository()
    commit_number(repository, 1, 11)
    session = repository.writable_session("main")
    put_number(session, 1, 12)
    zarr.open_group(session.store).create_group("mine")
    session.discard_changes()
    assert not session.has_uncommitted_changes
    assert number(session, 1) == 11
    put_number(session, 2, 22)
    session.commit("only this")
    reader = repository.readonly_session("main")
    assert (number(reader, 1), number(reader, 2)) == (11, 22)
    assert set(zarr.open_group(reader.store, mode="r")) == {"a"}


def test_status_lists_what_is_uncommitted_and_nothing_else() -> None:
    repository = create_repository()
    session = repository.writable_session("main")
    assert session.status().is_empty()
    put_number(session, 1, 11)
    zarr.open_group(session.store).create_group("mine")
    status = session.status()
    assert (status.new_groups, status.new_arrays, status.updated_arrays) == ({"/mine"}, set(), set())
    assert {path: coords.tolist() for path, coords in status.updated_chunks.items()} == {"/a": [[1]]}
    assert "/mine" in str(status)
    session.commit("all")
    assert session.status().is_empty()


def test_a_reader_keeps_its_snapshot_while_the_branch_moves_and_folds() -> None:
    repository = create_repository()
    commit_number(repository, 1, 1)
    reader = repository.readonly_session("main")
    commit_rows(repository, 2, 140)
    repository.wait_for_maintenance()
    commit_number(repository, 1, 100)
    assert [number(reader, row) for row in (1, 2, 140)] == [1, None, None]
    again = repository.readonly_session(snapshot_id=reader.snapshot_id)
    assert [number(again, row) for row in (1, 2, 140)] == [1, None, None]


def test_exactly_one_of_branch_tag_and_snapshot_is_to_be_given() -> None:
    repository = create_repository()
    for wrong in ({}, {"branch": "main", "tag": "v1"}, {"tag": "v1", "snapshot_id": "0" * 20}):
        with pytest.raises(InvalidInputError, match="exactly one"):
            repository.readonly_session(**wrong)


def test_what_does_not_exist_is_named() -> None:
    repository = create_repository()
    with pytest.raises(RefNotFoundError, match="nowhere"):
        repository.readonly_session("nowhere")
    with pytest.raises(RefNotFoundError, match="nowhere"):
        repository.writable_session("nowhere")
    with pytest.raises(RefNotFoundError, match="nothing"):
        repository.readonly_session(tag="nothing")
    with pytest.raises(SnapshotNotFoundError, match="00000000000000000000"):
        repository.readonly_session(snapshot_id="0" * 20)
    with pytest.raises(InvalidInputError, match="is not a valid id"):
        repository.readonly_session(snapshot_id="main")


# -- transactions -------------------------------------------------------------------------------------------------


def test_a_transaction_commits_when_its_block_ends() -> None:
    repository = create_repository()
    with repository.transaction("main", message="in a block", metadata={"by": "test"}) as store:
        zarr.open_group(store).create_group("mine")
    newest = next(repository.ancestry(branch="main"))
    assert (newest.message, newest.metadata) == ("in a block", {"by": "test"})
    assert "mine" in zarr.open_group(repository.readonly_session("main").store, mode="r")


def test_a_transaction_whose_block_fails_commits_nothing() -> None:
    repository = create_repository()
    before = repository.lookup_branch("main")

    def fail() -> None:
        with repository.transaction("main", message="no") as store:
            zarr.open_group(store).create_group("mine")
            raise LookupError("half way")

    with pytest.raises(LookupError, match="half way"):
        fail()
    assert repository.lookup_branch("main") == before


def test_a_transaction_without_changes_commits_nothing() -> None:
    repository = create_repository()
    before = repository.lookup_branch("main")
    with repository.transaction("main", message="no"):
        pass
    assert repository.lookup_branch("main") == before


# -- messages and metadata ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "metadata"),
    [
        ("", {}),
        ("Grüße, 世界 🌍\n\ttwo lines\0", {"ключ": ["värde", 1, 2.5, None, True, {"a": []}], "": {}}),
        ("m" * 65_000, {}),
        ("long metadata", {"text": "x" * 60_000}),
        ("numbers", {"big": 2**63, "small": -(2**63), "float": 1e308}),
    ],
)
def test_message_and_metadata_come_back_as_they_were(message: str, metadata: dict[str, Any]) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    before = datetime.now(UTC)
    session = repository.writable_session("main")
    put_number(session, 1, 11)
    snapshot = session.commit(message, metadata)
    for opened in (repository, Repository.open(storage)):
        info = opened.lookup_snapshot(snapshot)
        assert (info.id, info.message, info.metadata) == (snapshot, message, metadata)
        assert next(opened.ancestry(branch="main")) == info
        assert before - timedelta(seconds=1) <= info.written_at <= datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("message", "metadata"),
    [
        (None, {}),
        (b"bytes", {}),
        ("m" * 70_000, {}),
        ("\ud800", {}),
        ("ok", {"x": "y" * 200_000}),
        ("ok", {"x": object()}),
        ("ok", {"x": {1, 2}}),
        ("ok", {1: "x"}),
        ("ok", {"x": {2: 3}}),
        ("ok", {"x": b"bytes"}),
        ("ok", {"x": 2**64}),
        ("ok", {"\udfff": 1}),
        ("ok", ["a", "list"]),
    ],
)
def test_what_cannot_be_stored_as_message_or_metadata_is_refused_and_the_session_goes_on(
    message: Any, metadata: Any
) -> None:
    storage = in_memory_storage()
    session = create_repository(storage).writable_session("main")
    put_number(session, 1, 11)
    with pytest.raises(InvalidInputError):
        session.commit(message, metadata)
    assert len(commits_in(storage)) == 1
    session.commit("fine")
    assert number(Repository.open(storage).readonly_session("main"), 1) == 11


def test_default_metadata_is_part_of_every_commit_and_yields_to_the_commits_own() -> None:
    repository = create_repository()
    repository.set_default_commit_metadata({"host": "one", "run": 1})
    session = repository.writable_session("main")
    put_number(session, 1, 11)
    session.commit("with defaults", {"run": 2})
    assert next(repository.ancestry(branch="main")).metadata == {"host": "one", "run": 2}


def test_nothing_of_an_uncommitted_session_is_in_the_log() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = create_repository(storage)
    before = keys(storage, "refs/")
    session = repository.writable_session("main")
    put_number(session, 1, 11)
    assert keys(storage, "refs/") == before


# -- event loops --------------------------------------------------------------------------------------------------


async def test_the_asynchronous_twins_do_what_the_synchronous_ones_do() -> None:
    storage = in_memory_storage()
    repository = await Repository.create_async(storage)
    assert await Repository.exists_async(storage)
    assert (await Repository.open_async(storage)).id == repository.id
    assert (await Repository.open_or_create_async(storage)).id == repository.id
    session = await repository.writable_session_async("main")
    await asyncio.to_thread(zarr.create_group, session.store)
    snapshot = await session.commit_async("asynchronous", {"a": 1})
    await repository.create_branch_async("side", snapshot)
    await repository.create_tag_async("v1", snapshot)
    assert (await repository.readonly_session_async(tag="v1")).snapshot_id == snapshot
    assert (await repository.readonly_session_async("side")).snapshot_id == snapshot
    assert [info.message async for info in repository.async_ancestry(branch="main")] == [
        "asynchronous",
        "Repository initialized",
    ]


async def test_the_synchronous_calls_work_inside_a_running_event_loop() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commit_number(repository, 1, 11)
    assert number(Repository.open(storage).readonly_session("main"), 1) == 11
    assert len(list(repository.ancestry(branch="main"))) == 3


async def test_many_sessions_commit_from_one_event_loop_and_lose_nothing() -> None:
    storage = in_memory_storage()
    repository = await asyncio.to_thread(create_repository, storage)

    async def work(row: int) -> str:
        while True:
            session = await repository.writable_session_async("main")
            put_number(session, row, row)
            try:
                return await session.commit_async(f"row {row}")
            except ConflictError:
                continue

    acknowledged = await asyncio.gather(*(work(row) for row in range(40)))
    history = [info.id async for info in repository.async_ancestry(branch="main")]
    assert sorted(history[:-2]) == sorted(acknowledged)
    reader = await repository.readonly_session_async("main")
    assert [number(reader, row) for row in range(40)] == list(range(40))
