"""Stretches of a log: which records to read so that all bodies are at hand, and which bodies a record carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from arraystore._format.record import Record, first_carried

__all__ = ["Span", "carriers", "previous_bodies"]


def carriers(first: int, last: int) -> list[int]:
    """Return the records to read so that the bodies of `first` to `last` are all at hand: ≤ 3 + (last-first)/512."""
    numbers: list[int] = []
    at = last
    while at >= first:
        numbers.append(at)
        at = first_carried(at) - 1
    return numbers


@dataclass(frozen=True)
class Span:
    """A stretch of a log.

    Parameters
    ----------
    bodies
        Encoded bodies by number, without gaps.
    records
        The records that were read for it, by number.
    """

    bodies: dict[int, bytes]
    records: dict[int, Record]


def previous_bodies(sequence: int, bodies: dict[int, bytes]) -> tuple[bytes, ...] | None:
    """Return what record `sequence` has to carry, None if a body is not at hand."""
    numbers: Iterable[int] = range(first_carried(sequence), sequence)
    try:
        return tuple([bodies[number] for number in numbers])
    except KeyError:
        return None
