"""A branch that is copied reads the same, commit by commit."""

from __future__ import annotations

import pytest
import zarr

from arraystore import MemoryStorage, Repository
from arraystore.copying import CopyDivergedError, CopyTargetError, copy_branch
from arraystore.errors import InvalidInputError, StorageError
from arraystore.storage import CountingStorage, Fault, FaultyStorage
from tests.copying.support import (
    ELSEWHERE,
    FarMemory,
    contents,
    elsewhere,
    new_repository,
    objects,
    random_history,
    reopened,
)
from tests.tiers import mostly_thorough


def same_history(source: Repository, target: Repository, branch: str, to_branch: str | None = None) -> None:
    """Compare all snapshots of two branches, the first ones but in what they hold."""
    ours = list(source.ancestry(branch=branch))
    theirs = list(target.ancestry(branch=to_branch or branch))
    assert [(info.message, info.metadata.get("number")) for info in ours] == [
        (info.message, info.metadata.get("number")) for info in theirs
    ]
    for mine, copy in zip(ours[:-1], theirs[:-1], strict=True):
        assert copy.metadata["arraystore.copied_from"] == mine.id
        assert copy.metadata["arraystore.written_at"] == mine.written_at.isoformat()
        assert contents(source.readonly_session(snapshot_id=mine.id)) == contents(
            target.readonly_session(snapshot_id=copy.id)
        )


@pytest.mark.parametrize("seed", mostly_thorough(range(6), every=3))
@pytest.mark.parametrize("far", [False, True])
def test_each_snapshot_of_a_copied_history_holds_the_same_keys_and_bytes(seed: int, far: bool) -> None:
    source = new_repository()
    random_history(source, seed, 12)
    storage = FarMemory() if far else MemoryStorage()
    report = copy_branch(source, storage, branch="main", history=True)
    target = reopened(storage)
    same_history(source, target, "main")
    assert report.snapshots == 12
    assert report.snapshot_id == target.lookup_branch("main")


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_without_history_is_one_commit_with_the_same_keys_and_bytes(seed: int) -> None:
    source = new_repository()
    random_history(source, seed, 12)
    target = new_repository(None)
    report = copy_branch(source, target, branch="main")
    tip = next(target.ancestry(branch="main"))
    assert (report.snapshots, tip.message) == (1, "commit 11")
    assert len(list(target.ancestry(branch="main"))) == 2
    assert contents(target.readonly_session("main")) == contents(source.readonly_session("main"))


@pytest.mark.parametrize("history", [True, False])
def test_a_second_copy_takes_over_only_what_has_changed_since(history: bool) -> None:
    source, target = new_repository(), new_repository()
    with source.transaction("main", message="many") as store:
        zarr.create_array(store, name="a", shape=(100,), chunks=(1,), dtype="i8", compressors=None)[:] = 1
    copy_branch(source, target, branch="main", history=history)
    assert copy_branch(source, target, branch="main", history=history).snapshots == 0
    for value in (7, 8):
        with source.transaction("main", message="one") as store:
            zarr.open_array(store, path="a")[value] = value
    report = copy_branch(source, target, branch="main", history=history)
    assert (report.snapshots, report.chunks) == (2 if history else 1, 2)
    assert contents(target.readonly_session("main")) == contents(source.readonly_session("main"))


@pytest.mark.thorough
def test_rewritten_layers_of_the_source_are_not_copied_again() -> None:
    source, target = new_repository(), new_repository()
    with source.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(200,), chunks=(1,), dtype="i8", compressors=None)[:] = 1
    for value in range(2, 70):
        with source.transaction("main", message=str(value)) as store:
            zarr.open_array(store, path="a")[value] = value
    source.wait_for_maintenance()
    report = copy_branch(source, target, branch="main", history=True)
    assert report.chunks == 200 + 68
    same_history(source, target, "main")


def test_tags_snapshots_and_other_branches_can_be_copied_to_branches_of_any_name() -> None:
    source, target = new_repository(), new_repository()
    made = random_history(source, 1, 4)
    source.create_tag("v1", made[1])
    source.create_branch("dev", made[2])
    random_history(source, 2, 2, "dev")
    copy_branch(source, target, tag="v1")
    copy_branch(source, target, snapshot_id=made[2], to_branch="copy/of it")
    copy_branch(source, target, branch="dev", history=True)
    assert contents(target.readonly_session("main")) == contents(source.readonly_session(tag="v1"))
    assert contents(target.readonly_session("copy/of it")) == contents(source.readonly_session(snapshot_id=made[2]))
    same_history(source, target, "dev")
    assert target.list_branches() == {"main", "copy/of it", "dev"}


def test_virtual_chunks_stay_references_and_inlined_ones_stay_inlined() -> None:
    source = new_repository()
    with source.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(6,), chunks=(2,), dtype="u1", compressors=None)[:2] = 5
        store.set_virtual_ref("a/c/1", ELSEWHERE + "file.bin", offset=10, length=2)
    storage = MemoryStorage()
    report = copy_branch(source, storage, branch="main")
    assert (report.chunks, report.virtual) == (1, 1)
    target = reopened(storage)
    assert zarr.open_array(target.readonly_session("main").store, path="a")[:].tolist() == [5, 5, 10, 11, 0, 0]
    assert not [key for key in objects(storage) if key.startswith("chunks/")]


def test_a_branch_that_shows_something_else_is_not_overwritten_unless_asked() -> None:
    source, target = new_repository(), new_repository()
    random_history(source, 1, 3)
    random_history(target, 2, 3)
    before = target.lookup_branch("main")
    with pytest.raises(CopyTargetError, match="overwrite=True"):
        copy_branch(source, target, branch="main")
    assert target.lookup_branch("main") == before
    copy_branch(source, target, branch="main", overwrite=True)
    assert contents(target.readonly_session("main")) == contents(source.readonly_session("main"))
    assert len(list(target.ancestry(branch="main"))) == 5


def test_a_history_that_the_source_does_not_have_is_not_continued() -> None:
    source, target = new_repository(), new_repository()
    made = random_history(source, 1, 3)
    source.create_branch("dev", made[0])
    random_history(source, 2, 1, "dev")
    copy_branch(source, target, branch="main", history=True)
    with pytest.raises(CopyDivergedError, match="copy to another branch"):
        copy_branch(source, target, branch="dev", to_branch="main", history=True)
    copy_branch(source, target, branch="dev", to_branch="main")
    assert contents(target.readonly_session("main")) == contents(source.readonly_session("dev"))


def test_wrong_arguments_are_refused() -> None:
    source = new_repository()
    for arguments in ({}, {"branch": "main", "tag": "v1"}, {"branch": "main", "history": True, "message": "x"}):
        with pytest.raises(InvalidInputError):
            copy_branch(source, MemoryStorage(), **arguments)
    with pytest.raises(InvalidInputError, match="onto itself"):
        copy_branch(source, source, branch="main")


def test_a_copy_that_fails_at_any_request_goes_on_where_it_was(impatient: None) -> None:
    source = new_repository()
    random_history(source, 3, 5)
    counting = CountingStorage(FarMemory())
    copy_branch(source, Repository.create(counting), branch="main", history=True)
    total = counting.counts.total
    failures = 0
    for first in range(1, total, 3):
        storage = FarMemory()
        target = new_repository(storage=storage)
        for when in ("before", "after"):
            broken = FaultyStorage(storage, [Fault(first=first, times=None, when=when)])
            try:
                copy_branch(source, Repository.open(broken), branch="main", history=True)
            except StorageError:
                failures += 1
        copy_branch(source, storage, branch="main", history=True)
        same_history(source, reopened(storage), "main")
        target.wait_for_maintenance()
    assert failures


def test_elsewhere_is_what_virtual_chunks_are_taken_from() -> None:
    assert elsewhere().get_range_sync("file.bin", 10, 12) == bytes([10, 11])
