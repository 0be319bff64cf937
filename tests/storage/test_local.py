"""What is particular to local directories: durability, links, temporary files, open files."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from arraystore.errors import ObjectNotFoundError, PermissionDeniedError, StorageError, UnsupportedStorageError
from arraystore.storage import LocalStorage, local_files
from arraystore.storage.local_handles import Handle, HandleCache


class Fsyncs:
    """Records which paths were fsynced, and in which state of the tree."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.error: OSError | None = None
        self.errors: dict[str, OSError] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        self.paths.append(path)
        error = self.errors.get(os.path.basename(path), self.error)
        if error is not None:
            raise error
        self._fsync(fd)


@pytest.fixture
def fsyncs(monkeypatch: pytest.MonkeyPatch) -> Fsyncs:
    return Fsyncs(monkeypatch)


async def test_sync_makes_files_and_every_new_directory_durable(tmp_path: Path, fsyncs: Fsyncs) -> None:
    root = tmp_path / "new" / "repository"
    storage = LocalStorage(root)
    await storage.put("chunks/deep/a", b"1")
    await storage.put("chunks/deep/b", b"2")
    assert fsyncs.paths == []
    await storage.sync()
    expected = {root / "chunks/deep/a", root / "chunks/deep/b", root / "chunks/deep", root / "chunks", root}
    assert {str(path) for path in expected | {root.parent, tmp_path}} <= set(fsyncs.paths)
    files = [index for index, path in enumerate(fsyncs.paths) if path.endswith(("/a", "/b"))]
    assert max(files) < fsyncs.paths.index(str(root / "chunks/deep"))


async def test_a_denial_after_an_object_was_created_leaves_open_whether_it_was(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path)
    fsyncs.errors["refs"] = PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(StorageError) as caught:
        await storage.put_if_absent("refs/a", b"1")
    assert not isinstance(caught.value, PermissionDeniedError)
    del fsyncs.errors["refs"]
    assert await storage.put_if_absent("refs/a", b"1")


async def test_a_denied_look_at_an_existing_object_leaves_open_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put_if_absent("refs/a", b"1")

    def denied(path: str, *arguments: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(StorageError) as caught:
        await storage.put_if_absent("refs/a", b"1")
    assert not isinstance(caught.value, PermissionDeniedError)
    with pytest.raises(PermissionDeniedError):
        await storage.put_if_absent("refs/b", b"1")


async def test_sync_fsyncs_nothing_twice(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a/1", b"1")
    await storage.sync()
    fsyncs.paths.clear()
    await storage.sync()
    assert fsyncs.paths == []
    await storage.put("a/2", b"2")
    await storage.sync()
    assert fsyncs.paths == [str(tmp_path / "a/2"), str(tmp_path / "a")]


async def test_put_if_absent_is_durable_on_return(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path / "repository")
    assert await storage.put_if_absent("refs/1", b"1")
    assert fsyncs.paths[0].startswith(str(tmp_path / "repository/.tmp/"))
    assert {str(tmp_path / "repository/refs"), str(tmp_path / "repository"), str(tmp_path)} <= set(fsyncs.paths)


async def test_a_found_object_of_ones_own_is_made_durable_too(tmp_path: Path, fsyncs: Fsyncs) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs/1").write_bytes(b"1")
    assert await LocalStorage(tmp_path).put_if_absent("refs/1", b"1")
    assert str(tmp_path / "refs") in fsyncs.paths


async def test_without_fsync_nothing_is_fsynced(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path, fsync=False)
    await storage.put("a/1", b"1")
    await storage.put_if_absent("a/2", b"1")
    await storage.sync()
    assert fsyncs.paths == []


async def test_what_the_disk_lost_never_passes_for_durable(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a", b"1")
    fsyncs.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(StorageError, match="Input/output"):
        await storage.sync()
    fsyncs.error = None
    with pytest.raises(StorageError, match="'a'"):
        await storage.sync()
    await storage.put("a", b"1")
    await storage.sync()


async def test_a_sync_that_could_not_open_its_files_is_made_up_for(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a", b"1")
    fsyncs.error = OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(StorageError, match="ulimit"):
        await storage.sync()
    fsyncs.error = None
    fsyncs.paths.clear()
    await storage.sync()
    assert str(tmp_path / "a") in fsyncs.paths


async def test_a_sync_that_got_no_thread_is_made_up_for(
    tmp_path: Path, fsyncs: Fsyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    for key in "ab":
        await storage.put(key, b"1")
    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="new thread"):
            storage._sync()
    await storage.sync()
    assert {str(tmp_path / key) for key in "ab"} <= set(fsyncs.paths)


async def test_what_the_disk_lost_is_told_beside_another_error(tmp_path: Path, fsyncs: Fsyncs) -> None:
    storage = LocalStorage(tmp_path)
    for key in "ab":
        await storage.put(key, b"1")
    fsyncs.errors = {"a": OSError(errno.EMFILE, "Too many open files"), "b": OSError(errno.EIO, "Input/output error")}
    with pytest.raises(StorageError, match="Input/output"):
        await storage.sync()
    fsyncs.errors = {}
    with pytest.raises(StorageError, match="not made durable"):
        await storage.sync()


def _no_links(*arguments: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


async def test_without_hard_links_a_rename_that_does_not_replace_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    storage = LocalStorage(tmp_path)
    assert await storage.put_if_absent("refs/1", b"ours")
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # as if the other had come in between
    assert not await storage.put_if_absent("refs/1", b"theirs")
    assert storage.get_sync("refs/1") == b"ours"
    assert os.listdir(tmp_path / ".tmp") == []


async def test_a_filesystem_with_neither_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    monkeypatch.setattr(local_files, "_renameat2", lambda: lambda old, new: errno.EINVAL)
    with pytest.raises(UnsupportedStorageError, match="another filesystem"):
        await LocalStorage(tmp_path).put_if_absent("refs/1", b"x")
    assert not (tmp_path / "refs/1").exists()


async def test_temporary_files_are_neither_listed_nor_left_behind(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a", b"1")
    await storage.put_if_absent("b", b"1")
    await storage.put_if_absent("b", b"2")
    (tmp_path / ".tmp" / "leftover").write_bytes(b"half")
    assert [info.key async for page in storage.list("") for info in page] == ["a", "b"]
    assert [page async for page in storage.list(".tmp/")] == []
    assert os.listdir(tmp_path / ".tmp") == ["leftover"]
    with pytest.raises(StorageError, match="reserved"):
        await storage.put(".tmp/a", b"")


async def test_leftovers_of_crashed_writers_go_after_days(tmp_path: Path) -> None:
    (tmp_path / ".tmp").mkdir()
    for name, age in {"old": 3 * 24 * 3600, "new": 3600}.items():
        (tmp_path / ".tmp" / name).write_bytes(b"half")
        then = time.time() - age
        os.utime(tmp_path / ".tmp" / name, (then, then))
    await LocalStorage(tmp_path).put("a", b"1")
    assert os.listdir(tmp_path / ".tmp") == ["new"]


async def test_replacing_and_deleting_by_others_is_seen_through_open_files(tmp_path: Path) -> None:
    mine, theirs = LocalStorage(tmp_path), LocalStorage(tmp_path)
    await mine.put("a", b"old")
    assert mine.get_range_sync("a", 0, 3) == b"old"
    await theirs.put("a", b"new")
    assert mine.get_range_sync("a", 0, 3) == b"new"
    await theirs.delete(["a"])
    with pytest.raises(ObjectNotFoundError):
        mine.get_range_sync("a", 0, 3)


def test_open_files_stay_few_and_busy_ones_stay_open(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        storage.put_sync(f"packs/{number}", b"0123456789")
    for number in range(300):
        assert storage.get_range_sync(f"packs/{number}", 2, 4) == b"23"
        assert storage.get_range_sync("packs/0", 0, 1) == b"0"
    assert len(os.listdir("/proc/self/fd")) <= before + 65
    assert str(tmp_path / "packs/0") in {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}


def test_a_handle_in_use_is_not_closed_by_eviction(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    cache = HandleCache(1)
    handle = Handle(os.open(tmp_path / "a", os.O_RDONLY))
    fd = handle.fd
    cache.add("a", handle)
    cache.add("b", Handle(os.open(tmp_path / "a", os.O_RDONLY)))
    assert cache.get("a") is None
    assert os.pread(fd, 1, 0) == b"x"
    del handle
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_threads_may_read_while_handles_are_evicted(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for number in range(200):
        storage.put_sync(f"{number}", b"%03d" % number)
    wrong: list[Any] = []

    def read(step: int) -> None:
        for turn in range(2000):
            number = turn * step % 200
            data = storage.get_range_sync(f"{number}", 0, 3)
            if data != b"%03d" % number:
                wrong.append((number, data))

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


async def test_a_listing_reads_no_directory_that_cannot_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    for key in ["refs/branch/a/1", "refs/branch/a-b/1", "refs/tag/x", "chunks/1"]:
        await storage.put(key, b"")
    read: list[str] = []
    scandir: Callable[[str], Any] = os.scandir

    def spy(path: str) -> Any:
        read.append(os.path.relpath(path, tmp_path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", spy)
    assert [i.key async for page in storage.list("refs/branch/a/") for i in page] == ["refs/branch/a/1"]
    assert read == ["refs/branch/a"]
    read.clear()
    assert [i.key async for page in storage.list("refs/branch/", "refs/branch/a/0") for i in page] == [
        "refs/branch/a/1"
    ]
    assert read == ["refs/branch", "refs/branch/a"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "permissions"), (errno.EROFS, "reading only")],
)
async def test_errors_name_place_key_cause_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    storage = LocalStorage(tmp_path)

    def fail(*arguments: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", fail)
    for call in (storage.put("a/b", b"1"), storage.put_if_absent("a/b", b"1")):
        with pytest.raises(StorageError) as caught:
            await call
        for part in (storage.location, "'a/b'", os.strerror(code), remedy):
            assert part in str(caught.value)
    monkeypatch.undo()
    assert os.listdir(tmp_path / ".tmp") == []


async def test_a_key_that_is_a_directory_is_an_error_not_a_lost_race(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    await storage.put("a/b", b"1")
    with pytest.raises(StorageError, match="directory"):
        await storage.put_if_absent("a", b"1")
    with pytest.raises(StorageError, match="file exists where"):
        await storage.put("a/b/c", b"1")


def test_equal_directories_have_equal_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    monkeypatch.chdir(tmp_path)
    places = {LocalStorage(path).location for path in (tmp_path / "real", tmp_path / "link", "real", "./link/../real")}
    assert places == {(tmp_path / "real").as_uri()}
