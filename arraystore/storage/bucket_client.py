"""Client of a bucket, one for all threads, event loops, sessions and repositories of a process that use the bucket.

It holds what is of use only when shared: the pool of connections, the limit of requests in flight, and the durations
of reads.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from arraystore.storage import obstore_module as native
from arraystore.storage.forking import ForkSafeLock
from arraystore.storage.hedging import Hedging, first_answer
from arraystore.storage.obstore_config import ObstoreConfig, build_store
from arraystore.storage.obstore_errors import is_throttled
from arraystore.storage.request_limit import Outcome, RequestLimit
from arraystore.storage.secret import Secret

__all__ = ["BucketClient", "client_of"]

T = TypeVar("T")
Request = Callable[["BucketClient"], Awaitable[T]]
"""Sends a request with a client."""

_ENVIRONMENT = ("AWS_", "GOOGLE_", "AZURE_", "SERVICE_ACCOUNT")
"""Start of the names of environment variables from which the native client takes what a configuration leaves open."""


class BucketClient:
    """Native client of a bucket, and what its users share; sends requests and retries none.

    Parameters
    ----------
    config
        Configuration; its prefix is ignored.
    clock
        Monotonic clock.
    """

    def __init__(self, config: ObstoreConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self.generation = native.generation
        self.module: Any = native.obstore_module()
        self.store: Any = build_store(config, self.module, retries=False)
        self.limit = RequestLimit(config.settings.concurrency, config.settings.timeouts.request / 2, clock)
        self.hedging = Hedging(config.settings.hedging)
        self._clock = clock
        self._uploads: Any = None

    @property
    def uploads(self) -> Any:
        """Store for uploads in parts, which repeats the parts that fail; made on first use."""
        if self._uploads is None:
            self._uploads = build_store(self._config, self.module, retries=True)
        return self._uploads

    async def read(self, request: Request[T], *, size: int | None = None, again: bool = False) -> T:
        """Send a read of some bytes, None for a whole object, once there is a slot; twice if it is late."""
        if not self.hedging.enabled:
            return await self.send(request, again=again)
        sent = await self.limit.enter(first=again)
        first, delay = self._await_answer(request, sent), self.hedging.delay(size)
        result = await (first if delay is None else first_answer(first, delay, partial(self._start_again, request)))
        self.hedging.answered(size, self._clock() - sent)
        return result

    def _start_again(self, request: Request[T]) -> asyncio.Future[T] | None:
        """Start a late read a second time, if budget and limit allow it."""
        if not self.hedging.take():
            return None
        sent = self.limit.try_enter()
        if sent is None:
            self.hedging.give_back()
            return None
        second = asyncio.ensure_future(request(self))
        second.add_done_callback(partial(self._release, sent))  # also if it is cancelled before its first step
        return second

    def _release(self, sent: float, request: asyncio.Future[Any]) -> None:
        outcome = Outcome.UNKNOWN if request.cancelled() else _outcome(request.exception())
        self.limit.leave(sent, outcome)

    async def send(self, request: Request[T], *, timed: bool = True, again: bool = False) -> T:
        """Send a request once there is a slot, the next one if it is sent `again`.

        Unless it is `timed`, its duration does not count.
        """
        return await self._await_answer(request, await self.limit.enter(first=again), timed)

    async def _await_answer(self, request: Request[T], sent: float, timed: bool = True) -> T:
        """Send a request that has a slot, and release it after the answer."""
        outcome = Outcome.UNKNOWN
        try:
            result = await request(self)
            outcome = Outcome.ANSWERED if timed else Outcome.UNKNOWN
            return result
        except Exception as error:
            outcome = _outcome(error)
            raise
        finally:
            self.limit.leave(sent, outcome)

    def send_sync(self, request: Callable[[BucketClient], T], *, timed: bool = True, again: bool = False) -> T:
        """Send a request, synchronously."""
        sent = self.limit.enter_sync(first=again)
        outcome = Outcome.UNKNOWN
        try:
            result = request(self)
            outcome = Outcome.ANSWERED if timed else Outcome.UNKNOWN
            return result
        except Exception as error:
            outcome = _outcome(error)
            raise
        finally:
            self.limit.leave(sent, outcome)


def _outcome(error: BaseException | None) -> Outcome:
    return Outcome.THROTTLED if error is not None and is_throttled(error) else Outcome.ANSWERED


_lock = ForkSafeLock()
_clients: weakref.WeakValueDictionary[Hashable, BucketClient] = weakref.WeakValueDictionary()


def client_of(config: ObstoreConfig) -> BucketClient:
    """Return the client of a bucket in this process: one for all configurations that differ in the prefix only.

    It lives as long as a storage uses it.  A configuration with a `get_credentials` that cannot be hashed gets its own.
    """
    key = (native.generation, _without_prefix(config), _environment())
    try:
        hash(key)
    except TypeError:
        return BucketClient(config)
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = BucketClient(config)
        return client


def _without_prefix(config: ObstoreConfig) -> ObstoreConfig:
    settings = replace(config.settings, listing_lag=0.0, chunks_storage_class=None, metadata_storage_class=None)
    return replace(config, prefix="", location="", pickle_credentials=False, metadata=(), settings=settings)


def _environment() -> tuple[tuple[str, Secret], ...]:
    """Return the environment variables that a new client would read."""
    names = sorted(name for name in os.environ if name.startswith(_ENVIRONMENT) or name.upper().endswith("_PROXY"))
    return tuple((name, Secret(os.environ[name])) for name in names)
