"""What the protocol takes from the world besides storage: time, sleep, random numbers and new ids."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from arraystore._format.ids import IdSource

__all__ = ["ENVIRONMENT", "Environment", "LogMemo", "Memo", "current_environment"]


@dataclass(eq=False)
class LogMemo:
    """The part of a memo about one branch; everything by number of the record.

    Parameters
    ----------
    records
        Encoded and decoded records.
    bodies
        Encoded and decoded bodies.
    resolved
        Transactions of commits, with logs and notes.
    states
        Encoded bodies, the snapshots that they follow, and the states that they make.
    """

    records: dict[int, tuple[bytes, Any]] = field(default_factory=dict[int, tuple[bytes, Any]])
    bodies: dict[int, tuple[bytes, Any]] = field(default_factory=dict[int, tuple[bytes, Any]])
    resolved: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    states: dict[int, tuple[bytes, bytes, Any]] = field(default_factory=dict[int, tuple[bytes, bytes, Any]])


@dataclass(eq=False)
class Memo:
    """Values worked out from the immutable bytes of branches' logs, shared by the clients of one program.

    A client of its own works these out for itself.  A simulation of thousands of clients, each with its own caches,
    would spend its time on decoding the same records over and over, so it gives all of them one memo.  Every value is
    a function of what is in the bucket and of nothing else: what clients ask for and decide stays the same.
    """

    logs: dict[tuple[str, str], LogMemo] = field(default_factory=dict[tuple[str, str], LogMemo])

    def log(self, location: str, branch: str) -> LogMemo:
        """Return what is shared of one branch."""
        return self.logs.setdefault((location, branch), LogMemo())


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
    awaited
        Whether the program waits at its end for what runs in the background; not for what a simulation left.
    """

    now_us: Callable[[], int] = _now_us
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    new_id: IdSource = field(default_factory=IdSource)
    memo: Memo | None = None
    awaited: bool = True

    def after(self, watermark: bytes) -> None:
        """Let new ids be above a watermark, whatever the clock here says; else nothing written could be committed."""
        self.new_id.advance(watermark)


ENVIRONMENT: ContextVar[Environment | None] = ContextVar("arraystore_environment", default=None)
"""What repositories that are opened in this context get; set by simulations."""


def current_environment() -> Environment:
    """Return the environment of the simulated process that runs, or the real world's."""
    return ENVIRONMENT.get() or Environment()
