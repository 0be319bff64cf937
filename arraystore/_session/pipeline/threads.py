"""Threads that share the work of one selection; the caller's is one of them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import zarr

A = TypeVar("A")

_MOST = 8
"""Threads beyond which memory is busy, not the processors."""

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def _forget_after_fork() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


def thread_count() -> int:
    """Return the threads to use for one selection; zarr's ``threading.max_workers`` limits them."""
    limit: Any = zarr.config.get("threading.max_workers", None)
    return max(1, min(os.cpu_count() or 1, _MOST, limit if isinstance(limit, int) else _MOST))


def share(items: Iterable[A], workers: Callable[[], Callable[[A], None]], threads: int) -> None:
    """Do work for all items in several threads; the first error ends it, when the items begun are done.

    Parameters
    ----------
    items
        The items.
    workers
        Returns what works for one item, made once for each thread, which may keep memory of its own.
    threads
        Most threads.
    """
    waiting = deque(items)

    def work() -> None:
        one = workers()
        try:
            while waiting:
                try:
                    item = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                one(item)
        except BaseException:
            waiting.clear()
            raise

    helpers = [_threads().submit(work) for _ in range(min(threads, len(waiting)) - 1)]
    try:
        work()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]  # those that no thread was free for
        errors = [error for helper in begun if (error := helper.exception()) is not None]
    if errors:
        raise errors[0]


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_MOST, thread_name_prefix="arraystore-codec")
        return _pool
