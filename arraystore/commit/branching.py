"""Branches as the repository log has them: their logs brought in line with it, and entries that change no data."""

from __future__ import annotations

from collections.abc import Callable

from arraystore.commit.backoff import Backoff
from arraystore.commit.branch import Tip, advance, load_tip, refresh
from arraystore.commit.committer import append_entry
from arraystore.commit.log import BranchLog
from arraystore.errors import RefNotFoundError, StorageError
from arraystore.format.record import Birth, Body, Deleted, Record, Reset, encode_body
from arraystore.format.repository_log import BranchRow, RepositoryTable

__all__ = ["append_when", "deleted_error", "settle"]

_TRIES = 500


def deleted_error(branch: str) -> RefNotFoundError:
    """Return the error for a branch that does not exist any more."""
    return RefNotFoundError(f"there is no branch {branch!r}: it was deleted")


async def append_when(log: BranchLog, tip: Tip, decide: Callable[[Tip], Body | None]) -> Tip:
    """Append an entry that is no commit of a session, right behind the newest record.

    Parameters
    ----------
    log
        The branch.
    tip
        A record of it.
    decide
        Told the newest record, returns what to append, None if nothing is left to do; raises what speaks against it.

    Returns
    -------
    Tip
        The newest record then.
    """
    backoff = Backoff(log.environment)
    for _ in range(_TRIES):
        entry = decide(tip)
        if entry is None:
            return tip
        backoff.begin()
        if await append_entry(log, tip, entry) is not None:
            moved, _ = await advance(log, tip, tip.sequence + 1)
            return moved
        backoff.lost()
        await backoff.pause()
        tip = await refresh(log, tip)
    raise StorageError(
        f"{log.storage.location}: others were faster {_TRIES} times in a row on {log.branch!r}; try again"
    )


async def settle(log: BranchLog, table: RepositoryTable, tip: Tip | None = None) -> Tip:
    """Bring a branch's log in line with the repository log, if whoever was to do so has not come to it.

    Parameters
    ----------
    log
        The branch.
    table
        What the repository log says.
    tip
        A record of the branch, if one is known.

    Returns
    -------
    Tip
        The newest record; that of a deletion, too.

    Raises
    ------
    RefNotFoundError
        If there never was such a branch.
    """
    row = table.branches.get(log.branch)
    if row is None:
        raise RefNotFoundError(f"there is no branch {log.branch!r}")
    if tip is None:
        try:
            tip = await load_tip(log, await log.hint())
        except RefNotFoundError:
            tip = await _born(log, row)
    else:
        tip = await refresh(log, tip)
    return await append_when(log, tip, lambda newest: _missing(log, row, newest))


def _missing(log: BranchLog, row: BranchRow, tip: Tip) -> Body | None:
    """Return the entry that the repository log asks for and a branch's log lacks."""
    life = tip.state.life
    if life.cause >= row.number:
        return None
    now = log.environment.now_us()
    if row.deleted:
        return Deleted(now, row.number)
    assert row.snapshot is not None
    assert row.origin is not None
    return Reset(row.snapshot, row.parent, now, row.origin, life, row.fence, row.number)


async def _born(log: BranchLog, row: BranchRow) -> Tip:
    """Write the first record of a branch, unless somebody else has done so by now."""
    if row.origin is None or row.snapshot is None:
        raise RefNotFoundError(f"the log of branch {log.branch!r} is gone")
    birth = Birth(row.snapshot, row.parent, log.environment.now_us(), row.origin, row.fence, row.number)
    await log.append(Record(log.branch, 0, encode_body(0, birth, log.branch)))
    return await load_tip(log)
