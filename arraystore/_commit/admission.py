"""Whether a branch takes a transaction at all: it may be written, the base is its own, everything is new enough."""

from __future__ import annotations

from collections.abc import Iterable

from arraystore._commit.prepare import Prepared
from arraystore._format.ids import id_to_text
from arraystore._format.record import Birth, Body, Commit, Deleted, Reset
from arraystore._log.loading import Passed
from arraystore._log.state import State, follows
from arraystore._log.status import branch_deleted_error, check_open
from arraystore.errors import (
    ArrayStoreError,
    ConflictError,
    SessionExpiredError,
    SessionStateError,
)

__all__ = ["check_recorded", "crosses", "crossing_error", "objection", "stranger"]


def crosses(entry: Body) -> bool:
    """Tell whether an entry takes the ground from under what was prepared before it."""
    return isinstance(entry, Birth | Reset | Deleted)


def crossing_error(base: State, tip: State) -> ArrayStoreError:
    """Return the error of a transaction whose base is not in the history of its branch any more."""
    if tip.life.deleted:
        return branch_deleted_error(tip.branch)
    error = ConflictError(id_to_text(base.snapshot), id_to_text(tip.snapshot), tip.branch)
    text = (
        f"branch {tip.branch!r} was reset to another snapshot since this session was opened on "
        f"{error.expected_parent}; it is at {error.actual_parent} now. Nothing was committed. Open a new session and "
        "write the changes again."
    )
    error.args = (text,)
    return error


def objection(prepared: Prepared, state: State) -> ArrayStoreError | None:
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


def check_recorded(base: State) -> None:
    """Check that a snapshot is one that a record of its branch made.

    Raises
    ------
    SessionStateError
        If it holds uncommitted changes, or is on no branch: what is committed on top of it could not be read.
    """
    if not base.recorded:
        raise SessionStateError(
            f"nothing can be committed on snapshot {id_to_text(base.snapshot)} with changes that are in no record of "
            f"branch {base.branch!r}. Nothing was committed. Merge forks into their session, and commit that; make a "
            "branch of a snapshot that is on none."
        )


def stranger(base: State, tip: State, passed: Iterable[Passed]) -> SessionStateError | None:
    """Return the error of a base that the log does not hold at its place; None where nothing speaks against it.

    Parameters
    ----------
    base
        What a transaction was prepared for.
    tip
        The newest record.
    passed
        What the log holds in between.
    """
    if base.branch == tip.branch and _leads_on(base, tip, passed):
        return None
    return SessionStateError(
        f"snapshot {id_to_text(base.snapshot)} is not what record {base.sequence} of branch {tip.branch!r} holds. "
        "Nothing was committed. Open a new session and write the changes again."
    )


def _leads_on(base: State, tip: State, passed: Iterable[Passed]) -> bool:
    """Tell whether a snapshot is the tip's, or the one that the first commit after it follows."""
    for each in passed:
        if isinstance(each.entry, Birth | Reset):
            return True  # which has an error of its own
        if isinstance(each.entry, Commit):
            return follows(each.entry.transactions[0], base.snapshot, base.parent)
    return base.sequence <= tip.sequence and base.snapshot == tip.snapshot
