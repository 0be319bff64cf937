from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from arraystore.storage.local_fsyncs import fsync_each

PATHS = [f"file {number}" for number in range(20)]


def test_files_that_wait_for_a_disk_wait_together() -> None:
    done: list[str] = []
    together = threading.Barrier(8, timeout=60)  # breaks, and fails, if fewer threads wait at once

    def fsync(path: str) -> None:
        if path in PATHS[:8]:
            together.wait()
        done.append(path)

    fsync_each(fsync, PATHS)
    assert sorted(done) == sorted(PATHS)


@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_each_file_is_synced_once(count: int) -> None:
    done: list[str] = []
    fsync_each(done.append, PATHS[:count])
    assert sorted(done) == sorted(PATHS[:count])


@pytest.mark.parametrize("slow", [False, True])
def test_all_files_are_tried_and_no_error_hides_that_data_is_lost(slow: bool) -> None:
    tried: list[str] = []
    errors = {"file 0": errno.ENOENT, "file 3": errno.EIO, "file 19": errno.EACCES}
    began = threading.Event()

    def fsync(path: str) -> None:
        tried.append(path)
        if slow:
            began.wait(0.01)
        if path in errors:
            raise OSError(errors[path], "failed", path)

    with pytest.raises(OSError, match="failed") as caught:
        fsync_each(fsync, PATHS)
    assert caught.value.errno == errno.EIO
    assert sorted(tried) == sorted(PATHS)


def test_threads_that_cannot_be_started_hide_no_error_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = ThreadPoolExecutor.submit, threading.Event()
    started: list[Any] = []

    def submit(threads: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None]:
        if started:
            refused.set()
            raise RuntimeError("can't start new thread")
        started.append(work)
        return start(threads, work)

    def fsync(path: str) -> None:
        refused.wait(60)
        if path == "file 3":
            raise OSError(errno.EIO, "failed", path)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with pytest.raises(OSError, match="failed"):
        fsync_each(fsync, PATHS)


def test_an_error_of_any_kind_is_raised() -> None:
    def fsync(path: str) -> None:
        raise IndexError(path)

    with pytest.raises(IndexError, match="file"):
        fsync_each(fsync, PATHS)
