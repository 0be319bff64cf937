"""A clone has everything that the repository had at one moment, and nothing can be seen of it before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import zarr

from arraystore import MemoryStorage, Repository, RepositoryConfig
from arraystore._runtime import run
from arraystore.copying import (
    CopyDivergedError,
    CopyIncompleteError,
    CopyProgress,
    CopyTargetError,
    clone_repository,
)
from arraystore.copying import objects as copying_objects
from arraystore.copying.objects import check_envelope
from arraystore.errors import (
    FormatError,
    InvalidInputError,
    RepositoryNotFoundError,
    StorageError,
    UnsupportedStorageError,
)
from arraystore.storage import BytesLike, CountingStorage, Fault, FaultyStorage, WrapperStorage, s3_storage
from tests.copying.support import (
    SMALL,
    FarMemory,
    all_contents,
    copied,
    new_repository,
    objects,
    random_history,
    reopened,
)
from tests.keys import history_of, log_of, record
from tests.s3server import S3Server
from tests.tiers import mostly_thorough


def a_repository(
    seed: int = 1, storage: MemoryStorage | None = None, config: RepositoryConfig = SMALL
) -> tuple[Repository, MemoryStorage]:
    """Return a repository with branches that begin in one another, and tags."""
    storage = storage or MemoryStorage()
    repo = new_repository(config, storage)
    made = random_history(repo, seed, 6)
    repo.create_branch("dev", made[3])
    later = random_history(repo, seed + 1, 3, "dev")
    repo.create_branch("ünï/code", later[1])
    random_history(repo, seed + 2, 2, "ünï/code")
    repo.create_tag("v1", made[1])
    repo.create_tag("v2", later[2])
    repo.wait_for_maintenance()
    return repo, storage


@pytest.mark.parametrize("seed", mostly_thorough(range(3)))
@pytest.mark.parametrize("far", [False, True])
def test_a_clone_has_every_object_byte_for_byte(seed: int, far: bool) -> None:
    repo, source = a_repository(10 * seed, FarMemory() if far else None)
    target = FarMemory() if far else MemoryStorage()
    report = clone_repository(source, target)
    assert objects(target) == objects(source)
    assert report.objects == len(objects(source))
    assert report.snapshots == len(all_contents(repo))
    assert report.left_out == ()
    clone = reopened(target)
    assert clone == Repository.open(target)
    assert clone.id == repo.id
    assert clone.list_branches() == {"main", "dev", "ünï/code"}
    assert all_contents(clone) == all_contents(repo)


@pytest.mark.parametrize("when", mostly_thorough(["after", "before"]))
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_clone_that_is_interrupted_at_any_request_is_completed_by_the_next_one(
    side: str, when: str, impatient: None
) -> None:
    source = MemoryStorage()
    repo = new_repository(storage=source)
    made = random_history(repo, 4, 2)
    repo.create_branch("dev", made[0])
    random_history(repo, 5, 1, "dev")
    repo.create_tag("v1", made[0])
    repo.wait_for_maintenance()
    counting = {"source": CountingStorage(source), "target": CountingStorage(MemoryStorage())}
    clone_repository(counting["source"], counting["target"])
    expected = objects(source)
    total = counting[side].counts.total
    assert total > 20
    for first in range(1, total + 1):
        target = MemoryStorage()
        faults = [Fault(first=first, times=None, when=when)]  # type: ignore[arg-type]
        broken = FaultyStorage(source if side == "source" else target, faults)
        with pytest.raises(StorageError):
            clone_repository(*((broken, target) if side == "source" else (source, broken)))
        if "repo" in objects(target):
            assert side == "target"
            assert set(objects(target)) == set(expected)
        else:
            assert not Repository.exists(target)
        clone_repository(source, target)
        assert objects(target) == expected


def test_what_is_there_is_not_copied_again() -> None:
    repo, source = a_repository()
    target = CountingStorage(MemoryStorage())
    clone_repository(source, target)
    target.reset()
    from_source = CountingStorage(source)
    report = clone_repository(from_source, target)
    assert report.objects == sum(key.startswith("hints/") for key in objects(source))
    assert report.requests == from_source.counts.total + target.counts.total
    assert not [key for operation, key in from_source.log if operation == "get" and key.startswith("chunks/")]
    probes = from_source.counts["head"] + target.counts["head"]  # free where they are many: in memory, on a directory
    assert report.requests - probes < 145
    with repo.transaction("dev", message="more") as store:
        zarr.create_array(store, name="more", shape=(100,), chunks=(100,), dtype="i8", compressors=None)[:] = 1
    repo.create_tag("v3", repo.lookup_branch("dev"))
    repo.create_branch("new", repo.lookup_branch("dev"))
    random_history(repo, 9, 2, "new")
    repo.wait_for_maintenance()
    report = clone_repository(source, target)
    assert objects(target.inner) == objects(source)  # type: ignore[arg-type]
    assert report.snapshots == 3
    assert all_contents(reopened(target.inner)) == all_contents(repo)  # type: ignore[arg-type]


class Meanwhile(WrapperStorage):
    """Does something before each of some requests."""

    def __init__(self, inner: MemoryStorage, act: Callable[[int], None]) -> None:
        super().__init__(inner)
        self._act = act
        self._number = 0

    async def get(self, key: str) -> BytesLike:
        self._count()
        return await super().get(key)

    async def list(self, prefix: str, start_after: str = ""):  # type: ignore[no-untyped-def]
        self._count()
        async for page in super().list(prefix, start_after):
            yield page
            self._count()

    def _count(self) -> None:
        self._number += 1
        self._act(self._number)


def later_commits(source: MemoryStorage, commits: int) -> list[dict[str, bytes]]:
    """Return what commits to a repository write, commit by commit; they are made to a copy of it."""
    other = copied(source)
    repo = reopened(other)
    written: list[dict[str, bytes]] = []
    for number in range(commits):
        before = objects(other)
        branch = sorted(repo.list_branches())[number % 3]
        tip = random_history(repo, 100 + number, 1, branch)[0]
        if number % 4 == 3:
            repo.create_branch(f"b{number}", tip)
            repo.create_tag(f"t{number}", tip)
        repo.wait_for_maintenance()
        new = {key: data for key, data in objects(other).items() if before.get(key) != data}
        # as a writer does it: what is referred to comes first, and a branch is announced before it is made
        order = sorted(new, key=lambda key: (key.startswith("hints/"), "/branch/" in key, key))
        written.append({key: new[key] for key in order})
    return written


@pytest.mark.parametrize("pace", mostly_thorough([2, 1, 3, 5]))
def test_a_clone_made_while_others_commit_is_the_repository_of_one_moment(pace: int) -> None:
    _, source = a_repository()
    commits = later_commits(source, 12)
    waiting = list(commits)

    def act(number: int) -> None:
        if number % pace == 0 and waiting:
            for key, data in waiting.pop(0).items():
                source.put_sync(key, data)

    target = MemoryStorage()
    report = clone_repository(Meanwhile(source, act), target)
    assert len(waiting) < len(commits)
    clone = reopened(target)
    for branch, last in report.branches.items():
        key = record(source, last, branch)
        assert objects(target)[key] == objects(source)[key]
    assert all_contents(clone).items() <= all_contents(reopened(source)).items()
    clone_repository(source, target)
    assert all_contents(reopened(target)) == all_contents(reopened(source))


def test_a_clone_goes_its_own_way_even_if_the_source_had_filled_a_page_of_history_meanwhile() -> None:
    source = MemoryStorage()
    repo = new_repository(storage=source)
    for number in range(60):
        repo.writable_session("main").commit(f"early {number}", allow_empty=True)
    repo.wait_for_maintenance()
    other = copied(source)
    far = reopened(other)
    for number in range(10):
        far.writable_session("main").commit(f"late {number}", allow_empty=True)
    far.wait_for_maintenance()
    late = {key: data for key, data in objects(other).items() if objects(source).get(key) != data}
    assert [key for key in late if key.startswith(history_of(source) + "1/")]

    def act(number: int) -> None:
        if number == 6:
            for key, data in late.items():
                source.put_sync(key, data)

    target = MemoryStorage()
    report = clone_repository(Meanwhile(source, act), target)
    assert report.branches == {"main": 60}
    clone = reopened(target)
    for number in range(10):
        clone.writable_session("main").commit(f"own {number}", allow_empty=True)
    clone.wait_for_maintenance()
    names = [info.message for info in Repository.open(target).ancestry(branch="main")]
    assert names == [f"own {i}" for i in range(9, -1, -1)] + [f"early {i}" for i in range(59, -1, -1)] + names[-1:]


def test_a_clone_with_commits_of_its_own_is_left_alone() -> None:
    repo, source = a_repository()
    target = MemoryStorage()
    clone_repository(source, target)
    random_history(reopened(target), 5, 1)
    reopened(target).wait_for_maintenance()
    before = objects(target)
    with pytest.raises(CopyDivergedError, match="branch 'main'"):
        clone_repository(source, target)
    random_history(repo, 6, 2)
    with pytest.raises(CopyDivergedError, match="branch 'main'"):
        clone_repository(source, target)
    assert {key: objects(target)[key] for key in before} == before


def test_a_clone_with_a_tag_of_its_own_is_left_alone() -> None:
    _, source = a_repository()
    target = MemoryStorage()
    clone_repository(source, target)
    clone = reopened(target)
    clone.create_tag("mine", clone.lookup_branch("main"))
    with pytest.raises(CopyDivergedError, match="repository log"):
        clone_repository(source, target)


def test_nothing_is_written_where_something_else_is() -> None:
    _, source = a_repository()
    _, other = a_repository(5)
    with pytest.raises(CopyTargetError, match="another repository"):
        clone_repository(source, other)
    strangers = MemoryStorage()
    strangers.put_sync("data/file.nc", b"x")
    with pytest.raises(CopyTargetError, match=r"data/file\.nc"):
        clone_repository(source, strangers)
    assert set(objects(strangers)) == {"data/file.nc"}
    with pytest.raises(RepositoryNotFoundError):
        clone_repository(strangers, MemoryStorage())
    with pytest.raises(InvalidInputError, match="onto itself"):
        clone_repository(source, source)


@pytest.mark.parametrize("prefix", ["chunks/", "manifests/", "snapshots/"])
def test_an_object_that_is_needed_and_missing_keeps_the_clone_from_being_published(prefix: str) -> None:
    repo, source = a_repository(config=replace(SMALL, inline_chunk_threshold_bytes=4096))
    with repo.transaction("dev", message="large") as store:
        array = zarr.create_array(store, name="large", shape=(90_000,), chunks=(1000,), dtype="u4", compressors=None)
        array[:] = np.random.default_rng(1).integers(1 << 32, size=90_000, dtype="u4")  # a manifest of its own
    with repo.transaction("dev", message="packed") as store:
        zarr.create_array(store, name="packed", shape=(9000,), chunks=(3000,), dtype="u4", compressors=None)[:] = 1
    repo.create_tag("large", repo.lookup_branch("dev"))
    gone = max(key for key in objects(source) if key.startswith(prefix))
    data = objects(source)[gone]
    target = MemoryStorage()
    assert asyncio.run(source.delete([gone])) == []
    with pytest.raises(CopyIncompleteError, match="missing or damaged"):
        clone_repository(source, target)
    assert not Repository.exists(target)
    assert not [key for key in objects(target) if key.startswith("refs/")]
    source.put_sync(gone, data)
    clone_repository(source, target)
    assert objects(target) == objects(source)


def test_what_is_damaged_and_not_needed_is_left_out_and_named() -> None:
    _, source = a_repository()
    key = "manifests/00000000000000000001"
    source.put_sync(key, b"ARST" + bytes(30))
    target = MemoryStorage()
    report = clone_repository(source, target)
    assert [item.key for item in report.left_out] == [key]
    assert key not in objects(target)
    assert all_contents(reopened(target)) == all_contents(reopened(source))


def test_a_damaged_record_keeps_the_clone_from_being_published() -> None:
    _, source = a_repository()
    key = record(source, 3)
    source.put_sync(key, objects(source)[key][:-1] + b"\0")
    target = MemoryStorage()
    with pytest.raises((CopyIncompleteError, FormatError), match=r"damaged|missing"):
        clone_repository(source, target)
    assert not Repository.exists(target)


def test_proposed_transactions_are_not_copied() -> None:
    _, source = a_repository()
    intent = record(source, 6) + "-00000000000000000001"
    source.put_sync(intent, b"anything")
    target = MemoryStorage()
    clone_repository(source, target)
    assert intent not in objects(target)


def test_large_objects_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying_objects, "_LARGE", 300)
    monkeypatch.setattr(copying_objects, "_PART", 100)
    _, storage = a_repository()
    source, target = CountingStorage(storage), MemoryStorage()
    clone_repository(source, target)
    assert objects(target) == objects(storage)
    assert source.counts["get_ranges"] > 10


def test_progress_is_told_in_order() -> None:
    _, source = a_repository()
    told: list[CopyProgress] = []
    report = clone_repository(source, MemoryStorage(), progress=told.append)
    stages = list(dict.fromkeys(item.stage for item in told))
    assert stages == ["logs", "chunks", "metadata", "verify", "refs"]
    assert told[-1].objects == report.objects
    assert [item.bytes for item in told] == sorted(item.bytes for item in told)


def test_a_storage_that_overwrites_what_is_to_be_created_only_if_absent_is_refused() -> None:
    class Careless(MemoryStorage):
        async def put_if_absent(self, key: str, data: BytesLike) -> bool:
            self.put_sync(key, data)
            return True

    _, source = a_repository()
    target = Careless()
    with pytest.raises(UnsupportedStorageError, match="only if absent"):
        clone_repository(source, target)
    assert not Repository.exists(target)


def test_any_changed_byte_of_an_envelope_is_noticed() -> None:
    _, source = a_repository()
    key = next(key for key in objects(source) if key.startswith(log_of(source)))
    data = objects(source)[key]
    check_envelope(key, data)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(FormatError):
            check_envelope(key, bytes(damaged))


def test_a_listing_of_the_clone_is_that_of_the_source() -> None:
    _, source = a_repository()
    target = MemoryStorage()
    clone_repository(source, target)

    async def keys(storage: MemoryStorage) -> list[str]:
        return [info.key async for page in storage.list("") for info in page]

    assert run(keys(target)) == run(keys(source))


def test_a_repository_goes_to_an_object_store_and_back(s3_server: S3Server) -> None:
    repo, source = a_repository(3)
    there = s3_storage(
        bucket=s3_server.new_bucket("clones"),
        prefix="clone",
        region=s3_server.region,
        endpoint_url=s3_server.endpoint_url,
        allow_http=True,
        access_key_id=s3_server.access_key_id,
        secret_access_key=s3_server.secret_access_key,
    )
    clone_repository(source, there)
    back = MemoryStorage()
    clone_repository(there, back)
    assert objects(back) == objects(source)
    random_history(repo, 8, 2)
    repo.wait_for_maintenance()
    clone_repository(source, there)
    clone_repository(there, back)
    assert all_contents(reopened(back)) == all_contents(repo)
