"""Distributed writing: the combination of changes of forks before their merge, and the session of an array.

Workers return the result of `ForkSession.changes`.  With many workers, `merge_sessions` combines their payloads on the
way to the process that commits: it makes one payload of several, which can be combined with others in turn, as a tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from arraystore._forks.merge import OnOverlap, check_overlap, combine_payloads, decode_payload
from arraystore._format.fork_payload import encode_changes
from arraystore._runtime import run
from arraystore._session.fork import ForkSession, collect_payloads, forks_in
from arraystore._session.session import Session
from arraystore._session.store import ArrayStore
from arraystore.errors import InvalidInputError

__all__ = ["extract_session", "merge_sessions", "merge_sessions_async"]


def __dir__() -> list[str]:
    return sorted(__all__)


def merge_sessions(
    *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
) -> bytes:
    """Combine the changes of several forks of one session.

    Parameters
    ----------
    forks
        Forks, results of their `changes()` or of this function, or lists of these.
    on_overlap
        The policy for a chunk that two of them wrote: ``"error"``, or ``"last"``, where the later argument wins.

    Returns
    -------
    bytes
        A payload for `Session.merge`, or for this function again.

    Raises
    ------
    MergeConflictError
        If two of them changed the same chunk or node, or they are forks of different sessions.
    FormatError
        If a payload is damaged.
    InvalidInputError
        If an argument is neither a fork nor bytes, or there are none.
    """
    return run(merge_sessions_async(list(forks_in(forks)), on_overlap=on_overlap))


async def merge_sessions_async(
    *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
) -> bytes:
    """Asynchronous twin of `merge_sessions`."""
    on_overlap = check_overlap(on_overlap)
    flat = list(forks_in(forks))
    if not flat:
        raise InvalidInputError("no forks to merge: pass forks, or the results of their changes()")
    payloads = [decode_payload(data) for data in await collect_payloads(flat)]
    return encode_changes(combine_payloads(payloads, on_overlap))


def extract_session(thing: Any) -> Session | ForkSession:
    """Return the session or fork that a Zarr array or group belongs to.

    Parameters
    ----------
    thing
        A Zarr array, group or store.

    Raises
    ------
    InvalidInputError
        If its store is not that of a session.
    """
    store = getattr(thing, "store", thing)
    while not isinstance(store, ArrayStore):
        inner = getattr(store, "_store", None)  # of zarr's wrapper stores
        if inner is None:
            raise InvalidInputError(
                f"{type(thing).__name__} {str(thing)[:80]!r} is not in a session: open it from session.store"
            )
        store = inner
    session: Session | ForkSession = store.session
    return session
