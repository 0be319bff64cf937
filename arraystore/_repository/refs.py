"""Branches and tags: creation, reset and deletion."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from arraystore._context.context import Context
from arraystore._format.ids import SnapshotId, id_from_text, id_to_text
from arraystore._format.lifecycle import Origin, Reset
from arraystore._format.record import Body
from arraystore._format.refs import name_in_key
from arraystore._format.repository_log import FIRST_BRANCH, RepositoryEntry, RepositoryOperation, RepositoryTable
from arraystore._history.pinning import OutdatedAnnouncementError, pin_and_activate
from arraystore._log import branch_entries
from arraystore._log.loading import Tip
from arraystore._log.state import SnapshotState
from arraystore._log.status import check_allowed, check_open
from arraystore._repository.snapshots import check_name, load_snapshot, read_tag
from arraystore.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    RefNotFoundError,
    SnapshotExpiredError,
)

# -- branches -----------------------------------------------------------------------------------------------


async def list_branches(context: Context) -> set[str]:
    """Return the names of all branches."""
    table = await context.repository_log.table()
    return {name for name, row in table.branches.items() if not row.deleted}


async def lookup_branch(context: Context, branch: str) -> str:
    """Return the id of the newest snapshot of a branch."""
    return id_to_text((await context.tip(branch)).state.snapshot)


async def create_branch(context: Context, branch: str, snapshot_id: str) -> None:
    """Create a branch that starts at a snapshot: an entry of the repository log decides it."""
    name_in_key(branch)
    await _check_free_by_now(context, branch)
    table = await _create(context, RepositoryOperation.BRANCH_CREATED, branch, snapshot_id, _check_free)
    context.seen(await branch_entries.settle(context.log(branch), table))


async def reset_branch(context: Context, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
    """Reset a branch to another snapshot: an entry of its own log decides it."""
    expected = None if from_snapshot_id is None else SnapshotId(id_from_text(from_snapshot_id))
    start = await context.tip(branch)
    target = await load_snapshot(context, snapshot_id=snapshot_id)

    async def activate(origin: Origin) -> None:
        now = context.environment.now_us()

        def decide(tip: Tip) -> Body:
            nonlocal start
            state = tip.state
            closed = check_open(state)
            if closed is not None:
                raise closed
            _check_newest(state, expected)
            _check_new(origin, state.life.fence)
            if origin.branch == branch and state.life.retention != start.state.life.retention:
                start = tip
                raise OutdatedAnnouncementError("snapshots of the branch have expired meanwhile, or it was reset")
            return Reset(target.state.snapshot, target.state.parent, now, origin, state.life)

        context.seen(await branch_entries.append_when(context.log(branch), start, decide))

    _check_newest(start.state, expected)
    try:
        await pin_and_activate(context, target, activate)
    except SnapshotExpiredError:  # perhaps because of another reset, which is the better error then
        _check_newest((await context.tip(branch)).state, expected)
        raise


async def delete_branch(context: Context, branch: str, *, from_snapshot_id: str | None = None) -> None:
    """Delete a branch: an entry of its own log decides it, and one of the repository log follows."""
    check_name(branch)
    if branch == FIRST_BRANCH:
        raise InvalidInputError(f"branch {FIRST_BRANCH!r} cannot be deleted; reset_branch moves it to another snapshot")
    expected = None if from_snapshot_id is None else SnapshotId(id_from_text(from_snapshot_id))
    repository_log, log = context.repository_log, context.log(branch)
    check_allowed(await repository_log.table(), "delete_branch")
    tip = await _settled_tip(context, branch)
    deleted = await branch_entries.delete_branch(log, repository_log, tip, lambda state: _check_newest(state, expected))
    context.seen(deleted)


async def _settled_tip(context: Context, branch: str) -> Tip:
    """Return the newest record of a branch; for a deleted one, append the entry that the repository log may lack."""
    try:
        return await context.tip(branch)
    except RefNotFoundError:
        tip = context.known_tip(branch)
        if tip is not None:
            await branch_entries.settle_deletion(branch, context.repository_log, tip)
        raise


async def _check_free_by_now(context: Context, branch: str) -> None:
    """Check that a branch may be created; one that its own log has deleted does not prevent it."""
    table = await context.repository_log.table()
    check_allowed(table, "create_branch")
    if _exists(table, branch):
        with suppress(RefNotFoundError):
            await _settled_tip(context, branch)
    _check_free(context.repository_log.cached_table, branch)


def _check_newest(state: SnapshotState, expected: SnapshotId | None) -> None:
    """Check that a branch is at the snapshot that the caller expects, if any; raises `ConflictError`."""
    if expected is not None and state.snapshot != expected:
        raise ConflictError(id_to_text(expected), id_to_text(state.snapshot), state.branch)


def _check_free(table: RepositoryTable, branch: str) -> None:
    check_allowed(table, "create_branch")
    if _exists(table, branch):
        raise AlreadyExistsError(f"there is a branch {branch!r} already")


def _exists(table: RepositoryTable, branch: str) -> bool:
    row = table.branches.get(branch)
    return row is not None and not row.deleted


# -- tags ---------------------------------------------------------------------------------------------------


async def list_tags(context: Context) -> set[str]:
    """Return the names of all tags."""
    return set((await context.repository_log.table()).tags)


async def lookup_tag(context: Context, tag: str) -> str:
    """Return the id of the snapshot of a tag."""
    return id_to_text((await read_tag(context, tag)).snapshot)


async def create_tag(context: Context, tag: str, snapshot_id: str) -> None:
    """Create a tag of a snapshot: an entry of the repository log decides it."""
    name_in_key(tag)
    _check_free_tag(await context.repository_log.table(), tag)
    await _create(context, RepositoryOperation.TAG_CREATED, tag, snapshot_id, _check_free_tag)


async def delete_tag(context: Context, tag: str) -> None:
    """Delete a tag: an entry of the repository log decides it."""
    check_name(tag)
    now = context.environment.now_us()

    def decide(table: RepositoryTable) -> RepositoryEntry:
        check_allowed(table, "delete_tag")
        if tag not in table.tags:
            raise RefNotFoundError(f"there is no tag {tag!r}")
        return RepositoryEntry(RepositoryOperation.TAG_DELETED, now, tag)

    await context.repository_log.append(decide)


def _check_free_tag(table: RepositoryTable, tag: str) -> None:
    check_allowed(table, "create_tag")
    if tag in table.tags:
        raise AlreadyExistsError(f"there is a tag {tag!r} already; tags never change")
    if tag in table.burnt:
        raise AlreadyExistsError(f"there was a tag {tag!r}, which was deleted; its name is never used again")


async def _create(
    context: Context,
    kind: RepositoryOperation,
    name: str,
    snapshot_id: str,
    check: Callable[[RepositoryTable, str], None],
) -> RepositoryTable:
    """Append the entry of the repository log that creates a branch or a tag of a snapshot."""
    tip = await load_snapshot(context, snapshot_id=snapshot_id)

    async def activate(origin: Origin) -> RepositoryTable:
        now = context.environment.now_us()

        def decide(table: RepositoryTable) -> RepositoryEntry:
            check(table, name)
            _check_new(origin, table.watermark)
            return RepositoryEntry(kind, now, name, tip.state.snapshot, tip.state.parent, origin)

        return await context.repository_log.append(decide)

    return await pin_and_activate(context, tip, activate)


def _check_new(origin: Origin, watermark: bytes) -> None:
    """Check that no garbage collection has started since a snapshot was announced."""
    if origin.checkpoint < watermark:
        raise OutdatedAnnouncementError("a garbage collection has started meanwhile")
