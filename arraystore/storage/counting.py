"""Counting of requests and bytes, so that tests and benchmarks measure without a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.protocol import Storage
from arraystore.storage.wrapper import StorageRequest, WrapperStorage

__all__ = ["CountingStorage", "Counts", "size_of_read"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of requests and bytes of a storage; subtract two to count the requests in between, add those of several.

    Parameters
    ----------
    requests
        Number of calls by operation: get, get_ranges, put, put_if_absent, head, delete, list (pages), sync.  The
        synchronous methods count as their operation.
    bytes_read, bytes_written
        Payload bytes; a conditional write counts whether or not it succeeded.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def total(self) -> int:
        """Number of calls except `sync`, which sends no request to an object store."""
        return sum(count for operation, count in self.requests.items() if operation != "sync")

    def __getitem__(self, operation: str) -> int:
        return self.requests.get(operation, 0)

    def __add__(self, other: Counts) -> Counts:
        names = [*self.requests, *(name for name in other.requests if name not in self.requests)]
        requests = {name: self[name] + other[name] for name in names}
        return Counts(requests, self.bytes_read + other.bytes_read, self.bytes_written + other.bytes_written)

    def __sub__(self, earlier: Counts) -> Counts:
        requests = {name: count - earlier[name] for name, count in self.requests.items() if count != earlier[name]}
        return Counts(requests, self.bytes_read - earlier.bytes_read, self.bytes_written - earlier.bytes_written)


class CountingStorage(WrapperStorage):
    """Storage that counts and logs the calls to another storage.

    A call counts when it is made, whether or not it succeeds.  An unpickled copy starts from zero.

    Parameters
    ----------
    inner
        Storage that handles the requests.
    log
        Keep operation and key of every call, for `log`.
    """

    def __init__(self, inner: Storage, *, log: bool = True) -> None:
        super().__init__(inner)
        self._logs = log
        self._requests: Counter[str] = Counter()
        self._read = 0
        self._written = 0
        self._log: list[tuple[str, str]] = []
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(CountingStorage, log=self._logs), (self._inner,))

    @property
    def counts(self) -> Counts:
        """Immutable snapshot of the counters."""
        with self._lock:
            return Counts(dict(self._requests), self._read, self._written)

    @property
    def log(self) -> tuple[tuple[str, str], ...]:
        """Operation and key of every call, in order; for a listing its prefix, for a delete each key."""
        with self._lock:
            return tuple(self._log)

    def reset(self) -> None:
        """Reset all counters to zero and clear the log."""
        with self._lock:
            self._requests.clear()
            self._log.clear()
            self._read = self._written = 0

    def _count(self, operation: str, *keys: str, written: int = 0) -> None:
        with self._lock:
            self._requests[operation] += 1
            self._written += written
            if self._logs:
                self._log.extend((operation, key) for key in keys)

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        """Count a request, and the bytes that it returns."""
        self._count(request.operation, *request.keys, written=request.size)
        result = yield 0.0
        if request.operation in {"get", "get_ranges"}:
            with self._lock:
                self._read += size_of_read(result)
        yield 0.0

    async def before_page(self, prefix: str) -> None:
        """Count a page of a listing."""
        self._count("list", prefix)


def size_of_read(result: Any) -> int:
    """Count the bytes of a read: one body, several, or either with the state of the object."""
    if isinstance(result, tuple):
        return size_of_read(result[0])
    return sum(map(len, result)) if isinstance(result, list) else len(result)
