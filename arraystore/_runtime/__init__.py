"""The event loop beneath synchronous callers, and modules that are imported when they are used."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

__all__ = ["background_loop", "lazy_module", "lazy_names", "run", "run_on", "submit"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _forget_after_fork() -> None:
    """Drop the loop and the lock in a forked child, which inherits no threads."""
    global _lock, _loop, _thread
    _lock = threading.Lock()
    _loop = None
    _thread = None


os.register_at_fork(after_in_child=_forget_after_fork)


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the background loop, started on first use."""
    global _loop, _thread
    loop = _loop
    if loop is not None:
        return loop
    with _lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_serve, args=(loop,), name="arraystore-io", daemon=True)
            _thread.start()
            _loop = loop
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped; an interrupt or exit that a callback raises ends its task, and not the loop."""
    while True:
        try:
            loop.run_forever()
            return
        except (KeyboardInterrupt, SystemExit):  # the caller gets it from its task
            continue


@contextmanager
def run_on(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Replace the background loop by one that this thread runs; synchronous calls are errors within the block."""
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
    """Start a coroutine on the background loop, and return a future to wait for from another thread."""
    return asyncio.run_coroutine_threadsafe(work, background_loop())


def run(work: Coroutine[Any, Any, T], *, seconds: float | None = None) -> T:
    """Run a coroutine on the background loop and return its result.

    Raises `RuntimeError` on that loop, and `TimeoutError` if it has not ended after so many seconds.
    """
    if threading.current_thread() is _thread:
        work.close()
        raise RuntimeError(
            "a synchronous arraystore call was made from arraystore's own event loop; await its _async twin"
        )
    future = submit(work)
    try:
        return future.result(seconds)
    except BaseException:
        future.cancel()
        raise


class _LazyModule:
    """A module that is imported when something of it is first used."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)

    def __repr__(self) -> str:
        return f"<lazy module {self._name}>"


def lazy_module(name: str) -> Any:
    """Return a module of which the import waits for its first use; type checkers are shown the import itself."""
    return _LazyModule(name)


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module of lazy names, given in strings by their defining modules."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(import_module(module), name, value)
        return value

    return find, lambda: sorted(home_of)
