"""The same writable session in another process: a home to which forks come that were taken elsewhere.

Spark commits the writes of a data source in another process than the one that planned them.  What is pickled of a
writable session is a copy to read; a home is opened anew from the place and the id of the session, so that the forks
of the first can be merged into it.  Only one of them may be committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arraystore._runtime import run
from arraystore._session.pickling import Pin, forget_live, keep_live
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SessionStateError

__all__ = ["SessionHome", "home_of"]


@dataclass(frozen=True)
class SessionHome:
    """Where forks of a session can be merged.

    Parameters
    ----------
    pin
        The snapshot that the session is based on.
    branch
        Branch to commit to.
    identifier
        Id of the session, which its forks name.
    isolation
        As in `Repository.writable_session`.
    """

    pin: Pin
    branch: str
    identifier: bytes
    isolation: Literal["snapshot", "serializable"] = "snapshot"

    def open(self) -> Session:
        """Return a writable session, without changes, that takes forks of the first.

        What the first had changed before it was forked must be changed here, too, before anything is merged.

        Raises
        ------
        SnapshotExpiredError, SessionStateError
            If the snapshot is not there any more.
        """
        tip = run(self.pin.record_async())
        self.pin.context.seen(tip)
        session = Session(self.pin.context, tip, self.branch, self.isolation)
        forget_live(session._id)
        session._id = self.identifier
        keep_live(self.identifier, session)
        return session


def home_of(session: Session) -> SessionHome:
    """Return where forks of a writable session can be merged in another process.

    Raises
    ------
    InvalidInputError
        If it is not a writable session of a branch.
    SessionStateError
        If something has been merged into it already: that would be missing.
    """
    if session.branch is None or session.read_only:
        raise InvalidInputError(f"{session!r} is no writable session of a branch: nothing is merged into it")
    if session._handed.merged.numbers:
        raise SessionStateError("forks have been merged into this session already: they would be missing elsewhere")
    isolation: Literal["snapshot", "serializable"] = "serializable" if session.isolation != "snapshot" else "snapshot"
    return SessionHome(Pin.of(session.context, session.base_tip.state), session.branch, session._id, isolation)
