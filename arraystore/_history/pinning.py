"""Making an old snapshot reachable again, without a garbage collection taking it away meanwhile.

It takes two steps.  First the snapshot is *announced*: a new checkpoint of it is written, which every collection that
begins from now on takes for something to keep, for as long as its id is not below that collection's watermark.  Only
then is it looked up whether the snapshot is still kept.  Second it is *activated*, by an entry in a log that also holds
the watermarks: the entry is appended only if the checkpoint's id is not below the newest of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from arraystore._commit.prepare import upload
from arraystore._context import Context
from arraystore._format.ids import id_to_text
from arraystore._format.lifecycle import Origin, Reset
from arraystore._format.repository_log import RepositoryTable
from arraystore._format.snapshot import checkpoint_key
from arraystore._history.detached_snapshots import is_detached
from arraystore._log.branch_entries import settle
from arraystore._log.loading import Tip
from arraystore._log.retained_snapshots import kept_snapshots
from arraystore._log.state import State
from arraystore._maintenance.checkpoints import encode_state
from arraystore.errors import ArrayStoreError, RefNotFoundError, SnapshotExpiredError, StorageError

__all__ = ["OutdatedAnnouncementError", "activated", "announce", "check_kept"]

_TRIES = 20


class OutdatedAnnouncementError(ArrayStoreError):
    """A collection has begun since the announcement: it has to be made again."""


async def announce(context: Context, state: State) -> bytes:
    """Announce a snapshot, and check that it is still kept.

    Parameters
    ----------
    context
        Of the repository.
    state
        The snapshot.

    Returns
    -------
    bytes
        Id of the checkpoint that announces it.

    Raises
    ------
    SnapshotExpiredError
        If it is not kept any more.
    """
    table = await context.repository_log.table()
    context.environment.after(table.watermark)
    identifier = context.environment.new_id()
    key = checkpoint_key(identifier)
    await upload(context.storage, [(key, await encode_state(context.log(state.branch), key, state))])
    await check_kept(context, state)
    return identifier


async def check_kept(context: Context, state: State) -> None:
    """Check that a snapshot is in the history of a branch or a tag; raises `SnapshotExpiredError`."""
    detached = is_detached(state)
    if not detached and await _is_shown(context, await context.newest_state(state.branch), state.sequence):
        return
    table = await context.repository_log.table()
    if detached and table.watermark <= state.snapshot:
        return  # no collection was allowed to take it
    logs = {name: (context.log(name), await _settled(context, table, name)) for name in sorted(table.branches)}
    kept = await kept_snapshots(context.storage, logs, [tag.origin for tag in table.tags.values()])
    found = kept.get(state.branch)
    if detached and not (found is not None and any(end.snapshot == state.snapshot for end in found.ends)):
        raise SnapshotExpiredError(
            f"snapshot {id_to_text(state.snapshot)} is on no branch, and garbage was collected since it was written"
        )
    if not detached and not (found is not None and found.holds(state.sequence, state.snapshot)):
        raise SnapshotExpiredError(
            f"snapshot {id_to_text(state.snapshot)} is in the history of no branch and no tag any more: it has "
            "expired, or what led to it was deleted"
        )


async def _is_shown(context: Context, newest: State, sequence: int) -> bool:
    """Tell whether a record's snapshots are in the history of its own branch, or were until no collection knew better.

    What a branch had before it was reset or deleted is garbage to the collections that see so: they put a fence behind
    the reset or the deletion before they look for what is announced.
    """
    life, last = newest.life, newest.sequence
    while True:
        shown = max(life.start, life.expired + 1) <= sequence <= last
        if life.is_given_up or (shown and sequence >= life.start):
            return shown and not life.is_given_up
        if life.start == 0 or life.fenced > life.start:
            return False
        log = context.log(newest.branch)
        span = await log.span(life.start, life.start)
        entry = log.decode(life.start, span.bodies[life.start])
        if not isinstance(entry, Reset):
            return False
        last, life = life.start - 1, entry.before


async def _settled(context: Context, table: RepositoryTable, branch: str) -> State:
    """Return the newest state of a log, which may lag behind the repository log."""
    try:
        state = await context.newest_state(branch)
    except RefNotFoundError:
        state = None
    row = table.branches[branch]
    if state is None or (state.life.cause < row.number and not row.deleted):
        tip = await settle(context.log(branch), table)
        context.seen(tip)
        state = tip.state
    return state


async def activated(context: Context, tip: Tip, activate: Callable[[Origin], Awaitable[None]]) -> None:
    """Announce a snapshot and activate it; both anew where a collection has come between.

    Parameters
    ----------
    context
        Of the repository.
    tip
        The snapshot.
    activate
        Appends the entry that makes it reachable; raises `OutdatedAnnouncementError` where the checkpoint is too old.
    """
    state = tip.state
    for _ in range(_TRIES):
        origin = Origin(state.branch, state.sequence, await announce(context, state))
        try:
            await activate(origin)
        except OutdatedAnnouncementError:
            continue
        return
    raise StorageError(f"{context.storage.location}: {_TRIES} garbage collections began meanwhile; try again")
