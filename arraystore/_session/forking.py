"""Taking forks of a session, and bringing home what they changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from arraystore._forks.merge import OnOverlap
from arraystore._runtime import run

if TYPE_CHECKING:
    from arraystore._session.fork import ForkSession
    from arraystore._session.session import Session

__all__ = ["Forking"]


class Forking:
    """The part of a session that has to do with forks."""

    def fork(self) -> ForkSession:
        """Return a fork: a session that may be pickled, written to in any process, and merged back.

        What is uncommitted here (arrays just created, for instance) travels along.  Taking a fork costs no request;
        chunks that wait for upload are uploaded when it is pickled.
        """
        return run(self.fork_async())

    async def fork_async(self) -> ForkSession:
        """Asynchronous twin of `fork`."""
        from arraystore._session.fork import fork_of  # forks are a kind of session: that module imports this one

        return await fork_of(_session(self))

    @property
    def has_forks(self) -> bool:
        """Whether forks of this session are somewhere that have not come home."""
        return bool(_session(self)._ledger.issued)

    def abandon(self, fork: ForkSession) -> None:
        """Give up what was written through a fork, and through what was unpickled from it: no commit warns of it.

        Parameters
        ----------
        fork
            A fork of this session.
        """
        session = _session(self)
        session._ledger.abandon(fork)

    def merge(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Bring home what forks changed: all of it, or nothing.

        Parameters
        ----------
        forks
            Forks of this session, what their `changes()` or `merge_sessions` returned, or lists of these.
        on_overlap
            What happens where the same chunk was written by two forks, or by a fork and, since that was taken, the
            session: ``"error"``, or ``"last"``, where the later argument wins, over the session and over what was
            merged before, too.  All else that collides is an error in any case, and so is a chunk into which the array
            has grown meanwhile, of which the later one may know a part only.

        Raises
        ------
        MergeConflictError
            If two forks changed the same chunk or node, or a fork is another session's, or the session was rebased
            since it was taken.
        FormatError
            If a payload is damaged.
        InvalidInputError
            If something else is given.
        """
        from arraystore._session.fork import forks_in

        flat = list(forks_in(forks))  # iterators are the caller's code: they run in the caller's thread
        run(self.merge_async(flat, on_overlap=on_overlap))

    async def merge_async(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Asynchronous twin of `merge`."""
        from arraystore._session.fork import merge_into

        await merge_into(_session(self), forks, on_overlap)


def _session(part: Forking) -> Session:
    return cast("Session", part)
