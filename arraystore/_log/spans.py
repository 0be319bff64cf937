"""Spans of a log: the records to read for all bodies, and the bodies that a record carries."""

from __future__ import annotations

from collections.abc import Iterable

from arraystore._format.record import Record, first_carried
from arraystore._runtime.values import dataclass


def carriers(first: int, last: int) -> list[int]:
    """Return the records to read for the bodies of `first` to `last`: ≤ 3 + (last-first)/512."""
    numbers: list[int] = []
    at = last
    while at >= first:
        numbers.append(at)
        at = first_carried(at) - 1
    return numbers


@dataclass(frozen=True)
class Span:
    """Consecutive records of a log."""

    bodies: dict[int, bytes]
    """Encoded bodies by number, without gaps."""
    records: dict[int, Record]
    """Records that were read for them, by number."""


def previous_bodies(sequence: int, bodies: dict[int, bytes]) -> tuple[bytes, ...] | None:
    """Return the bodies that record `sequence` has to carry; None if one is missing."""
    numbers: Iterable[int] = range(first_carried(sequence), sequence)
    try:
        return tuple([bodies[number] for number in numbers])
    except KeyError:
        return None
