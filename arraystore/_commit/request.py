"""Requests to commit a transaction, and their answers."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._log.footprint import Footprint
from arraystore._log.loading import Tip
from arraystore._log.state import SnapshotState

if TYPE_CHECKING:
    from arraystore._conflicts import Conflict

__all__ = ["Committed", "Obstacle", "Outstanding", "Request"]


@dataclass(frozen=True)
class Committed:
    """A transaction that is in the log.

    Parameters
    ----------
    tip
        Its record, with the snapshot that it made.
    attempts
        In how many records it was tried.
    together
        How many transactions its record holds.
    """

    tip: Tip
    attempts: int
    together: int


@dataclass(frozen=True)
class Obstacle:
    """Conflicts that a transaction has to be rebased over before it can be tried again.

    Parameters
    ----------
    conflicts
        With what was committed meanwhile; may be empty where only `PendingTransaction.guard` asks for a look.
    theirs
        What was committed.
    before, tip
        The snapshot on which it was checked last, and the newest one.
    attempts
        In how many records it was tried.
    """

    conflicts: tuple[Conflict, ...]
    theirs: Footprint
    before: SnapshotState
    tip: Tip
    attempts: int


@dataclass(frozen=True, eq=False)
class Outstanding:
    """A proposal of a transaction that others may still commit (see `arraystore._commit.intent_queue`).

    Parameters
    ----------
    last
        Number of the last record that may take it.
    transaction, base
        What was proposed, and on which record.
    """

    last: int
    transaction: PendingTransaction
    base: Tip


@dataclass(eq=False)
class Request:
    """A transaction that its owner wants to have committed.

    Parameters
    ----------
    transaction
        What it changes and depends on; another one as it is rebased.
    base
        Record for which it was checked last.
    tries
        How many times it may be rebased over what others committed.
    uncertain
        Whether an earlier attempt may have arrived.
    outstanding
        What others may still commit of it.
    """

    transaction: PendingTransaction
    base: Tip
    tries: int = 0
    uncertain: bool = False
    outstanding: Outstanding | None = None
    attempts: int = 0
    rebased: int = 0
    taken: bool = False
    abandoned: bool = False
    answer: Future[Committed | Obstacle] = field(default_factory=Future)

    def again(self, prepared: Prepared, base: Tip) -> Request:
        """Return a request for what became of the transaction, checked for another record."""
        request = Request(replace(self.transaction, prepared=prepared), base, self.tries)
        request.attempts, request.rebased, request.outstanding = self.attempts, self.rebased, self.outstanding
        return request

    @property
    def prepared(self) -> Prepared:
        """The changes to commit."""
        return self.transaction.prepared

    @property
    def may_rebase(self) -> bool:
        """True if it has a try left to be rebased over what others committed."""
        return self.rebased < self.tries

    @property
    def done(self) -> bool:
        """True once it has its answer."""
        return self.answer.done()
