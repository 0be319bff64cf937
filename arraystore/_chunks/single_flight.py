"""Loads that several callers share: one fetches, the others wait, and nobody's end is anybody else's."""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["AbandonedError", "SharedLoad"]

T = TypeVar("T")


class AbandonedError(Exception):
    """The caller that fetched something was cancelled; whoever waits for it has to fetch it."""


@dataclass(frozen=True)
class _Failure:
    """Why there is nothing; never raised itself, for its traceback would be part of a cycle."""

    error: Exception


class SharedLoad(Generic[T]):
    """What one caller fetches, and others may wait for.

    Parameters
    ----------
    in_thread
        Whether a thread fetches it, which needs no event loop of a caller to finish.
    """

    def __init__(self, *, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._future: Future[T | _Failure] = Future()
        self._future.set_running_or_notify_cancel()  # else one who waits and is cancelled would cancel it for all

    @property
    def may_block(self) -> bool:
        """Whether `result` could wait for ever: the loop that fetches may be the one that the caller holds up."""
        return not self._in_thread and not self._future.done()

    def succeed(self, value: T) -> None:
        """Hand over what was fetched."""
        self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Hand over why there is nothing; that one caller was interrupted concerns no other."""
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
