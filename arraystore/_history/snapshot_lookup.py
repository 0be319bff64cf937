"""Look-up of snapshots by their id, in all logs and outside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from arraystore._context.context import Context
from arraystore._format.ids import SnapshotId, id_to_text
from arraystore._format.lifecycle import Origin
from arraystore._format.repository_log import FIRST_BRANCH
from arraystore._history.detached_snapshots import read_detached
from arraystore._history.missing_objects import check_still_kept
from arraystore._log.ancestry import Place, find_expired, find_snapshot
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_checkpoint, load_tip
from arraystore._log.state import SnapshotState
from arraystore.errors import ObjectNotFoundError, RefNotFoundError, SnapshotExpiredError, SnapshotNotFoundError

_T = TypeVar("_T")


async def load_by_id(context: Context, snapshot: SnapshotId) -> Tip:
    """Load a snapshot by its id; raises `SnapshotExpiredError` or `SnapshotNotFoundError`."""
    try:
        return await _load_at(context, await find(context, snapshot))
    except SnapshotNotFoundError:
        state = await find_outside_logs(context, snapshot)
        if state is None:
            raise
        return Tip(state, {})


async def _load_at(context: Context, place: Place) -> Tip:
    """Load the snapshot at a place of a log."""
    log, row = context.log(place.branch), place.row
    try:
        return await load_tip(log, place.hint, at=row.sequence, snapshot=row.id)
    except ObjectNotFoundError:  # snapshots before a reset are in the log as long as their records
        await check_still_kept(context, place.branch, row.sequence, row.id)
        raise


async def find_outside_logs(context: Context, snapshot: SnapshotId) -> SnapshotState | None:
    """Return a snapshot that no log has: it is on no branch, or was tagged while it expired."""
    state = await read_detached(context, snapshot)
    if state is not None:
        return state
    for origin in await _origins_named(context, snapshot):
        try:
            state = await load_checkpoint(context.storage, origin.checkpoint)
        except ObjectNotFoundError:  # deleted and collected since it was listed, or damage
            if origin in await _origins_named(context, snapshot):
                raise
            continue
        if state.snapshot == snapshot:
            return state
    return None


async def _origins_named(context: Context, snapshot: SnapshotId) -> list[Origin]:
    """List where tags of a snapshot, and branches that began with it and have nothing else, take it from."""
    table = await context.repository_log.table()
    origins = [tag.origin for tag in table.tags.values() if tag.snapshot == snapshot]
    for name, row in sorted(table.branches.items()):
        tip = None if row.deleted else await _newest_or_none(context, name)
        life = None if tip is None or tip.state.snapshot != snapshot else tip.state.life
        if life is not None and life.origin is not None and life.expired < life.start:
            origins.append(life.origin)
    return origins


async def find(context: Context, snapshot: SnapshotId) -> Place:
    """Find a snapshot in any log; if that of main has it, without requests for the others."""
    branches = [FIRST_BRANCH]
    for branch in branches:
        place = (await _look(context, branch, snapshot, find_snapshot))[0]
        if place is not None:
            return place
        if branch == FIRST_BRANCH:
            branches += sorted((await context.repository_log.table()).branches.keys() - {FIRST_BRANCH})
    await _check_not_expired(context, snapshot, branches)
    raise SnapshotNotFoundError(
        f"there is no snapshot {id_to_text(snapshot)} on any of the branches {', '.join(branches)}; if there was "
        "one, it has expired"
    )


async def _check_not_expired(context: Context, snapshot: SnapshotId, branches: Iterable[str]) -> None:
    """Check that a snapshot has not expired, as far as the remaining records tell."""
    for branch in branches:
        row, tip = await _look(context, branch, snapshot, find_expired)
        if row is not None and tip is not None:
            raise SnapshotExpiredError(
                f"snapshot {id_to_text(snapshot)} has expired: it was committed to branch {branch!r} as record "
                f"{row.sequence}, and expire_snapshots has removed the records up to "
                f"{tip.state.life.expired} from history; ancestry lists the remaining snapshots"
            )


async def _look(
    context: Context, branch: str, snapshot: SnapshotId, look: Callable[[BranchLog, Tip, SnapshotId], Awaitable[_T]]
) -> tuple[_T | None, Tip | None]:
    """Look for a snapshot from the newest record of a log on, which is returned, too.

    An expiry and a collection may have replaced and deleted what an older record leads to.
    """
    tip = await _newest_or_none(context, branch)
    while tip is not None:
        try:
            return await look(context.log(branch), tip, snapshot), tip
        except ObjectNotFoundError:
            newest = await _newest_or_none(context, branch)
            if newest is not None and newest.state.life.retention == tip.state.life.retention:
                raise
            tip = newest
    return None, None


async def _newest_or_none(context: Context, branch: str) -> Tip | None:
    """Return the newest record of a log; None where the creator of the branch has not written its first one."""
    try:
        return await context.newest(branch)
    except RefNotFoundError:
        return None
