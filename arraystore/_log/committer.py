"""Appending a record to a log."""

from __future__ import annotations

from arraystore._format.record import Body, Record, encode_body, first_carried
from arraystore._log.branch_log import BranchLog, previous_bodies
from arraystore._log.loading import Tip

__all__ = ["append_entry"]


async def append_entry(
    log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), *, settle: bool = True
) -> bytes | None:
    """Try to append an entry right after a tip: one request, and one more after a refusal.

    The record that is read then is the one with which a caller catches up; so it costs nothing.

    Parameters
    ----------
    log, tip
        Where.
    body, attachments
        What.
    settle
        Whether to settle a refusal; without, None says only that there is a record, which may be this one.

    Returns
    -------
    bytes or None
        The encoded body if the entry is in the log now, None if another one took its place.
    """
    sequence = tip.sequence + 1
    encoded = encode_body(sequence, body, log.branch)
    previous = previous_bodies(sequence, tip.bodies)
    if previous is None:
        span = await log.span(first_carried(sequence), sequence - 1)
        previous = previous_bodies(sequence, span.bodies)
        assert previous is not None
    record = Record(log.branch, sequence, encoded, attachments, previous)
    return encoded if await log.append(record, settle=settle) else None
