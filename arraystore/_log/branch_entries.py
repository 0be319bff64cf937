"""Entries of a branch's log: how they are appended, and its creation and deletion.

A creation is decided in the repository log, a deletion in the log of the branch.
"""

from __future__ import annotations

from collections.abc import Callable

from arraystore._format.lifecycle import Deleted, Reset
from arraystore._format.record import Birth, Body, Record, encode_body, first_carried
from arraystore._format.repository_log import BranchRow, RepositoryEntry, RepositoryOperation, RepositoryTable
from arraystore._log.backoff import Backoff
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, follow, load_tip, refresh
from arraystore._log.repository_log import RepositoryLog
from arraystore._log.spans import previous_bodies
from arraystore._log.state import SnapshotState
from arraystore._log.status import check_open
from arraystore.errors import RefNotFoundError, StorageError

_TRIES = 500


def deleted_error(branch: str) -> RefNotFoundError:
    """Return the error for a branch that does not exist any more."""
    return RefNotFoundError(f"there is no branch {branch!r}: it was deleted")


async def append_entry(
    log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), *, settle: bool = True
) -> bytes | None:
    """Try to append an entry after a tip, and return its encoded body; None if another record took its place.

    A refusal costs one more request, for the record with which a caller catches up; without `settle`, it says only that
    there is a record, which may be this one.
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


async def append_when(log: BranchLog, tip: Tip, decide: Callable[[Tip], Body | None]) -> Tip:
    """Append the entry, if any, that `decide` returns for the newest record, and return the tip, or a later one."""
    backoff = Backoff(log.environment)
    for _ in range(_TRIES):
        entry = decide(tip)
        if entry is None:
            return tip
        backoff.begin()
        if await append_entry(log, tip, entry) is not None:
            return await follow(log, tip, tip.sequence + 1)
        backoff.lost()
        await backoff.pause()
        tip = await refresh(log, tip)
    raise StorageError(
        f"{log.storage.location}: other writers were faster {_TRIES} times in a row on {log.branch!r}; try again"
    )


async def settle(log: BranchLog, table: RepositoryTable, tip: Tip | None = None) -> Tip:
    """Append the entry of its creation that a branch's log lacks, where its creator did not, and return the tip."""
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
    """Return the entry that a branch's log lacks after those of the repository log."""
    life = tip.state.life
    if row.deleted or life.cause >= row.number:  # a branch deleted in the repository log is deleted in its own
        return None
    assert row.snapshot is not None
    assert row.origin is not None
    return Reset(row.snapshot, row.parent, log.environment.now_us(), row.origin, life, row.fence, row.number)


async def _born(log: BranchLog, row: BranchRow) -> Tip:
    """Write the first record of a branch, unless another process has done so."""
    if row.origin is None or row.snapshot is None:
        raise RefNotFoundError(f"the log of branch {log.branch!r} was deleted")
    birth = Birth(row.snapshot, row.parent, log.environment.now_us(), row.origin, row.fence, row.number)
    await log.append(Record(log.branch, 0, encode_body(0, birth, log.branch)))
    return await load_tip(log)


async def delete_branch(
    log: BranchLog, repository_log: RepositoryLog, tip: Tip, check: Callable[[SnapshotState], None]
) -> Tip:
    """Delete a branch by one conditional write to its own log, unless `check` raises, and return the tip.

    The repository log gets its entry afterwards.
    """

    def decide(newest: Tip) -> Body:
        state = newest.state
        if state.life.deleted:
            raise deleted_error(log.branch)
        closed = check_open(state)
        if closed is not None:
            raise closed
        check(state)
        return Deleted(state.snapshot, state.parent, log.environment.now_us(), state.life)

    tip = await append_when(log, tip, decide)
    await settle_deletion(log.branch, repository_log, tip)
    return tip


async def settle_deletion(branch: str, repository_log: RepositoryLog, tip: Tip) -> None:
    """Append the entry of a deletion that the repository log lacks, where the deleting process did not."""
    life = tip.state.life
    if not life.deleted:
        return

    def decide(table: RepositoryTable) -> RepositoryEntry | None:
        if _is_newer(table, branch, life.cause):  # another process did, and may have created the branch again
            return None
        return RepositoryEntry(RepositoryOperation.BRANCH_DELETED, repository_log.environment.now_us(), branch)

    if not _is_newer(repository_log.cached_table, branch, life.cause):
        await repository_log.append(decide)


def _is_newer(table: RepositoryTable, branch: str, cause: int) -> bool:
    """Tell whether the repository log has an entry about a branch that the log of the branch does not reflect yet."""
    row = table.branches.get(branch)
    return row is not None and row.number > cause
