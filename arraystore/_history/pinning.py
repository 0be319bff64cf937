"""Pinning of an old snapshot, so that it becomes reachable again while garbage collections run.

It takes two steps. First the snapshot is *announced*: a new checkpoint of it is written, which every collection that
starts afterwards retains, for as long as its id is not below that collection's watermark. Only then is it checked
whether the snapshot is still retained. Second it is *activated*, by an entry in a log that also has the watermarks: the
entry is appended only if the checkpoint's id is not below the newest of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from arraystore._commit.prepare import upload
from arraystore._context.context import Context
from arraystore._format.ids import CheckpointId, id_to_text
from arraystore._format.lifecycle import Origin, Reset
from arraystore._format.repository_log import RepositoryTable
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.branch_entries import settle
from arraystore._log.loading import Tip
from arraystore._log.retained_snapshots import RetainedHistory, load_retained
from arraystore._log.state import SnapshotState, is_detached
from arraystore._maintenance.checkpoints import encode_state
from arraystore.errors import (
    ArrayStoreError,
    ObjectNotFoundError,
    RefNotFoundError,
    SnapshotExpiredError,
    StorageError,
)

_TRIES = 20

T = TypeVar("T")


class OutdatedAnnouncementError(ArrayStoreError):
    """A collection has started since the announcement, which has to be repeated."""


async def announce(context: Context, state: SnapshotState) -> CheckpointId:
    """Announce a snapshot and return the id of the checkpoint; raises `SnapshotExpiredError` if it is not retained."""
    table = await context.repository_log.table()
    context.environment.after(table.watermark)
    identifier = CheckpointId(context.environment.new_id())
    key = checkpoint_key(identifier)
    await upload(context.storage, [(key, await encode_state(context.log(state.branch), key, state))])
    await check_kept(context, state)
    return identifier


async def check_kept(context: Context, state: SnapshotState) -> None:
    """Check that a snapshot is in the history of a branch or a tag; raises `SnapshotExpiredError`."""
    detached = is_detached(state)
    if not detached and await _is_shown(context, await context.newest_state(state.branch), state.sequence):
        return
    table = await context.repository_log.table()
    if detached and table.watermark <= state.snapshot:
        return  # no collection may have deleted it
    history = (await _load_retained(context, table)).get(state.branch)
    if detached and not (history is not None and any(end.snapshot == state.snapshot for end in history.ends)):
        raise SnapshotExpiredError(
            f"snapshot {id_to_text(state.snapshot)} is on no branch, and garbage was collected since it was written"
        )
    if not detached and not (history is not None and history.holds(state.sequence, state.snapshot)):
        raise SnapshotExpiredError(
            f"snapshot {id_to_text(state.snapshot)} is no longer in the history of any branch or tag: it has expired, "
            "or the branches and tags that led to it were deleted"
        )


async def _is_shown(context: Context, newest: SnapshotState, sequence: int) -> bool:
    """Tell whether a record's snapshots are in the history of its own branch, or were until a collection saw a change.

    A collection that sees a reset or deletion of a branch does not retain the history before it: it appends a fence
    after it before it lists announcements.
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


async def _load_retained(context: Context, table: RepositoryTable) -> dict[str, RetainedHistory]:
    """Determine the retained snapshots; what was deleted and collected since it was listed is listed again.

    Raises `ObjectNotFoundError` where an object is missing although nothing has changed, which is damage.
    """
    before: object = None
    while True:
        logs = {name: (context.log(name), await _settled(context, table, name)) for name in sorted(table.branches)}
        origins = [tag.origin for tag in table.tags.values()]
        try:
            return await load_retained(context.storage, logs, origins)
        except ObjectNotFoundError:
            listed = origins, {name: state.life.retention for name, (_, state) in logs.items()}
            if listed == before:
                raise
            before, table = listed, await context.repository_log.table()


async def _settled(context: Context, table: RepositoryTable, branch: str) -> SnapshotState:
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


async def pin_and_activate(context: Context, tip: Tip, activate: Callable[[Origin], Awaitable[T]]) -> T:
    """Announce a snapshot and make it reachable with `activate`; repeated while the announcement is outdated."""
    state = tip.state
    for _ in range(_TRIES):
        origin = Origin(state.branch, state.sequence, await announce(context, state))
        try:
            return await activate(origin)
        except OutdatedAnnouncementError:
            continue
    raise StorageError(f"{context.storage.location}: {_TRIES} garbage collections started meanwhile; try again")
