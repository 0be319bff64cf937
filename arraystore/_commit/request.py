"""What is handed to a committer and what comes back: a transaction to commit, and its answer."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from arraystore._changes.read_set import ReadSet
from arraystore._commit.admission import check_recorded, crosses, crossing_error, objection, stranger
from arraystore._commit.conflict_detection import Ours, detect
from arraystore._commit.conflict_resolution import adapted
from arraystore._commit.prepare import Prepared, replaced
from arraystore._conflicts import Conflict
from arraystore._log.branch_log import BranchLog
from arraystore._log.footprint import Footprint, footprint_of
from arraystore._log.loading import Tip, passed_between
from arraystore._log.state import State

__all__ = ["Committed", "Obstacle", "Outstanding", "Request", "Wanted", "bring_up", "check", "collisions", "is_guarded"]


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
    """What a transaction has to get over before it can be tried again.

    Parameters
    ----------
    conflicts
        With what was committed meanwhile; may be empty where only `Request.guard` objects.
    theirs
        What was committed.
    before, tip
        The snapshot on which it was checked last, and the newest one.
    attempts
        In how many records it was tried.
    """

    conflicts: tuple[Conflict, ...]
    theirs: Footprint
    before: State
    tip: Tip
    attempts: int


@dataclass(frozen=True, eq=False)
class Outstanding:
    """A proposal of a transaction that others may still commit (see `arraystore._commit.intent_queue`).

    Parameters
    ----------
    last
        Number of the last record that may take it.
    prepared, base, reads, guard
        What was proposed, and on which record.
    """

    last: int
    prepared: Prepared
    base: Tip
    reads: ReadSet | None
    guard: frozenset[bytes]


@dataclass(eq=False)
class Request:
    """A transaction that wants to be committed.

    Parameters
    ----------
    prepared
        What it changes; replaced as it is rebased.
    base
        Record for which it was checked last.
    tries
        How many times it may be put on top of what others committed.
    reads
        What it depends on, where it is serializable.
    guard
        Arrays to which, if others have appended, its owner wants to look before it goes on.
    uncertain
        Whether an earlier attempt may have arrived.
    outstanding
        What others may still commit of it.
    """

    prepared: Prepared
    base: Tip
    tries: int = 0
    reads: ReadSet | None = None
    guard: frozenset[bytes] = frozenset()
    uncertain: bool = False
    outstanding: Outstanding | None = None
    attempts: int = 0
    rebased: int = 0
    taken: bool = False
    abandoned: bool = False
    _ours: tuple[Prepared, Ours] | None = None
    answer: Future[Committed | Obstacle] = field(default_factory=Future)

    def again(self, prepared: Prepared, base: Tip) -> Request:
        """Return a request for what became of the transaction, checked for another record."""
        found = Request(prepared, base, self.tries, self.reads, self.guard)
        found.attempts, found.rebased, found.outstanding = self.attempts, self.rebased, self.outstanding
        return found

    @property
    def ours(self) -> Ours:
        """What it wants, worked out once."""
        if self._ours is None or self._ours[0] is not self.prepared:
            self._ours = self.prepared, Ours.of(self.prepared)
        return self._ours[1]

    @property
    def done(self) -> bool:
        """Whether it has its answer."""
        return self.answer.done()


class Wanted(Protocol):
    """A transaction that wants to be committed, a request's or another process's."""

    @property
    def prepared(self) -> Prepared:
        """What it changes."""
        ...

    @property
    def ours(self) -> Ours:
        """What it wants."""
        ...

    @property
    def reads(self) -> ReadSet | None:
        """What it depends on."""
        ...

    @property
    def guard(self) -> frozenset[bytes]:
        """Arrays to which, if others have appended, its owner wants to look."""
        ...


async def check(log: BranchLog, request: Request, tip: Tip) -> Obstacle | None:
    """Bring a transaction up to a record without committing it; returns what is in its way.

    Parameters
    ----------
    log
        The branch.
    request
        The transaction; it is based on that record afterwards, unless something is in its way.
    tip
        The record.
    """
    base = request.base
    check_recorded(base.state)
    passed = await passed_between(log, base.sequence, tip.sequence)
    error = stranger(base.state, tip.state, passed) or objection(request.prepared, tip.state)
    if error is None and any(crosses(each.entry) for each in passed):
        error = crossing_error(base.state, tip.state)
    if error is not None:
        raise error
    theirs = footprint_of(base.state, [item for each in passed for item in each.transactions])
    return await bring_up(log, request, theirs, tip)


async def bring_up(log: BranchLog, request: Request, theirs: Footprint, tip: Tip) -> Obstacle | None:
    """Put a transaction on top of what others committed since its base; returns what is in its way."""
    before = request.base.state
    conflicts = collisions(request, theirs, before, tip.state)
    if conflicts or is_guarded(request, theirs):
        return Obstacle(tuple(conflicts), theirs, before, tip, request.attempts)
    prepared = request.prepared
    nodes = adapted(prepared, before, tip.state)
    if nodes is not None:
        request.prepared = await replaced(prepared, nodes, prepared.log.chunks, (), log.storage, log.environment)
    request.base = tip
    return None


def collisions(wanted: Wanted, theirs: Footprint, before: State, after: State) -> list[Conflict]:
    """Return every conflict of a transaction, those of what it has read included."""
    conflicts = detect(wanted.ours, theirs, before, after)
    return conflicts if wanted.reads is None else [*conflicts, *wanted.reads.collisions(theirs, before)]


def is_guarded(wanted: Wanted, theirs: Footprint) -> bool:
    """Tell whether the owner of a transaction wants to look at what others did before it goes on."""
    return any(theirs.nodes[i].appended or theirs.nodes[i].chunks for i in wanted.guard & theirs.nodes.keys())
