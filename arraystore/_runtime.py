"""One background event loop for the synchronous faces of an asynchronous core.

Synchronous calls hand their coroutine to a loop that runs in a daemon thread of its own, so they work where the
caller's thread already runs a loop (Jupyter, zarr's own loop).  A forked child has no such thread: it starts a
fresh loop at its first call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["background_loop", "run", "run_on", "submit"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _forget_after_fork() -> None:
    """Threads do not survive a fork, and a lock may have been held by one of them."""
    global _lock, _loop, _thread
    _lock = threading.Lock()
    _loop = None
    _thread = None


os.register_at_fork(after_in_child=_forget_after_fork)


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started on first use."""
    global _loop, _thread
    loop = _loop
    if loop is not None:
        return loop
    with _lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=loop.run_forever, name="arraystore-io", daemon=True)
            _thread.start()
            _loop = loop
        return _loop


@contextmanager
def run_on(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Use a loop that this thread runs, as simulations do, in place of the background loop while the block lasts.

    Synchronous calls are errors meanwhile: nobody would be left to do their work.
    """
    global _loop, _thread
    with _lock:
        before = _loop, _thread
        _loop, _thread = loop, threading.current_thread()
    try:
        yield
    finally:
        with _lock:
            _loop, _thread = before


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine on the background loop; the future may be waited for from any other thread."""
    return asyncio.run_coroutine_threadsafe(work, background_loop())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for its result.

    Raises
    ------
    RuntimeError
        When called from the background loop itself, where waiting could never end.
    """
    if threading.current_thread() is _thread:
        work.close()
        raise RuntimeError(
            "a synchronous arraystore call was made from arraystore's own event loop; await its _async twin"
        )
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
