"""What the protocol takes from the world besides storage: time, sleep, random numbers and new ids."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from arraystore._format.ids import IdSource
from arraystore._memo import Memo

__all__ = ["ENVIRONMENT", "Environment", "current_environment"]


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Environment:
    """Time and chance, replaceable by a simulation's.

    Parameters
    ----------
    now_us
        Microseconds since 1970; shown to people, never compared with another machine's.
    sleep
        Waits for some seconds.
    random
        A number in [0, 1), for jitter.
    new_id
        Makes ids.
    memo
        What clients of one program share of what they decode; None where each is a program of its own.
    """

    now_us: Callable[[], int] = _now_us
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    new_id: IdSource = field(default_factory=IdSource)
    memo: Memo | None = None

    def after(self, watermark: bytes) -> None:
        """Let new ids be above a watermark, whatever the clock here says; else nothing written could be committed."""
        self.new_id.advance(watermark)


ENVIRONMENT: ContextVar[Environment | None] = ContextVar("arraystore_environment", default=None)
"""What repositories that are opened in this context get; set by simulations."""


def current_environment() -> Environment:
    """Return the environment of the simulated process that runs, or the real world's."""
    return ENVIRONMENT.get() or Environment()
