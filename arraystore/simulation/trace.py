"""Trace of a simulation: effects on the bucket, and faults of requests and processes, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Event", "Trace"]


class Event(NamedTuple):
    """Event of a simulation.

    Parameters
    ----------
    time
        Virtual seconds.
    process
        Process of the request or the fault, with the number of its life: ``"a"``, after a crash ``"a.1"``.
    operation
        ``get``, ``get_ranges``, ``put``, ``put_if_absent``, ``head``, ``delete``, ``list``; or ``crash``, ``pause``,
        ``resume``, ``restart``.
    key
        Of the object; of a listing its prefix.
    effect
        Outcome: ``read``, ``missing``, ``written``, ``exists``, ``lost``, ….
    """

    time: float
    process: str
    operation: str
    key: str
    effect: str

    def __str__(self) -> str:
        return f"{self.time:12.6f}  {self.process:<12} {self.operation:<14} {self.effect:<16} {self.key}"


class Trace:
    """Events in order.

    Parameters
    ----------
    keep
        Whether events are kept; otherwise they are only counted, as long runs have millions.
    """

    __slots__ = ("count", "events", "keep")

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self.events: list[Event] = []
        self.count = 0

    def note(self, time: float, process: str, operation: str, key: str, effect: str) -> None:
        """Add an event."""
        self.count += 1
        if self.keep:
            self.events.append(Event(time, process, operation, key, effect))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return self.count

    def digest(self) -> str:
        """Return a hash of all events: two runs that have the same did the same."""
        digest = hashlib.sha256()
        for event in self.events:
            digest.update(repr(tuple(event)).encode())
        return digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(map(str, self.events))
