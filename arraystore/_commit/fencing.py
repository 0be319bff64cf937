"""Fencing: a branch refuses the transactions of stale sessions, and all transactions if it is closed.

A stale session has written objects with ids below the watermark of the fence: garbage collection may have deleted them.
"""

from __future__ import annotations

from arraystore._commit.prepared import Prepared
from arraystore._format.ids import id_to_text
from arraystore._log.state import SnapshotState
from arraystore._log.status import check_open
from arraystore.errors import ArrayStoreError, SessionExpiredError

__all__ = ["admission_error"]


def admission_error(prepared: Prepared, state: SnapshotState) -> ArrayStoreError | None:
    """Return why a branch does not take a transaction, whatever it changes; None if it does.

    An id is compared with a watermark that was made of an id: no two clocks are compared.
    """
    closed = check_open(state)
    if closed is not None:
        return closed
    if prepared.oldest is not None and prepared.oldest < state.life.fence:
        return SessionExpiredError(
            f"garbage was collected on branch {state.branch!r} up to {id_to_text(state.life.fence)}, and this session "
            f"wrote {id_to_text(prepared.oldest)} before that: it may be deleted already. Nothing was committed. Open "
            "a new session and write the changes again; nothing that was committed is lost."
        )
    return None
