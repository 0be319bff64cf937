"""Reasons for a missing object of a session: an expired snapshot, or objects collected before their commit."""

from __future__ import annotations

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.single_flight import AbandonedError, SharedLoad
from arraystore._context.context import Context
from arraystore._format.ids import SnapshotId, id_from_text, id_to_text
from arraystore._history.pinning import check_kept
from arraystore._log.state import SnapshotState, empty_state
from arraystore.errors import InvalidInputError, ObjectNotFoundError, SessionExpiredError, SnapshotExpiredError


async def check_still_kept(context: Context, branch: str, sequence: int, snapshot: SnapshotId) -> None:
    """Raise `SnapshotExpiredError` where the snapshot of a record is no longer retained."""
    await check_kept(context, empty_state(branch, sequence, snapshot, None, 0, b""))


async def check_not_expired(
    context: Context, state: SnapshotState, changes: ChangeSet | None, error: ObjectNotFoundError
) -> None:
    """Raise the reason for a missing object of a session; returns where it is damage.

    That is `SnapshotExpiredError` if its snapshot is no longer retained, and `SessionExpiredError` if the session wrote
    the object before a garbage collection, and has not committed it.
    """
    identifier = _identifier(error.key)
    if identifier is not None and changes is not None and identifier in _own(changes):
        await _check_uncollected(context, identifier)
    await _check_kept_together(context, state)
    if identifier is not None and not state.recorded:
        await _check_uncollected(context, identifier)


async def _check_kept_together(context: Context, state: SnapshotState) -> None:
    """Check whether a snapshot is retained, once for all readers that miss objects of it at a time.

    Of a check that began before its caller missed something only the outcome that the snapshot is gone is taken over,
    which is final: nobody can pin what is not retained.
    """
    earlier = context.checks.get(state.snapshot)
    if earlier is not None and await _is_finished(earlier):
        later = context.checks.get(state.snapshot)
        if later is not None and await _is_finished(later):
            return
    check = context.checks[state.snapshot] = SharedLoad(in_thread=False)
    try:
        await check_kept(context, state)
    except SnapshotExpiredError as error:
        check.fail(error)
        raise
    except BaseException as error:
        _forget(context, state.snapshot, check)
        check.fail(error)
        raise
    _forget(context, state.snapshot, check)
    check.succeed(None)


def _forget(context: Context, snapshot: SnapshotId, check: SharedLoad[None]) -> None:
    if context.checks.get(snapshot) is check:
        del context.checks[snapshot]


async def _is_finished(check: SharedLoad[None]) -> bool:
    """Wait for a check and raise its error; False if it was given up."""
    try:
        await check.wait()
    except AbandonedError:
        return False
    return True


async def _check_uncollected(context: Context, identifier: bytes) -> None:
    table = await context.repository_log.table()
    if identifier < table.watermark:
        raise SessionExpiredError(
            f"garbage was collected up to {id_to_text(table.watermark)}, and this session wrote "
            f"{id_to_text(identifier)} before that and has not committed it: it is deleted. Open a new session and "
            "write the changes again; nothing that was committed is lost."
        )


def _own(changes: ChangeSet) -> set[bytes]:
    """Return the ids of packs that the session has written, or merged from forks."""
    return {*changes.packs.packs, *changes.borrowed} - changes.packs.committed


def _identifier(key: str) -> bytes | None:
    try:
        return id_from_text(key.rpartition("/")[2])
    except InvalidInputError:
        return None
