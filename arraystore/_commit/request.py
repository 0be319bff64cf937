"""Requests to commit a transaction, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field, replace
from typing import TYPE_CHECKING

from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._log.footprint import Footprint
from arraystore._log.loading import Tip
from arraystore._log.state import SnapshotState
from arraystore._runtime.values import dataclass

if TYPE_CHECKING:
    from arraystore._conflicts import Conflict


@dataclass(frozen=True)
class Committed:
    """Transaction that is in the log."""

    tip: Tip
    """Its record, with the snapshot that it made."""
    attempts: int
    """Number of records in which it was tried."""
    together: int
    """Number of transactions in its record."""


@dataclass(frozen=True)
class Obstacle:
    """Conflicts that a transaction has to be rebased over before it can be tried again."""

    conflicts: tuple[Conflict, ...]
    """Conflicts; empty where only `PendingTransaction.guard` asks for a look."""
    theirs: Footprint
    before: SnapshotState
    """Snapshot on which it was checked last."""
    tip: Tip
    attempts: int
    """Number of records in which it was tried."""


@dataclass(frozen=True, eq=False)
class Outstanding:
    """Proposal of a transaction that others may still commit (see `arraystore._commit.intent_queue`)."""

    last: int
    """Number of the last record that may take it."""
    transaction: PendingTransaction
    base: Tip
    """Record on which it was proposed."""


@dataclass
class Attempt:
    """A commit under way."""

    uncertain: bool
    """True if the transaction may be in the log."""
    outstanding: Outstanding | None
    """Intents of the transaction that others may still commit."""

    def fail(self, uncertain: bool, outstanding: Outstanding | None = None) -> None:
        """Note that the commit failed, and whether it may have succeeded all the same."""
        self.uncertain, self.outstanding = uncertain, outstanding


@dataclass(eq=False)
class Request:
    """Transaction that its owner wants to have committed."""

    transaction: PendingTransaction
    base: Tip
    """Record for which it was checked last."""
    tries: int = 0
    """Number of times that it may be rebased over what others committed."""
    uncertain: bool = False
    """True if an earlier attempt may have arrived."""
    outstanding: Outstanding | None = None
    """What others may still commit of it."""
    rebase_note: Callable[[int], bytes] | None = None
    """Returns message and metadata by the number of rebases; None where they stay the same."""
    attempts: int = 0
    rebased: int = 0
    taken: bool = False
    abandoned: bool = False
    answer: Future[Committed | Obstacle] = field(default_factory=Future)

    def again(self, prepared: Prepared, base: Tip) -> Request:
        """Return a request for what became of the transaction, checked for another record."""
        request = Request(replace(self.transaction, prepared=prepared), base, self.tries)
        request.attempts, request.rebased, request.outstanding = self.attempts, self.rebased, self.outstanding
        request.rebase_note = self.rebase_note
        return request

    def note_rebases(self) -> None:
        """Write the number of rebases into the metadata, if the owner wants it there and it fits."""
        if self.rebase_note is not None and self.rebased:
            noted = self.prepared.with_note(self.rebase_note(self.rebased))
            self.transaction = replace(self.transaction, prepared=noted or self.prepared)

    @property
    def prepared(self) -> Prepared:
        """The changes to commit."""
        return self.transaction.prepared

    @property
    def may_rebase(self) -> bool:
        """True if it has a try left to be rebased over what others committed."""
        return self.rebased < self.tries

    @property
    def in_doubt(self) -> bool:
        """True if it may be in the log, or come there."""
        return self.taken or self.uncertain or self.outstanding is not None

    @property
    def done(self) -> bool:
        """True once it has its answer."""
        return self.answer.done()
