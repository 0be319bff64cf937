"""The handoff of a writable session to another process, which merges its forks and commits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arraystore._runtime import run
from arraystore._session.pickling import SnapshotLocator, forget_live, keep_live
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SessionStateError


@dataclass(frozen=True)
class SessionHandoff:
    """The location and the id of a writable session."""

    locator: SnapshotLocator
    """The snapshot that the session is based on."""
    branch: str
    """Branch to commit to."""
    identifier: bytes
    """Id of the session, which its forks name."""
    isolation: Literal["snapshot", "serializable"] = "snapshot"
    """Isolation level; see `Repository.writable_session`."""

    def open(self) -> Session:
        """Return a writable session without changes that merges forks of the first, whose changes must be repeated."""
        tip = run(self.locator.record_async())
        self.locator.context.seen(tip)
        session = Session(self.locator.context, tip, self.branch, self.isolation)
        forget_live(session._id)
        session._id = self.identifier
        keep_live(self.identifier, session)
        return session


def hand_off(session: Session) -> SessionHandoff:
    """Return a handoff of a writable session, of which only the one or the other may be committed."""
    if session.branch is None or session.read_only:
        raise InvalidInputError(f"{session!r} must be a writable session of a branch to be handed off")
    if session._ledger.merged.numbers:
        raise SessionStateError(
            "forks have been merged into this session already, and would be missing in the other process: "
            "hand it off before merging"
        )
    if session._ledger.rebased:
        raise SessionStateError(
            "the session was rebased after forks of it were taken, and the other process would merge them over what "
            "others have committed: hand off a new session, and take its forks"
        )
    isolation: Literal["snapshot", "serializable"] = "serializable" if session.isolation != "snapshot" else "snapshot"
    return SessionHandoff(
        SnapshotLocator.of(session.context, session.base_tip.state), session.branch, session._id, isolation
    )
