"""Writing in many places at once: changes of forks combined before they are merged, and the session of an array.

Workers return what `ForkSession.changes` gives them.  Where there are many, they need not all travel to the process
that commits: `merge_sessions` makes one payload of several, which can be merged with others in turn, as a tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from arraystore._forks.merge import OnOverlap, check_overlap, combine_payloads, decode_payload
from arraystore._format.fork_payload import encode_changes
from arraystore._runtime import run
from arraystore._session.fork import ForkSession, forks_in, payloads_of
from arraystore._session.session import Session
from arraystore._session.store import ArrayStore
from arraystore.errors import InvalidInputError

__all__ = ["extract_session", "merge_sessions", "merge_sessions_async"]


def merge_sessions(
    *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
) -> bytes:
    """Combine what several forks of one session changed.

    Parameters
    ----------
    forks
        Forks, what their `changes()` returned, what this function returned, or lists of these.
    on_overlap
        What happens where two of them wrote the same chunk: ``"error"``, or ``"last"``, where the later argument wins.

    Returns
    -------
    bytes
        For `Session.merge`, or for this function again.

    Raises
    ------
    MergeConflictError
        If two of them changed the same thing, or they are forks of different sessions.
    FormatError
        If a payload is damaged.
    InvalidInputError
        If something else is given, or nothing at all.
    """
    return run(merge_sessions_async(list(forks_in(forks)), on_overlap=on_overlap))


async def merge_sessions_async(
    *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
) -> bytes:
    """Asynchronous twin of `merge_sessions`."""
    on_overlap = check_overlap(on_overlap)
    found = list(forks_in(forks))
    if not found:
        raise InvalidInputError("no forks to merge: pass forks, or what their changes() returned")
    payloads = [decode_payload(data) for data in await payloads_of(found)]
    return encode_changes(combine_payloads(payloads, on_overlap))


def extract_session(thing: Any) -> Session | ForkSession:
    """Return the session, or the fork, that a Zarr array or group belongs to.

    Parameters
    ----------
    thing
        An array or a group of zarr, or a store.

    Raises
    ------
    InvalidInputError
        If it is not kept in a session.
    """
    store = getattr(thing, "store", thing)
    while not isinstance(store, ArrayStore):
        inner = getattr(store, "_store", None)  # what zarr's own wrappers of stores wrap
        if inner is None:
            raise InvalidInputError(
                f"{type(thing).__name__} {str(thing)[:80]!r} is not kept in a session: open it from session.store"
            )
        store = inner
    session: Session | ForkSession = store.session
    return session
