"""What simulated processes meant, did and saw: all that the checker knows beside the objects themselves.

An actor notes what it is about to do *before* it does it, and what came of it right after, so that a crash leaves the
note of the intent behind.  Times are those of the simulated loop, the same for all processes.  Ids of snapshots are
text, as the library gives them.

Examples
--------
>>> notes = Observations()
>>> one = notes.transaction("t1", process="a", branch="main", base="00000000000000000001", began=1.0, opened=1.1)
>>> one.operations.append(WriteChunk("x", (0,), b"t1 x 0"))
>>> attempt = one.attempt(Solver(), began=2.0)
>>> attempt.end(2.5, Committed("00000000000000000002"))
>>> one.outcome
Committed(snapshot='00000000000000000002')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.simulation.outcomes import Committed, Outcome, Refused, Unknown
from tests.simulation.upkeep_notes import Missing, RefChange, RefCreation, RefListing, RefLook, Upkeep

__all__ = [
    "Ancestry",
    "Append",
    "Attempt",
    "Committed",
    "Coords",
    "Create",
    "Delete",
    "ListingRead",
    "Merge",
    "Missing",
    "Move",
    "Observations",
    "Operation",
    "Outcome",
    "Rebase",
    "RefChange",
    "RefCreation",
    "RefListing",
    "RefLook",
    "Refused",
    "Repeated",
    "Solver",
    "SourceLost",
    "SourceVersion",
    "TipLook",
    "Transaction",
    "Transplant",
    "Unfinished",
    "Unknown",
    "Update",
    "Upkeep",
    "ValueRead",
    "WriteChunk",
    "WriteFile",
]

Coords = tuple[int, ...]


# -- operations of a transaction, in the order in which it made them -----------------------------------------------


@dataclass(frozen=True)
class Create:
    """A group or an array comes to a path where the session has none; `documents` by name (``zarr.json``)."""

    path: str
    documents: Mapping[str, bytes]


@dataclass(frozen=True)
class Update:
    """Documents of a node are replaced (None removes one): attributes, or an array's shape.

    An array that shrinks loses the chunks outside of its new grid.
    """

    path: str
    documents: Mapping[str, bytes | None]


@dataclass(frozen=True)
class Delete:
    """A node goes, and everything below it (``delete_dir``)."""

    path: str


@dataclass(frozen=True)
class Move:
    """A node gets another path, and takes everything below it along (``session.move``)."""

    source: str
    target: str


@dataclass(frozen=True)
class WriteChunk:
    """A chunk is written, with bytes that no other write has; None deletes it."""

    path: str
    coords: Coords
    data: bytes | None


@dataclass(frozen=True)
class WriteFile:
    """A key that belongs to no node is set; None deletes it."""

    key: str
    data: bytes | None


@dataclass(frozen=True)
class Append:
    """An array grows at its end (``session.append``, ``session.appending``).

    Parameters
    ----------
    path
        Of the array.
    axis
        The dimension.
    items
        By how many it grows.
    chunks
        What was written into the new part, by coordinates as the session saw them, before any rebase.
    unique
        Values of it that must not be there yet, nor come there meanwhile (``append(unique=)``): integers of 64 bits,
        as the chunks have them; empty where they may repeat.
    """

    path: str
    axis: int
    items: int
    chunks: Mapping[Coords, bytes]
    unique: tuple[int, ...] = ()


@dataclass(frozen=True)
class Solver:
    """What decides about conflicts.

    Parameters
    ----------
    kind
        ``none``, ``detector``, ``basic`` or ``custom``.
    on_chunk_conflict
        Of a basic one: ``fail``, ``ours`` or ``theirs``.
    fail_on_delete_of_updated_array, fail_on_delete_of_updated_group
        Of a basic one.
    waives_reads
        Of a custom one: whether it answers read conflicts too, so that the transaction is not held to what it read.
    """

    kind: str = "none"
    on_chunk_conflict: str = "ours"
    fail_on_delete_of_updated_array: bool = False
    fail_on_delete_of_updated_group: bool = False
    waives_reads: bool = False


@dataclass(frozen=True)
class Rebase:
    """``session.rebase`` succeeded: operations after this one are made on another snapshot."""

    snapshot: str
    solver: Solver


Operation = Create | Update | Delete | Move | WriteChunk | WriteFile | Append | Rebase


@dataclass(frozen=True)
class Merge:
    """What a custom solver answered for one chunk; it may be asked again, and then answer anew.

    Parameters
    ----------
    path
        Of the array or file, where the conflict says it is.
    coords
        Of the chunk; ``()`` for a file.
    data
        The merged bytes, which no other write has; None where it chose theirs.
    theirs
        Snapshot that it was shown as theirs.
    """

    path: str
    coords: Coords
    data: bytes | None
    theirs: str


@dataclass(frozen=True)
class Transplant:
    """The change of another snapshot is made backwards (``revert``), or once more (``cherry_pick``).

    Parameters
    ----------
    way
        ``revert`` or ``cherry_pick``.
    snapshot
        Whose change.
    """

    way: str
    snapshot: str

    @property
    def metadata(self) -> dict[str, object]:
        """What the commit is to say of itself."""
        return {"reverts" if self.way == "revert" else "cherry_picked_from": self.snapshot}


@dataclass(frozen=True)
class Repeated:
    """A session was told that a value which it was to append is there already (``append(unique=)``).

    Parameters
    ----------
    process
        Whose session.
    transaction
        Its label.
    position
        How many operations of that had been made.
    path
        Of the array.
    values
        What was to be appended.
    began, ended
        When.
    """

    process: str
    transaction: str
    position: int
    path: str
    values: tuple[int, ...]
    began: float
    ended: float


# -- transactions ---------------------------------------------------------------------------------------------------


@dataclass
class Attempt:
    """One call of ``commit``; without an outcome the process crashed in it, or has not ended."""

    solver: Solver
    began: float
    ended: float | None = None
    outcome: Outcome | None = None

    def end(self, at: float, outcome: Outcome) -> None:
        """Note what came of it."""
        self.ended, self.outcome = at, outcome


@dataclass
class Transaction:
    """One session that meant to commit.

    Parameters
    ----------
    label
        Message of its commit, which no other has.
    process
        Whose it is.
    branch
        To which it commits.
    base
        Snapshot that the session was opened on.
    began, opened
        Before the call that opened the session, and after.
    isolation
        ``snapshot`` or ``serializable``.
    metadata
        Of the commit.
    amends
        Whether it is to take the place of the newest snapshot (``session.amend``), which nobody may have overtaken.
    flushes
        Whether it is to be a snapshot on no branch (``session.flush``); `branch` is that of its base.
    transplants
        What it makes of another snapshot; it has no base and no operations then.
    operations
        What it did, in order; what a fork did stands where it was merged.  Those that were tried and refused at once
        are not among them.
    merges
        What its custom solver answered.
    attempts
        Its calls of ``commit``.
    """

    label: str
    process: str
    branch: str
    base: str
    began: float
    opened: float
    isolation: str = "snapshot"
    metadata: Mapping[str, object] | None = None
    amends: bool = False
    flushes: bool = False
    transplants: Transplant | None = None
    operations: list[Operation] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def attempt(self, solver: Solver, began: float) -> Attempt:
        """Note that it is about to commit."""
        self.attempts.append(Attempt(solver, began))
        return self.attempts[-1]

    @property
    def outcome(self) -> Outcome:
        """What became of it in the end."""
        for attempt in self.attempts:
            if isinstance(attempt.outcome, Committed):
                return attempt.outcome
        if not self.attempts:
            return Refused("never committed")
        return self.attempts[-1].outcome or Unknown("its process stopped while it committed")

    @property
    def solvers(self) -> list[Solver]:
        """All that have decided about its conflicts."""
        return [a.solver for a in self.attempts] + [o.solver for o in self.operations if isinstance(o, Rebase)]


# -- reads ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueRead:
    """``store.get`` returned this.

    Parameters
    ----------
    process
        Who read.
    snapshot
        Of the session (its base, where it has changes).
    key
        The Zarr key.
    data
        What came, None for nothing.
    began, ended
        When.
    transaction
        Label of the transaction in whose session it was read; None for a session that only reads.
    position
        How many operations of that transaction had been made: they are seen, too.  (Of a fork, note those reads only
        that neither the session nor the fork had changed anything of, with the position 0.)
    counts
        Whether a serializable transaction is held to it: not where it declared its reads itself, and not for documents
        of arrays looked at inside of ``session.appending``.
    """

    process: str
    snapshot: str
    key: str
    data: bytes | None
    began: float
    ended: float
    transaction: str | None = None
    position: int = 0
    counts: bool = True


@dataclass(frozen=True)
class ListingRead:
    """``store.list_dir`` or ``store.list_prefix`` returned these; other fields as of `ValueRead`.

    Parameters
    ----------
    prefix
        What was asked for.
    deep
        True for ``list_prefix``, False for ``list_dir``.
    names
        What came, sorted.
    """

    process: str
    snapshot: str
    prefix: str
    deep: bool
    names: tuple[str, ...]
    began: float
    ended: float
    transaction: str | None = None
    position: int = 0
    counts: bool = True


@dataclass(frozen=True)
class TipLook:
    """A branch was looked up, or a session opened on its tip, by somebody who does not commit to it."""

    process: str
    branch: str
    snapshot: str
    began: float
    ended: float


@dataclass(frozen=True)
class Ancestry:
    """``ancestry`` gave these snapshots, the newest first, each as id, parent (or None) and message."""

    process: str
    snapshot: str
    entries: tuple[tuple[str, str | None, str], ...]
    began: float
    ended: float


@dataclass(frozen=True)
class Unfinished:
    """Something never ended although there were no more faults: a violation of liveness."""

    process: str
    what: str
    since: float


@dataclass(frozen=True)
class SourceLost:
    """A chunk was not read, since its source was said to have changed; `position` as in `ValueRead`."""

    process: str
    snapshot: str
    key: str
    url: str
    began: float
    ended: float
    position: int = 0


@dataclass(frozen=True)
class SourceVersion:
    """A source had these bytes from a time on, or was gone."""

    url: str
    time: float
    data: bytes | None


Seen = (
    ValueRead
    | ListingRead
    | TipLook
    | Ancestry
    | RefLook
    | RefListing
    | RefCreation
    | RefChange
    | Upkeep
    | Missing
    | Repeated
    | SourceLost
    | Unfinished
)


@dataclass
class Observations:
    """Everything that was noted in a run.

    Parameters
    ----------
    transactions
        By label.
    seen
        All the rest, in the order in which it was noted.
    """

    transactions: dict[str, Transaction] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    def transaction(
        self,
        label: str,
        *,
        process: str,
        branch: str,
        base: str,
        began: float,
        opened: float,
        isolation: str = "snapshot",
        metadata: Mapping[str, object] | None = None,
        amends: bool = False,
        flushes: bool = False,
        transplants: Transplant | None = None,
    ) -> Transaction:
        """Note that a session was opened that means to commit; see `Transaction`."""
        if label in self.transactions:
            raise ValueError(f"there is a transaction {label!r} already: labels are unique")
        found = Transaction(
            label, process, branch, base, began, opened, isolation, metadata, amends, flushes, transplants
        )
        self.transactions[label] = found
        return found

    def see(self, seen: Seen) -> None:
        """Note something else."""
        self.seen.append(seen)

    def reads(self) -> Iterator[ValueRead | ListingRead]:
        """Return the reads of values and listings."""
        return (s for s in self.seen if isinstance(s, ValueRead | ListingRead))
