"""Budget of all caches of a process: what they hold together is bounded, however many repositories are open.

Each cache keeps its own limit and drops its own oldest entries.  Where all of them hold more than the budget, the one
that holds most gives way first, so a repository that is read once does not empty the small caches of the others.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from arraystore.errors import InvalidInputError
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.forking import renew_locks_after_fork

__all__ = ["PROCESS", "Account", "CacheBudget", "limit_caches"]

_DEFAULT = 1 << 30
_VARIABLE = "ARRAYSTORE_CACHE_BYTES"


class Evictable(Protocol):
    """Cache that can drop what it has kept longest; its account goes with it."""

    account: Account

    def evict(self, excess: int) -> int:
        """Drop the oldest entries until `excess` bytes are free or one is left; returns the count of those dropped."""
        ...


class Account:
    """Bytes of one cache.

    A cache adds and takes under its own lock, and calls `settle` without it.
    """

    __slots__ = ("_budget", "bytes")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count bytes that the cache holds from now on; less than 0 for bytes that it has dropped."""
        self._budget.count(self, size)

    def settle(self) -> None:
        """Make room in the caches of the process, if they hold too much."""
        self._budget.settle()


class CacheBudget:
    """Bound on the bytes of caches that share it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.evictions = 0
        self._caches: weakref.WeakSet[Evictable] = weakref.WeakSet()
        self.renew_locks()
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the locks, in a forked child, and count anew: a thread of the parent may have been counting."""
        self._lock = threading.RLock()  # a cache may be collected, and released, by a thread that is counting
        self._settling = threading.Lock()
        self.bytes = sum(cache.account.bytes for cache in list(self._caches))

    def open(self, cache: Evictable) -> Account:
        """Return the account of a cache, which ends with the cache."""
        account = Account(self)
        weakref.finalize(cache, self._close, account).atexit = False
        return account

    def join(self, cache: Evictable) -> None:
        """Let a cache that has an account give way to others."""
        with self._lock:
            self._caches.add(cache)

    def _close(self, account: Account) -> None:
        self.count(account, -account.bytes)

    def count(self, account: Account, size: int) -> None:
        """Add bytes to those of an account."""
        with self._lock:
            account.bytes += size
            self.bytes += size

    def settle(self) -> None:
        """Evict from whichever cache holds most until the budget is kept; one thread does it for all."""
        if self.bytes <= self.limit or not self._settling.acquire(blocking=False):
            return
        try:
            with self._lock:
                caches = sorted(self._caches, key=lambda cache: cache.account.bytes, reverse=True)
            # The largest give way to the level of the next smaller one; each keeps one entry, which is in use.
            for count in range(1, len(caches) + 1):
                level = caches[count].account.bytes if count < len(caches) else 0
                for cache in caches[:count]:
                    share = min(cache.account.bytes - level, self.bytes - self.limit)
                    if share > 0:
                        self.evictions += cache.evict(share)
        finally:
            self._settling.release()

    @property
    def usage(self) -> CacheUsage:
        """Return what the caches hold together."""
        with self._lock:
            return CacheUsage(len(self._caches), self.bytes, self.limit, evictions=self.evictions)


def _initial() -> int:
    text = os.environ.get(_VARIABLE, "")
    return int(text) if text.isdecimal() else _DEFAULT


PROCESS = CacheBudget(_initial())
"""Budget of all caches of this process."""


def limit_caches(max_bytes: int) -> None:
    """Limit what all caches in the memory of this process hold together.

    They are those of all open repositories: decoded manifests, parts of packs, and records of logs.  Each has a limit
    of its own besides (`RepositoryConfig`).  Where they hold more together, whichever holds most drops what it has kept
    longest; each keeps at least one entry.  `Repository.cache_stats` tells how much they hold.

    Parameters
    ----------
    max_bytes
        Bytes; 1 GiB by default, or what `ARRAYSTORE_CACHE_BYTES` in the environment says.

    Raises
    ------
    InvalidInputError
        If it is not an integer >= 0.
    """
    if type(max_bytes) is not int or max_bytes < 0:
        raise InvalidInputError(f"max_bytes={max_bytes!r} must be an integer >= 0")
    PROCESS.limit = max_bytes
    PROCESS.settle()
