"""A writable session handed off to another process, in which the forks of the first are merged.

Spark commits the writes of a data source in another process than the one that planned them.  What is pickled of a
writable session is a copy to read; a handoff opens the session anew from its place and its id, so that the forks of the
first can be merged into it.  Only one of the two may be committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arraystore._runtime import run
from arraystore._session.pickling import SnapshotLocator, forget_live, keep_live
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SessionStateError

__all__ = ["SessionHandoff", "hand_off"]


@dataclass(frozen=True)
class SessionHandoff:
    """The place and the id of a writable session.

    Parameters
    ----------
    locator
        The snapshot that the session is based on.
    branch
        Branch to commit to.
    identifier
        Id of the session, which its forks name.
    isolation
        As in `Repository.writable_session`.
    """

    locator: SnapshotLocator
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
        tip = run(self.locator.record_async())
        self.locator.context.seen(tip)
        session = Session(self.locator.context, tip, self.branch, self.isolation)
        forget_live(session._id)
        session._id = self.identifier
        keep_live(self.identifier, session)
        return session


def hand_off(session: Session) -> SessionHandoff:
    """Return what opens a writable session in another process, for its forks to be merged there.

    Raises
    ------
    InvalidInputError
        If it is not a writable session of a branch.
    SessionStateError
        If something has been merged into it already: that would be missing.
    """
    if session.branch is None or session.read_only:
        raise InvalidInputError(
            f"{session!r} is not a writable session of a branch: only such a session can be handed off"
        )
    if session._ledger.merged.numbers:
        raise SessionStateError("forks have been merged into this session already: they would be missing elsewhere")
    isolation: Literal["snapshot", "serializable"] = "serializable" if session.isolation != "snapshot" else "snapshot"
    return SessionHandoff(
        SnapshotLocator.of(session.context, session.base_tip.state), session.branch, session._id, isolation
    )
