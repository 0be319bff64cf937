"""Injected latency, to simulate a remote object store on one machine."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.storage.forking import renew_locks_after_fork
from arraystore.storage.protocol import ObjectInfo, Storage
from arraystore.storage.wrapper import StorageRequest, WrapperStorage

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

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        """Delay a request: a read before it, a write half before and half after it."""
        if request.operation == "sync":
            yield from super().around(request)
        elif request.operation in {"get", "get_ranges", "head"}:
            yield self._draw(self._get)
            yield 0.0
        else:
            half = self._draw(self._put) / 2
            yield half
            yield half

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
