"""Rule "repeats": what is appended as unique was not there before, and nobody is refused for what is not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.simulation.checker.arrays import integers
from tests.simulation.checker.decoder import Commit
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.meant import Replay
from tests.simulation.checker.model import ModelError
from tests.simulation.checker.states import Node, Snapshot
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Append, Observations, Refused, Repeated, Transaction

__all__ = ["wrong_repeats"]

_RULE = "repeats"


def _values(node: Node | None) -> set[int]:
    return set() if node is None else integers(node.chunks.values())


def wrong_repeats(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Check every commit that appended unique values, and everybody who was told that they are there."""
    for transaction in notes.transactions.values():
        for commit in logs.labelled.get(transaction.label, []):
            yield from _twice(transaction, commit)
        yield from _refused(logs, transaction)
    for seen in notes.seen:
        if isinstance(seen, Repeated):
            yield from _told(logs, notes.transactions[seen.transaction], seen)


def _unique(transaction: Transaction) -> Iterator[Append]:
    return (each for each in transaction.operations if isinstance(each, Append) and each.unique)


def _twice(transaction: Transaction, commit: Commit) -> Iterator[Violation]:
    """Find values that came a second time."""
    for identifier in commit.touched.appended:
        node = commit.after.by_id(identifier)
        own = {v for each in _unique(transaction) if node and each.path == node.path for v in each.unique}
        again = own and own & _values(commit.before.by_id(identifier))
        if again:
            yield Violation(_RULE, f"it appended {sorted(again)}, which were there before it", transaction.label)


def _told(logs: Logs, transaction: Transaction, seen: Repeated) -> Iterator[Violation]:
    """Check that a session that was told so at once had the values."""
    replay = Replay(logs, transaction)
    try:
        replay.to(seen.position)
    except ModelError:
        return  # the content tells
    there = _values(replay.view.nodes.get((seen.path, False)))
    if not replay.guessed and not there & set(seen.values):
        what = f"it was told that {list(seen.values)} are there, and there is {sorted(there)}"
        yield Violation(_RULE, what, transaction.label)


def _refused(logs: Logs, transaction: Transaction) -> Iterator[Violation]:
    """Check that who was refused because of values met a snapshot that has them."""
    outcome = transaction.outcome
    kinds = {kind for kind, _ in outcome.conflicts} if isinstance(outcome, Refused) else set()
    log = logs.branches.get(transaction.branch)
    if kinds != {"DuplicateAppend"} or log is None:
        return
    wanted = {value for each in _unique(transaction) for value in each.unique}
    if not any(_has(state, transaction, wanted) for state in [*log.states, *_within(logs, transaction)]):
        what = f"it was refused because of {sorted(wanted)}, which are in no snapshot of its branch"
        yield Violation(_RULE, what, transaction.label)


def _within(logs: Logs, transaction: Transaction) -> Iterable[Snapshot]:
    return (commit.after for commit in logs.branches[transaction.branch].commits)


def _has(snapshot: Snapshot, transaction: Transaction, wanted: set[int]) -> bool:
    return any(_values(snapshot.nodes.get((each.path, False))) & wanted for each in _unique(transaction))
