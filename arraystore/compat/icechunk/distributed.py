"""Forks in workers: the session of an array, and the merge of forks on the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from arraystore.compat.icechunk.session import ForkSession, Session

__all__ = ["extract_session", "merge_sessions"]


def extract_session(zarray: Any, axis: Any = None, keepdims: Any = None) -> Session:
    """Return the session of a Zarr array."""
    session: Session = zarray.store.session
    return session


def _flat(sessions: Iterable[Any]) -> Iterator[Any]:
    for session in sessions:
        if isinstance(session, list | tuple):
            yield from _flat(session)
        else:
            yield session


def merge_sessions(*sessions: Any) -> ForkSession:
    """Merge forks into the first of them, which is then merged into the session."""
    first: ForkSession
    first, *others = _flat(sessions)
    for session in (first, *others):
        if not isinstance(session, ForkSession):
            raise TypeError(
                "merge_sessions only accepts ForkSession objects. "
                f"Received {type(session).__name__!r} instance instead. "
                "To merge all into a session, use Session.merge(*forks)."
            )
    first.merge(*others)
    return first
