"""Counting of requests and bytes, so that tests and benchmarks measure without a clock."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["CountingStorage", "Counts"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of requests and bytes of a storage; subtract two to count the requests in between.

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
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._requests: Counter[str] = Counter()
        self._read = 0
        self._written = 0
        self._log: list[tuple[str, str]] = []
        self.renew_locks()
        renew_locks_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (CountingStorage, (self._inner,))

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
            self._log.extend((operation, key) for key in keys)

    def _count_read(self, data: BytesLike) -> BytesLike:
        with self._lock:
            self._read += len(data)
        return data

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        self._count("get", key)
        return self._count_read(await super().get(key))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object; one request."""
        self._count("get_ranges", key)
        return [self._count_read(data) for data in await super().get_ranges(key, ranges)]

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object, and its state; counts as `get_ranges`, without ranges as `head`."""
        self._count("get_ranges" if ranges else "head", key)
        data, info = await super().get_source_ranges(key, ranges)
        return [self._count_read(part) for part in data], info

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object."""
        self._count("put", key, written=len(data))
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        self._count("put_if_absent", key, written=len(data))
        return await super().put_if_absent(key, data)

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        self._count("head", key)
        return await super().head(key)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects; one request."""
        self._count("delete", *keys)
        return await super().delete(keys)

    async def sync(self) -> None:
        """Return once every earlier `put` is durable."""
        self._count("sync", "")
        await super().sync()

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        self._count("get", key)
        return self._count_read(super().get_sync(key))

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        self._count("get_ranges", key)
        return self._count_read(super().get_range_sync(key, start, stop))

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        self._count("get_ranges", key)
        data, info = super().get_source_range_sync(key, start, stop)
        return self._count_read(data), info

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        self._count("put", key, written=len(data))
        super().put_sync(key, data)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects; each page a request, and an empty listing one."""
        self._count("list", prefix)
        first = True
        async for page in self._inner.list(prefix, start_after):
            if not first:
                self._count("list", prefix)
            first = False
            yield page
