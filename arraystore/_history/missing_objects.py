"""Why an object is missing that a session reads: its snapshot has expired, or what it wrote itself was collected."""

from __future__ import annotations

from arraystore._changes.change_set import ChangeSet
from arraystore._context import Context
from arraystore._format.ids import id_from_text, id_to_text
from arraystore._history.pinning import check_kept
from arraystore._log.state import State, empty_state
from arraystore.errors import InvalidInputError, ObjectNotFoundError, SessionExpiredError

__all__ = ["check_not_expired", "check_still_kept"]


async def check_still_kept(context: Context, branch: str, sequence: int, snapshot: bytes) -> None:
    """Raise `SnapshotExpiredError` where what a record's snapshot needs is missing because it is not kept any more."""
    await check_kept(context, empty_state(branch, sequence, snapshot, None, 0, b""))


async def check_not_expired(
    context: Context, state: State, changes: ChangeSet | None, error: ObjectNotFoundError
) -> None:
    """Raise what there is to say of an object that is missing for good reason; else it is damage.

    Parameters
    ----------
    context
        Of the repository.
    state
        What the session shows; of a fork or a copy with what was not committed.
    changes
        What was written through the session.
    error
        That the storage raised.

    Raises
    ------
    SnapshotExpiredError
        If the snapshot of the session is not kept any more.
    SessionExpiredError
        If it is, and the session has written the object before a garbage collection which does not know of it.
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
    """Return the ids of packs that the session has written, or taken from forks."""
    return {*changes.packs.packs, *changes.borrowed} - changes.packs.committed


def _identifier(key: str) -> bytes | None:
    try:
        return id_from_text(key.rpartition("/")[2])
    except InvalidInputError:
        return None
