"""Branches that are reset, deleted and created again; sessions and histories that go across that."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from arraystore import (
    AlreadyExistsError,
    ArrayStoreError,
    ConflictDetector,
    ConflictError,
    InvalidInputError,
    RefNotFoundError,
    Repository,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    in_memory_storage,
)
from arraystore._format.ids import id_to_text
from arraystore._format.lifecycle import Deleted, Reset
from arraystore.storage import CountingStorage
from tests.commit.support import (
    commit_number,
    commit_rows,
    commits_in,
    create_repository,
    delete,
    entries,
    keys,
    number,
    put_number,
)


def messages(repository: Repository, **where: Any) -> list[str]:
    history = list(repository.ancestry(**where))
    assert [info.parent_id for info in history] == [*(info.id for info in history[1:]), None]
    return [info.message for info in history]


FIRST = ["create a", "Repository initialized"]


# -- resets -----------------------------------------------------------------------------------------------------


def test_a_branch_that_is_reset_stands_at_the_other_snapshot_for_all_who_look() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 5)
    other = Repository.open(storage)
    assert other.lookup_branch("main") == commits[4]
    repository.reset_branch("main", commits[1])
    for opened in (repository, other, Repository.open(storage)):
        assert opened.lookup_branch("main") == commits[1]
        session = opened.readonly_session("main")
        assert [number(session, row) for row in (1, 2, 3, 5)] == [1, 2, None, None]
        assert messages(opened, branch="main") == ["row 2", "row 1", *FIRST]
    commit_number(repository, 9, 9)
    assert messages(Repository.open(storage), branch="main") == ["row 9", "row 2", "row 1", *FIRST]


def test_history_follows_parents_across_many_resets_in_pages_and_records() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 100)
    repository.reset_branch("main", commits[79])
    commit_rows(repository, 200, 239)
    repository.wait_for_maintenance()
    repository.reset_branch("main", commits[9])
    last = commit_number(repository, 300, 300)
    expected = ["row 300", *(f"row {row}" for row in range(10, 0, -1)), *FIRST]
    assert messages(repository, branch="main") == messages(Repository.open(storage), branch="main") == expected
    assert messages(Repository.open(storage), snapshot_id=last) == expected
    for prefix in ("hints/", "history/"):
        delete(storage, prefix)
    assert messages(Repository.open(storage), branch="main") == expected


def test_a_reset_to_the_snapshot_of_another_branch_takes_its_history() -> None:
    repository = create_repository()
    first = commit_number(repository, 1, 1)
    repository.create_branch("side", first)
    side = commit_number(repository, 2, 2, "side")
    commit_number(repository, 3, 3)
    repository.reset_branch("main", side)
    commit_number(repository, 4, 4)
    assert messages(repository, branch="main") == ["row 4", "row 2", "row 1", *FIRST]
    assert messages(repository, branch="side") == ["row 2", "row 1", *FIRST]


def test_a_reset_from_a_snapshot_happens_only_if_the_branch_stands_there() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first, second = commit_rows(repository, 1, 2)
    before = entries(storage)
    with pytest.raises(ConflictError) as caught:
        Repository.open(storage).reset_branch("main", first, from_snapshot_id=first)
    assert (caught.value.expected_parent, caught.value.actual_parent) == (first, second)
    assert entries(storage) == before
    repository.reset_branch("main", first, from_snapshot_id=second)
    assert repository.lookup_branch("main") == first
    assert isinstance(entries(storage)[len(before)], Reset)


def test_of_many_resets_from_one_snapshot_one_happens() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 8)

    def reset(snapshot: str) -> str | None:
        try:
            Repository.open(storage).reset_branch("main", snapshot, from_snapshot_id=commits[-1])
        except ConflictError:
            return None
        return snapshot

    with ThreadPoolExecutor(7) as pool:
        won = [snapshot for snapshot in pool.map(reset, commits[:-1]) if snapshot]
    assert won == [repository.lookup_branch("main")]


def test_a_reset_without_a_branch_or_a_snapshot_is_refused_and_changes_nothing() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)
    before = entries(storage)
    with pytest.raises(RefNotFoundError, match="no branch 'side'"):
        repository.reset_branch("side", first)
    with pytest.raises(SnapshotNotFoundError):
        repository.reset_branch("main", "0" * 20)
    for wrong in ({"snapshot_id": "no id"}, {"snapshot_id": first, "from_snapshot_id": "no id"}):
        with pytest.raises(InvalidInputError, match="no id"):
            repository.reset_branch("main", **wrong)
    assert entries(storage) == before


@pytest.mark.parametrize("solver", [None, ConflictDetector()])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_session_opened_before_a_reset_commits_nothing_and_is_told_why(solver: Any, isolation: Any) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first, _ = commit_rows(repository, 1, 2)
    session = Repository.open(storage).writable_session("main", isolation=isolation)
    put_number(session, 50, 50)
    repository.reset_branch("main", first)
    commit_number(repository, 3, 3)
    before = commits_in(storage)
    with pytest.raises(ConflictError, match="was reset to another snapshot since this session was opened") as caught:
        session.commit("too late", rebase_with=solver)
    assert "Nothing was committed" in str(caught.value)
    assert commits_in(storage) == before
    assert number(Repository.open(storage).readonly_session("main"), 50) is None


def test_a_reset_to_where_the_branch_stands_ends_sessions_too() -> None:
    repository = create_repository()
    newest = commit_number(repository, 1, 1)
    session = repository.writable_session("main")
    put_number(session, 2, 2)
    repository.reset_branch("main", newest)
    with pytest.raises(ConflictError, match="was reset"):
        session.commit("too late")


# -- deletions --------------------------------------------------------------------------------------------------


def test_a_branch_that_is_deleted_is_gone_for_all_who_look() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    other = Repository.open(storage)
    repository.create_branch("side/é", commit_number(repository, 1, 1))
    commit_number(other, 2, 2, "side/é")
    repository.delete_branch("side/é")
    for opened in (repository, other, Repository.open(storage)):
        assert opened.list_branches() == {"main"}
        for look in (opened.lookup_branch, opened.readonly_session, opened.writable_session, opened.delete_branch):
            with pytest.raises(RefNotFoundError, match="no branch 'side/é'"):
                look("side/é")
        with pytest.raises(RefNotFoundError, match="no branch 'side/é'"):
            opened.reset_branch("side/é", opened.lookup_branch("main"))
    assert isinstance(entries(storage, "side/é")[2], Deleted)
    assert messages(repository, branch="main") == ["row 1", *FIRST]


def test_the_first_branch_and_one_that_never_was_cannot_be_deleted() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    before = keys(storage)
    with pytest.raises(InvalidInputError, match="reset_branch"):
        repository.delete_branch("main")
    with pytest.raises(RefNotFoundError, match="no branch 'side'"):
        repository.delete_branch("side")
    for wrong in ("", "a\0", "x" * 300):
        with pytest.raises(InvalidInputError):
            repository.delete_branch(wrong)
    assert keys(storage) == before


@pytest.mark.parametrize("solver", [None, ConflictDetector()])
def test_a_session_opened_before_a_deletion_commits_nothing_and_is_told_why(solver: Any) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.create_branch("side", commit_number(repository, 1, 1))
    sessions = [Repository.open(storage).writable_session("side"), repository.writable_session("side")]
    for session in sessions:
        put_number(session, 7, 7)
    repository.delete_branch("side")
    for session in sessions:
        with pytest.raises(RefNotFoundError, match="branch 'side' was deleted; nothing was committed"):
            session.commit("too late", rebase_with=solver)
    assert commits_in(storage, "side") == []


def test_a_deleted_branch_that_is_created_again_begins_where_its_creator_says() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 3)
    repository.create_branch("side", commits[2])
    commit_number(repository, 10, 10, "side")
    late = Repository.open(storage).writable_session("side")
    put_number(late, 77, 77)
    repository.delete_branch("side")
    Repository.open(storage).create_branch("side", commits[0])
    commit_number(repository, 11, 11, "side")
    for opened in (repository, Repository.open(storage)):
        assert opened.list_branches() == {"main", "side"}
        assert messages(opened, branch="side") == ["row 11", "row 1", *FIRST]
        session = opened.readonly_session("side")
        assert [number(session, row) for row in (1, 2, 10, 11, 77)] == [1, None, None, 11, None]
    with pytest.raises(ConflictError, match="was reset"):
        late.commit("of the branch that was there before", rebase_with=ConflictDetector())
    with pytest.raises(AlreadyExistsError, match="side"):
        repository.create_branch("side", commits[1])


@pytest.mark.thorough
def test_a_branch_is_deleted_and_created_again_many_times() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 3)
    for turn in range(40):  # past a table of the repository log
        repository.create_branch("side", commits[turn % 3])
        commit_number(repository, 100 + turn, turn, "side")
        assert messages(Repository.open(storage), branch="side")[:2] == [f"row {100 + turn}", f"row {turn % 3 + 1}"]
        repository.delete_branch("side")
    assert Repository.open(storage).list_branches() == {"main"}
    assert Repository.open(storage).list_tags() == set()


def test_of_many_that_create_a_deleted_branch_again_one_does() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 6)
    repository.create_branch("side", commits[0])
    repository.delete_branch("side")

    def create(snapshot: str) -> str | None:
        try:
            Repository.open(storage).create_branch("side", snapshot)
        except AlreadyExistsError:
            return None
        return snapshot

    with ThreadPoolExecutor(6) as pool:
        won = [snapshot for snapshot in pool.map(create, commits) if snapshot]
    assert won == [repository.lookup_branch("side")]
    assert [type(entry) for entry in entries(storage, "side").values()][1:] == [Deleted, Reset]


def test_of_many_that_delete_a_branch_one_does() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.create_branch("side", commit_number(repository, 1, 1))

    def end(_: int) -> bool:
        try:
            Repository.open(storage).delete_branch("side")
        except RefNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(end, range(6))) == 1
    assert [type(entry) for entry in entries(storage, "side").values()][1:] == [Deleted]


def test_writers_race_a_reset_and_each_commit_is_before_it_or_after_it_or_refused() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)

    def write(row: int) -> str | None:
        session = Repository.open(storage).writable_session("main")
        put_number(session, row, row)
        try:
            return session.commit(f"row {row}", rebase_with=ConflictDetector())
        except ArrayStoreError as error:
            assert isinstance(error, ConflictError)  # noqa: PT017
            return None

    with ThreadPoolExecutor(5) as pool:
        writing = [pool.submit(write, row) for row in range(10, 40)]
        pool.submit(repository.reset_branch, "main", first).result()
        acknowledged = {done.result() for done in writing} - {None}
    log = entries(storage)
    (reset,) = [at for at, entry in log.items() if isinstance(entry, Reset)]
    committed = [t.id for at, entry in log.items() if hasattr(entry, "transactions") for t in entry.transactions]
    after = [t.id for at, entry in log.items() if at > reset for t in getattr(entry, "transactions", ())]
    assert acknowledged <= set(map(id_to_text, committed))
    shown = {info.id for info in Repository.open(storage).ancestry(branch="main")}
    assert set(map(id_to_text, after)) <= shown
    assert len(shown) == len(after) + 3


# -- undoing ----------------------------------------------------------------------------------------------------


def test_a_reset_is_undone_by_another_one() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 4)
    repository.reset_branch("main", commits[0])
    commit_number(repository, 9, 9)
    repository.reset_branch("main", commits[2])
    Repository.open(storage).reset_branch("main", commits[3])
    opened = Repository.open(storage)
    assert messages(opened, branch="main") == [*(f"row {row}" for row in (4, 3, 2, 1)), *FIRST]
    session = opened.readonly_session("main")
    assert [number(session, row) for row in (1, 2, 3, 4, 9)] == [1, 2, 3, 4, None]


def test_a_deleted_branch_is_recovered_from_its_newest_snapshot() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    repository.create_branch("side", commit_number(repository, 1, 1))
    newest = [commit_number(repository, row, row, "side") for row in (2, 3)][-1]
    repository.delete_branch("side")
    Repository.open(storage).create_branch("side", newest)
    assert messages(Repository.open(storage), branch="side") == ["row 3", "row 2", "row 1", *FIRST]
    repository.garbage_collect(datetime.now(UTC))
    repository.garbage_collect(datetime.now(UTC), full=True)
    session = Repository.open(storage).readonly_session("side")
    assert [number(session, row) for row in (1, 2, 3)] == [1, 2, 3]
    assert messages(Repository.open(storage), branch="side") == ["row 3", "row 2", "row 1", *FIRST]


@pytest.mark.parametrize("age", [0, 3600])
def test_what_a_collection_has_seen_given_up_is_never_brought_back(age: int) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first, second = commit_rows(repository, 1, 2)
    repository.create_branch("side", first)
    side = commit_number(repository, 3, 3, "side")
    repository.delete_branch("side")
    repository.reset_branch("main", first)
    Repository.open(storage).garbage_collect(datetime.now(UTC) - timedelta(seconds=age))
    before = keys(storage, "refs/")
    for opened in (repository, Repository.open(storage)):
        for gone in (second, side):
            for bring in (
                lambda each, gone: each.reset_branch("main", gone),
                lambda each, gone: each.create_branch("side", gone),
                lambda each, gone: each.create_tag("v1", gone),
            ):
                with pytest.raises((SnapshotExpiredError, SnapshotNotFoundError), match=r"expired|no snapshot"):
                    bring(opened, gone)
    assert keys(storage, "refs/") == before
    assert messages(Repository.open(storage), branch="main") == ["row 1", *FIRST]


# -- what it costs ----------------------------------------------------------------------------------------------


def operations(counting: CountingStorage) -> list[str]:
    found = [operation for operation, _ in counting.log if operation != "sync"]
    counting.reset()
    return found


def test_listing_and_creating_and_deleting_take_a_bounded_number_of_requests() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    newest = commit_rows(repository, 1, 130)[-1]
    for turn in range(70):
        repository.create_tag(f"t{turn}", newest)
    counting = CountingStorage(storage)
    opened = Repository.open(counting)
    counting.reset()
    assert len(opened.list_tags()) == 70
    assert operations(counting) == ["list", "get", "get"]
    assert opened.list_branches() == {"main"}
    assert operations(counting) == ["list"]
    opened.lookup_branch("main")
    counting.reset()
    for work, most in (
        (lambda: opened.create_tag("new", newest), 8),
        (lambda: opened.create_branch("side", newest), 15),
        (lambda: opened.reset_branch("side", newest), 8),
        (lambda: opened.delete_branch("side"), 6),
        (lambda: opened.delete_tag("new"), 2),
    ):
        work()
        assert len([each for each in operations(counting) if each != "head"]) <= most + 2
