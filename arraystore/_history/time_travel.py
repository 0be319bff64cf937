"""Moments: what a caller means by a time, and what a branch looked like then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from arraystore._format.history import SnapshotRow, page_span
from arraystore._format.ids import id_time
from arraystore._log.ancestry import read_page
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore.errors import InvalidInputError

__all__ = ["NaiveTimeError", "microseconds_of", "nearer", "newest_until"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CLOCK_GOES_BACK = 3600 * 1_000_000
"""Microseconds that a clock may be set back: ids are given in order even then, times of snapshots are not."""


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


async def nearer(log: BranchLog, tip: Tip, until: int) -> Tip:
    """Return where to start looking for a moment: past the history pages that are all of a later time.

    Their directory tells when the ids in them were given.  The next newer page than those that may hold the moment is
    read: its oldest snapshot says where the history goes on.

    Parameters
    ----------
    log
        The branch.
    tip
        Its newest record.
    until
        The moment, in microseconds since 1970.

    Returns
    -------
    Tip
        `tip`, or a later snapshot than the one looked for, good for following its history and nothing else.
    """
    life = tip.state.life
    later = None
    for ref in reversed(tip.state.pages):
        oldest = id_time(ref.lowest) * 1000
        if oldest <= until + _CLOCK_GOES_BACK or page_span(ref.level, ref.index)[0] <= max(life.start, life.expired):
            break
        later = ref
    rows = () if later is None else (await read_page(log, later)).rows
    if not rows:
        return tip
    row = rows[0]
    state = replace(tip.state, sequence=row.sequence, snapshot=row.id, parent=row.parent, time=row.time, note=row.note)
    return replace(tip, state=state)
