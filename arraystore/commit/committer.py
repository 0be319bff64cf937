"""Committing: the attempts to append a record, and what to do when one is lost."""

from __future__ import annotations

from dataclasses import dataclass

from arraystore.commit.branch import Tip, advance
from arraystore.commit.log import BranchLog, previous_bodies
from arraystore.commit.prepare import Prepared
from arraystore.errors import ConflictError, StorageError
from arraystore.format.ids import id_to_text
from arraystore.format.record import Birth, Body, Commit, Record, Rewrite, encode_body, first_carried

__all__ = ["Outcome", "append_entry", "commit"]

_MOST_ATTEMPTS = 100


@dataclass(frozen=True)
class Outcome:
    """A commit that succeeded.

    Parameters
    ----------
    tip
        The record, with its snapshot.
    attempts
        How many records were tried.
    """

    tip: Tip
    attempts: int


async def append_entry(log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = ()) -> bytes | None:
    """Try to append an entry right after a tip: one request.

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
    return encoded if await log.append(record) else None


async def commit(log: BranchLog, base: Tip, prepared: Prepared, uncertain: bool = False) -> Outcome:
    """Append a transaction to a branch, or find out that it is there already.

    Parameters
    ----------
    log
        The branch.
    base
        What the session is based on.
    prepared
        The transaction.
    uncertain
        Whether an earlier attempt may have arrived: then the log is read first.

    Raises
    ------
    ConflictError
        If somebody else committed since the base.
    AppendUncertainError
        If the storage fails for so long that the outcome stays unknown.
    """
    tip = base
    attempts = 0
    while attempts < _MOST_ATTEMPTS:
        if not uncertain:
            attempts += 1
            entry = Commit((prepared.transaction(tip.state.snapshot, log.branch, tip.sequence + 1),))
            body = await append_entry(log, tip, entry, prepared.attachments)
            if body is not None:
                resolved = (
                    entry.transactions[0],
                    prepared.located(log.branch, tip.sequence + 1),
                    prepared.note,
                )
                state = tip.state.committed(tip.sequence + 1, [resolved])
                return Outcome(tip.followed_by(state, body), attempts)
        uncertain = False
        newest = await log.newer(tip.sequence)
        moved, entries = await advance(log, tip, newest)
        for passed in entries:
            if any(item.id == prepared.id for item, _, _ in passed.transactions):
                mine, _ = await advance(log, base, passed.sequence)
                return Outcome(mine, max(attempts, 1))
        if any(isinstance(passed.entry, Commit | Birth) for passed in entries):
            raise ConflictError(id_to_text(base.state.snapshot), id_to_text(moved.state.snapshot), log.branch)
        assert all(isinstance(passed.entry, Rewrite) for passed in entries)
        tip = moved  # rewrites change no data: the same transaction fits on top of them
    raise StorageError(
        f"{log.storage.location}: {attempts} records were refused as existing, and yet the log of branch "
        f"{log.branch!r} holds no commit by others: the storage contradicts itself. Nothing was committed."
    )
