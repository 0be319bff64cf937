"""Whether a branch takes a transaction at all: it exists, may be written, and everything brought in is new enough."""

from __future__ import annotations

from arraystore.commit.prepare import Prepared
from arraystore.commit.state import State
from arraystore.errors import (
    ArrayStoreError,
    ConflictError,
    ReadOnlyError,
    RefNotFoundError,
    SessionExpiredError,
)
from arraystore.format.ids import id_to_text
from arraystore.format.record import Birth, Body, Deleted, Reset

__all__ = ["check_open", "crosses", "crossing_error", "objection"]


def crosses(entry: Body) -> bool:
    """Tell whether an entry takes the ground from under what was prepared before it."""
    return isinstance(entry, Birth | Reset | Deleted)


def crossing_error(base: State, tip: State) -> ArrayStoreError:
    """Return the error of a transaction whose base is not in the history of its branch any more."""
    if tip.life.deleted:
        return _deleted(tip.branch)
    error = ConflictError(id_to_text(base.snapshot), id_to_text(tip.snapshot), tip.branch)
    text = (
        f"branch {tip.branch!r} was reset to another snapshot since this session was opened on "
        f"{error.expected_parent}; it is at {error.actual_parent} now. Nothing was committed. Open a new session and "
        "write the changes again."
    )
    error.args = (text,)
    return error


def _deleted(branch: str) -> RefNotFoundError:
    return RefNotFoundError(f"branch {branch!r} was deleted; nothing was committed")


def check_open(state: State) -> ArrayStoreError | None:
    """Return why a branch takes nothing; None if it does."""
    if state.life.deleted:
        return _deleted(state.branch)
    if state.life.read_only:
        return ReadOnlyError(
            f"the repository is read-only, so nothing can be committed to branch {state.branch!r}; get_status tells "
            "why, set_status opens it again"
        )
    return None


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
