"""Hedged reads: one that takes much longer than its like is sent once more, and the first answer wins.

What is late is a request that a service has lost sight of, seldom the object: the same request, sent anew, is answered
as fast as any.  Only reads are sent twice, within a budget.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from arraystore.storage.settings import StorageHedgingSettings

__all__ = ["Hedging", "first_answer"]

T = TypeVar("T")

_RECENT = 128
_ENOUGH = 32
"""Reads of a size that must have been answered before one of them can be called late."""
_RENEWED = 16
"""Reads after which the percentile is taken anew."""
_SAVED = 4.0
"""Second requests that can be saved up."""


class Hedging:
    """Durations of recent reads, by size, and the budget for second requests."""

    def __init__(self, settings: StorageHedgingSettings) -> None:
        self._settings = settings
        self._recent: dict[int, _Recent] = {}
        self._saved = 0.0
        self._lock = threading.RLock()

    @property
    def enabled(self) -> bool:
        """Tell whether any read may be sent twice."""
        return self._settings.budget > 0

    def delay(self, size: int | None) -> float | None:
        """Return the seconds after which a read of a size, None for a whole object, is late; None if never."""
        recent = self._recent.get(_class_of(size))
        if recent is None or recent.p95 is None:
            return None
        return max(self._settings.minimum_delay, self._settings.multiple * recent.p95)

    def answered(self, size: int | None, seconds: float) -> None:
        """Note the duration of a read, which adds to the budget."""
        with self._lock:
            self._recent.setdefault(_class_of(size), _Recent()).add(seconds)
            self._saved = min(_SAVED, self._saved + self._settings.budget)

    def take(self) -> bool:
        """Take one request from the budget; returns False if it is used up."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True

    def give_back(self) -> None:
        """Return a request to the budget that was not sent."""
        with self._lock:
            self._saved += 1


class _Recent:
    """Durations of the most recent reads of similar size."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._count = 0
        self.p95: float | None = None

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._count += 1
        if self._count >= _ENOUGH and self._count % _RENEWED == 0:
            self.p95 = sorted(self._seconds)[int(0.95 * len(self._seconds))]


def _class_of(size: int | None) -> int:
    """Return a number that sizes up to four times each other share."""
    return -1 if size is None else size.bit_length() // 2


async def first_answer(first: Awaitable[T], delay: float, again: Callable[[], asyncio.Future[T] | None]) -> T:
    """Await a request, and from a delay on a second one as well, if there is one; the later answer is not awaited.

    The first request is awaited by the caller's own task, which the answer of the second one interrupts: a task, a
    timer and a waiter for each read would take longer than the rest of what is done for it.
    """
    race = _Race(again)
    timer = asyncio.get_running_loop().call_later(delay, race.start)
    try:
        return await first
    except asyncio.CancelledError:
        if race.interrupted:
            return race.answer()
        raise
    except Exception:
        if race.interrupted or await race.second_succeeds():
            return race.answer()
        raise
    finally:
        timer.cancel()
        race.end()


class _Race(Generic[T]):
    """Second request of a read that is late."""

    def __init__(self, again: Callable[[], asyncio.Future[T] | None]) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in a task
        self._task = task
        self._again = again
        self._second: asyncio.Future[T] | None = None
        self._over = False
        self.interrupted = False

    def start(self) -> None:
        """Send the second request."""
        self._second = self._again()
        if self._second is not None:
            self._second.add_done_callback(self._interrupt)

    def _interrupt(self, second: asyncio.Future[T]) -> None:
        """Interrupt the wait for the first request, once the second one was answered.

        This may have been on its way already when the wait ended: what the task does then is none of its business.
        """
        if self._over or second.cancelled() or second.exception() is not None:
            return
        if not self._task.cancelling():
            self.interrupted = self._task.cancel()

    async def second_succeeds(self) -> bool:
        """Await the second request, after the first one failed; returns False if it fails, too, or was not sent."""
        if self._second is None:
            return False
        self._over = True
        await asyncio.wait([self._second])
        return self._second.exception() is None

    def answer(self) -> T:
        """Return the answer of the second request; raises `CancelledError` if the task was cancelled besides."""
        assert self._second is not None
        if self._left_cancelled():
            raise asyncio.CancelledError
        return self._second.result()

    def _left_cancelled(self) -> bool:
        """Take the interruption back; tells whether somebody else cancelled the task besides."""
        interrupted, self.interrupted = self.interrupted, False
        return interrupted and self._task.uncancel() > 0

    def end(self) -> None:
        """Cancel the second request, and never interrupt the task any more."""
        self._over = True
        self._left_cancelled()
        if self._second is not None:
            self._second.cancel()
