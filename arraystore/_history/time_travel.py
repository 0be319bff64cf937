"""Times given by callers, and the snapshots that a branch had then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from arraystore._format.history import SnapshotRow, page_span
from arraystore._format.ids import id_time
from arraystore._format.snapshot import PageRef
from arraystore._log.ancestry import read_page
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore.errors import InvalidInputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CLOCK_GOES_BACK = 3600 * 1_000_000
"""Microseconds that a clock may be set back: ids are ordered even then, times of snapshots are not."""


class NaiveTimeError(InvalidInputError, TypeError):
    """A time without a time zone, which would be another time on each machine, or a value that is no time."""


def microseconds_of(time: datetime, name: str) -> int:
    """Return a time as microseconds since 1970; raises `NaiveTimeError` with the name of the argument."""
    if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller without types
        raise NaiveTimeError(f"{name} must be a datetime with a time zone, not {time!r}")
    if time.utcoffset() is None:
        raise NaiveTimeError(
            f"{name} must have a time zone, and {time!r} has none; add one, as in "
            "datetime(2026, 1, 31, tzinfo=timezone.utc)"
        )
    return (time - _EPOCH) // timedelta(microseconds=1)


async def newest_until(
    pages: AsyncIterator[Sequence[SnapshotRow]], until: int
) -> tuple[SnapshotRow | None, SnapshotRow | None]:
    """Return the newest snapshot of a history that was written by a time, and the last one that was read."""
    row: SnapshotRow | None = None
    async for rows in pages:
        for row in rows:
            if row.time <= until:
                return row, row
    return None, row


async def nearer(log: BranchLog, tip: Tip, until: int) -> Tip:
    """Return a tip closer to a time: past the history pages that are all of a later time.

    Their directory has the times of the ids in them. The next newer page than those that may contain the time is read:
    the history continues at its oldest snapshot. Copies of older snapshots have newer ids, so that the page may begin
    too early: then a newer one is found by bisection. The tip is only good for following its history.
    """
    life = tip.state.life
    later: list[PageRef] = []
    for ref in reversed(tip.state.pages):
        oldest = id_time(ref.lowest) * 1000
        if oldest <= until + _CLOCK_GOES_BACK or page_span(ref.level, ref.index)[0] <= max(life.start, life.expired):
            break
        later.append(ref)
    row = await _oldest_row(log, later[-1]) if later else None
    if row is not None and row.time <= until:
        row = await _bisect(log, later[:-1], until)
    if row is None:
        return tip
    state = replace(tip.state, sequence=row.sequence, snapshot=row.id, parent=row.parent, time=row.time, note=row.note)
    return replace(tip, state=state)


async def _bisect(log: BranchLog, pages: Sequence[PageRef], until: int) -> SnapshotRow | None:
    """Return the oldest snapshot of the last page, newest first, that begins later than a time; None if none does."""
    found: SnapshotRow | None = None
    low, high = 0, len(pages)
    while low < high:
        middle = (low + high) // 2
        row = await _oldest_row(log, pages[middle])
        if row is not None and row.time > until:
            found, low = row, middle + 1
        else:
            high = middle
    return found


async def _oldest_row(log: BranchLog, ref: PageRef) -> SnapshotRow | None:
    """Return the oldest snapshot of a page; None if the page is empty."""
    return next(iter((await read_page(log, ref)).rows), None)
