"""Pickled sessions: the locator of their snapshot, and the registry of writable sessions of this process."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

from arraystore._chunks.reader import VerifyChunks
from arraystore._context.context import Context
from arraystore._format.ids import CheckpointId, SnapshotId, id_to_text
from arraystore._format.refs import Hint
from arraystore._log.loading import Tip, load_tip
from arraystore._log.state import SnapshotState
from arraystore._runtime import lazy_module, run
from arraystore._runtime.values import dataclass
from arraystore.errors import (
    ObjectNotFoundError,
    SessionExpiredError,
    SessionStateError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
)

if TYPE_CHECKING:
    from arraystore._history import missing_objects, snapshot_lookup
else:
    missing_objects = lazy_module("arraystore._history.missing_objects")
    snapshot_lookup = lazy_module("arraystore._history.snapshot_lookup")


class LiveSession(Protocol):
    """A writable session, as the registry sees it."""

    @property
    def is_of_this_process(self) -> bool:
        """True if the session was made in this process, not in a parent that forked it."""
        ...


_live: weakref.WeakValueDictionary[bytes, LiveSession] = weakref.WeakValueDictionary()
_states: dict[tuple[str, str, int, SnapshotId], SnapshotState] = {}
_STATES_KEPT = 8


def keep_live(identifier: bytes, session: LiveSession) -> None:
    """Register a writable session, for unpickling in its own process."""
    _live[identifier] = session


def forget_live(identifier: bytes) -> None:
    """Remove a session from the registry."""
    _live.pop(identifier, None)


def live_session(identifier: bytes) -> LiveSession | None:
    """Return the registered session of an id, unless it was inherited by a forked child."""
    session = _live.get(identifier)
    return session if session is not None and session.is_of_this_process else None


@dataclass(frozen=True)
class SnapshotLocator:
    """The location of a snapshot."""

    context: Context
    """The context of its repository."""
    branch: str
    sequence: int
    """Number of the record that made it."""
    hint: tuple[int, CheckpointId] | None
    """A checkpoint at or before that record; None if there is none."""
    snapshot: SnapshotId
    """Id of the snapshot."""
    verify_chunks: VerifyChunks = "config"
    """Whether sessions verify the chunks that they read."""

    @classmethod
    def of(cls, context: Context, state: SnapshotState, verify_chunks: VerifyChunks = "config") -> SnapshotLocator:
        """Return the locator of a state."""
        hint = None if state.checkpoint is None else (state.checkpoint.sequence, state.checkpoint.id)
        return cls(context, state.branch, state.sequence, hint, state.snapshot, verify_chunks)

    def load(self) -> Tip:
        """Load the snapshot once per process; raises `SessionStateError` if the repository was replaced."""
        key = (self.context.storage.location, self.branch, self.sequence, self.snapshot)
        state = _states.get(key)
        if state is None:
            state = run(self.load_async()).state
            while len(_states) >= _STATES_KEPT:
                _states.pop(next(iter(_states)))
            _states[key] = state
        return Tip(state, {})

    async def load_async(self) -> Tip:
        """Load the snapshot asynchronously, without caching it: from its own record, else from where it is retained."""
        try:
            tip = await self._own_record()
        except (ObjectNotFoundError, SnapshotExpiredError) as error:
            tip = await self._elsewhere(error)  # its record was collected, after a reset or deletion of the branch
        return Tip(tip.state, {})

    async def record_async(self) -> Tip:
        """Load the tip of the record, with the data that its successors carry, for a session that commits after it.

        Raises `SessionExpiredError` if the record is no longer retained, though its snapshot may be.
        """
        try:
            return await self._own_record()
        except (ObjectNotFoundError, SnapshotExpiredError) as error:
            await self._elsewhere(error)
            raise SessionExpiredError(
                f"branch {self.branch!r} of {self.context.storage.location} was reset or deleted, and its record "
                f"{self.sequence} was collected, so that nothing can be committed after it any more. Open a new "
                f"session and write the changes again; snapshot {id_to_text(self.snapshot)} is still retained."
            ) from error

    async def _elsewhere(self, error: Exception) -> Tip:
        """Load the snapshot from another log; raises the error about its own where none has it, if that says more."""
        try:
            return await snapshot_lookup.load_by_id(self.context, self.snapshot)
        except SnapshotNotFoundError:
            if isinstance(error, SnapshotExpiredError):
                raise error from None
            raise

    async def _own_record(self) -> Tip:
        hint = None if self.hint is None else Hint(*self.hint)
        try:
            tip = await load_tip(self.context.log(self.branch), hint, at=self.sequence, snapshot=self.snapshot)
        except ObjectNotFoundError:
            await missing_objects.check_still_kept(self.context, self.branch, self.sequence, self.snapshot)
            raise
        if tip.state.snapshot != self.snapshot:
            raise SessionStateError(
                f"record {self.sequence} of branch {self.branch!r} in {self.context.storage.location} is not the "
                "one that was pickled: another repository is at that location now"
            )
        return tip
