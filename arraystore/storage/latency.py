"""Injected latency, to simulate a remote object store on one machine."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.protocol import Storage
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
        self._lock = ForkSafeLock()
        self.cheap_probes = inner.cheap_probes and not self._get.median

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(LatencyStorage, seed=self._seed), (self._inner, self._get, self._put))

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

    async def before_page(self, prefix: str) -> None:
        """Delay a page of a listing."""
        await asyncio.sleep(self._draw(self._get))
