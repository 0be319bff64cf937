"""From what a transaction was noted to do to the changes that its commit may consist of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.simulation.checker.applying import Touched
from tests.simulation.checker.arrays import array_of
from tests.simulation.checker.decoder import Commit
from tests.simulation.checker.decoding import Cells, Coords
from tests.simulation.checker.effects import Effects, effects_of
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.model import End, ModelError, View, inside
from tests.simulation.checker.states import Snapshot
from tests.simulation.observations import Merge, Rebase, Refused, Solver, Transaction

__all__ = ["Meant", "Policy", "Replay", "meant_by", "merges_for"]


@dataclass(frozen=True)
class Policy:
    """What solvers were told to allow, together.

    Parameters
    ----------
    alone
        No solver at all: nobody else may have committed.
    chunks
        Which of ``ours`` and ``theirs`` may win.
    delete_array, delete_group
        Whether nodes may be deleted that others have changed.
    custom
        Whether somebody's own solver had a say.
    deleted_twice
        Whether what others have deleted may be deleted again.
    """

    alone: bool
    chunks: frozenset[str]
    delete_array: bool
    delete_group: bool
    custom: bool
    deleted_twice: bool

    @classmethod
    def of(cls, solvers: Iterable[Solver]) -> Policy:
        """Return what solvers allow."""
        found = list(solvers)
        basic = [solver for solver in found if solver.kind == "basic"]
        return cls(
            all(solver.kind == "none" for solver in found),
            frozenset(solver.on_chunk_conflict for solver in basic) - {"fail"},
            any(not solver.fail_on_delete_of_updated_array for solver in basic),
            any(not solver.fail_on_delete_of_updated_group for solver in basic),
            any(solver.kind == "custom" for solver in found),
            bool(basic),
        )


@dataclass
class Meant:
    """What a commit is to consist of.

    Parameters
    ----------
    effects
        Its changes, without those of chunks that were to yield to others.
    base
        Snapshot that they were made on: that of the last rebase.
    start
        Place of the base in the log.
    policy
        What the solvers of its commit allow.
    concurrent
        What was committed between base and commit.
    """

    effects: Effects
    base: Snapshot
    start: int
    policy: Policy
    concurrent: Touched


class Replay:
    """The operations of a transaction, made again one after the other as its session saw them.

    Parameters
    ----------
    logs
        Of the repository.
    transaction
        Whose operations.
    before
        Place of the log before which its base is, and all that it was rebased to: that of its commit.

    Attributes
    ----------
    view
        What the session sees.
    base, start
        The snapshot that it is based on, and its place in the log.
    guessed
        Whether a custom solver has had a say in a rebase, so that the view may be another one.
    """

    def __init__(self, logs: Logs, transaction: Transaction, before: int | None = None) -> None:
        self._logs = logs
        self._transaction = transaction
        self._done = 0
        bases = [transaction.base, *[o.snapshot for o in transaction.operations if isinstance(o, Rebase)]]
        self._places = _placed(logs, transaction, bases, before)
        self.base, self.start = self._find(transaction.base)
        self.view = View(self.base, transaction.label)
        self.guessed = False

    def to(self, position: int) -> None:
        """Go on to where so many operations have been made; raises `ModelError` where one cannot have been made."""
        for operation in self._transaction.operations[self._done : position]:
            if isinstance(operation, Rebase):
                self._rebase(operation)
            else:
                self.view.apply(operation)
        self._done = max(self._done, position)

    def _find(self, text: str) -> tuple[Snapshot, int]:
        found = self._logs.branches[self._transaction.branch].snapshot(id_bytes(text))
        assert found is not None
        return found, self._places.pop(0)

    def _rebase(self, operation: Rebase) -> None:
        newer, at = self._find(operation.snapshot)
        if at < self.start:
            raise ModelError(f"its rebase goes back to {operation.snapshot}")
        concurrent = self._logs.between(self._transaction.branch, self.start, at)
        policy = Policy.of([operation.solver])
        answers = [merge for merge in self._transaction.merges if id_bytes(merge.theirs) == newer.id]
        self.view = _rebased(self.view, newer, policy, concurrent, answers)
        self.base, self.start = newer, at
        self.guessed |= policy.custom


def _placed(logs: Logs, transaction: Transaction, bases: list[str], before: int | None) -> list[int]:
    """Return the places of what a transaction was based on, one after the other: the last ones that are possible.

    A branch that was reset stands at a snapshot twice.
    """
    branch = logs.branches.get(transaction.branch)
    found: list[int] = []
    limit = before
    for text in reversed(bases):
        places = [] if branch is None else branch.places(id_bytes(text))
        if not places:
            raise ModelError(f"its base {text} is none of branch {transaction.branch!r}")
        assert branch is not None
        fitting = [place for place in places if limit is None or place <= limit]
        if len(found) == len(bases) - 1:  # the base itself: what the branch was reset to later, it was not
            known = [at for at in fitting if logs.begun(branch, at, id_bytes(text)) <= transaction.opened]
            fitting = known or fitting
        if not fitting and found:
            raise ModelError(f"its rebase goes back, from {text}")
        limit = fitting[-1] if fitting else places[0]
        found.insert(0, limit)
    return found


def meant_by(logs: Logs, transaction: Transaction, commit: Commit) -> Meant:
    """Return what a transaction meant to commit.

    Raises
    ------
    ModelError
        If its operations cannot have been made.
    """
    end = logs.branches[commit.branch].made(commit.id) - 1
    replay = Replay(logs, transaction, end)
    replay.to(len(transaction.operations))
    if commit.branch != transaction.branch or replay.start > end:
        raise ModelError(f"its base is not before it on branch {commit.branch!r}")
    deciding = [attempt.solver for attempt in transaction.attempts if not isinstance(attempt.outcome, Refused)]
    concurrent = logs.between(commit.branch, replay.start, end)
    effects, policy = effects_of(replay.view), Policy.of(deciding)
    if "theirs" in policy.chunks:
        effects = effects.without_chunks(concurrent)
    return Meant(effects, replay.base, replay.start, policy, concurrent)


def _rebased(view: View, newer: Snapshot, policy: Policy, concurrent: Touched, merges: Iterable[Merge]) -> View:
    """Return a session's view after a rebase: the same changes, on top of another snapshot."""
    effects = effects_of(view)
    if "theirs" in policy.chunks:
        effects = effects.without_chunks(concurrent)
    if policy.custom:
        effects = _merged(effects, newer, concurrent, merges)
    state, _ = effects.onto(newer, forced=policy.delete_group)
    result = View(newer, view.label)
    result.follow(view)
    result.state = state
    result.written = {node: dict(cells) for node, cells in effects.chunks.items() if node in state.keys}
    for identifier, cut in effects.cuts.items():
        kept = state.by_id(identifier)
        own = result.written.get(identifier, {})
        if kept is None:
            continue
        if all(inside(coords, cut) or coords in own for coords in kept.chunks):
            result.cuts[identifier] = cut
        else:  # a solver has left to others some of what was cut off; the rest stays deleted
            before = newer.by_id(identifier)
            there = () if before is None else before.chunks
            gone: Cells = {c: None for c in there if not inside(c, cut) and c not in kept.chunks}
            result.written[identifier] = gone | own
    for identifier, append in effects.appends.items():
        node = newer.by_id(identifier)
        if node is not None:
            array = array_of(node.documents)
            length = array.shape[append.axis]
            shift = append.shift(length, len(array.shape))
            moved = {tuple(map(sum, zip(c, shift, strict=True))): data for c, data in append.cells.items()}
            result.written.setdefault(identifier, {}).update(moved)
            result.ends[identifier] = End(append.axis, length)
    for identifier, end in view.ends.items():
        if identifier in newer.keys and identifier in state.keys:
            result.ends.setdefault(identifier, end)
    return result


def _merged(effects: Effects, newer: Snapshot, concurrent: Touched, merges: Iterable[Merge]) -> Effects:
    """Return the changes with what a custom solver answered when it was shown the newer snapshot as theirs."""
    answers: dict[tuple[str, Coords], bytes | None] = {(m.path.strip("/"), m.coords): m.data for m in merges}
    chunks = {identifier: dict(cells) for identifier, cells in effects.chunks.items()}
    spared: dict[bytes, set[Coords]] = {}
    for identifier, theirs in concurrent.chunks.items():
        node, cut = newer.by_id(identifier), effects.cuts.get(identifier)
        own = chunks.setdefault(identifier, {})
        for coords in theirs:
            key = "" if node is None else node.path, coords
            if key not in answers or (coords not in own and (cut is None or inside(coords, cut))):
                continue
            if answers[key] is None:
                own.pop(coords, None)
                spared.setdefault(identifier, set()).add(coords)
            else:
                own[coords] = answers[key]
    return replace(effects, chunks={i: cells for i, cells in chunks.items() if cells}, spared=spared)


def merges_for(logs: Logs, merges: Iterable[Merge], node: bytes, coords: Coords) -> list[Merge]:
    """Return what a custom solver answered about a chunk of a node, wherever that was when it was asked."""
    return [merge for merge in merges if merge.coords == coords and _is_about(logs, merge, node)]


def _is_about(logs: Logs, merge: Merge, node: bytes) -> bool:
    shown = logs.snapshot(merge.theirs)
    there = None if shown is None else shown.by_id(node)  # by its path there may be a file and something else
    return there is not None and there.path == merge.path.strip("/")
