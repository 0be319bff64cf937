"""Requests and bytes that one view costs, however many run at a time."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from arraystore.storage.counting import size_of_read
from arraystore.storage.wrapper import StorageRequest, WrapperStorage

__all__ = ["TalliedStorage", "Tally", "tally"]


class Tally:
    """Requests, and the bytes that were read."""

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_read = 0
        self._lock = threading.Lock()

    def add(self, requests: int, bytes_read: int) -> None:
        """Add some, from any thread."""
        with self._lock:
            self.requests += requests
            self.bytes_read += bytes_read


_current: ContextVar[Tally | None] = ContextVar("arraystore_ui_tally", default=None)


@contextmanager
def tally() -> Iterator[Tally]:
    """Count the requests of what is started within the block, in other threads and tasks too."""
    counted = Tally()
    token = _current.set(counted)
    try:
        yield counted
    finally:
        _current.reset(token)


class TalliedStorage(WrapperStorage):
    """Storage that adds its requests to the tally of whoever sends them."""

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        """Count a request, and the bytes that it returns."""
        counted = _current.get()
        if counted is not None:
            counted.add(1, 0)
        result = yield 0.0
        if counted is not None and request.operation in {"get", "get_ranges"}:
            counted.add(0, size_of_read(result))
        yield 0.0

    async def before_page(self, prefix: str) -> None:
        """Count a page of a listing."""
        counted = _current.get()
        if counted is not None:
            counted.add(1, 0)
