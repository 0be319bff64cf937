"""Intents as far as a process knows them, the rebase of what they propose, and how fast requests are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import OnTop, Passage, PendingTransaction, replaces_history, step
from arraystore._commit.request import Outstanding, Request
from arraystore._commit.rewrite import rewrite_in_memory
from arraystore._environment import Environment
from arraystore._format.ids import SnapshotId
from arraystore._format.intent import read_intent_key
from arraystore._format.record import read_record_key
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Passed, Tip, steps_to

PASSED_OVER = 2
"""Records that left an intent undecided, and still nobody leads: its owner is gone, or it cannot be read."""

_REQUESTS_A_TURN = 5.0
"""Usual requests that a leader's listing, GETs and PUT take the time of."""

_SLOWEST = 1.0
"""Seconds that a request counts as at most: this process may have slept meanwhile, or its clock was set forward."""


@dataclass(eq=False)
class TrackedProposal:
    """A proposed transaction, and what became of it."""

    transaction: PendingTransaction
    request: Request | None = None
    decided: bool = False
    refused: bool = False

    @property
    def prepared(self) -> Prepared:
        """Its changes."""
        return self.transaction.prepared


@dataclass(eq=False)
class TrackedIntent:
    """An intent as far as it is known."""

    key: str
    id: SnapshotId
    sequence: int
    last: int
    entries: list[TrackedProposal] | None = None
    """None before it was read."""
    checked: int = 0
    """Number of the record up to which its entries were checked."""
    passed_over: int = 0
    unreadable: bool = False
    decided: bool = False
    """True once a record has decided about its first transaction, at least."""

    @property
    def stale(self) -> bool:
        """True if it is not worth reading: it cannot be, or is about to be deleted."""
        return self.unreadable or (self.entries is None and self.decided and self.passed_over < PASSED_OVER)

    @property
    def open(self) -> bool:
        """True if a leader may have something to decide about it."""
        return self.entries is None or any(not entry.decided for entry in self.entries)


@dataclass
class Pace:
    """Time that requests take here, in seconds, as observed."""

    request: float = 0.0

    def requested(self, took: float) -> None:
        """Note how long a request took."""
        took = min(max(took, 1e-6), _SLOWEST)
        self.request += (took - self.request) * (0.2 if self.request else 1.0)

    @property
    def turn(self) -> float:
        """Time that a leader takes: a listing, the slowest of many GETs, a PUT.

        Not how long leaders took lately: where one was slow, all who learn from it would wait longer.
        """
        return _REQUESTS_A_TURN * self.request


@dataclass(eq=False)
class IntentListing:
    """Records and intents that a listing has shown."""

    newest: int
    keys: list[str] = field(default_factory=list[str])
    listed: int = -1
    """Number of the newest record that was listed."""

    def add(self, prefix: str, key: str) -> None:
        """Add a listed key."""
        number = read_record_key(prefix, key)
        if number is not None:
            self.listed = max(self.listed, number)
            self.newest = max(self.newest, self.listed)
        elif read_intent_key(prefix, key) is not None:
            self.keys.append(key)


def rebase_proposal(entry: TrackedProposal, passage: Passage, environment: Environment) -> bool:
    """Rebase a proposal over one more record; False if every leader refuses it there."""
    verdict = step(entry.transaction, passage)
    if not isinstance(verdict, OnTop):
        return False
    if verdict.nodes is None:
        return True
    rewritten = rewrite_in_memory(entry.prepared, verdict.nodes, environment)
    if rewritten is None:  # an object that each leader would write anew
        return False
    entry.transaction = replace(entry.transaction, prepared=rewritten)
    return True


async def still_proposed(
    log: BranchLog, outstanding: Outstanding, tip: Tip, records: Sequence[Passed]
) -> PendingTransaction | None:
    """Return what a leader that knows a tip may still commit of a proposal; None if every leader refuses it."""
    if outstanding.last <= tip.sequence:
        return None
    since = (each for each in records if each.sequence > outstanding.base.sequence)
    if any(replaces_history(each.entry) for each in since):  # the snapshot of a reset may be collected by now
        return None
    entry = TrackedProposal(outstanding.transaction)
    _, steps = await steps_to(log, outstanding.base, tip.sequence)
    for passage in map(Passage.of, steps):
        if entry.prepared.id in passage.refused or not rebase_proposal(entry, passage, log.environment):
            return None
    return entry.transaction
