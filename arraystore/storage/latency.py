"""Injected latency, to simulate a remote object store on one machine."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["Latency", "LatencyStorage"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Lognormal distribution of the duration of a request, as measured with object stores.

    Parameters
    ----------
    median
        Median in seconds.
    sigma
        Standard deviation of the logarithm; 0 makes every request take `median`.
    """

    median: float
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if not (self.median >= 0 and self.sigma >= 0):
            raise InvalidInputError(f"latency median={self.median}, sigma={self.sigma}: both must be >= 0")

    def draw(self, rng: random.Random) -> float:
        """Draw the duration of one request, in seconds."""
        return self.median * math.exp(rng.gauss(0.0, self.sigma)) if self.sigma else self.median


class LatencyStorage(WrapperStorage):
    """Storage that delays each request; a write waits half of its latency before its effect and half after.

    Asynchronous requests wait on the running event loop, and therefore in virtual time under a virtual clock.

    Parameters
    ----------
    inner
        Storage that handles the requests.
    get_latency
        Latency of get, get_ranges, head and each page of a listing: a `Latency`, or seconds.
    put_latency
        Latency of put, put_if_absent and delete.
    seed
        Seed of the random numbers; a pickled copy starts from it again.
    """

    def __init__(
        self, inner: Storage, get_latency: Latency | float = 0.0, put_latency: Latency | float = 0.0, *, seed: int = 0
    ) -> None:
        super().__init__(inner)
        self._get = get_latency if isinstance(get_latency, Latency) else Latency(get_latency)
        self._put = put_latency if isinstance(put_latency, Latency) else Latency(put_latency)
        self._seed = seed
        self._rng = random.Random(seed)
        self.renew_locks()
        renew_locks_after_fork(self)
        self.cheap_probes = inner.cheap_probes and not self._get.median

    def renew_locks(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_latency_storage, (self._inner, self._get, self._put, self._seed))

    def _draw(self, latency: Latency) -> float:
        with self._lock:
            return latency.draw(self._rng)

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        await asyncio.sleep(self._draw(self._get))
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object; one request."""
        await asyncio.sleep(self._draw(self._get))
        return await super().get_ranges(key, ranges)

    async def get_source_ranges(self, key: str, ranges: Sequence[ByteRange]) -> tuple[list[BytesLike], ObjectInfo]:
        """Return byte ranges of an object, and its state."""
        await asyncio.sleep(self._draw(self._get))
        return await super().get_source_ranges(key, ranges)

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object."""
        half = self._draw(self._put) / 2
        await asyncio.sleep(half)
        await super().put(key, data)
        await asyncio.sleep(half)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        half = self._draw(self._put) / 2
        await asyncio.sleep(half)
        written = await super().put_if_absent(key, data)
        await asyncio.sleep(half)
        return written

    async def head(self, key: str) -> ObjectInfo:
        """Return size and state of an object."""
        await asyncio.sleep(self._draw(self._get))
        return await super().head(key)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects; one request."""
        half = self._draw(self._put) / 2
        await asyncio.sleep(half)
        failures = await super().delete(keys)
        await asyncio.sleep(half)
        return failures

    def get_sync(self, key: str) -> BytesLike:
        """Return a whole object, synchronously."""
        time.sleep(self._draw(self._get))
        return super().get_sync(key)

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return one byte range, synchronously."""
        time.sleep(self._draw(self._get))
        return super().get_range_sync(key, start, stop)

    def get_source_range_sync(self, key: str, start: int, stop: int) -> tuple[BytesLike, ObjectInfo]:
        """Return one byte range and the state of the object, synchronously."""
        time.sleep(self._draw(self._get))
        return super().get_source_range_sync(key, start, stop)

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Write an object, synchronously."""
        half = self._draw(self._put) / 2
        time.sleep(half)
        super().put_sync(key, data)
        time.sleep(half)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects; every page is delayed, an empty one too."""
        await asyncio.sleep(self._draw(self._get))
        first = True
        async for page in self._inner.list(prefix, start_after):
            if not first:
                await asyncio.sleep(self._draw(self._get))
            first = False
            yield page


def _latency_storage(inner: Storage, get_latency: Latency, put_latency: Latency, seed: int) -> LatencyStorage:
    return LatencyStorage(inner, get_latency, put_latency, seed=seed)
