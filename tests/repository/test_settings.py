"""What a repository keeps about itself: metadata, configuration, status, flags; and what these do to commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    InvalidInputError,
    ReadOnlyError,
    Repository,
    RepositoryConfig,
    in_memory_storage,
)
from arraystore._format.lifecycle import NO_FENCE, BranchLife
from arraystore._format.record import Commit
from arraystore._log.status import FLAGS, RepoAvailability, RepoStatus
from arraystore.storage import CountingStorage
from tests.commit.support import (
    commit_number,
    commits_in,
    create_repository,
    entries,
    keys,
    number,
    put_number,
)

CLOSED = RepoStatus(RepoAvailability.read_only, limited_availability_reason="moving house")
OPEN = RepoStatus(RepoAvailability.online)


# -- metadata and configuration ---------------------------------------------------------------------------------


def test_metadata_is_kept_replaced_and_updated_for_all_who_open_the_repository() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    assert repository.get_metadata() == repository.metadata == {}
    first = {"title": "é", "nested": {"list": [1, 2.5, None, True]}}
    repository.set_metadata(first)
    assert Repository.open(storage).get_metadata() == first
    assert Repository.open(storage).update_metadata({"title": "b", "new": 1}) == {**first, "title": "b", "new": 1}
    assert repository.metadata == {**first, "title": "b", "new": 1}
    repository.set_metadata({})
    assert Repository.open(storage).metadata == {}


def test_updates_of_metadata_at_the_same_time_are_all_kept() -> None:
    storage = in_memory_storage()
    create_repository(storage)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Repository.open(storage).update_metadata({f"k{n}": n}), range(24)))
    assert Repository.open(storage).metadata == {f"k{n}": n for n in range(24)}


@pytest.mark.parametrize("wrong", [{"a": b"bytes"}, {1: 2}, {"a": object()}, {"a": {"b": {3}}}, {"a": "x" * 70_000}, 7])
def test_metadata_that_cannot_be_stored_is_refused_and_changes_nothing(wrong: Any) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.set_metadata({"kept": 1})
    before = keys(storage)
    for change in (repository.set_metadata, repository.update_metadata):
        with pytest.raises(InvalidInputError):
            change(wrong)
    assert keys(storage) == before
    assert repository.metadata == {"kept": 1}


def test_a_configuration_that_is_saved_is_that_of_all_who_open_the_repository_without_one() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    assert Repository.fetch_config(storage) == repository.config
    changed = RepositoryConfig(inline_chunk_threshold_bytes=77)
    Repository.open(storage, changed).save_config()
    assert Repository.fetch_config(storage) == Repository.open(storage).config == changed
    assert Repository.open(storage, RepositoryConfig()).config == RepositoryConfig()
    again = RepositoryConfig(inline_chunk_threshold_bytes=78)
    repository.save_config(again)
    for _ in range(70):  # past a checkpoint, whose hint has to go on telling of it
        commit_number(repository, 1, 1)
    repository.wait_for_maintenance()
    assert Repository.open(storage).config == again
    assert Repository.fetch_config(in_memory_storage()) is None


def test_opening_costs_no_more_requests_while_no_configuration_was_saved() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.set_metadata({"a": 1})
    counting = CountingStorage(storage)
    Repository.open(counting)
    assert len(counting.log) <= 2
    repository.save_config(RepositoryConfig(inline_chunk_threshold_bytes=5))
    counting.reset()
    Repository.open(counting)
    assert len(counting.log) <= 4


# -- status -----------------------------------------------------------------------------------------------------


def test_the_status_is_told_with_its_reason_and_since_when() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    assert repository.get_status() == OPEN
    repository.set_status(CLOSED)
    found = Repository.open(storage).status
    assert (found.availability, found.limited_availability_reason) == (RepoAvailability.read_only, "moving house")
    assert found.set_at is not None
    repository.set_status(OPEN)
    assert Repository.open(storage).status.availability == RepoAvailability.online
    with pytest.raises(InvalidInputError, match="RepoStatus"):
        repository.set_status("read_only")  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", [None, ConflictDetector()])
def test_sessions_opened_before_a_repository_was_closed_commit_nothing(solver: Any) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.create_branch("side", commit_number(repository, 1, 1))
    opened = [Repository.open(storage), repository]
    sessions = [(branch, each.writable_session(branch)) for each in opened for branch in ("main", "side")]
    for row, (_, session) in enumerate(sessions, 10):
        put_number(session, row, row)
    repository.set_status(CLOSED)
    before = [commits_in(storage, branch) for branch in ("main", "side")]
    for branch, session in sessions:
        with pytest.raises(ReadOnlyError, match=f"nothing can be committed to branch '{branch}'"):
            session.commit("closed", rebase_with=solver)
    assert [commits_in(storage, branch) for branch in ("main", "side")] == before
    repository.set_status(OPEN)
    for _, session in sessions:
        session.commit("open again", rebase_with=ConflictDetector())
    reading = {branch: Repository.open(storage).readonly_session(branch) for branch, _ in sessions}
    assert [number(reading[branch], row) for row, (branch, _) in enumerate(sessions, 10)] == [10, 11, 12, 13]


def test_appends_that_wait_for_one_another_are_refused_as_well() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    with repository.transaction("main", message="series") as store:
        zarr.create_array(store, name="t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["t"])
    sessions = [repository.writable_session("main") for _ in range(6)]
    for value, session in enumerate(sessions):
        session.append({"t": np.full(2, value)}, "t")
    repository.set_status(CLOSED)
    before = entries(storage)

    def commit(session: Any) -> str:
        with pytest.raises(ReadOnlyError) as caught:
            session.commit("together", rebase_with=ConflictDetector())
        return str(caught.value)

    with ThreadPoolExecutor(6) as pool:
        assert all("read-only" in text for text in pool.map(commit, sessions))
    assert entries(storage) == before


def test_everything_that_changes_a_repository_is_refused_while_it_is_closed() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)
    repository.create_branch("side", first)
    repository.create_tag("v1", first)
    amending, flushing = (repository.writable_session("main") for _ in range(2))
    for session in (amending, flushing):
        put_number(session, 2, 2)
    repository.set_status(CLOSED)
    before = entries(storage), entries(storage, "side"), keys(storage, "refs/")
    for change in (
        lambda: repository.create_branch("new", first),
        lambda: repository.create_tag("new", first),
        lambda: repository.delete_branch("side"),
        lambda: repository.delete_tag("v1"),
        lambda: repository.reset_branch("side", first),
        lambda: repository.set_metadata({"a": 1}),
        lambda: repository.update_metadata({"a": 1}),
        repository.save_config,
        lambda: repository.set_feature_flag("create_tag", False),
        lambda: amending.amend("amended"),
        lambda: flushing.flush("on no branch"),
    ):
        with pytest.raises(ReadOnlyError, match="read-only"):
            change()
    assert (entries(storage), entries(storage, "side"), keys(storage, "refs/")) == before
    assert number(Repository.open(storage).readonly_session("main"), 1) == 1
    assert {info.id for info in repository.ancestry(tag="v1")} >= {first}


def test_a_branch_that_was_created_again_is_closed_and_opened_with_all_others() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)
    repository.create_branch("side", first)
    repository.delete_branch("side")
    repository.set_status(CLOSED)
    repository.set_status(OPEN)
    repository.create_branch("side", first)
    session = repository.writable_session("side")
    put_number(session, 5, 5)
    repository.set_status(CLOSED)
    with pytest.raises(ReadOnlyError):
        session.commit("closed")
    repository.set_status(OPEN)
    session.commit("open")
    assert number(Repository.open(storage).readonly_session("side"), 5) == 5


def test_writers_race_a_closing_and_nothing_is_committed_after_it() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)

    def write(row: int) -> bool:
        session = Repository.open(storage).writable_session("main")
        put_number(session, row, row)
        try:
            session.commit(f"row {row}", rebase_with=ConflictDetector())
        except ReadOnlyError:
            return False
        return True

    with ThreadPoolExecutor(5) as pool:
        writing = [pool.submit(write, row) for row in range(10, 40)]
        pool.submit(repository.set_status, CLOSED).result()
        at_once = entries(storage)
        done = [future.result() for future in writing]
    log = entries(storage)
    assert log == at_once
    rows = [row for row, won in enumerate(done, 10) if won]
    commits = [t for entry in log.values() if isinstance(entry, Commit) for t in entry.transactions]
    assert len(rows) == len(commits) - 1
    session = Repository.open(storage).readonly_session("main")
    assert [number(session, row) for row in rows] == rows


# -- flags ------------------------------------------------------------------------------------------------------


def test_operations_that_are_switched_off_are_refused_until_they_are_allowed_again() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)
    repository.create_branch("side", first)
    repository.create_tag("v1", first)
    assert [flag.name for flag in repository.feature_flags()] == list(FLAGS)
    assert repository.disabled_feature_flags() == []
    changes = {
        "create_branch": lambda each: each.create_branch("new", first),
        "create_tag": lambda each: each.create_tag("new", first),
        "delete_branch": lambda each: each.delete_branch("side"),
        "delete_tag": lambda each: each.delete_tag("v1"),
    }
    for name in changes:
        repository.set_feature_flag(name, False)
    for opened in (repository, Repository.open(storage)):
        assert {flag.name for flag in opened.disabled_feature_flags()} == set(changes)
        for name, change in changes.items():
            with pytest.raises(InvalidInputError, match=f"{name} is switched off.*set_feature_flag"):
                change(opened)
    assert repository.list_branches() == {"main", "side"}
    for name, change in changes.items():
        repository.set_feature_flag(name, None)
        change(repository)
    assert (repository.list_branches(), repository.list_tags()) == ({"main", "new"}, {"new"})
    assert len(Repository.open(storage).enabled_feature_flags()) == len(FLAGS)


def test_a_move_is_refused_where_moves_are_switched_off() -> None:
    repository = create_repository()
    repository.set_feature_flag("move_node", False)
    session = repository.writable_session("main")
    session.move("a", "b")
    with pytest.raises(InvalidInputError, match="move_node is switched off"):
        session.commit("moved")
    assert len(commits_in(repository.storage)) == 1
    commit_number(repository, 1, 1)
    repository.set_feature_flag("move_node", True)
    session.commit("moved", rebase_with=ConflictDetector())
    assert number(repository.readonly_session("main"), 1, "b") == 1


def test_a_flag_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    repository = create_repository()
    with pytest.raises(InvalidInputError, match="create_branch, create_tag"):
        repository.set_feature_flag("everything", False)


def test_a_branch_that_is_created_anew_is_open_whatever_was_said_before_it_was_deleted() -> None:
    before = BranchLife(read_only=True, ended=7, deleted=True)
    assert not before.after_start(8, None, NO_FENCE, 3).read_only
