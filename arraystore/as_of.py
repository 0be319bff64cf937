"""Moments: what a caller means by a time, and what a branch looked like then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

from arraystore.errors import InvalidInputError
from arraystore.format.history import SnapshotRow

__all__ = ["NaiveTimeError", "microseconds_of", "newest_until"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NaiveTimeError(InvalidInputError, TypeError):
    """A time without a time zone, or none at all: it would mean another moment on each machine."""


def microseconds_of(moment: datetime, name: str) -> int:
    """Return a time as microseconds since 1970.

    Parameters
    ----------
    moment
        With a time zone.
    name
        Of the argument, for the error.

    Raises
    ------
    NaiveTimeError
        If it is no time, or has no time zone.
    """
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller without types
        raise NaiveTimeError(f"{name} is {moment!r}, but must be a datetime with a time zone")
    if moment.utcoffset() is None:
        raise NaiveTimeError(
            f"{name} is {moment!r}, which has no time zone; add one, as in datetime(2026, 1, 31, tzinfo=timezone.utc)"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


async def newest_until(
    pages: AsyncIterator[Sequence[SnapshotRow]], until: int
) -> tuple[SnapshotRow | None, SnapshotRow | None]:
    """Find the newest snapshot that was written at a moment or before it.

    Parameters
    ----------
    pages
        A history, newest first.
    until
        The moment, in microseconds since 1970.

    Returns
    -------
    SnapshotRow or None
        The snapshot.
    SnapshotRow or None
        The last one that was looked at.
    """
    row: SnapshotRow | None = None
    async for rows in pages:
        for row in rows:
            if row.time <= until:
                return row, row
    return None, row
