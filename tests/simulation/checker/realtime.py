"""Rule "real time": whoever begins after an acknowledgement, or after somebody has seen a tip, sees that or newer."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Committed, Observations, Rebase, TipLook, Transaction

__all__ = ["late_sights"]

_RULE = "real time"


@dataclass
class _Known:
    """When which place of a log was known for certain to somebody."""

    times: list[float] = field(default_factory=list)
    newest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, at: float, place: int, who: str) -> None:
        """Add in order of time."""
        if not self.newest or place > self.newest[-1][0]:
            self.times.append(at)
            self.newest.append((place, who))

    def before(self, at: float) -> tuple[int, str]:
        """Return the newest place that was known before a moment, and who knew it."""
        count = bisect_left(self.times, at)
        return self.newest[count - 1] if count else (-1, "")


def late_sights(logs: Logs, notes: Observations, lag: float = 0.0) -> Iterator[Violation]:
    """Check everybody who looked at the tip of a branch, through listings that may miss the newest seconds."""
    known = _known(logs, notes)
    for transaction in notes.transactions.values():
        if transaction.transplants is not None:
            continue  # nobody was told what it began on
        branch = transaction.branch
        sight = f"a session of {transaction.process}"
        yield from _late(logs, known, branch, transaction.base, transaction.began - lag, sight, transaction.label)
        yield from _overtaken(logs, transaction)
    for seen in notes.seen:
        if isinstance(seen, TipLook):
            sight = f"a look of {seen.process}"
            yield from _late(
                logs, known, seen.branch, seen.snapshot, seen.began - lag, sight, f"branch {seen.branch!r}"
            )


def _known(logs: Logs, notes: Observations) -> dict[str, _Known]:
    facts: list[tuple[float, str, str, str]] = []
    for transaction in notes.transactions.values():
        if transaction.transplants is None:
            facts.append((transaction.opened, transaction.branch, transaction.base, f"base of {transaction.label}"))
        for attempt in () if transaction.flushes else transaction.attempts:
            if isinstance(attempt.outcome, Committed) and attempt.ended is not None:
                snapshot = attempt.outcome.snapshot
                facts.append((attempt.ended, transaction.branch, snapshot, f"acknowledgement of {transaction.label}"))
    looks = [seen for seen in notes.seen if isinstance(seen, TipLook)]
    facts += [(seen.ended, seen.branch, seen.snapshot, f"look of {seen.process}") for seen in looks]
    known: dict[str, _Known] = defaultdict(_Known)
    for at, branch, snapshot, who in sorted(facts):
        stretches = _standing(logs, branch, snapshot)
        if stretches:
            known[branch].add(at, stretches[0][0], who)
    return known


def _standing(logs: Logs, branch: str, snapshot: str) -> list[tuple[int, int]]:
    """Return the stretches of records at which a branch was at a snapshot, that of its commit included.

    There it was within the record only, where others followed in that; a reset may have brought it back since.
    """
    log = logs.branches.get(branch)
    if log is None:
        return []
    identifier = id_bytes(snapshot)
    found = log.standing(identifier)
    made = log.committed(identifier)
    if made is not None and not any(first <= made <= last for first, last in found):
        found = sorted([*found, (made, made)])
    begun = log.snapshot(identifier)
    return found or ([] if begun is None else [(begun.number, begun.number)])


def _late(
    logs: Logs, known: dict[str, _Known], branch: str, snapshot: str, began: float, who: str, where: str
) -> Iterator[Violation]:
    stretches = _standing(logs, branch, snapshot)
    if not stretches:
        if branch in logs.branches:
            yield Violation(_RULE, f"{who} began on {snapshot}, which branch {branch!r} never had", where)
        return
    newest, since = known[branch].before(began)
    last = stretches[-1][1]
    if last < newest:
        what = f"{who} that began at {began:.3f} got {snapshot}, at which {branch!r} was up to record {last}: "
        yield Violation(_RULE, f"{what}it was at record {newest} by then ({since})", where)


def _overtaken(logs: Logs, transaction: Transaction) -> Iterator[Violation]:
    """Check that a transaction is behind all that it was based on."""
    for commit in logs.labelled.get(transaction.label, []):
        branch = logs.branches[commit.branch]
        bases = [transaction.base, *[o.snapshot for o in transaction.operations if isinstance(o, Rebase)]]
        for base in bases:
            if min(branch.places(id_bytes(base)), default=0) >= branch.made(commit.id):
                yield Violation(_RULE, f"it stands before its base {base}", transaction.label)
