"""A branch that its own log ends, while the repository log does not say so yet: nobody fails over it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from arraystore import Fault, FaultyStorage, RefNotFoundError, Repository, StorageError, in_memory_storage
from arraystore._log.status import RepoAvailability, RepoStatus
from arraystore.copying.clone import clone_repository
from arraystore.storage import Storage
from tests.history.worlds import commit, put, world


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Make a repository of which a deletion stopped after the branch's log."""
    monkeypatch.setattr("arraystore._log.conditional_put._APPEND_TRIES", 2)
    made = in_memory_storage()
    repository = world(made)
    repository.create_branch("side", repository.lookup_branch("main"))
    commit(repository, put("g/a", 0, 1), branch="side")
    faulty = FaultyStorage(made, [Fault("put_if_absent", key="refs/*/repository/*", times=None)])
    with pytest.raises(StorageError, match="on purpose"):
        Repository.open(faulty).delete_branch("side")
    assert "side" in Repository.open(made).list_branches()
    return made


def test_nobody_opens_it_and_looking_writes_nothing(storage: Storage) -> None:
    faulty = FaultyStorage(storage, [Fault("put_if_absent", times=None), Fault("put", times=None)])
    with pytest.raises(RefNotFoundError, match="deleted"):
        Repository.open(faulty).lookup_branch("side")
    with pytest.raises(RefNotFoundError, match="deleted"):
        Repository.open(faulty).readonly_session("side")


def test_statistics_graph_history_and_verification_pass_over_it(storage: Storage) -> None:
    repository = Repository.open(storage)
    assert repository.statistics().branch == "main"
    assert "side" not in str(repository.ancestry_graph())
    assert list(repository.ops_log())
    assert repository.verify().ok


def test_maintenance_goes_on_and_completes_it(storage: Storage) -> None:
    report = Repository.open(storage).maintain()
    assert report.status == "done", report
    assert Repository.open(storage).list_branches() == {"main"}


def test_a_status_and_an_expiry_complete_or_pass_over_it(storage: Storage) -> None:
    repository = Repository.open(storage)
    repository.set_status(RepoStatus(RepoAvailability.online))
    repository.expire_snapshots(datetime.now(UTC), delete_expired_branches=True)
    assert Repository.open(storage).list_branches() == {"main"}


def test_a_clone_of_it_is_complete_and_can_be_continued(storage: Storage) -> None:
    target = in_memory_storage()
    clone_repository(storage, target)
    clone_repository(storage, target)
    commit(Repository.open(storage), put("g/a", 1, 7))
    Repository.open(storage).garbage_collect(datetime.now(UTC))
    clone_repository(storage, target)
    assert Repository.open(target).list_branches() == {"main"}
