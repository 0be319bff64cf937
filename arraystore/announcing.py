"""Making an old snapshot reachable again, without a garbage collection taking it away meanwhile.

It takes two steps.  First the snapshot is *announced*: a new checkpoint of it is written, which every collection that
begins from now on takes for something to keep, for as long as its id is not below that collection's watermark.  Only
then is it looked up whether the snapshot is still kept.  Second it is *activated*, by an entry in a log that also holds
the watermarks: the entry is appended only if the checkpoint's id is not below the newest of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from arraystore.commit.branch import Tip
from arraystore.commit.prepare import upload
from arraystore.commit.retention import kept_snapshots
from arraystore.commit.state import State
from arraystore.context import Context
from arraystore.detached import is_detached
from arraystore.errors import ArrayStoreError, SnapshotExpiredError, StorageError
from arraystore.format.ids import id_to_text
from arraystore.format.lifecycle import Origin
from arraystore.format.repository_log import RepositoryTable
from arraystore.format.snapshot import checkpoint_key, encode_checkpoint

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
    await upload(context.storage, [(checkpoint_key(identifier), encode_checkpoint(state.to_checkpoint(state.pages)))])
    await check_kept(context, state)
    return identifier


async def check_kept(context: Context, state: State) -> None:
    """Check that a snapshot is in the history of a branch or a tag; raises `SnapshotExpiredError`."""
    if is_detached(state):
        await _check_detached(context, state)
        return
    newest = await context.newest_state(state.branch)
    life = newest.life
    if not life.deleted and max(life.start, life.expired + 1) <= state.sequence <= newest.sequence:
        return
    table = await context.repository_log.table()
    logs = {name: (context.log(name), await context.newest_state(name)) for name in _with_logs(table)}
    kept = await kept_snapshots(context.storage, logs, [tag.origin for tag in table.tags.values()])
    if state.branch not in kept or not kept[state.branch].holds(state.sequence, state.snapshot):
        raise SnapshotExpiredError(
            f"snapshot {id_to_text(state.snapshot)} is in the history of no branch and no tag any more: it has "
            "expired, or what led to it was deleted"
        )


async def _check_detached(context: Context, state: State) -> None:
    """Check that no collection has a watermark above a snapshot that is on no branch."""
    if (await context.repository_log.table()).watermark > state.snapshot:
        raise SnapshotExpiredError(
            f"snapshot {id_to_text(state.snapshot)} is on no branch, and garbage was collected since it was written"
        )


def _with_logs(table: RepositoryTable) -> list[str]:
    return sorted(table.branches)


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
