"""Storage that delegates to another one, the base of counting, latency and faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage

__all__ = ["StorageRequest", "WrapperStorage"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StorageRequest:
    """StorageRequest to a storage, as hooks see it; synchronous ones go by the name of their twin."""

    operation: str
    """One of get, get_ranges, put, put_if_absent, head, delete and sync."""
    keys: tuple[str, ...]
    size: int = 0
    """Bytes that it writes."""


class WrapperStorage(Storage):
    """Storage that delegates every method to another one.

    What is to happen around each request goes into `around`, and before each page of a listing into `before_page`.

    Parameters
    ----------
    inner
        Storage that handles the requests.
    """

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.cheap_probes = inner.cheap_probes
        self.shared = inner.shared

    @property
    def listing_lag(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]  # it can be set, too
        """Maximum time in seconds for which a listing of the inner storage may miss new objects."""
        return self._inner.listing_lag

    @listing_lag.setter
    def listing_lag(self, seconds: float) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._inner.listing_lag = seconds

    @property
    def inner(self) -> Storage:
        """Storage that handles the requests."""
        return self._inner

    @property
    def location(self) -> str:
        """URL of the inner storage."""
        return self._inner.location

    @property
    def origin(self) -> Storage:
        """The storage past caches: this one, unless it wraps a cache."""
        origin = self._inner.origin
        return self if origin is self._inner else origin

    @property
    def disk_usage(self) -> CacheUsage:
        """Return what a cache on disk of the inner storage holds."""
        return self._inner.disk_usage

    def forget(self, key: str) -> None:
        """Drop what the inner storage has cached of an object."""
        self._inner.forget(key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        """Surround a request: yield the seconds to wait before it, receive its result, yield those to wait after it.

        What it raises before the first yield keeps the request from being sent.
        """
        yield 0.0
        yield 0.0

    async def before_page(self, prefix: str) -> None:
        """Precede each page of a listing, an empty first one too."""

    async def _send(self, request: StorageRequest, send: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        around = self.around(request)
        await _wait(next(around))
        result = await send(*arguments)
        await _wait(around.send(result))
        return result

    def _send_sync(self, request: StorageRequest, send: Callable[..., T], *arguments: Any) -> T:
        around = self.around(request)
        _wait_sync(next(around))
        result = send(*arguments)
        _wait_sync(around.send(result))
        return result

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        return await self._send(StorageRequest("get", (key,)), self._inner.get, key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object."""
        return await self._send(StorageRequest("get_ranges", (key,)), self._inner.get_ranges, key, ranges)

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object that others may change, and its state; without ranges a `head`."""
        request = StorageRequest("get_ranges" if ranges else "head", (key,))
        return await self._send(request, self._inner.get_source_ranges, key, ranges)

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object."""
        await self._send(StorageRequest("put", (key,), len(data)), self._inner.put, key, data)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        return await self._send(
            StorageRequest("put_if_absent", (key,), len(data)), self._inner.put_if_absent, key, data
        )

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        return await self._send(StorageRequest("head", (key,)), self._inner.head, key)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects."""
        return await self._send(StorageRequest("delete", tuple(keys)), self._inner.delete, keys)

    async def sync(self) -> None:
        """Return once every earlier `put` is durable."""
        await self._send(StorageRequest("sync", ("",)), self._inner.sync)

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        return self._send_sync(StorageRequest("get", (key,)), self._inner.get_sync, key)

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        return self._send_sync(StorageRequest("get_ranges", (key,)), self._inner.get_range_sync, key, start, stop)

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        return self._send_sync(
            StorageRequest("get_ranges", (key,)), self._inner.get_source_range_sync, key, start, stop
        )

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        self._send_sync(StorageRequest("put", (key,), len(data)), self._inner.put_sync, key, data)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects in order of their keys."""
        await self.before_page(prefix)
        first = True
        async for page in self._inner.list(prefix, start_after):
            if not first:
                await self.before_page(prefix)
            first = False
            yield page


async def _wait(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)


def _wait_sync(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)
