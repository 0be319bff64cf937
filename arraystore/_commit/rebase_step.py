"""The rebase gate: one transaction against what was committed since its base.

Whoever puts a transaction on a newer record asks here: the queue of a process, `Session.rebase`, and the leader of a
queue of intents.  Nothing is read or written.  What differs between them is a value, or left to them:

* The *passage*.  The owner of a transaction lays all records since its base together, so that what was created and
  deleted again is in nobody's way.  An intent is checked against one record after the other, so that every leader
  decides alike, whatever tip it knows.
* `may_rebase`.  A commit without a solver, an amendment, and one whose tries are used up end where others commit.
  Whatever is proposed may be rebased.
* Where changed documents go (`OnTop.nodes`).  The owner of a transaction may write an object for them.  A leader that
  commits for others may not, and refuses what would take one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from arraystore._changes.read_set import ReadSet
from arraystore._commit.admission import crosses, crossing_error, objection
from arraystore._commit.conflict_detection import Ours, detect, keeps_shape
from arraystore._commit.prepare import Prepared
from arraystore._conflicts import Conflict
from arraystore._format.ids import id_to_text
from arraystore._format.node import NodeKind
from arraystore._format.record import Commit
from arraystore._format.transaction import NodeChange, Operation
from arraystore._format.zarr_changes import same_shape, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._log.footprint import Footprint, footprint_of
from arraystore._log.loading import Passed, Step
from arraystore._log.state import State
from arraystore.errors import ArrayStoreError, ConflictError

__all__ = [
    "Conflicts",
    "Invalid",
    "OnTop",
    "Passage",
    "PendingTransaction",
    "adapt_node_change",
    "adapt_node_changes",
    "find_conflicts",
    "is_guarded",
    "rebase_over",
    "step",
]


@dataclass(frozen=True, eq=False)
class PendingTransaction:
    """A transaction that is to be committed, by its owner or by the leader of a queue of intents.

    Parameters
    ----------
    prepared
        The changes; other ones, under the same id, once it was rebased.
    reads
        What it depends on, where it is serializable.
    guard
        Arrays to which, if others have appended, its owner wants to look before it goes on.
    """

    prepared: Prepared
    reads: ReadSet | None = None
    guard: frozenset[bytes] = frozenset()

    @cached_property
    def ours(self) -> Ours:
        """The changes as conflicts are detected for them."""
        return Ours.of(self.prepared)


@dataclass(frozen=True, eq=False)
class Passage:
    """Neighbouring records, and the snapshots before and after them."""

    before: State
    records: Sequence[Passed]
    after: State

    @classmethod
    def of(cls, step: Step) -> Passage:
        """Return the passage of one record."""
        return cls(step.before, (step.passed,), step.after)

    @classmethod
    def at(cls, state: State) -> Passage:
        """Return the passage without any record."""
        return cls(state, (), state)

    @property
    def commits(self) -> bool:
        """Whether data may have changed: entries of other kinds change none."""
        return any(isinstance(each.entry, Commit) for each in self.records)

    @cached_property
    def footprint(self) -> Footprint:
        """The changes of the transactions."""
        return footprint_of(self.before, [item for each in self.records for item in each.transactions])

    @cached_property
    def ids(self) -> frozenset[bytes]:
        """Transactions that are committed."""
        return frozenset(item.id for each in self.records for item, _, _ in each.transactions)

    @cached_property
    def refused(self) -> frozenset[bytes]:
        """Transactions that are refused."""
        entries = [each.entry for each in self.records]
        return frozenset(name for entry in entries if isinstance(entry, Commit) for name in entry.refused)


@dataclass(frozen=True)
class OnTop:
    """The transaction can be committed on top of the passage.

    Parameters
    ----------
    nodes
        Changes of nodes to commit in place of its own; None for its own.
    """

    nodes: Sequence[NodeChange] | None = None


@dataclass(frozen=True)
class Conflicts:
    """A solver has to decide; empty where only `PendingTransaction.guard` asks for a look."""

    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True)
class Invalid:
    """The transaction can never be committed behind the passage."""

    error: ArrayStoreError


def step(transaction: PendingTransaction, passage: Passage, *, may_rebase: bool = True) -> OnTop | Conflicts | Invalid:
    """Decide whether a transaction that was checked before a passage can be committed behind it.

    Who cannot commit whatever they change hear so first: nobody is asked to solve conflicts in vain.
    """
    before, after = passage.before, passage.after
    if any(crosses(each.entry) for each in passage.records):
        return Invalid(crossing_error(before, after))
    if passage.commits and not may_rebase:
        return Invalid(ConflictError(id_to_text(before.snapshot), id_to_text(after.snapshot), after.branch))
    error = objection(transaction.prepared, after)
    if error is not None:
        return Invalid(error)
    return rebase_over(transaction, passage.footprint, before, after) if passage.commits else OnTop()


def rebase_over(transaction: PendingTransaction, theirs: Footprint, before: State, after: State) -> OnTop | Conflicts:
    """Decide whether the data that others changed lets a transaction be committed on top."""
    conflicts = find_conflicts(transaction, theirs, before, after)
    if conflicts or is_guarded(transaction, theirs):
        return Conflicts(tuple(conflicts))
    return OnTop(adapt_node_changes(transaction.prepared, before, after))


def find_conflicts(transaction: PendingTransaction, theirs: Footprint, before: State, after: State) -> list[Conflict]:
    """Return every conflict of a transaction, those of what it has read included."""
    conflicts = detect(transaction.ours, theirs, before, after)
    return conflicts if transaction.reads is None else [*conflicts, *transaction.reads.collisions(theirs, before)]


def is_guarded(transaction: PendingTransaction, theirs: Footprint) -> bool:
    """Tell whether the owner of a transaction wants to look at what others did before it goes on."""
    guarded = [theirs.nodes[identifier] for identifier in transaction.guard & theirs.nodes.keys()]
    return any(node.appended or node.chunks for node in guarded)


def adapt_node_changes(prepared: Prepared, before: State, after: State) -> list[NodeChange] | None:
    """Return changes of nodes that fit a snapshot in which arrays were appended to; None if they fit as they are.

    An update carries whole documents, the shape included, which theirs may have let grow.
    """
    ours = Ours.of(prepared)
    nodes = [adapt_node_change(ours, change, before, after) for change in prepared.log.nodes]
    return nodes if any(a is not b for a, b in zip(nodes, prepared.log.nodes, strict=True)) else None


def adapt_node_change(ours: Ours, change: NodeChange, before: State, after: State) -> NodeChange:
    """Return an update of attributes with the shape that theirs has let grow; any other change as it is."""
    if change.operation != Operation.UPDATED or change.kind != NodeKind.ARRAY:
        return change
    now, was = after.by_id(change.id), before.by_id(change.id)
    if now is None or was is None or same_shape(was.documents, now.documents) or not keeps_shape(ours, before, change):
        return change
    documents = {name: text for name, text in change.documents.items() if text is not None}
    merged = {**now.documents, **documents}
    for axis, length in enumerate(array_info(now.documents).shape):
        merged = with_length(merged, axis, length)
    return replace(change, documents=change.documents | {name: merged[name] for name in documents})
