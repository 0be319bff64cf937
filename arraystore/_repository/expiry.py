"""Expiry of old snapshots, and the branches and tags deleted with them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from arraystore._context.context import Context
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId, id_to_text
from arraystore._format.repository_log import FIRST_BRANCH, Tag
from arraystore._history.time_travel import microseconds_of
from arraystore._log.status import check_allowed
from arraystore._maintenance.expire import DeletedRefs, expire
from arraystore._maintenance.retention_policy import RetentionPolicy, parse_policy
from arraystore._repository.refs import delete_branch, delete_tag, list_branches
from arraystore._repository.scope import scope_of
from arraystore._repository.snapshots import load_snapshot
from arraystore.errors import ArrayStoreError, ConflictError, InvalidInputError, RefNotFoundError


async def expire_snapshots(
    context: Context,
    older_than: datetime,
    *,
    keep_last: int | None = None,
    policy: RetentionPolicy | str | None = None,
    delete_expired_branches: bool = False,
    delete_expired_tags: bool = False,
    dry_run: bool = False,
) -> set[str]:
    """Expire old snapshots, and on request delete the branches and tags whose snapshots are old."""
    time = microseconds_of(older_than, "older_than")
    rules = policy if policy is None or isinstance(policy, RetentionPolicy) else parse_policy(policy)
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise InvalidInputError(f"keep_last={keep_last!r} must be an integer >= 1")
    check_allowed(await context.repository_log.table(), "expire_snapshots")
    tags = await _old_tags(context, time) if delete_expired_tags else {}
    branches = await _old_branches(context, time) if delete_expired_branches else {}
    deleted = DeletedRefs(frozenset(branches), tags) if dry_run else DeletedRefs()
    now = datetime.fromtimestamp(context.environment.now_us() / 1_000_000, UTC)

    def keeps(rows: Sequence[SnapshotRow]) -> set[SnapshotId]:
        kept = set() if rules is None else rules.keeps(rows, now)
        return kept | {row.id for row in rows[: keep_last or 1]}

    wants_history = rules is not None or keep_last is not None
    try:
        for name, tag in () if dry_run else tags.items():
            deleted = deleted.with_tag(name, tag) if await _delete_tag(context, name) else deleted
        for name, tip in () if dry_run else branches.items():
            deleted = deleted.with_branch(name) if await _delete_branch(context, name, tip) else deleted
        gone = await expire(
            scope_of(context), time, keeps if wants_history else None, dry_run=dry_run, deleted_refs=deleted
        )
    except ArrayStoreError as error:
        if deleted and not dry_run:
            error.add_note(f"Before that it has deleted {deleted}.")
        raise
    return {id_to_text(each) for each in gone}


async def _old_tags(context: Context, time: int) -> dict[str, Tag]:
    """Return the tags of snapshots that are older than a time."""
    old: dict[str, Tag] = {}
    for name, tag in (await context.repository_log.table()).tags.items():
        with suppress(RefNotFoundError):
            if (await load_snapshot(context, tag=name)).state.time < time:
                old[name] = tag
    return old


async def _delete_tag(context: Context, tag: str) -> bool:
    """Delete a tag, which never names another snapshot; tell whether that was done here."""
    try:
        await delete_tag(context, tag)
    except RefNotFoundError:  # deleted by another process
        return False
    return True


async def _old_branches(context: Context, time: int) -> dict[str, SnapshotId]:
    """Return the branches, except for the first one, whose newest snapshot is older than a time, and that snapshot."""
    old: dict[str, SnapshotId] = {}
    for name in sorted(await list_branches(context) - {FIRST_BRANCH}):
        with suppress(RefNotFoundError):
            state = (await context.tip(name)).state
            if state.time < time:
                old[name] = state.snapshot
    return old


async def _delete_branch(context: Context, branch: str, snapshot: SnapshotId) -> bool:
    """Delete a branch if it is still at the snapshot that is old; tell whether that was done here."""
    try:
        await delete_branch(context, branch, from_snapshot_id=id_to_text(snapshot))
    except (RefNotFoundError, ConflictError):  # deleted by another process, or with a newer snapshot
        return False
    return True
