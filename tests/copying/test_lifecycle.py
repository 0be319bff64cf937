"""Clones and copies of repositories with a life behind them: resets, amendments, expiry, collections."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import zarr

from arraystore import MemoryStorage, Repository
from arraystore.copying import CopyIncompleteError, clone_repository, copy_branch
from arraystore.errors import RefNotFoundError
from arraystore.storage import BytesLike, WrapperStorage
from tests.copying.support import all_contents, contents, copied, new_repository, objects, random_history, reopened
from tests.tiers import mostly_thorough

GRACES = [timedelta(days=1), timedelta(0)]
"""How long records stay whose snapshots have expired."""


def past() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=1)


def lived(seed: int) -> tuple[Repository, MemoryStorage]:
    """Return a repository that was reset, amended, expired and collected."""
    storage = MemoryStorage()
    repo = new_repository(storage=storage)
    made = random_history(repo, seed, 6)
    repo.create_branch("dev", made[2])
    random_history(repo, seed + 1, 3, "dev")
    repo.create_branch("gone", made[4])
    random_history(repo, seed + 2, 2, "gone")
    repo.create_tag("kept", made[1])
    repo.create_tag("burnt", made[3])
    repo.delete_tag("burnt")
    repo.delete_branch("gone")
    repo.reset_branch("dev", made[4])
    random_history(repo, seed + 3, 2, "dev")
    session = repo.writable_session("main")
    session.hierarchy.set_sync("amended.txt", memoryview(b"better"))
    session.amend("amended")
    repo.wait_for_maintenance()
    return repo, storage


def check(clone: MemoryStorage, source: Repository) -> None:
    found = reopened(clone)
    assert found.list_branches() == source.list_branches()
    assert found.list_tags() == source.list_tags()
    for branch in source.list_branches():
        assert list(found.ancestry(branch=branch)) == list(source.ancestry(branch=branch))
    assert all_contents(found) == all_contents(source)


@pytest.mark.parametrize("seed", range(4))
def test_a_clone_of_a_repository_with_a_past_is_the_same(seed: int) -> None:
    source, storage = lived(10 * seed)
    target = MemoryStorage()
    report = clone_repository(storage, target)
    assert report.snapshots == len(all_contents(source))
    check(target, source)
    with pytest.raises(RefNotFoundError):
        reopened(target).lookup_branch("gone")


@pytest.mark.parametrize("grace", GRACES)
@pytest.mark.parametrize("seed", mostly_thorough(range(3)))
def test_a_clone_follows_expiry_and_collection(seed: int, grace: timedelta) -> None:
    source, storage = lived(10 * seed)
    early, late = MemoryStorage(), MemoryStorage()
    clone_repository(storage, early)
    source.expire_snapshots(past(), keep_last=2)
    source.garbage_collect(past(), record_grace=grace, nobody_writes=True)
    source.wait_for_maintenance()
    clone_repository(storage, early)
    clone_repository(storage, late)
    check(early, source)
    check(late, source)
    assert objects(late) == objects(storage)
    random_history(source, 77, 2)
    source.wait_for_maintenance()
    clone_repository(storage, early)
    check(early, source)
    clone = reopened(early)
    random_history(clone, 78, 3)
    tips = {branch: contents(clone.readonly_session(branch)) for branch in clone.list_branches()}
    clone.expire_snapshots(past(), keep_last=1)
    clone.garbage_collect(past(), full=True, record_grace=grace, nobody_writes=True)
    assert {branch: contents(reopened(early).readonly_session(branch)) for branch in tips} == tips
    assert len(all_contents(reopened(early))) < len(all_contents(source)) + 3


class Changing(WrapperStorage):
    """Becomes another storage before one of the requests for an object."""

    def __init__(self, inner: MemoryStorage, after: dict[str, bytes], at: int) -> None:
        super().__init__(inner)
        self._after = after
        self._at = at

    async def get(self, key: str) -> BytesLike:
        self._at -= 1
        if not self._at:
            there = [info.key async for page in self._inner.list("") for info in page]
            await self._inner.delete([gone for gone in there if gone not in self._after])
            for made, data in self._after.items():
                await self._inner.put(made, data)
        return await super().get(key)


@pytest.mark.parametrize("grace", mostly_thorough(GRACES))
def test_a_collection_during_the_clone_leaves_a_clone_that_is_complete_or_none(grace: timedelta) -> None:
    outcomes = set()
    repo, before = lived(3)
    for value in range(4):  # each overwrites what the one before has written, so that only its own snapshot shows that
        with repo.transaction("main", message=f"value {value}") as store:
            made = zarr.create_array(
                store, name="big", shape=100, chunks=100, dtype="i8", overwrite=True, compressors=None
            )
            made[:] = value
    repo.wait_for_maintenance()
    after = copied(before)
    repo = reopened(after)
    repo.expire_snapshots(past(), keep_last=1)
    repo.garbage_collect(past(), record_grace=grace, nobody_writes=True)
    repo.wait_for_maintenance()
    for at in range(1, 40, 2):
        storage, target = copied(before), MemoryStorage()
        try:
            clone_repository(Changing(storage, objects(after), at), target)
        except CopyIncompleteError:
            outcomes.add("none")
            assert not Repository.exists(target)
            clone_repository(storage, target)
        else:
            outcomes.add("complete")
        all_contents(reopened(target))
        clone_repository(storage, target)
        check(target, reopened(storage))
    assert outcomes == {"none", "complete"}


@pytest.mark.parametrize("seed", range(4))
def test_the_history_of_a_branch_with_a_past_is_copied_as_it_is_listed(seed: int) -> None:
    source, _ = lived(10 * seed)
    target = new_repository()
    for branch in sorted(source.list_branches()):
        copy_branch(source, target, branch=branch, history=True)
    source.expire_snapshots(past(), keep_last=2)
    source.garbage_collect(past())
    other = new_repository()
    for branch in sorted(source.list_branches()):
        copy_branch(source, other, branch=branch, history=True)
        for copies in (target, other):
            tip, copy = next(source.ancestry(branch=branch)), next(copies.ancestry(branch=branch))
            assert copy.metadata["arraystore.copied_from"] == tip.id
            assert contents(copies.readonly_session(branch)) == contents(source.readonly_session(branch))
        theirs = list(source.ancestry(branch=branch))
        ours = list(other.ancestry(branch=branch))
        assert [info.message for info in ours[:-1]] == [info.message for info in theirs[: len(ours) - 1]]


def test_a_compacted_source_is_not_copied_again() -> None:
    source, target = new_repository(), new_repository()
    with source.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(40,), chunks=(5,), dtype="i8", compressors=None)[:] = range(40)
    for value in range(3):
        with source.transaction("main", message="more") as store:
            zarr.open_array(store, path="a")[: 10 * value + 10] = value
    copy_branch(source, target, branch="main", history=True)
    source.compact(min_live=1.0)
    with source.transaction("main", message="last") as store:
        zarr.open_array(store, path="a")[39] = 7
    report = copy_branch(source, target, branch="main", history=True)
    assert (report.snapshots, report.chunks) == (1, 1)
    assert contents(target.readonly_session("main")) == contents(source.readonly_session("main"))
