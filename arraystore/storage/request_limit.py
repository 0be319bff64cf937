"""Limit of the requests in flight that follows what a service takes: additive increase, multiplicative decrease.

It starts at the maximum, so nothing waits where nothing throttles.  Answers that ask to slow down halve it, once for
all requests that were in flight together; each round of other answers adds one.
"""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from arraystore.storage.settings import StorageConcurrencySettings

__all__ = ["Outcome", "RequestLimit"]

_DECREASE = 0.5
_TOLERATED = 0.02
"""Fraction of a round that may be refused without a decrease: some services refuse a request in a thousand by chance,
which would keep the limit at forty whatever they have room for."""


class Outcome(enum.Enum):
    """Outcome of a request, as far as the limit is concerned."""

    ANSWERED = "answered"
    THROTTLED = "throttled"
    """The service asked to slow down."""
    UNKNOWN = "unknown"
    """It was cancelled, or its duration tells nothing."""


class RequestLimit:
    """Limit of the requests that all threads and event loops of a process have in flight to one bucket.

    Parameters
    ----------
    settings
        Bounds of the limit.
    slow
        Duration in seconds from which an answer counts as one that asks to slow down.
    clock
        Monotonic clock.
    """

    def __init__(
        self, settings: StorageConcurrencySettings, slow: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = max(1.0, float(settings.max_requests))
        self._least = min(max(1.0, float(settings.min_requests)), self._most)
        self._slow = slow
        self._clock = clock
        self._lock = threading.RLock()  # the collector may close a coroutine, and leave, while it is held
        self._waiting: deque[Future[None]] = deque()
        self._limit = self._most
        self._in_flight = 0
        self._refused = 0.0
        self._decreased = float("-inf")

    @property
    def limit(self) -> float:
        """Most requests that may be in flight now; its fraction is progress towards the next one."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self._in_flight

    async def enter(self, *, first: bool = False) -> float:
        """Wait for a slot, in order of arrival or `first` of all; returns the time at which the request is sent."""
        turn = self._take_or_queue(first)
        if turn is not None:
            try:
                await asyncio.wrap_future(turn)
            except BaseException:
                self._give_up(turn)
                raise
        return self._clock()

    def enter_sync(self, *, first: bool = False) -> float:
        """Wait for a slot in a thread; one that runs an event loop never waits, for the slots may be its tasks'."""
        turn = self._take_or_queue(first, wait=asyncio._get_running_loop() is None)
        if turn is not None:
            try:
                turn.result()
            except BaseException:
                self._give_up(turn)
                raise
        return self._clock()

    def try_enter(self) -> float | None:
        """Take a slot for a request that can be left out; None without a free one, or while the service throttles."""
        with self._lock:
            if self._limit < self._most or self._in_flight >= self._most:
                return None
            self._in_flight += 1
        return self._clock()

    def leave(self, sent: float, outcome: Outcome = Outcome.ANSWERED) -> None:
        """Release the slot of a request that was sent at a time, and adapt the limit to its outcome."""
        with self._lock:
            if outcome is not Outcome.UNKNOWN:
                self._adapt(sent, outcome is Outcome.THROTTLED)
            self._in_flight -= 1
            self._admit()

    def _take_or_queue(self, first: bool, *, wait: bool = True) -> Future[None] | None:
        """Take a slot, or return the future that is done once a slot was taken for it."""
        with self._lock:
            if wait and (self._waiting or self._in_flight >= int(self._limit)):
                turn: Future[None] = Future()
                (self._waiting.appendleft if first else self._waiting.append)(turn)
                return turn
            self._in_flight += 1
        return None

    def _give_up(self, turn: Future[None]) -> None:
        """Withdraw a request that waits, or release the slot that it got at the same time."""
        if not turn.cancel():
            self.leave(0.0, Outcome.UNKNOWN)

    def _admit(self) -> None:
        """Hand free slots to those that wait; the lock is held."""
        while self._waiting and self._in_flight < int(self._limit):
            turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                self._in_flight += 1
                turn.set_result(None)

    def _adapt(self, sent: float, throttled: bool) -> None:
        """Change the limit by the outcome of a request that was in flight until now; the lock is held."""
        now = self._clock()
        if not throttled and now - sent < self._slow:
            self._refused = max(0.0, self._refused - _TOLERATED)
            self._limit = min(self._most, self._limit + 1 / self._limit)
        elif sent >= self._decreased:  # what was sent before the last decrease says nothing about the new limit
            self._refused += 1
            if self._refused > _TOLERATED * self._limit:
                self._limit = max(self._least, _DECREASE * min(self._limit, self._in_flight))
                self._decreased, self._refused = now, 0.0
