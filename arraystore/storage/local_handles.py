"""Cache of the open files of a local storage."""

from __future__ import annotations

import os
from collections.abc import Callable

from arraystore.storage.forking import ForkSafeLock

__all__ = ["Handle", "HandleCache"]


class Handle:
    """Open file; closed when unreferenced, so never during a read by another thread."""

    __slots__ = ("below", "fd", "used")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.used = False
        self.below = False
        """True if the file is known to be below the directory of the storage, symbolic links resolved."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class HandleCache:
    """Bounded cache of handles by key, evicted by second chance (CLOCK).

    Look-ups take no lock: a reader marks the handle as used, and eviction skips it once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._handles: dict[str, Handle] = {}
        self.get = self._handles.get
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, key: str, handle: Handle) -> None:
        """Add a handle, replacing an older one of this key."""
        with self._lock:
            self._handles.pop(key, None)
            while len(self._handles) >= self._limit:
                self._evict_one()
            self._handles[key] = handle

    def _evict_one(self) -> None:
        while True:
            key = next(iter(self._handles))
            handle = self._handles.pop(key)
            if not handle.used:
                return
            handle.used = False
            self._handles[key] = handle

    def drop(self, key: str) -> None:
        """Drop the handle of a key that was replaced or deleted."""
        if key in self._handles:
            with self._lock:
                self._handles.pop(key, None)
