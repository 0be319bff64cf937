"""Rule "isolation": of two transactions with concurrent bases, the first committer wins.

A transaction is concurrent with every commit between its base and its place in the log.  What it changes must not be
what they have changed, unless a solver was told what to do about it; with no solver there must be no such commit.
Not taken as the same thing: attributes of an array and its chunks, growth of an array and its chunks, two appends
along one dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checker.applying import Touched
from tests.simulation.checker.arrays import array_of, reads_alike
from tests.simulation.checker.decoder import Commit
from tests.simulation.checker.effects import Effects
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.meant import Meant
from tests.simulation.checker.model import inside
from tests.simulation.checker.states import ARRAY, GROUP, above
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import Transaction

__all__ = ["concurrent_changes"]


def concurrent_changes(logs: Logs, transaction: Transaction, commit: Commit, meant: Meant) -> Iterator[Violation]:
    """Find what a transaction and others changed at the same time although nobody was told to allow it."""
    theirs, policy = meant.concurrent, meant.policy
    branch = logs.branches[commit.branch]
    end = branch.made(commit.id) - 1
    if branch.era(end + 1) != branch.era(meant.start, meant.base.id):
        yield Violation("isolation", "its branch was reset between its base and its commit", transaction.label)
        return
    if end == meant.start:
        return
    others = logs.labels(commit.branch, meant.start, end)
    if policy.alone:
        what = f"it has no solver, and was committed over {others}"
        yield Violation("isolation", what, transaction.label)
        return
    if policy.custom:
        return  # the content says whether what the solver answered is what came out
    found = [*_structure(meant, commit, theirs)]
    if not policy.chunks:
        found += _chunks(meant.effects, theirs)
    if not policy.delete_array:
        found += _deletions(meant.effects, theirs, groups=False)
    if not policy.delete_group:
        found += _deletions(meant.effects, theirs, groups=True)
        found += _filled(meant, commit, theirs)
    for what in found:
        yield Violation("isolation", f"{what}; it was committed over {others}", transaction.label)


def _name(effects: Effects, identifier: bytes) -> str:
    node = effects.base.by_id(identifier)
    return repr("/" + node.path) if node is not None else "a node"


def _chunks(effects: Effects, theirs: Touched) -> Iterator[str]:
    for identifier, coords in theirs.chunks.items():
        both = coords & effects.chunks.get(identifier, {}).keys()
        cut = effects.cuts.get(identifier)
        both |= {c for c in coords if cut is not None and not inside(c, cut)}
        if both:
            yield f"both wrote chunks {sorted(both)[:3]} of {_name(effects, identifier)}"


def _structure(meant: Meant, commit: Commit, theirs: Touched) -> Iterator[str]:
    """Find what no built-in solver decides."""
    effects = meant.effects
    for identifier in effects.changed & theirs.deleted:
        yield f"it changed {_name(effects, identifier)}, which was deleted"
    for identifier in effects.moves.keys() & (theirs.moved | theirs.deleted):
        yield f"both moved {_name(effects, identifier)}, or it was deleted"
    for identifier in effects.documents:
        if identifier in theirs.updated or (identifier in theirs.appended and identifier not in effects.plain):
            yield f"both changed the metadata of {_name(effects, identifier)}"
        elif theirs.chunks.get(identifier) and _reshapes(effects, identifier):
            yield f"it changed how chunks of {_name(effects, identifier)} are read, of which others wrote some"
    for identifier in effects.chunks.keys() & theirs.reshaped:
        yield f"it wrote chunks of {_name(effects, identifier)}, which others made to be read otherwise"
    yield from _appends(meant, commit, theirs)


def _reshapes(effects: Effects, identifier: bytes) -> bool:
    node = effects.base.by_id(identifier)
    if node is None or node.kind != ARRAY:
        return False
    merged = {**node.documents, **effects.documents[identifier]}
    return not reads_alike(node.documents, {name: text for name, text in merged.items() if text is not None})


def _appends(meant: Meant, commit: Commit, theirs: Touched) -> Iterator[str]:
    for identifier, append in meant.effects.appends.items():
        was, now = meant.base.by_id(identifier), commit.before.by_id(identifier)
        if was is None or now is None or identifier not in theirs.nodes:
            continue
        other = theirs.appended.get(identifier, append.axis)
        old, new = array_of(was.documents).shape, array_of(now.documents).shape
        others = any(a != b for i, (a, b) in enumerate(zip(old, new, strict=True)) if i != append.axis)
        if identifier in theirs.reshaped or other != append.axis or others:
            yield f"it appended to {_name(meant.effects, identifier)}, whose shape others changed otherwise"


def _deletions(effects: Effects, theirs: Touched, *, groups: bool) -> Iterator[str]:
    for identifier in effects.deleted & theirs.nodes:
        node = effects.base.by_id(identifier)
        if node is not None and (node.kind == GROUP) == groups and identifier not in theirs.deleted:
            yield f"it deleted {'/' + node.path!r}, which others changed"


def _filled(meant: Meant, commit: Commit, theirs: Touched) -> Iterator[str]:
    effects = meant.effects
    groups = {
        node.path: i for i in effects.deleted if (node := effects.base.by_id(i)) is not None and node.kind == GROUP
    }
    for identifier in theirs.created | theirs.moved:
        node = commit.before.by_id(identifier)
        if node is None or identifier in effects.leaving:
            continue
        path = next((p for p in above(node.path) if p in groups), None)
        if path is None:
            continue
        there = commit.before.nodes.get((path, False))
        if there is None or there.id == groups[path]:
            yield f"it deleted {'/' + path!r}, into which others put {'/' + node.path!r}"
