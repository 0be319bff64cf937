"""Branches, tags and the history across them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from arraystore import (
    AlreadyExistsError,
    InvalidInputError,
    RefNotFoundError,
    Repository,
    SnapshotNotFoundError,
    in_memory_storage,
)
from arraystore.storage import CountingStorage
from tests.commit.support import commit_number, commit_rows, create_repository, delete, keys, number

NAMES = [
    "feature/new grid",
    "a",
    "a/b",
    "a.b",
    "A",
    "ünïcode 世界",
    "..",
    ".",
    "%2F",
    "main/000000000000",
    "x" * 200,
    "~",
]
REFUSED = ["", "x" * 300, "ü" * 100, "with\nnewline", "\x00", "\x7f", "\ud800", None, 7, b"bytes"]


@pytest.mark.parametrize("name", NAMES)
def test_any_sensible_name_works_for_a_branch_and_a_tag(name: str) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)
    repository.create_branch(name, first)
    repository.create_tag(name, first)
    second = commit_number(repository, 2, 2, name)
    again = Repository.open(storage)
    assert again.list_branches() == {"main", name}
    assert again.list_tags() == {name}
    assert (again.lookup_branch(name), again.lookup_branch("main"), again.lookup_tag(name)) == (second, first, first)
    assert number(again.readonly_session(name), 2) == 2
    assert number(again.readonly_session(tag=name), 2) is None


def test_many_names_that_share_beginnings_are_all_listed() -> None:
    for cheap in (True, False):
        storage = in_memory_storage()
        storage.cheap_probes = cheap
        repository = create_repository(storage)
        snapshot = commit_number(repository, 1, 1)
        for name in NAMES:
            repository.create_branch(name, snapshot)
            repository.create_tag(name, snapshot)
            commit_number(repository, 2, 2, name)
        assert Repository.open(storage).list_branches() == {"main", *NAMES}
        assert Repository.open(storage).list_tags() == set(NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_cannot_be_kept_is_refused(name: Any) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    snapshot = repository.lookup_branch("main")
    before = keys(storage)
    for create in (repository.create_branch, repository.create_tag):
        with pytest.raises(InvalidInputError):
            create(name, snapshot)
    assert keys(storage) == before


def test_a_branch_goes_its_own_way() -> None:
    repository = create_repository()
    commit_number(repository, 1, 1)
    repository.create_branch("side", repository.lookup_branch("main"))
    commit_number(repository, 2, 2, "side")
    commit_number(repository, 3, 3)
    side, main = repository.readonly_session("side"), repository.readonly_session("main")
    assert [number(side, row) for row in (1, 2, 3)] == [1, 2, None]
    assert [number(main, row) for row in (1, 2, 3)] == [1, None, 3]


def test_history_goes_on_across_the_origins_of_branches() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 150)
    repository.wait_for_maintenance()
    repository.create_branch("side", commits[99])
    side = [commit_number(repository, row, row, "side") for row in range(200, 270)]
    repository.wait_for_maintenance()
    repository.create_branch("tip", side[39])
    last = commit_number(repository, 300, 300, "tip")
    for opened in (repository, Repository.open(storage)):
        history = list(opened.ancestry(branch="tip"))
        rows = [300, *range(239, 199, -1), *range(100, 0, -1)]
        assert [info.message for info in history] == [f"row {row}" for row in rows] + [
            "create a",
            "Repository initialized",
        ]
        assert [info.parent_id for info in history] == [info.id for info in history[1:]] + [None]
        assert list(opened.ancestry(snapshot_id=last)) == history
    for prefix in ("hints/", "history/"):
        delete(storage, prefix)
    assert [info.id for info in Repository.open(storage).ancestry(branch="tip")] == [info.id for info in history]


def test_snapshots_of_every_branch_are_found_by_their_id() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    first = commit_number(repository, 1, 1)
    for name in ("b", "c"):
        repository.create_branch(name, first)
    found = {name: commit_number(repository, 2, row, name) for row, name in enumerate(("b", "c"), 10)}
    again = Repository.open(storage)
    assert number(again.readonly_session(snapshot_id=found["b"]), 2) == 10
    assert number(again.readonly_session(snapshot_id=found["c"]), 2) == 11
    with pytest.raises(SnapshotNotFoundError, match="main, b, c"):
        again.readonly_session(snapshot_id="0" * 20)


def test_a_branch_of_a_tagged_and_of_an_old_snapshot_starts_with_that() -> None:
    repository = create_repository()
    commits = commit_rows(repository, 1, 70)
    repository.create_tag("v1", commits[30])
    repository.create_branch("old", repository.lookup_tag("v1"))
    session = repository.readonly_session("old")
    assert (number(session, 31), number(session, 32)) == (31, None)
    assert [info.message for info in repository.ancestry(tag="v1")][:2] == ["row 31", "row 30"]


def test_a_branch_and_a_tag_are_made_once() -> None:
    repository = create_repository()
    first = repository.lookup_branch("main")
    second = commit_number(repository, 1, 1)
    repository.create_branch("side", first)
    repository.create_tag("v1", first)
    with pytest.raises(AlreadyExistsError, match="side"):
        repository.create_branch("side", second)
    with pytest.raises(AlreadyExistsError, match="main"):
        repository.create_branch("main", second)
    with pytest.raises(AlreadyExistsError, match="v1"):
        repository.create_tag("v1", second)
    assert (repository.lookup_branch("side"), repository.lookup_tag("v1")) == (first, first)


def test_a_branch_or_tag_of_a_snapshot_that_does_not_exist_is_refused() -> None:
    repository = create_repository()
    for create in (repository.create_branch, repository.create_tag):
        with pytest.raises(SnapshotNotFoundError):
            create("name", "0" * 20)
        with pytest.raises(InvalidInputError):
            create("name", "no id")
    assert repository.list_branches() == {"main"}
    assert repository.list_tags() == set()
    for look in (repository.lookup_branch, repository.lookup_tag):
        with pytest.raises(RefNotFoundError):
            look("name")


@pytest.mark.parametrize("kind", ["create_branch", "create_tag"])
def test_of_many_that_make_the_same_name_one_does(kind: str) -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    snapshots = [repository.lookup_branch("main"), *commit_rows(repository, 1, 7)]

    def create(snapshot: str) -> str | None:
        try:
            getattr(Repository.open(storage), kind)("contested", snapshot)
        except AlreadyExistsError:
            return None
        return snapshot

    with ThreadPoolExecutor(8) as pool:
        won = [snapshot for snapshot in pool.map(create, snapshots) if snapshot]
    assert len(won) == 1
    look = repository.lookup_branch if kind == "create_branch" else repository.lookup_tag
    assert look("contested") == won[0]


def test_opening_a_tag_takes_three_requests_however_long_the_history_is() -> None:
    storage = in_memory_storage()
    repository = create_repository(storage)
    commits = commit_rows(repository, 1, 140)
    repository.create_tag("v1", commits[20])
    counting = CountingStorage(storage)
    again = Repository.open(counting)
    counting.reset()
    session = again.readonly_session(tag="v1")
    assert [operation for operation, _ in counting.log] == ["list", "get", "get"]
    assert (number(session, 21), number(session, 22)) == (21, None)
