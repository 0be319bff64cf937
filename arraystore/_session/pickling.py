"""What pickled sessions are made of: the locator of their snapshot, and in its own process the session itself."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Protocol

from arraystore._context import Context
from arraystore._format.refs import Hint
from arraystore._history.missing_objects import check_still_kept
from arraystore._log.loading import Tip, load_tip
from arraystore._log.state import State
from arraystore._runtime import run
from arraystore.errors import ObjectNotFoundError, SessionStateError

__all__ = ["SnapshotLocator", "forget_live", "keep_live", "live_session"]


class LiveSession(Protocol):
    """A writable session, as far as it matters here."""

    @property
    def is_of_this_process(self) -> bool:
        """Whether the session was made in this process, and not in one that this is a forked child of."""
        ...


_live: weakref.WeakValueDictionary[bytes, LiveSession] = weakref.WeakValueDictionary()
_states: dict[tuple[str, str, int, bytes], State] = {}
_STATES_KEPT = 8


def keep_live(identifier: bytes, session: LiveSession) -> None:
    """Have a writable session found when it is unpickled in its own process."""
    _live[identifier] = session


def forget_live(identifier: bytes) -> None:
    """Have it found no more under this id."""
    _live.pop(identifier, None)


def live_session(identifier: bytes) -> LiveSession | None:
    """Return the writable session of this id, if it is of this process: a forked child's is as old as the child."""
    found = _live.get(identifier)
    return found if found is not None and found.is_of_this_process else None


@dataclass(frozen=True)
class SnapshotLocator:
    """The place of a snapshot.

    Parameters
    ----------
    context
        Its repository.
    branch, sequence
        The record that made it.
    hint
        A checkpoint at or before that record, None where none is known.
    snapshot
        Its id.
    verify_chunks
        Whether a session of it checks the chunks that it reads; None for what the configuration says.
    """

    context: Context
    branch: str
    sequence: int
    hint: tuple[int, bytes] | None
    snapshot: bytes
    verify_chunks: bool | None = None

    @classmethod
    def of(cls, context: Context, state: State, verify_chunks: bool | None = None) -> SnapshotLocator:
        """Return the place of a state."""
        hint = None if state.checkpoint is None else (state.checkpoint.sequence, state.checkpoint.id)
        return cls(context, state.branch, state.sequence, hint, state.snapshot, verify_chunks)

    def load(self) -> Tip:
        """Load the snapshot, once a process.

        Raises
        ------
        SessionStateError
            If the repository at that place is another one by now.
        """
        key = (self.context.storage.location, self.branch, self.sequence, self.snapshot)
        state = _states.get(key)
        if state is None:
            state = run(self.load_async()).state
            while len(_states) >= _STATES_KEPT:
                _states.pop(next(iter(_states)))
            _states[key] = state
        return Tip(state, {})

    async def load_async(self) -> Tip:
        """Asynchronous twin of `load`; remembers nothing."""
        return Tip((await self.record_async()).state, {})

    async def record_async(self) -> Tip:
        """Load the record, with what its successors have to carry."""
        found = None if self.hint is None else Hint(*self.hint)
        try:
            tip = await load_tip(self.context.log(self.branch), found, at=self.sequence, snapshot=self.snapshot)
        except ObjectNotFoundError:
            await check_still_kept(self.context, self.branch, self.sequence, self.snapshot)
            raise
        if tip.state.snapshot != self.snapshot:
            raise SessionStateError(
                f"record {self.sequence} of branch {self.branch!r} in {self.context.storage.location} is not the "
                "one that was pickled: the repository there is another one by now"
            )
        return tip
