"""Whoever stops between the repository log and a branch's log leaves work that the next one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arraystore import (
    AlreadyExistsError,
    ConflictDetector,
    Fault,
    FaultyStorage,
    RefNotFoundError,
    Repository,
    StorageError,
    in_memory_storage,
)
from arraystore._format.lifecycle import Deleted, Fence, Reset
from arraystore._log.status import RepoAvailability, RepoStatus
from arraystore.storage import LocalStorage, Storage
from tests.commit.support import commit_number, commit_rows, create_repository, entries, keys, number, put_number
from tests.commit.workers import make_ref
from tests.keys import log_of
from tests.storage.workers import call_in_processes

SIDE = "refs/*/branch/side/*"


def stopped(storage: Storage, work: Callable[[Repository], Any], when: Any = "before", key: str = SIDE) -> None:
    """Let a process do something, and lose its storage as soon as it writes to a branch's log."""
    faults = [Fault("put_if_absent", key=key, when=when, times=None), Fault("get", key="hints/never")]
    faulty = FaultyStorage(storage, faults)
    repository = Repository.open(faulty)
    with pytest.raises(StorageError, match="on purpose"):
        work(repository)
    assert faulty.injected


@pytest.fixture
def storage() -> Storage:
    made = in_memory_storage()
    commit_rows(create_repository(made), 1, 3)
    return made


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arraystore._log.conditional_put._APPEND_TRIES", 2)


LOOKS: dict[str, Callable[[Repository], Any]] = {
    "lookup": lambda repository: repository.lookup_branch("side"),
    "reader": lambda repository: repository.readonly_session("side").snapshot_id,
    "writer": lambda repository: commit_number(repository, 9, 9, "side"),
    "history": lambda repository: next(iter(repository.ancestry(branch="side"))).id,
    "reset": lambda repository: repository.reset_branch("side", repository.lookup_branch("main")),
    "status": lambda repository: repository.set_status(RepoStatus(RepoAvailability.online)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_branch_whose_creator_stopped_before_its_first_record_is_there_for_whoever_comes(
    storage: Storage, look: str
) -> None:
    first = list(Repository.open(storage).ancestry(branch="main"))[1].id
    stopped(storage, lambda repository: repository.create_branch("side", first))
    assert keys(storage, log_of(storage, "side")) == []
    repository = Repository.open(storage)
    assert repository.list_branches() == {"main", "side"}
    LOOKS[look](repository)
    assert keys(storage, log_of(storage, "side"))
    with pytest.raises(AlreadyExistsError):
        repository.create_branch("side", first)
    session = Repository.open(storage).readonly_session("side")
    assert (number(session, 2), number(session, 3)) == (2, 3 if look == "reset" else None)


def test_everything_else_goes_on_beside_a_branch_that_has_no_record_yet(storage: Storage) -> None:
    stopped(storage, lambda each: each.create_branch("side", each.lookup_branch("main")))
    repository = Repository.open(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    newest = commit_number(repository, 4, 4, "other")
    again = Repository.open(storage)
    assert number(again.readonly_session(snapshot_id=newest), 4) == 4
    again.create_tag("v1", newest)
    again.delete_branch("other")
    again.create_branch("more", again.lookup_tag("v1"))
    assert Repository.open(storage).list_branches() == {"main", "side", "more"}
    assert number(Repository.open(storage).readonly_session("side"), 3) == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_branch_whose_creator_stopped_can_be_deleted_at_once(storage: Storage, when: str) -> None:
    stopped(storage, lambda each: each.create_branch("side", each.lookup_branch("main")), when)
    Repository.open(storage).delete_branch("side")
    repository = Repository.open(storage)
    assert repository.list_branches() == {"main"}
    with pytest.raises(RefNotFoundError, match="side"):
        repository.lookup_branch("side")
    assert [type(entry) for entry in entries(storage, "side").values()][1:] == [Deleted]


def test_a_deletion_that_stopped_is_completed_by_whoever_deletes_or_creates_the_branch(storage: Storage) -> None:
    for complete in ("delete", "create"):
        repository = Repository.open(storage)
        repository.create_branch("side", repository.lookup_branch("main"))
        late = repository.writable_session("side")
        put_number(late, 50, 50)
        stopped(storage, lambda each: each.delete_branch("side"), key="refs/*/repository/*")
        again = Repository.open(storage)
        assert again.list_branches() == {"main", "side"}
        with pytest.raises(RefNotFoundError, match="side"):
            again.lookup_branch("side")
        if complete == "delete":
            with pytest.raises(RefNotFoundError, match="side"):
                again.delete_branch("side")
            with pytest.raises(RefNotFoundError, match="nothing was committed"):
                late.commit("too late")
            assert isinstance(list(entries(storage, "side").values())[-1], Deleted)
            assert again.list_branches() == {"main"}
        else:
            first = list(again.ancestry(branch="main"))[1].id
            again.create_branch("side", first)
            assert again.lookup_branch("side") == first
            assert isinstance(list(entries(storage, "side").values())[-1], Reset)
            assert number(Repository.open(storage).readonly_session("side"), 50) is None


def test_a_branch_whose_creation_anew_stopped_is_there_for_whoever_comes(storage: Storage) -> None:
    repository = Repository.open(storage)
    repository.create_branch("side", repository.lookup_branch("main"))
    commit_number(repository, 60, 60, "side")
    repository.delete_branch("side")
    first = list(repository.ancestry(branch="main"))[1].id
    stopped(storage, lambda each: each.create_branch("side", first))
    assert Repository.open(storage).list_branches() == {"main", "side"}
    assert repository.lookup_branch("side") == first  # which knew that it was deleted
    session = Repository.open(storage).readonly_session("side")
    assert [number(session, row) for row in (2, 3, 60)] == [2, None, None]


def test_a_status_that_did_not_reach_every_branch_does_when_it_is_set_again(storage: Storage) -> None:
    repository = Repository.open(storage)
    repository.create_branch("side", repository.lookup_branch("main"))
    closed, opened = RepoStatus(RepoAvailability.read_only), RepoStatus(RepoAvailability.online)
    for status in (closed, opened):
        stopped(storage, lambda each, status=status: each.set_status(status))
        assert Repository.open(storage).get_status().availability == status.availability
        Repository.open(storage).set_status(status)
        for branch in ("main", "side"):
            last = list(entries(storage, branch).values())[-1]
            assert isinstance(last, Fence)
            assert last.read_only == (status is closed)
    commit_number(Repository.open(storage), 5, 5, "side")


def test_a_lost_acknowledgement_of_any_record_changes_nothing(storage: Storage) -> None:
    for number_ in range(1, 9):
        faulty = FaultyStorage(storage, [Fault("put_if_absent", when="after", first=number_)])
        repository = Repository.open(faulty)
        first, name = list(repository.ancestry(branch="main"))[1].id, f"side{number_}"
        repository.create_branch(name, first)
        repository.create_tag(name, first)
        repository.reset_branch(name, repository.lookup_branch("main"), from_snapshot_id=first)
        repository.delete_tag(name)
        repository.delete_branch(name)
        assert bool(faulty.injected) == (number_ <= 7)
        again = Repository.open(storage)
        assert (again.list_branches(), again.list_tags()) == ({"main"}, set())
        assert [type(entry) for entry in entries(storage, name).values()][1:] == [Reset, Deleted]


@pytest.mark.parametrize("kind", ["create_branch", "create_tag"])
def test_of_two_processes_that_create_the_same_name_one_does_and_the_other_is_told(tmp_path: Any, kind: str) -> None:
    storage = LocalStorage(tmp_path)
    snapshots = commit_rows(create_repository(storage), 1, 2)
    for turn in range(3):
        name = f"contested/{turn}"
        made = call_in_processes("spawn", make_ref, [(storage, kind, name, snapshot) for snapshot in snapshots])
        assert sorted(made) == [False, True]
        repository = Repository.open(storage)
        look = repository.lookup_branch if kind == "create_branch" else repository.lookup_tag
        assert look(name) == snapshots[made.index(True)]


def test_a_session_goes_on_while_tags_come_and_go(storage: Storage) -> None:
    repository = Repository.open(storage)
    session = repository.writable_session("main")
    put_number(session, 70, 70)
    for turn in range(5):
        repository.create_tag(f"t{turn}", repository.lookup_branch("main"))
        repository.delete_tag(f"t{turn}")
    session.commit("untouched", rebase_with=ConflictDetector())
    assert number(Repository.open(storage).readonly_session("main"), 70) == 70
