"""Check of the session that a function writes to."""

from __future__ import annotations

from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError

__all__ = ["check_writable_session"]


def check_writable_session(value: object) -> None:
    """Check that this is a session, and may be written to; raise `InvalidInputError` or `ReadOnlyError`."""
    if not isinstance(value, Session | ForkSession):
        raise InvalidInputError(
            f"session must be a Session, not {type(value).__name__}: see Repository.writable_session"
        )
    value.check_writable()
