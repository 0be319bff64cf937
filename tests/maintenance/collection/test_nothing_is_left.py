"""One collection takes all that nothing needs any more, and the next one of the same cut-off nothing at all."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from arraystore import Repository, in_memory_storage
from arraystore._maintenance.collection.retire import FEW_RECORDS
from arraystore._maintenance.collection.summary import GCSummary
from arraystore.storage import Storage
from tests.commit.support import keys
from tests.history.worlds import commit, put, world
from tests.keys import history_of
from tests.maintenance.model import now
from tests.maintenance.verification.support import commit_all
from tests.maintenance.verification.test_lifecycles import History
from tests.tiers import mostly_thorough


def _collect(storage: Storage, cut_off: datetime, *, full: bool = True) -> GCSummary:
    repository = Repository.open(storage)
    return repository.garbage_collect(cut_off, full=full, record_grace=timedelta(0), nobody_writes=True)


def _left(storage: Storage) -> set[str]:
    """Return all keys but those that a collection makes anew each time."""
    return {key for key in keys(storage) if not key.startswith("collections/") and "/repository/" not in key}


def _nothing_goes_again(storage: Storage, cut_off: datetime) -> None:
    left = _left(storage)
    for full in (False, True):
        assert _collect(storage, cut_off, full=full).objects_deleted == 0
        assert _left(storage) == left


def _with_survivors_of_a_deleted_branch(commits: int) -> Storage:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("side", repository.lookup_branch("main"))
    tagged = commit(repository, put("g/a", 0, 10), branch="side")
    repository.create_tag("old", tagged)
    for value in range(commits):
        commit(repository, put("g/a", 1, value), branch="side")
    repository.expire_snapshots(now())
    _collect(storage, now())
    assert keys(storage, history_of(storage, "side") + "kept/")
    repository.delete_tag("old")
    repository.delete_branch("side")
    return storage


@pytest.mark.parametrize("full", [False, True], ids=["incremental", "full"])
@pytest.mark.parametrize("commits", [2, 3, 12])
def test_one_collection_takes_what_expiries_have_left_of_a_branch_that_is_deleted(commits: int, full: bool) -> None:
    storage = _with_survivors_of_a_deleted_branch(commits)
    cut_off = now()
    _collect(storage, cut_off, full=full)
    assert keys(storage, history_of(storage, "side")) == []
    _nothing_goes_again(storage, cut_off)


@pytest.mark.parametrize("seed", mostly_thorough(range(6), every=3))
def test_after_whatever_was_done_one_collection_leaves_nothing_to_the_next(seed: int) -> None:
    history = History(seed + 200)
    repository = history.repository
    for number in range(2):
        repository.create_branch(f"branch {number}", repository.lookup_branch("main"))
    for _ in range(8):
        history.step()
    for branch in sorted(repository.list_branches()):
        for number in range(history.random.randrange(1, 14)):
            commit_all(repository, number, branch)
    repository.wait_for_maintenance()
    repository.expire_snapshots(now(), keep_last=3)
    for branch in sorted(repository.list_branches() - {"main"})[1:]:
        repository.delete_branch(branch)
    cut_off = now()
    _collect(repository.storage, cut_off)
    _nothing_goes_again(repository.storage, cut_off)


def test_a_collection_that_retires_a_log_once_more_takes_the_base_of_the_last_time() -> None:
    storage = in_memory_storage()
    repository = world(storage)
    repository.create_branch("side", repository.lookup_branch("main"))
    for value in range(3):
        commit(repository, put("g/a", 1, value), branch="side")
    repository.delete_branch("side")
    for _ in range(2 * FEW_RECORDS + 2):  # each adds a fence to the log
        cut_off = now()
        _collect(storage, cut_off)
        _nothing_goes_again(storage, cut_off)
