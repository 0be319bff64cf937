"""How sessions travel: as the place of their snapshot, and what is uncommitted."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arraystore._context import Context
from arraystore._forks.uncommitted import uncommitted_view, with_uncommitted
from arraystore._format.refs import Hint
from arraystore._history.missing_objects import check_still_kept
from arraystore._log.loading import Tip, load_tip
from arraystore._log.state import State
from arraystore._runtime import run
from arraystore.errors import ObjectNotFoundError, SessionStateError

if TYPE_CHECKING:
    from arraystore._session.session import Session

__all__ = ["SnapshotLocator", "forget_live", "keep_live", "reduce_session"]

_live: weakref.WeakValueDictionary[bytes, Session] = weakref.WeakValueDictionary()
_states: dict[tuple[str, str, int, bytes], State] = {}
_STATES_KEPT = 8


def keep_live(identifier: bytes, session: Session) -> None:
    """Have a writable session found when it is unpickled in its own process."""
    _live[identifier] = session


def forget_live(identifier: bytes) -> None:
    """Have it found no more under this id."""
    _live.pop(identifier, None)


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


def reduce_session(session: Session) -> tuple[Any, ...]:
    """Return what a session is pickled as; uncommitted chunks are made durable first."""
    locator = SnapshotLocator.of(session.context, session._tip.state, session.verify_chunks)
    if session.uncommitted is not None:
        return rebuild_writer, (locator, *session.uncommitted)
    if session._changes is None:
        return rebuild_reader, (locator,)
    return rebuild_writer, (locator, session._id, run(_sent(session)))


async def _sent(session: Session) -> bytes:
    assert session._changes is not None
    found = await uncommitted_view(session._changes, session._reader)
    if found.unsent and not session.is_of_this_process:
        raise SessionStateError(
            "chunks of this session wait for upload in the process that wrote them, which this one is a forked child "
            "of: pickle the session there"
        )
    return await found.send()


def rebuild_reader(locator: SnapshotLocator) -> Session:
    """Return a session that only reads."""
    from arraystore._session.session import Session

    return Session(locator.context, locator.load(), None, verify_chunks=locator.verify_chunks)


def rebuild_writer(locator: SnapshotLocator, identifier: bytes, log: bytes) -> Session:
    """In its own process it is the same session; elsewhere a copy that may be read, uncommitted changes included."""
    from arraystore._session.session import Session

    live = _live.get(identifier)
    if live is not None and live.is_of_this_process:  # a forked child's is as old as the child
        return live
    tip = Tip(with_uncommitted(locator.load().state, log), {})
    copy = Session(locator.context, tip, None, verify_chunks=locator.verify_chunks)
    copy.uncommitted = identifier, log
    return copy
