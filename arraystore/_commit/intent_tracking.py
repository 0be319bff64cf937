"""What a process that stands in line knows: intents, the records that decide them, and how fast things go."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from arraystore._changes.read_set import ReadSet
from arraystore._commit.admission import crosses, objection
from arraystore._commit.conflict_detection import Ours
from arraystore._commit.conflict_resolution import adapted
from arraystore._commit.prepare import Prepared, replaced_in_memory
from arraystore._commit.request import Outstanding, Request, collisions, is_guarded
from arraystore._environment import Environment
from arraystore._format.intent import read_intent_key
from arraystore._format.record import Commit, read_record_key
from arraystore._log.branch_log import BranchLog
from arraystore._log.footprint import Footprint, footprint_of
from arraystore._log.loading import Step, Tip, steps_to

__all__ = ["PASSED_OVER", "Look", "Pace", "Passage", "Proposed", "Standing", "goes_on", "still_wanted"]

PASSED_OVER = 2
"""Records that left an intent undecided, and still nobody leads: its owner is gone, or it cannot be read."""

_REQUESTS_A_TURN = 5.0
"""Usual requests that a leader's listing, GETs and PUT take the time of."""

_SLOWEST = 1.0
"""Seconds that a request counts as at most: this process may have slept meanwhile, or its clock was set forward."""


@dataclass(eq=False)
class Proposed:
    """A proposal, and what became of it."""

    prepared: Prepared
    reads: ReadSet | None
    guard: frozenset[bytes]
    request: Request | None = None
    decided: bool = False
    refused: bool = False
    _ours: tuple[Prepared, Ours] | None = None

    @property
    def ours(self) -> Ours:
        """What it wants, worked out once."""
        if self._ours is None or self._ours[0] is not self.prepared:
            self._ours = self.prepared, Ours.of(self.prepared)
        return self._ours[1]


@dataclass(eq=False)
class Standing:
    """An intent as far as it is known."""

    key: str
    id: bytes
    sequence: int
    last: int
    entries: list[Proposed] | None = None
    """None before it was read."""
    checked: int = 0
    """Number of the record up to which its entries were checked."""
    passed_over: int = 0
    unreadable: bool = False
    decided: bool = False
    """Whether a record has decided about its first transaction, at least."""

    @property
    def stale(self) -> bool:
        """Whether it is not worth reading: it cannot be, or is about to be deleted."""
        return self.unreadable or (self.entries is None and self.decided and self.passed_over < PASSED_OVER)

    @property
    def open(self) -> bool:
        """Whether a leader may have something to decide about it."""
        return self.entries is None or any(not entry.decided for entry in self.entries)


@dataclass(eq=False)
class Passage:
    """A record between the publication of an intent and now."""

    step: Step

    @cached_property
    def footprint(self) -> Footprint:
        """What it changed."""
        return footprint_of(self.step.before, self.step.passed.transactions)

    @cached_property
    def ids(self) -> frozenset[bytes]:
        """Transactions that it commits."""
        return frozenset(item.id for item, _, _ in self.step.passed.transactions)

    @cached_property
    def refused(self) -> frozenset[bytes]:
        """Transactions that it refuses."""
        entry = self.step.passed.entry
        return frozenset(entry.refused) if isinstance(entry, Commit) else frozenset()


@dataclass
class Pace:
    """How fast requests are answered here, in seconds, as observed."""

    request: float = 0.0

    def requested(self, took: float) -> None:
        """Note how long a request took."""
        took = min(max(took, 1e-6), _SLOWEST)
        self.request += (took - self.request) * (0.2 if self.request else 1.0)

    @property
    def turn(self) -> float:
        """How long a leader takes: a listing, the slowest of many GETs, a PUT.

        Not how long leaders took lately: where one was slow, all who learn from it would wait longer.
        """
        return _REQUESTS_A_TURN * self.request


@dataclass(eq=False)
class Look:
    """What a listing told."""

    newest: int
    keys: list[str] = field(default_factory=list[str])
    listed: int = -1
    """Number of the newest record that was listed."""

    def add(self, prefix: str, key: str) -> None:
        """Take a key into account."""
        number = read_record_key(prefix, key)
        if number is not None:
            self.listed = max(self.listed, number)
            self.newest = max(self.newest, self.listed)
        elif read_intent_key(prefix, key) is not None:
            self.keys.append(key)


def goes_on(entry: Proposed, passage: Passage, environment: Environment) -> bool:
    """Tell whether a transaction goes on top of one more record; fits it there where it only has to grow."""
    passed = passage.step.passed.entry
    if crosses(passed) or objection(entry.prepared, passage.step.after) is not None:
        return False
    if not isinstance(passed, Commit):
        return True
    theirs, before, after = passage.footprint, passage.step.before, passage.step.after
    if is_guarded(entry, theirs) or collisions(entry, theirs, before, after):
        return False
    nodes = adapted(entry.prepared, before, after)
    if nodes is None:
        return True
    changed = replaced_in_memory(entry.prepared, nodes, environment)
    if changed is None:
        return False
    entry.prepared = changed
    return True


async def still_wanted(log: BranchLog, outstanding: Outstanding, tip: Tip) -> Prepared | None:
    """Return what a leader that knows a tip may still commit of a proposal; None if every leader refuses it."""
    if outstanding.last <= tip.sequence:
        return None
    entry = Proposed(outstanding.prepared, outstanding.reads, outstanding.guard)
    _, steps = await steps_to(log, outstanding.base, tip.sequence)
    for step in steps:
        passage = Passage(step)
        if entry.prepared.id in passage.refused:
            return None
        if not goes_on(entry, passage, log.environment):
            return None
    return entry.prepared
