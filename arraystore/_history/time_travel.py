"""Times given by callers, and the snapshots that a branch had then."""

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
    the history continues at its oldest snapshot. The tip is only good for following its history.
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
