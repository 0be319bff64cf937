"""Forks: parts of a session that travel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from arraystore.commit.branch import Tip
from arraystore.commit.changes import ChangeSet
from arraystore.context import Context
from arraystore.errors import InvalidInputError, SessionStateError
from arraystore.forks import Home, collect, with_log
from arraystore.format.changes import encode_changes
from arraystore.hierarchy import Hierarchy
from arraystore.runtime import run
from arraystore.session import Session, pack_writer
from arraystore.session_pickle import Pin

__all__ = ["ForkSession", "forks_in"]


class ForkSession(Session):
    """A part of a session that may travel: written to in any process, never committed, merged back.

    Comes from `Session.fork`.  Every copy that is unpickled is a fork of its own.
    """

    def __init__(self, context: Context, tip: Tip, session: bytes, epoch: int, log: bytes | None) -> None:
        state = tip.state if log is None else with_log(tip.state, log)
        super().__init__(context, Tip(state, {}), tip.state.branch)
        self._origin = tip
        self._session = session
        self._epoch = epoch
        self._sent = 0
        self._log = log

    @property
    def branch(self) -> None:
        """Forks are on no branch."""
        return

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that something may be written now; what a forked child inherits becomes a fork of its own.

        Raises
        ------
        SessionStateError
            If it was written to before the process was forked.
        """
        with self._lock:
            if not self.is_of_this_process and not self.has_uncommitted_changes:
                self._id = self.context.environment.new_id()
                self._changes = ChangeSet(self._tip.state, pack_writer(self.context))
                self.hierarchy = Hierarchy(self._tip.state, self.context.reader, self._changes)
                self._pid = os.getpid()
        super().check_writable(refusal)

    def changes(self) -> bytes:
        """Make what was written durable, and return all changes so far, compactly, for `Session.merge`."""
        return run(self.changes_async())

    async def changes_async(self) -> bytes:
        """Asynchronous twin of `changes`."""
        self.check_writable()
        assert self._changes is not None
        self._sent += 1
        home = Home(self._session, self._id, self._epoch, self._sent)
        return encode_changes(await collect(self._changes, self.context.reader, home))

    async def commit_async(
        self, message: str, metadata: dict[str, Any] | None = None, *, allow_empty: bool = False
    ) -> str:
        """Refuse: forks are merged, and their session is committed."""
        raise SessionStateError("a fork is not committed: merge it into its session, and commit that")

    async def fork_async(self) -> ForkSession:
        """Refuse: fork the session."""
        raise SessionStateError("a fork is not forked: fork its session, or pickle the fork before writing to it")

    def __reduce__(self) -> tuple[Any, ...]:
        if self.has_uncommitted_changes:
            raise SessionStateError("this fork has been written to: send home what changes() returns, not the fork")
        return rebuild_fork, (Pin.of(self.context, self._origin.state), self._session, self._epoch, self._log)


def rebuild_fork(pin: Pin, session: bytes, epoch: int, log: bytes | None) -> ForkSession:
    """Return a fork of its own from what was pickled."""
    return ForkSession(pin.context, pin.load(), session, epoch, log)


def forks_in(forks: Iterable[Any]) -> Iterator[ForkSession | bytes]:
    """Yield forks and payloads out of lists of lists of them.

    Raises
    ------
    InvalidInputError
        If something else is among them.
    """
    for fork in forks:
        if isinstance(fork, bytes | ForkSession):
            yield fork
        elif isinstance(fork, bytearray | memoryview):
            yield bytes(fork)
        elif isinstance(fork, Iterable) and not isinstance(fork, str):
            yield from forks_in(fork)
        else:
            raise InvalidInputError(
                f"{str(fork)[:80]!r} ({type(fork).__name__}) is neither a fork nor what the changes() of one returned"
            )
