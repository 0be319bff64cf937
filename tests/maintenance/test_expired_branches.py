"""Branches and tags that are deleted for being old: only as long as they are, and with all that only they showed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictError,
    Fault,
    FaultyStorage,
    ReadOnlyError,
    RefNotFoundError,
    RepoAvailability,
    Repository,
    RepoStatus,
    SnapshotExpiredError,
    StorageError,
    in_memory_storage,
)
from arraystore._format.lifecycle import Deleted
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import copy_of, entries
from tests.history.worlds import commit, put, world
from tests.maintenance.model import now
from tests.maintenance.worlds import Meanwhile

OTHER = "/branch/other/"
REPOSITORY_LOG = "/repository/"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arraystore._log.conditional_put._APPEND_TRIES", 2)


def _with_old_branch() -> tuple[Storage, list[str], datetime]:
    """Make a repository with a branch that has two snapshots of its own; returns these and when they are old."""
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    own = [commit(repository, put("g/a", 0, value), branch="other") for value in (10, 11)]
    moment = now()
    commit(repository, put("g/b", 0, 1))
    return storage, own, moment


def _values(repository: Repository, branch: str) -> list[int]:
    session = repository.readonly_session(branch)
    return [int(each) for each in np.asarray(zarr.open_array(session.store, path="g/a", mode="r")[...])]


def _is_there(storage: Storage, branch: str) -> bool:
    try:
        Repository.open(storage).lookup_branch(branch)
    except RefNotFoundError:
        return False
    return True


def _commit_and_collect(storage: Storage) -> Callable[[], None]:
    def happens() -> None:
        repository = Repository.open(storage)
        commit(repository, put("g/a", 1, 20), branch="other")
        repository.garbage_collect(now(), full=True)

    return happens


def test_a_commit_and_a_fence_between_the_decision_and_the_deletion_keep_the_branch() -> None:
    storage, _, moment = _with_old_branch()
    meanwhile = Meanwhile(storage, "put_if_absent", OTHER, _commit_and_collect(storage))
    gone = Repository.open(meanwhile).expire_snapshots(moment, delete_expired_branches=True)
    assert meanwhile.happened
    fresh = Repository.open(storage)
    fresh.garbage_collect(now(), full=True)
    assert _values(fresh, "other") == [11, 20, 3, 4, 5, 6]
    assert Repository.open(storage).lookup_branch("other") not in gone


def test_a_commit_after_the_deletion_is_refused_and_never_acknowledged_in_vain() -> None:
    storage, _, moment = _with_old_branch()
    told: list[str] = []

    def happens() -> None:
        try:
            commit(Repository.open(storage), put("g/a", 1, 20), branch="other")
        except RefNotFoundError as error:
            told.append(str(error))

    meanwhile = Meanwhile(storage, "put_if_absent", REPOSITORY_LOG, happens)
    Repository.open(meanwhile).expire_snapshots(moment, delete_expired_branches=True)
    assert told
    assert Repository.open(storage).list_branches() == {"main"}


def test_a_branch_that_is_reset_between_the_decision_and_the_deletion_stays() -> None:
    storage, own, moment = _with_old_branch()
    newest = Repository.open(storage).lookup_branch("main")
    meanwhile = Meanwhile(
        storage, "put_if_absent", OTHER, lambda: Repository.open(storage).reset_branch("other", newest)
    )
    Repository.open(meanwhile).expire_snapshots(moment, delete_expired_branches=True)
    assert meanwhile.happened
    assert Repository.open(storage).lookup_branch("other") == newest
    assert own[-1] != newest


def test_an_expirer_that_dies_at_any_write_leaves_a_branch_that_is_there_or_is_not() -> None:
    original, own, moment = _with_old_branch()
    seen = set()
    for when in ("before", "after"):
        for first in range(1, 30):
            storage = copy_of(original)
            faulty = FaultyStorage(
                storage,
                [
                    Fault("put_if_absent", when=when, first=first),
                    Fault("put_if_absent", first=first + 1, times=None),
                    Fault("put", first=first, times=None),
                ],
            )
            try:
                Repository.open(faulty).expire_snapshots(moment, delete_expired_branches=True)
            except StorageError:
                pass
            else:
                break
            there = _is_there(storage, "other")
            seen.add(there)
            if there:
                assert _values(Repository.open(storage), "other") == [11, 2, 3, 4, 5, 6]
                assert Repository.open(storage).expire_snapshots(moment, delete_expired_branches=True) >= {own[-1]}
            _check_can_go_on(storage)
    assert seen == {True, False}


def _check_can_go_on(storage: Storage) -> None:
    """Check that a branch that is gone can be created anew, that garbage is collected, and that nothing is amiss."""
    Repository.open(storage).garbage_collect(now(), full=True)
    assert not _is_there(storage, "other")
    repository = Repository.open(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    commit(repository, put("g/a", 2, 30), branch="other")
    assert Repository.open(storage).list_branches() == {"main", "other"}
    assert _values(Repository.open(storage), "other") == [1, 2, 30, 4, 5, 6]
    Repository.open(storage).garbage_collect(now(), full=True)
    assert _values(Repository.open(storage), "other") == [1, 2, 30, 4, 5, 6]
    assert Repository.open(storage).verify().ok


def test_whoever_creates_a_branch_completes_a_deletion_of_which_the_repository_log_does_not_know() -> None:
    storage, _, _ = _with_old_branch()
    faulty = FaultyStorage(storage, [Fault("put_if_absent", key=f"*{REPOSITORY_LOG}*", times=None)])
    with pytest.raises(StorageError, match="on purpose"):
        Repository.open(faulty).delete_branch("other")
    assert not _is_there(storage, "other")
    repository = Repository.open(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    assert _is_there(storage, "other")
    repository.delete_branch("other")
    assert repository.list_branches() == {"main"}
    assert [type(entry) for entry in entries(storage, "other").values()].count(Deleted) == 2


def test_of_two_expirers_one_deletes_the_branch_and_what_it_showed_is_told_by_it() -> None:
    storage, own, moment = _with_old_branch()

    def expire(_: int) -> set[str]:
        return Repository.open(storage).expire_snapshots(moment, delete_expired_branches=True)

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(expire, range(2)))
    assert set(own) <= told[0] | told[1]
    assert [type(entry) for entry in entries(storage, "other").values()].count(Deleted) == 1


def _with_old_tag() -> tuple[Storage, list[str], datetime]:
    """Make a repository whose tag alone shows two snapshots."""
    storage, own, moment = _with_old_branch()
    repository = Repository.open(storage)
    repository.create_tag("v1", own[-1])
    repository.delete_branch("other")
    return storage, own, moment


@pytest.mark.parametrize("make", [_with_old_branch, _with_old_tag], ids=["branch", "tag"])
@pytest.mark.parametrize("collected", [False, True])
def test_what_expires_with_a_branch_or_a_tag_is_told_and_looked_up_as_expired(
    make: Callable[[], tuple[Storage, list[str], datetime]], collected: bool
) -> None:
    storage, own, moment = make()

    def expire(dry_run: bool) -> set[str]:
        return Repository.open(storage).expire_snapshots(
            moment, delete_expired_branches=True, delete_expired_tags=True, dry_run=dry_run
        )

    foreseen = expire(dry_run=True)
    assert foreseen == expire(dry_run=False) >= set(own)
    repository = Repository.open(storage)
    assert (repository.list_branches(), repository.list_tags()) == ({"main"}, set())
    if collected:
        repository.garbage_collect(now(), full=True)
    for snapshot in own:
        for one in (repository, Repository.open(storage)):
            with pytest.raises(SnapshotExpiredError, match=r"(?s)expired.*branch 'other'"):
                one.lookup_snapshot(snapshot)
            with pytest.raises(SnapshotExpiredError, match="expired"):
                one.readonly_session(snapshot_id=snapshot)


def test_what_a_tag_still_shows_of_a_branch_that_is_deleted_for_being_old_stays() -> None:
    storage, own, moment = _with_old_branch()
    Repository.open(storage).create_tag("v1", own[0])
    gone = Repository.open(storage).expire_snapshots(moment, delete_expired_branches=True)
    repository = Repository.open(storage)
    repository.garbage_collect(now(), full=True)
    assert own[1] in gone
    assert own[0] not in gone
    assert repository.lookup_snapshot(own[0]).id == own[0]
    session = Repository.open(storage).readonly_session(tag="v1")
    assert np.asarray(zarr.open_array(session.store, path="g/a", mode="r")[0]) == 10


def test_a_branch_that_stands_elsewhere_than_its_deleter_believes_is_not_deleted() -> None:
    storage, own, _ = _with_old_branch()
    repository = Repository.open(storage)
    with pytest.raises(ConflictError, match=own[0]):
        repository.delete_branch("other", from_snapshot_id=own[0])
    assert repository.lookup_branch("other") == own[1]
    repository.delete_branch("other", from_snapshot_id=own[1])
    assert Repository.open(storage).list_branches() == {"main"}


@pytest.mark.parametrize("collected", [False, True])
def test_a_process_that_knew_a_branch_which_was_deleted_and_collected_is_told_so(collected: bool) -> None:
    storage, _, _ = _with_old_branch()
    knows = Repository.open(storage)
    assert knows.lookup_branch("other")
    session = knows.writable_session("other")
    put("g/a", 3, 1)(session)
    repository = Repository.open(storage)
    for value in range(3):
        commit(repository, put("g/a", 4, value), message="x" * 2000, branch="other")
    repository.delete_branch("other")
    if collected:
        repository.garbage_collect(now(), full=True)
    with pytest.raises(RefNotFoundError, match="other"):
        knows.readonly_session("other")
    with pytest.raises(RefNotFoundError, match="other"):
        session.commit("too late")


# -- ended half-way ---------------------------------------------------------------------------------------------------


class _ClosedAfter(Meanwhile):
    """Lets something happen after the first deletion of a branch."""

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        written = await WrapperStorage.put_if_absent(self, key, data)
        await self._perhaps("put_if_absent", key)
        return written


def test_an_expiry_of_a_repository_that_is_closed_half_way_says_what_it_has_deleted() -> None:
    storage, _, moment = _with_old_branch()
    Repository.open(storage).create_branch("second", Repository.open(storage).lookup_branch("other"))
    closed = RepoStatus(RepoAvailability.read_only, limited_availability_reason="a migration")
    closing = _ClosedAfter(
        storage, "put_if_absent", REPOSITORY_LOG, lambda: Repository.open(storage).set_status(closed)
    )
    with pytest.raises(ReadOnlyError) as caught:
        Repository.open(closing).expire_snapshots(moment, delete_expired_branches=True)
    assert caught.value.__notes__ == ["Before that it has deleted branch 'other'."]
    assert Repository.open(storage).list_branches() == {"main", "second"}


def test_an_expiry_that_fails_half_way_says_how_much_has_expired() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("other", repository.lookup_branch("main"))
    for branch in ("main", "other"):
        for value in range(3):
            commit(repository, put("g/a", 0, value), branch=branch)
    moment = now()
    failing = FaultyStorage(storage, [Fault("put_if_absent", f"*{REPOSITORY_LOG}*", times=None)])
    with pytest.raises(StorageError) as caught:
        Repository.open(failing).expire_snapshots(moment)
    assert caught.value.__notes__ == ["Before that 5 snapshots have expired."]
    assert Repository.open(storage).expire_snapshots(moment) == set()
