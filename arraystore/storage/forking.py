"""Locks across a fork: one that another thread of the parent held would stay locked in the child forever."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

__all__ = ["ForkSafeLock", "HasLocks", "leak", "renew_locks_after_fork"]


class HasLocks(Protocol):
    """Object that can replace its locks."""

    def renew_locks(self) -> None:
        """Replace every lock of this object; called in a forked child before anything else runs there."""


_leaked: list[Any] = []


def leak(inherited: Any) -> None:
    """Leak an object inherited from the parent, so that this forked child never finalizes it.

    A client that closes its connections in the child would remove them from the epoll instance that it shares with
    the parent, which would then wait for a response forever; other destructors wait for threads that a fork does not
    copy.
    """
    _leaked.append(inherited)


_holders: weakref.WeakSet[HasLocks] = weakref.WeakSet()


def renew_locks_after_fork(holder: HasLocks) -> None:
    """Register `holder` to get fresh locks in every forked child."""
    _holders.add(holder)


class ForkSafeLock:
    """Lock that is free in every forked child, even if another thread held it during the fork."""

    def __init__(self) -> None:
        self.renew_locks()
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _renew() -> None:
    for holder in tuple(_holders):
        holder.renew_locks()


os.register_at_fork(after_in_child=_renew)
