"""Open files of a local storage, kept for the next read of the same object."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["Handle", "HandleCache"]


class Handle:
    """An open file; closed when nobody refers to it any more, so never under a read of another thread."""

    __slots__ = ("below", "fd", "used")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.used = False
        self.below = False
        """Whether the file was seen to lie below the directory of the storage, links included."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class HandleCache:
    """Handles by key, bounded; the ones not used of late go first (second chance).

    Look-ups take no lock: a reader marks the handle as used, and eviction passes over it once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._handles: dict[str, Handle] = {}
        self.get = self._handles.get
        self.renew_locks()

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, key: str, handle: Handle) -> None:
        """Keep a handle, in place of an older one of this key."""
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
        """Forget the handle of a key that was replaced or deleted."""
        if key in self._handles:
            with self._lock:
                self._handles.pop(key, None)
