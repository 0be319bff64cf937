"""Loads that several callers share: one fetches, the others wait, and a cancelled caller cancels no other."""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import Future
from typing import Generic, TypeVar

from arraystore._runtime.values import dataclass

T = TypeVar("T")


class AbandonedError(Exception):
    """The caller that fetched something was cancelled; another one that waits for it has to fetch it."""


@dataclass(frozen=True)
class _Failure:
    """Error of a load; never raised itself, since its traceback would be part of a cycle."""

    error: Exception


class SharedLoad(Generic[T]):
    """Result that one caller fetches and others wait for; a thread (`in_thread`) needs no event loop of theirs."""

    def __init__(self, *, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._future: Future[T | _Failure] = Future()
        self._future.set_running_or_notify_cancel()  # else one who waits and is cancelled would cancel it for all

    @property
    def may_block(self) -> bool:
        """Tell whether `result` could wait forever: the loop that fetches may be the one that the caller blocks."""
        return not self._in_thread and not self._future.done()

    def succeed(self, value: T) -> None:
        """Pass on the result."""
        self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Pass on the error; the interruption of one caller is no error of the others."""
        self._future.set_result(_Failure(_copied(error) if isinstance(error, Exception) else AbandonedError()))

    def result(self) -> T:
        """Wait in a thread; raises `AbandonedError` if the caller has to fetch it."""
        return _value(self._future.result())

    async def wait(self) -> T:
        """Wait in an event loop; raises `AbandonedError` if the caller has to fetch it."""
        done = self._future.done()
        return _value(self._future.result() if done else await asyncio.wrap_future(self._future))


def _value(outcome: T | _Failure) -> T:
    if isinstance(outcome, _Failure):
        raise _copied(outcome.error)
    return outcome


def _copied(error: Exception) -> Exception:
    """Return the same error without its traceback, which keeps alive all that its frames refer to."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 - an error of somebody else's that cannot be copied is shared
        return error
