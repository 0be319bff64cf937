"""The environment of the protocol besides storage: time, sleep, random numbers and new ids."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from arraystore._format.ids import IdSource, SnapshotId
from arraystore._runtime.values import dataclass

__all__ = ["ENVIRONMENT", "Environment", "LogMemo", "Memo", "current_environment"]


@dataclass(eq=False)
class LogMemo:
    """The part of a memo about one branch, by number of the record."""

    records: dict[int, tuple[bytes, Any]] = field(default_factory=dict[int, tuple[bytes, Any]])
    """Encoded and decoded records."""
    bodies: dict[int, tuple[bytes, Any]] = field(default_factory=dict[int, tuple[bytes, Any]])
    """Encoded and decoded bodies."""
    resolved: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    """Transactions of commits, with change logs and notes."""
    states: dict[int, tuple[bytes, SnapshotId, Any]] = field(default_factory=dict[int, tuple[bytes, SnapshotId, Any]])
    """Encoded bodies, the snapshots that they follow, and the states that they make."""


@dataclass(eq=False)
class Memo:
    """Values derived from immutable objects of logs, shared by the clients of one simulation to decode them once."""

    logs: dict[tuple[str, str], LogMemo] = field(default_factory=dict[tuple[str, str], LogMemo])

    def log(self, location: str, branch: str) -> LogMemo:
        """Return the shared values of one branch."""
        return self.logs.setdefault((location, branch), LogMemo())


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Environment:
    """Clock, sleep, random numbers and ids, replaceable by a simulation's."""

    now_us: Callable[[], int] = _now_us
    """Microseconds since 1970, for display, never compared with another machine's."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Sleeps for some seconds."""
    random: Callable[[], float] = random.random
    """Returns a number in [0, 1), for jitter."""
    new_id: IdSource = field(default_factory=IdSource)
    """Makes ids."""
    memo: Memo | None = None
    """Decoded values that the clients of one program share; None for a program of its own."""
    awaited: bool = True
    """True if the program waits at its end for background work, unlike a simulation."""

    def after(self, watermark: bytes) -> None:
        """Advance new ids beyond a watermark, whatever this machine's clock says."""
        self.new_id.advance(watermark)


ENVIRONMENT: ContextVar[Environment | None] = ContextVar("arraystore_environment", default=None)
"""The environment of repositories opened in this context; set by simulations."""


def current_environment() -> Environment:
    """Return the environment of the running simulated process, or the real one."""
    return ENVIRONMENT.get() or Environment()
