"""Reasons for a missing object of a session: an expired snapshot, or objects collected before their commit."""

from __future__ import annotations

from arraystore._changes.change_set import ChangeSet
from arraystore._context.context import Context
from arraystore._format.ids import SnapshotId, id_from_text, id_to_text
from arraystore._history.pinning import check_kept
from arraystore._log.state import SnapshotState, empty_state
from arraystore.errors import InvalidInputError, ObjectNotFoundError, SessionExpiredError


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
    await check_kept(context, state)
    if identifier is not None and not state.recorded:
        await _check_uncollected(context, identifier)


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
