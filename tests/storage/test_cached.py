"""Cache on disk: whatever processes share it, what is read is what the storage has, and is fetched once."""

from __future__ import annotations

import logging
import pickle
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

from arraystore import Repository, in_memory_storage, local_filesystem_storage
from arraystore.errors import InvalidInputError, ObjectNotFoundError
from arraystore.storage import CachedStorage, CountingStorage, Storage
from arraystore.storage.disk_cache import DiskCache
from tests.commit.support import DistantStorage
from tests.packs import delete_packs, pack_keys
from tests.storage import cache_workers
from tests.storage.workers import call_in_processes
from tests.tiers import mostly_thorough

DATA = np.random.default_rng(0).integers(0, 1 << 40, 60_000)


def filled() -> Storage:
    """Return a remote storage with a repository of one packed array."""
    storage = DistantStorage(in_memory_storage())
    session = Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="x", data=DATA, chunks=(1000,), compressors=None)
    session.commit("numbers")
    return storage


def read(storage: Storage) -> Repository:
    """Read the array as a process that has nothing in memory does."""
    repository = Repository.open(storage)
    array = zarr.open_array(repository.readonly_session("main").store, path="x", mode="r")
    np.testing.assert_array_equal(array[:], DATA)
    return repository


def fetched(storage: CountingStorage) -> list[str]:
    """Return the keys that were read of what never changes, but for checkpoints, whose absence means something."""
    gets = [key for operation, key in storage.log if operation in ("get", "get_ranges")]
    return [key for key in gets if not key.startswith(("refs/", "hints/", "repo", "config/", "snapshots/"))]


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_a_second_process_fetches_nothing_that_never_changes(tmp_path: Path) -> None:
    remote = CountingStorage(filled())
    first = read(CachedStorage(remote, tmp_path))
    assert fetched(remote)
    assert first.cache_stats().disk.misses > 0
    remote.reset()
    second = read(CachedStorage(remote, tmp_path))
    assert fetched(remote) == []
    assert second.cache_stats().disk.hits > 0
    assert second.cache_stats().disk.misses == 0


@pytest.mark.parametrize("prefix", ["chunks/", "manifests/", "transactions/"])
async def test_whole_objects_are_fetched_once_by_either_kind_of_call(tmp_path: Path, prefix: str) -> None:
    remote = CountingStorage(DistantStorage(in_memory_storage()))
    remote.put_sync(prefix + "a", b"abcdef")
    cached = CachedStorage(remote, tmp_path)
    for _ in range(2):
        assert bytes(await cached.get(prefix + "a")) == b"abcdef"
        assert bytes(cached.get_sync(prefix + "a")) == b"abcdef"
        assert [bytes(part) for part in await cached.get_ranges(prefix + "a", [(1, 3), (4, 6)])] == [b"bc", b"ef"]
        assert bytes(cached.get_range_sync(prefix + "a", 0, 2)) == b"ab"
    assert [operation for operation, _ in remote.log] == ["put", "get"]


async def test_only_ranges_that_are_missing_are_fetched(tmp_path: Path) -> None:
    remote = CountingStorage(DistantStorage(in_memory_storage()))
    remote.put_sync("chunks/a", bytes(range(100)))
    cached = CachedStorage(remote, tmp_path)
    cached.get_range_sync("chunks/a", 20, 60)
    before = remote.counts
    parts = await cached.get_ranges("chunks/a", [(30, 40), (70, 75), (20, 60), (0, 5)])
    assert [list(part) for part in parts] == [[*range(30, 40)], [*range(70, 75)], [*range(20, 60)], [*range(5)]]
    assert (remote.counts - before).bytes_read == 10


@pytest.mark.parametrize("key", ["refs/a", "snapshots/a"])
def test_records_checkpoints_and_what_is_missing_are_asked_for_each_time(tmp_path: Path, key: str) -> None:
    remote = CountingStorage(DistantStorage(in_memory_storage()))
    remote.put_sync(key, b"1")
    cached = CachedStorage(remote, tmp_path)
    for _ in range(2):
        cached.get_sync(key)
        cached.get_range_sync(key, 0, 1)
        with pytest.raises(ObjectNotFoundError):
            cached.get_sync("chunks/none")
    assert remote.counts["get"] == 4
    assert files(tmp_path) == []


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "of another"])
def test_a_damaged_entry_is_removed_and_fetched_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    remote = CountingStorage(DistantStorage(in_memory_storage()))
    remote.put_sync("chunks/a", b"abcdef")
    remote.put_sync("chunks/b", b"uvwxyz")
    CachedStorage(remote, tmp_path).get_sync("chunks/a")
    (entry,) = files(tmp_path)
    CachedStorage(remote, tmp_path).get_sync("chunks/b")
    (other,) = set(files(tmp_path)) - {entry}
    good = entry.read_bytes()
    wrong = {"flipped": good[:-1] + b"\xff", "cut": good[:-1], "empty": b"", "of another": other.read_bytes()}
    entry.write_bytes(wrong[damage])
    remote.reset()
    with caplog.at_level(logging.WARNING, "arraystore"):
        assert bytes(CachedStorage(remote, tmp_path).get_sync("chunks/a")) == b"abcdef"
    assert "is damaged" in caplog.text
    assert remote.counts["get"] == 1
    assert entry.read_bytes() == good


def test_chunks_that_came_damaged_are_not_kept(tmp_path: Path) -> None:
    remote = filled()
    read(CachedStorage(remote, tmp_path))
    cache = DiskCache(tmp_path, 1 << 30)
    names = {cache._place(name).name: name for name in (f"{remote.location}\n{key}" for key in pack_keys(remote.inner))}
    for entry in files(tmp_path):  # as if they had been damaged on their way: the checksum of the entry is right
        first, last = map(int, entry.name.split("-", 1))
        if entry.parent.name in names:
            size = entry.stat().st_size - 4
            cache.write(names[entry.parent.name], first, None if last < 0 else last, bytes(size))
    counting = CountingStorage(remote)
    read(CachedStorage(counting, tmp_path))
    assert fetched(counting)
    read(CachedStorage(counting, tmp_path))  # in larger blocks again
    counting.reset()
    read(CachedStorage(counting, tmp_path))
    assert fetched(counting) == []


def test_the_limit_holds_and_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    remote = DistantStorage(in_memory_storage())
    cached = CachedStorage(remote, tmp_path, max_bytes=10_000)
    for number in range(40):
        remote.put_sync(f"chunks/{number}", bytes(1000))
        cached.get_sync(f"chunks/{number}")
        cached.get_sync("chunks/0")
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 10_000
    usage = cached.disk_usage
    assert usage.evictions >= 30
    assert usage.entries == len(files(tmp_path))
    assert usage.bytes == sum(path.stat().st_size for path in files(tmp_path))
    before = usage.hits
    cached.get_sync("chunks/0")
    assert cached.disk_usage.hits == before + 1


def test_an_object_that_would_fill_half_of_the_cache_is_not_kept(tmp_path: Path) -> None:
    remote = DistantStorage(in_memory_storage())
    remote.put_sync("chunks/a", bytes(600))
    assert len(CachedStorage(remote, tmp_path, max_bytes=1000).get_sync("chunks/a")) == 600
    assert files(tmp_path) == []


def test_many_who_write_evict_and_read_at_once_never_see_a_part_of_an_entry(tmp_path: Path) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        cache, luck = DiskCache(tmp_path, 40_000), random.Random(seed)
        for _ in range(150):
            name = str(luck.randrange(20))
            expected = name.encode() * 1500
            data = cache.read(name, 0, None)
            if data is None:
                cache.write(name, 0, None, expected)
            elif data != expected:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not [path for path in files(tmp_path) if path.name.startswith(".")]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", mostly_thorough(["fork", "spawn"]))
def test_processes_that_share_a_directory_read_what_the_storage_has_whatever_happens_to_others(
    tmp_path: Path, method: str
) -> None:
    """Four read and evict, one is killed between a write and its rename, one damages, cuts off and removes files."""
    remote, directory, limit = tmp_path / "remote", tmp_path / "cache", 40_000
    storage = local_filesystem_storage(remote, fsync=False)
    for number in range(cache_workers.OBJECTS):
        storage.put_sync(f"chunks/{number:020}", cache_workers.content(number))
    faults = ["", "", "", "", "killed while it writes", "damages files"]
    calls = [(str(remote), str(directory), limit, seed, 120, fault) for seed, fault in enumerate(faults)]
    found = call_in_processes(method, cache_workers.share, calls)
    assert found == [[], [], [], [], "the process died", []]
    assert cache_workers.share(str(remote), str(directory), limit, 99, 60) == [], "what they left serves the next one"
    left = [path for path in files(directory) if not path.name.startswith(".new-")]
    assert 0 < sum(path.stat().st_size for path in left) <= limit * 17 // 16 + cache_workers.SIZE
    dead = len(files(directory)) - len(left)
    assert dead <= 1, "of a writer that was killed, until it is an hour old, or somebody has forgotten that object"


def test_a_directory_that_cannot_be_written_costs_nothing_but_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"")
    with caplog.at_level(logging.WARNING, "arraystore"):
        read(CachedStorage(filled(), place / "cache"))
    assert len([record for record in caplog.records if "cannot" in record.message or "nothing" in record.message]) == 1


def test_verification_sees_what_is_really_there(tmp_path: Path) -> None:
    remote = filled()
    repository = read(CachedStorage(remote, tmp_path))
    delete_packs(remote.inner)
    read(CachedStorage(remote, tmp_path))
    assert not repository.verify().ok


def test_wrappers_lead_to_the_cache_within_and_past_it(tmp_path: Path) -> None:
    remote = DistantStorage(in_memory_storage())
    remote.put_sync("chunks/a", b"abc")
    wrapped = CountingStorage(CachedStorage(remote, tmp_path))
    wrapped.get_sync("chunks/a")
    assert wrapped.disk_usage.entries == 1
    assert wrapped.origin is remote
    assert CountingStorage(remote).origin.location == remote.location
    wrapped.forget("chunks/a")
    assert files(tmp_path) == []


async def test_what_is_deleted_is_dropped(tmp_path: Path) -> None:
    remote = DistantStorage(in_memory_storage())
    remote.put_sync("chunks/a", b"abc")
    cached = CachedStorage(remote, tmp_path)
    await cached.get("chunks/a")
    await cached.delete(["chunks/a"])
    with pytest.raises(ObjectNotFoundError):
        await cached.get("chunks/a")


def test_a_cache_goes_with_its_storage_and_is_refused_where_it_helps_nobody(tmp_path: Path) -> None:
    storage = CachedStorage(DistantStorage(local_filesystem_storage(tmp_path / "data")), tmp_path / "cache", 5000)
    again = pickle.loads(pickle.dumps(storage))
    assert (again.location, again.disk_usage.limit) == (storage.location, 5000)
    with pytest.raises(InvalidInputError, match="needs no cache"):
        CachedStorage(local_filesystem_storage(tmp_path / "data"), tmp_path / "cache")
    for limit in (0, -1, True, 1.5):
        with pytest.raises(InvalidInputError, match="integer > 0"):
            CachedStorage(filled(), tmp_path, limit)  # type: ignore[arg-type]
