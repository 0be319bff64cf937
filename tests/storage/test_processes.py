"""Many processes at once: races for a key, forks, spawned workers, writers that are killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from arraystore.errors import StorageError
from arraystore.storage import FsspecStorage, LocalStorage, ObjectInfo, ObstoreStorage, Storage, in_memory_storage
from tests.s3server import S3Server
from tests.storage.conftest import obstore_on, s3fs_on
from tests.storage.workers import (
    call_in_process,
    call_in_processes,
    claim,
    use_everything,
    use_then_fork_again,
    write_for_ever,
)
from tests.tiers import mostly_thorough

WRITERS = 16
KEYS = 25

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def race(storage: Storage) -> None:
    """Let many forked processes claim the same keys; each must have one winner, whose object it is."""
    keys = [f"refs/branch/main/{number:04}" for number in range(KEYS)]
    results = call_in_processes("fork", claim, [(storage, keys, b"writer %d" % who) for who in range(WRITERS)])
    for number, key in enumerate(keys):
        winners = [who for who, won in enumerate(results) if won[number] is True]
        assert len(winners) == 1, (key, winners, results)
        assert bytes(storage.get_sync(key)) == b"writer %d" % winners[0]


@pytest.mark.parametrize("fsync", mostly_thorough([True, False]))
def test_each_key_of_a_local_directory_has_one_winner_among_processes(tmp_path: Path, fsync: bool) -> None:
    race(LocalStorage(tmp_path / "repository", fsync=fsync))


def test_each_key_on_s3_has_one_winner_among_processes(s3_server: S3Server) -> None:
    race(obstore_on(s3_server))


@pytest.mark.thorough
def test_each_key_through_s3fs_has_one_winner_among_processes(s3_server: S3Server) -> None:
    race(s3fs_on(s3_server))


@pytest.fixture(params=["local", "obstore-s3", "s3fs"])
def shared_storage(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStorage | ObstoreStorage | FsspecStorage:
    """A storage that other processes reach, too."""
    if request.param == "local":
        return LocalStorage(tmp_path / "repository")
    server: S3Server = request.getfixturevalue("s3_server")
    return obstore_on(server) if request.param == "obstore-s3" else s3fs_on(server)


@pytest.mark.parametrize("method", mostly_thorough(["spawn", "fork", "forkserver"]))
def test_a_storage_in_use_works_in_a_child_and_still_in_the_parent(shared_storage: Storage, method: str) -> None:
    assert use_everything(shared_storage, "before")
    assert call_in_process(method, use_everything, shared_storage, "child") is True
    assert use_everything(shared_storage, "after")


def test_a_storage_that_was_never_used_works_in_a_forked_child(shared_storage: Storage) -> None:
    assert call_in_process("fork", use_everything, shared_storage, "child") is True


def test_a_forked_child_may_fork_again(shared_storage: Storage) -> None:
    assert use_everything(shared_storage, "before")
    assert call_in_process("fork", use_then_fork_again, shared_storage, "family") == [True, True]


def test_a_forked_child_has_its_own_copy_of_memory() -> None:
    storage = in_memory_storage()
    storage.put_sync("a", b"parent's")
    assert call_in_process("fork", use_everything, storage, "child") is True
    assert bytes(storage.get_sync("a")) == b"parent's"
    assert asyncio.run(_keys(storage)) == ["a"]


def test_memory_does_not_travel_to_a_spawned_process() -> None:
    storage = in_memory_storage()
    answer = call_in_process("spawn", use_everything, storage, "child")
    assert "memory of another process" in answer
    assert "local_filesystem_storage" in answer


UNREACHABLE = "memory of another process.*use local_filesystem_storage"


def test_every_use_of_memory_of_another_process_says_so() -> None:
    storage = in_memory_storage()
    storage.put_sync("a", b"1")
    sent = pickle.dumps(storage)
    with mock.patch.object(os, "getpid", return_value=-1):
        elsewhere = pickle.loads(sent)
    assert elsewhere.location == storage.location
    calls: list[Callable[[], Any]] = [
        lambda: elsewhere.get_sync("a"),
        lambda: elsewhere.get_range_sync("a", 0, 1),
        lambda: elsewhere.put_sync("a", b"2"),
        lambda: elsewhere.get_source_range_sync("a", 0, 1),
        lambda: asyncio.run(elsewhere.get("a")),
        lambda: asyncio.run(elsewhere.get_ranges("a", [(0, 1)])),
        lambda: asyncio.run(elsewhere.get_source_ranges("a", [(0, 1)])),
        lambda: asyncio.run(elsewhere.head("a")),
        lambda: asyncio.run(elsewhere.put("a", b"2")),
        lambda: asyncio.run(elsewhere.put_if_absent("b", b"2")),
        lambda: asyncio.run(elsewhere.delete(["a"])),
        lambda: asyncio.run(_keys(elsewhere)),
    ]
    for call in calls:
        with pytest.raises(StorageError, match=UNREACHABLE):
            call()
    assert pickle.loads(pickle.dumps(elsewhere)) is storage  # back in its process
    assert bytes(storage.get_sync("a")) == b"1"


async def _keys(storage: Storage) -> list[str]:
    return [info.key async for page in storage.list("") for info in page]


@pytest.mark.parametrize("fsync", [True, False])
def test_no_half_written_object_is_ever_seen_of_a_killed_writer(tmp_path: Path, fsync: bool) -> None:
    size = 300_000
    storage = LocalStorage(tmp_path / "repository", fsync=fsync)
    seen = 0
    for turn in range(8):
        writer = multiprocessing.get_context("spawn" if turn == 0 else "fork").Process(
            target=write_for_ever, args=(storage.path, fsync, size)
        )
        writer.start()
        _wait_for_progress(storage, seen)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        infos = asyncio.run(_infos(storage))
        seen = len(infos)
        assert all(info.size == size for info in infos)
        for info in infos[-20:] + infos[:20]:
            data = bytes(storage.get_sync(info.key))
            assert data == data[:1] * size, info.key
        assert not any(info.key.startswith(".tmp") for info in infos)
    assert use_everything(storage, "afterwards")


async def _infos(storage: Storage) -> list[ObjectInfo]:
    return [info async for page in storage.list("") for info in page]


def _wait_for_progress(storage: LocalStorage, seen: int) -> None:
    """Until the writer has written something that was not there before."""
    limit = time.monotonic() + 60
    while len(asyncio.run(_infos(storage))) < seen + 3:
        assert time.monotonic() < limit, "the writer does not write"
