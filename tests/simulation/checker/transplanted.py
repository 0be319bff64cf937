"""What undoes the change of a snapshot, or makes it once more: a merge of three snapshots, thing by thing.

The change leads from one snapshot to another.  Of each thing that it changes, a branch has what was there before it
(then it gets what was there after it), or has that already (then nothing is done), or has something else, which is a
collision.  Things are places, metadata and chunks of nodes; what only the branch has, and what the change leaves as it
is, stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from tests.simulation.checker.arrays import array_of, reads_alike, same_json
from tests.simulation.checker.branches import Branch, Commit
from tests.simulation.checker.content import differences
from tests.simulation.checker.decoding import Coords, id_text
from tests.simulation.checker.effects import Effects, moves_between
from tests.simulation.checker.lifetimes import Lifetimes
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.meant import Meant, Policy
from tests.simulation.checker.model import ModelError
from tests.simulation.checker.states import ARRAY, Node, Nodes, Snapshot
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Refused, Solver, Transaction

__all__ = ["groundless_transplants", "transplanted"]

_DECIDED = frozenset({"ChunkDoubleUpdate", "ZarrMetadataDoubleUpdate"})
"""Conflicts of which this module knows for certain whether there is one."""


@dataclass
class _Change:
    """A change as it would be made to one snapshot of a branch.

    Parameters
    ----------
    effects
        What it does there.
    collisions
        What stands in the way.
    """

    effects: Effects
    collisions: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done."""
        done = self.effects
        return not (done.created or done.deleted or done.moves or done.documents or done.chunks or self.collisions)


def ends_of(logs: Logs, transaction: Transaction) -> tuple[Snapshot, Snapshot] | None:
    """Return from where to where the change leads; None if the snapshot, or the one before it, is in no log."""
    wanted = transaction.transplants
    assert wanted is not None
    made = logs.snapshot(wanted.snapshot)
    parent = None if made is None or made.parent is None else logs.by_id(made.parent)
    if made is None or parent is None:
        return None
    return (made, parent) if wanted.way == "revert" else (parent, made)


def transplanted(logs: Logs, transaction: Transaction, commit: Commit, lifetimes: Lifetimes) -> Meant:
    """Return what a commit that undoes or repeats another one is to consist of.

    It was worked out on one of the snapshots that the branch has had since it was asked for, and then put on top of
    what others committed meanwhile, none of which may touch the same things.

    Raises
    ------
    ModelError
        If it fits none of them.
    """
    ends = ends_of(logs, transaction)
    if ends is None:
        raise ModelError("nobody ever had the snapshot that it is about, or the one before that")
    log = logs.branches[commit.branch]
    found: Meant | None = None
    collisions: list[str] = []
    for number in _seen(log, lifetimes, transaction, commit.number - 1):
        change = _change(*ends, log.states[number], transaction.label)
        if change.collisions:
            collisions = change.collisions
        elif not change.empty:
            found = _on_top(logs, commit, number, change)
            if _fits(found, commit):
                return found
    if found is None:
        raise ModelError(f"there was nothing that it could do: {', '.join(collisions) or 'it was done already'}")
    return found


def _seen(log: Branch, lifetimes: Lifetimes, transaction: Transaction, last: int) -> range:
    """Return the records that may have been the newest one when somebody looked, the newest one first."""
    first = lifetimes.newest(log.name, transaction.began - lifetimes.lag) if lifetimes.moments else 0
    return range(last, min(first, last) - 1, -1)


def _on_top(logs: Logs, commit: Commit, number: int, change: _Change) -> Meant:
    log = logs.branches[commit.branch]
    start = log.after(number)
    concurrent = logs.between(log.name, start, log.made(commit.id) - 1)
    return Meant(change.effects, log.states[number], start, Policy.of([Solver("detector")]), concurrent)


def _fits(meant: Meant, commit: Commit) -> bool:
    expected, problems = meant.effects.onto(commit.before, forced=False)
    return not problems and not any(True for _ in differences(expected, commit.after, commit.touched.created))


def _change(start: Snapshot, end: Snapshot, tip: Snapshot, label: str) -> _Change:
    """Work out what makes the change from one snapshot to another to a third one."""
    return _Merge(start, end, tip, label).change


class _Merge:
    def __init__(self, start: Snapshot, end: Snapshot, tip: Snapshot, label: str) -> None:
        self.start, self.end, self.tip, self.label = start, end, tip, label
        self.change = _Change(Effects(tip))
        self._delete()
        self._move()
        self._create()
        for was in start.nodes.values():
            now = end.by_id(was.id)
            if now is not None:
                self._update(was, now)
                self._write(was, now)

    def _twin(self, node: Node) -> Node | None:
        """Return the node of the branch that is one of the change's, or stands in its place there."""
        same = self.tip.by_id(node.id)
        if same is not None:
            return same
        there = self.tip.nodes.get((self.start.by_id(node.id) or node).key)
        known = there is not None and (there.id in self.start.keys or there.id in self.end.keys)
        return there if there is not None and not known and _stand_in(there, node) else None

    def _collide(self, what: str, node: Node) -> None:
        self.change.collisions.append(f"{what} {'/' + node.path!r}")

    def _delete(self) -> None:
        for node in self.start.nodes.values():
            if node.id in self.end.keys:
                continue
            twin, next_one = self._twin(node), self.end.nodes.get(node.key)
            if twin is None or (twin.id != node.id and next_one is not None and _same(twin, next_one)):
                continue
            if _same(twin, node):
                self.change.effects.deleted.add(twin.id)
            else:
                self._collide("deletes, though it is another one by now,", node)

    def _move(self) -> None:
        for identifier, target in moves_between(self.start, Nodes(self.end.nodes, self.end.keys)).items():
            was = self.start.by_id(identifier)
            assert was is not None
            twin = self._twin(was)
            if twin is not None and twin.path == was.path:
                self.change.effects.moves[twin.id] = target
            elif twin is None or twin.path != target:
                self._collide("moves, though it is somewhere else by now,", was)

    def _create(self) -> None:
        created = self.change.effects.created
        for node in sorted(self.end.nodes.values(), key=lambda node: node.path):
            if node.id in self.start.keys:
                continue
            twin = self._twin(node)
            if twin is None or twin.id in self.change.effects.deleted:
                identifier = f"created by {self.label} as number {len(created)}".encode()
                created.append(Node(identifier, node.path, node.kind, node.documents, (), node.chunks))
            elif not _same(twin, node):
                self._collide("creates, though there is another one,", node)

    def _update(self, was: Node, now: Node) -> None:
        twin = self._twin(now)
        if _alike(was, now):
            return
        if twin is None or not (_alike(twin, was) or _alike(twin, now)):
            self._collide("changes the metadata, which is another one by now, of", was)
        elif not _alike(twin, now):
            names = twin.documents.keys() | now.documents.keys()
            changed = {n: now.documents.get(n) for n in names if twin.documents.get(n) != now.documents.get(n)}
            self.change.effects.documents[twin.id] = changed
            if now.kind == ARRAY and not reads_alike(was.documents, now.documents):
                self._reread(was, now, twin)
            elif now.kind == ARRAY and array_of(twin.documents).shape == array_of(now.documents).shape:
                self.change.effects.plain.add(twin.id)

    def _reread(self, was: Node, now: Node, twin: Node) -> None:
        """Find chunks of the branch that the metadata to come says nothing right of."""
        if any(twin.chunks.get(c) != now.chunks.get(c) for c in _unlike(was, twin)):
            self._collide("changes how chunks are read, of which there are others by now, of", was)

    def _write(self, was: Node, now: Node) -> None:
        cells = _unlike(was, now)
        twin = self._twin(now)
        if not cells:
            return
        if twin is None:
            self._collide("writes chunks of what is gone,", was)
        elif _alike(was, now) and was.kind == ARRAY and not reads_alike(was.documents, twin.documents):
            self._collide("writes chunks that are read otherwise by now, of", was)
        elif any(twin.chunks.get(c) not in (was.chunks.get(c), now.chunks.get(c)) for c in cells):
            self._collide("writes chunks that are others by now, of", was)
        else:
            free = {c: now.chunks.get(c) for c in cells if twin.chunks.get(c) == was.chunks.get(c)}
            if free:
                self.change.effects.chunks[twin.id] = free


def _unlike(one: Node, other: Node) -> set[Coords]:
    return {c for c in one.chunks.keys() | other.chunks.keys() if one.chunks.get(c) != other.chunks.get(c)}


def _stand_in(there: Node, node: Node) -> bool:
    """Tell whether one node may stand for another one: of the same kind, with as many dimensions."""
    if there.kind != node.kind:
        return False
    return there.kind != ARRAY or len(array_of(there.documents).shape) == len(array_of(node.documents).shape)


def _alike(one: Node, other: Node) -> bool:
    """Tell whether two nodes have the same metadata."""
    first, second = one.documents, other.documents
    return first.keys() == second.keys() and all(same_json(first[name], second[name]) for name in first)


def _same(one: Node, other: Node) -> bool:
    return one.path == other.path and _alike(one, other) and one.chunks == other.chunks


# -- refusals ---------------------------------------------------------------------------------------------------------


def groundless_transplants(logs: Logs, transaction: Transaction, lifetimes: Lifetimes) -> Iterator[Violation]:
    """Find refusals to undo or to repeat a snapshot for which nothing gave a reason."""
    outcome = transaction.outcome
    ended = transaction.attempts[-1].ended if transaction.attempts else None
    log = logs.branches.get(transaction.branch)
    if not isinstance(outcome, Refused) or ended is None or log is None:
        return
    if outcome.error in ("SnapshotNotFoundError", "SnapshotExpiredError"):
        if not _may_be_gone(logs, lifetimes, transaction, ended):
            yield _groundless(transaction, outcome)
        return
    ends = ends_of(logs, transaction)
    if ends is None or not lifetimes.moments:
        return
    last = lifetimes.newest(log.name, ended)
    changes = [_change(*ends, log.states[n], transaction.label) for n in _seen(log, lifetimes, transaction, last)]
    kinds = {kind for kind, _ in outcome.conflicts}
    if outcome.error == "InvalidInputError" and not any(change.empty for change in changes):
        yield _groundless(transaction, outcome)
    alone = len({state.id for state in log.states[last - len(changes) + 1 : last + 1]}) == 1
    decided = kinds <= _DECIDED and alone and not changes[0].collisions
    if outcome.error == "RebaseFailedError" and decided:
        yield _groundless(transaction, outcome)


def _groundless(transaction: Transaction, outcome: Refused) -> Violation:
    kinds = ", ".join(f"{kind} {path}" for kind, path in outcome.conflicts)
    return Violation("commits", f"it was refused with {outcome.error} {kinds}, for no reason", transaction.label)


def _may_be_gone(logs: Logs, lifetimes: Lifetimes, transaction: Transaction, ended: float) -> bool:
    """Tell whether the snapshot, or the one before it, may have been gone, or not yet be listed."""
    wanted = transaction.transplants
    assert wanted is not None
    made = logs.snapshot(wanted.snapshot)
    needed = [id_bytes(wanted.snapshot), *([] if made is None or made.parent is None else [made.parent])]
    unlisted = any(lifetimes.may_be_unlisted(id_text(each), transaction.began) for each in needed)
    return unlisted or any(lifetimes.lapsed.get(each, inf) <= ended for each in needed)
