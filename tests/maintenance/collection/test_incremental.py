"""Collections that look only at what is new since the last one, and what is needed although no new record tells."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
import zarr

from arraystore import Repository, Session
from arraystore.storage import Storage
from tests.commit.support import delete, keys
from tests.history.worlds import commit, contents, created, put, world
from tests.maintenance.collection.test_moved_and_reverted import now
from tests.seams import context_of


def collected_once() -> Repository:
    """Return a repository of whose first collection the next one goes on."""
    repository = world()
    repository.garbage_collect(now())
    return repository


def read(storage: Storage, branch: str) -> dict[str, object]:
    """Return what a branch holds, with nothing cached."""
    return contents(Repository.open(storage), branch)


def test_a_new_branch_keeps_what_its_expired_snapshots_left_to_the_newest_one() -> None:
    repository = collected_once()
    repository.create_branch("new", repository.lookup_branch("main"))
    for at in range(3):
        commit(repository, put("g/a", at, 10 + at), branch="new")
    held = contents(repository, "new")
    assert repository.expire_snapshots(now())
    repository.garbage_collect(now())
    assert read(repository.storage, "new") == held


def test_a_new_branch_keeps_the_manifests_that_were_attached_to_what_has_expired() -> None:
    repository = collected_once()
    repository.create_branch("new", repository.lookup_branch("main"))
    session = repository.writable_session("new")
    array = zarr.create_array(session.store, name="wide", shape=(6000,), chunks=(1,), dtype="i8")
    array[:] = np.arange(6000)
    session.commit("wide")
    for at in range(12):
        commit(repository, put("g/a", at % 6, 10 + at), branch="new")
    held = contents(repository, "new")
    assert repository.expire_snapshots(now())
    repository.garbage_collect(now(), record_grace=timedelta(0), nobody_writes=True)
    assert read(repository.storage, "new") == held


@pytest.mark.parametrize("named", ["branch", "tag"])
def test_a_snapshot_on_no_branch_that_gets_a_name_is_kept(named: str) -> None:
    repository = collected_once()
    session = repository.writable_session("main")
    created("loose")(session)
    snapshot = session.flush("loose")
    held = contents_of(repository, snapshot)
    if named == "branch":
        repository.create_branch("kept", snapshot)
    else:
        repository.create_tag("kept", snapshot)
    repository.garbage_collect(now())
    fresh = Repository.open(repository.storage)
    assert contents_of(fresh, snapshot) == held
    repository.garbage_collect(now())
    repository.garbage_collect(now(), full=True)
    fresh = Repository.open(repository.storage)
    session = fresh.readonly_session("kept") if named == "branch" else fresh.readonly_session(tag="kept")
    assert listed(session, "loose") == [7, 7]


def contents_of(repository: Repository, snapshot: str) -> list[int]:
    """Return what the array of a flushed snapshot holds."""
    return listed(repository.readonly_session(snapshot_id=snapshot), "loose")


def listed(session: Session, path: str) -> list[int]:
    """Return the values of an array."""
    return [int(each) for each in np.asarray(zarr.open_array(session.store, path=path, mode="r")[...])]


def test_a_new_branch_keeps_what_its_surviving_snapshots_show() -> None:
    repository = collected_once()
    repository.create_branch("new", repository.lookup_branch("main"))
    first = commit(repository, put("g/a", 0, 10), branch="new")
    commit(repository, put("g/a", 0, 20), branch="new")
    commit(repository, put("g/a", 0, 30), branch="new")
    repository.create_tag("kept", first)
    assert repository.expire_snapshots(now())
    repository.delete_tag("kept")
    repository.garbage_collect(now())
    assert first in [info.id for info in repository.ancestry(branch="new")]
    fresh = Repository.open(repository.storage)
    assert listed(fresh.readonly_session(snapshot_id=first), "g/a") == [10, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("commits", [1, 3], ids=["as_many", "more"])
def test_records_in_the_place_of_lost_ones_are_not_taken_for_those(commits: int) -> None:
    repository = collected_once()
    fence = keys(repository.storage, context_of(repository).log("main").prefix)[-1]
    delete(repository.storage, fence)
    repository = Repository.open(repository.storage)
    for at in range(commits):
        commit(repository, put("g/a", at, 20 + at))
    held = contents(repository, "main")
    repository.garbage_collect(now())
    repository.garbage_collect(now())
    assert read(repository.storage, "main") == held
