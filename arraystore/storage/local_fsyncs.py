"""Fsyncs of many files: by one thread where they are quick, by several where they wait for a disk.

On a filesystem in memory an fsync takes 2 µs, and a task of a pool of eight threads 70.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

__all__ = ["fsync_each", "is_write_back_error"]

_THREADS = 8
_PATIENCE = 0.0005
"""Seconds after which one thread gets help: a disk takes longer for its first fsync."""

# Errors of fsync when data did not reach the disk.
_WRITE_BACK_ERRORS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})


def fsync_each(fsync: Callable[[str], None], paths: Sequence[str]) -> None:
    """Call `fsync` for all paths, those that wait for a disk at once, so that the journal commits them together."""
    if len(paths) < 2:
        for path in paths:
            fsync(path)
        return
    waiting, errors = deque(paths), list[OSError]()

    def work() -> None:
        while waiting:
            try:
                path = waiting.popleft()
            except IndexError:
                return  # another thread has taken the last
            try:
                fsync(path)
            except OSError as error:
                errors.append(error)

    try:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="arraystore-fsync") as threads:
            working = [threads.submit(work)]
            if wait(working, _PATIENCE).not_done:
                working += [threads.submit(work) for _ in range(min(_THREADS - 1, len(waiting)))]
    finally:
        if errors:  # none must hide that of another file, as one that no further thread could be started would
            raise max(errors, key=is_write_back_error)
    for each in working:
        each.result()


def is_write_back_error(error: BaseException) -> bool:
    """Tell whether an fsync failed because data did not reach the disk."""
    return isinstance(error, OSError) and error.errno in _WRITE_BACK_ERRORS
