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
from functools import cached_property
from typing import TYPE_CHECKING

from arraystore._commit.fencing import admission_error
from arraystore._commit.prepared import Prepared
from arraystore._format.ids import NodeId, SnapshotId, id_to_text
from arraystore._format.lifecycle import Deleted, Reset
from arraystore._format.record import Birth, Body, Commit
from arraystore._format.transaction import NodeChange
from arraystore._log.footprint import Footprint, footprint_of
from arraystore._log.loading import Passed, Step
from arraystore._log.state import SnapshotState
from arraystore._log.status import branch_deleted_error
from arraystore._runtime import lazy_module
from arraystore._runtime.values import dataclass
from arraystore.errors import ArrayStoreError, ConflictError

if TYPE_CHECKING:
    from arraystore._changes.read_set import ReadSet
    from arraystore._commit import append_adaptation, conflict_detection
    from arraystore._commit.conflict_detection import Ours
    from arraystore._conflicts import Conflict
else:
    append_adaptation = lazy_module("arraystore._commit.append_adaptation")
    conflict_detection = lazy_module("arraystore._commit.conflict_detection")


@dataclass(frozen=True, eq=False)
class PendingTransaction:
    """Transaction to be committed, by its owner or by the leader of a queue of intents."""

    prepared: Prepared
    """Its changes, which a rebase replaces by others of the same id."""
    reads: ReadSet | None = None
    """Its read set, if it is serializable."""
    guard: frozenset[NodeId] = frozenset()
    """Arrays to which its owner looks before it goes on, if others have appended to them."""

    @cached_property
    def ours(self) -> Ours:
        """The changes as conflicts are detected for them."""
        return conflict_detection.Ours.of(self.prepared)


@dataclass(frozen=True, eq=False)
class Passage:
    """Neighbouring records, and the snapshots before and after them."""

    before: SnapshotState
    records: Sequence[Passed]
    after: SnapshotState

    @classmethod
    def of(cls, step: Step) -> Passage:
        """Return the passage of one record."""
        return cls(step.before, (step.passed,), step.after)

    @classmethod
    def at(cls, state: SnapshotState) -> Passage:
        """Return the passage without any record."""
        return cls(state, (), state)

    @property
    def commits(self) -> bool:
        """True if data may have changed: entries of other kinds change none."""
        return any(isinstance(each.entry, Commit) for each in self.records)

    @cached_property
    def footprint(self) -> Footprint:
        """The changes of the transactions."""
        return footprint_of(self.before, [item for each in self.records for item in each.transactions])

    @cached_property
    def ids(self) -> frozenset[SnapshotId]:
        """Transactions that are committed."""
        return frozenset(item.id for each in self.records for item, _, _ in each.transactions)

    @cached_property
    def refused(self) -> frozenset[SnapshotId]:
        """Transactions that are refused."""
        entries = [each.entry for each in self.records]
        return frozenset(name for entry in entries if isinstance(entry, Commit) for name in entry.refused)


@dataclass(frozen=True)
class OnTop:
    """The transaction can be committed on top of the passage."""

    nodes: Sequence[NodeChange] | None = None
    """Changes of nodes to commit in place of its own; None for its own."""


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
    if any(replaces_history(each.entry) for each in passage.records):
        return Invalid(replaced_history_error(before, after))
    if passage.commits and not may_rebase:
        return Invalid(ConflictError(id_to_text(before.snapshot), id_to_text(after.snapshot), after.branch))
    error = admission_error(transaction.prepared, after)
    if error is not None:
        return Invalid(error)
    return rebase_over(transaction, passage.footprint, before, after) if passage.commits else OnTop()


def replaces_history(entry: Body) -> bool:
    """Tell whether an entry takes the ground from under what was prepared before it."""
    return isinstance(entry, Birth | Reset | Deleted)


def replaced_history_error(base: SnapshotState, tip: SnapshotState) -> ArrayStoreError:
    """Return the error of a transaction whose base is not in the history of its branch any more."""
    if tip.life.deleted:
        return branch_deleted_error(tip.branch)
    error = ConflictError(id_to_text(base.snapshot), id_to_text(tip.snapshot), tip.branch)
    text = (
        f"branch {tip.branch!r} was reset to another snapshot since this session was opened on "
        f"{error.expected_parent}; it is at {error.actual_parent} now. Nothing was committed. Open a new session and "
        "write the changes again."
    )
    error.args = (text,)
    return error


def rebase_over(
    transaction: PendingTransaction, theirs: Footprint, before: SnapshotState, after: SnapshotState
) -> OnTop | Conflicts:
    """Decide whether the data that others changed lets a transaction be committed on top."""
    conflicts = find_conflicts(transaction, theirs, before, after)
    if conflicts or is_guarded(transaction, theirs):
        return Conflicts(tuple(conflicts))
    return OnTop(append_adaptation.adapt_node_changes(transaction.prepared, before, after))


def find_conflicts(
    transaction: PendingTransaction, theirs: Footprint, before: SnapshotState, after: SnapshotState
) -> list[Conflict]:
    """Return every conflict of a transaction, those of what it has read included."""
    conflicts = conflict_detection.detect(transaction.ours, theirs, before, after)
    return conflicts if transaction.reads is None else [*conflicts, *transaction.reads.collisions(theirs, before)]


def is_guarded(transaction: PendingTransaction, theirs: Footprint) -> bool:
    """Tell whether the owner of a transaction wants to look at what others did before it goes on."""
    guarded = [theirs.nodes[identifier] for identifier in transaction.guard & theirs.nodes.keys()]
    return any(node.appended or node.chunks for node in guarded)
