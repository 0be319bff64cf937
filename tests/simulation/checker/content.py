"""Rule "content": a snapshot is the one before it with what its transaction meant on top, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.checker.applying import Touched
from tests.simulation.checker.arrays import same_json
from tests.simulation.checker.decoder import Commit
from tests.simulation.checker.decoding import Coords
from tests.simulation.checker.logs import Logs, short
from tests.simulation.checker.meant import Meant, merges_for
from tests.simulation.checker.states import Node, Nodes, Snapshot
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Merge, Transaction

__all__ = ["Difference", "differences", "wrong_content"]

_REAL = 12


@dataclass(frozen=True)
class Difference:
    """One thing that a snapshot has otherwise than expected.

    Parameters
    ----------
    node
        Id in the snapshot, or as expected.
    path
        Of the node.
    what
        Name of a document, coordinates of a chunk; None for the node itself.
    expected, found
        Bytes, or descriptions of nodes.
    """

    node: bytes
    path: str
    what: str | Coords | None
    expected: bytes | None
    found: bytes | None

    def __str__(self) -> str:
        name = f"node {'/' + self.path!r}"
        if self.what is not None:
            name = f"document {self.what!r} of {name}" if isinstance(self.what, str) else f"chunk {self.what} of {name}"
        return f"{name} is {short(self.found)}, not {short(self.expected)}"


def differences(expected: Nodes, found: Snapshot, created: set[bytes]) -> Iterator[Difference]:
    """Return everything that a snapshot has otherwise than expected.

    Parameters
    ----------
    expected
        What it should be; nodes that have just been created may have any id.
    found
        What it is.
    created
        Ids that its transaction created.
    """
    for key in expected.nodes.keys() | found.nodes.keys():
        wanted, there = expected.nodes.get(key), found.nodes.get(key)
        if wanted is there:
            continue
        if wanted is None or there is None or not _same_node(wanted, there, created):
            some = there or wanted
            assert some is not None
            yield Difference(some.id, key[0], None, _description(wanted), _description(there))
        else:
            yield from _within(wanted, there)


def _same_node(wanted: Node, there: Node, created: set[bytes]) -> bool:
    same = wanted.id == there.id if len(wanted.id) == _REAL else there.id in created
    return same and wanted.kind == there.kind


def _description(node: Node | None) -> bytes | None:
    if node is None:
        return None
    kind = ("a group", "an array", "a file")[node.kind]
    return (kind + " " + (node.id.hex() if len(node.id) == _REAL else node.id.decode())).encode()


def _within(wanted: Node, there: Node) -> Iterator[Difference]:
    for name in wanted.documents.keys() | there.documents.keys():
        first, second = wanted.documents.get(name), there.documents.get(name)
        if first != second and (first is None or second is None or not same_json(first, second)):
            yield Difference(there.id, there.path, name, first, second)
    if wanted.chunks == there.chunks:
        return
    for coords in sorted(wanted.chunks.keys() | there.chunks.keys()):
        if wanted.chunks.get(coords) != there.chunks.get(coords):
            yield Difference(there.id, there.path, coords, wanted.chunks.get(coords), there.chunks.get(coords))


def wrong_content(logs: Logs, transaction: Transaction, commit: Commit, meant: Meant) -> Iterator[Violation]:
    """Check the snapshot of one commit against the one before it and what its transaction meant."""
    policy = meant.policy
    expected, problems = meant.effects.onto(commit.before, forced=policy.delete_group or policy.custom)
    allowed = _Allowed(logs, transaction, commit, meant.concurrent, policy.custom)
    for problem in problems:
        if not (policy.custom or (policy.deleted_twice and problem.startswith("deletes "))):
            yield Violation("content", f"it {problem}", transaction.label)
    for difference in differences(expected, commit.after, commit.touched.created):
        if not allowed.by_solver(difference):
            yield Violation("content", f"after it {difference}", transaction.label)
    if policy.custom:
        yield from allowed.unmerged()


@dataclass(frozen=True)
class _Allowed:
    """What a custom solver may have made of a commit."""

    logs: Logs
    transaction: Transaction
    commit: Commit
    concurrent: Touched
    custom: bool

    def by_solver(self, difference: Difference) -> bool:
        """Tell whether a difference is one of theirs, or a merged one, where both had changed something."""
        if not self.custom:
            return False
        node, what = difference.node, difference.what
        before = self.commit.before.by_id(node)
        if what is None:
            return bool(self.concurrent.created | self.concurrent.moved | self.concurrent.deleted)
        if isinstance(what, str):
            theirs = None if before is None else before.documents.get(what)
            return node in self.concurrent.nodes and difference.found == theirs
        if before is None or what not in self.concurrent.chunks.get(node, ()):
            return False
        if what not in self.commit.touched.chunks.get(node, ()):
            return any(m.data is None for m in merges_for(self.logs, self.transaction.merges, node, what))  # given up
        answers = self.answers(before, what)
        return difference.found in {before.chunks.get(what) if data is None else data for data in answers}

    def answers(self, before: Node, coords: Coords) -> set[bytes | None]:
        """Return what the solver answered about a chunk when it was shown what is there now."""
        merges = merges_for(self.logs, self.transaction.merges, before.id, coords)
        return {merge.data for merge in merges if self._current(merge, before, coords)}

    def _current(self, merge: Merge, before: Node, coords: Coords) -> bool:
        shown = self.logs.snapshot(merge.theirs)
        node = None if shown is None else shown.by_id(before.id)
        return node is not None and node.chunks.get(coords) == before.chunks.get(coords)

    def unmerged(self) -> Iterator[Violation]:
        """Find chunks that both wrote, of which the solver's answer did not come about."""
        for identifier, coords in self.concurrent.chunks.items():
            before, after = self.commit.before.by_id(identifier), self.commit.after.by_id(identifier)
            if before is None or after is None:
                continue
            for cell in coords & self.commit.touched.chunks.get(identifier, set()):
                answers = {before.chunks.get(cell) if a is None else a for a in self.answers(before, cell)}
                if answers and after.chunks.get(cell) not in answers:
                    what = f"chunk {cell} of {'/' + after.path!r} is none of what its solver answered"
                    yield Violation("content", what, self.transaction.label)
