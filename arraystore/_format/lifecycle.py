"""Lifecycle entries of a branch log, which change no data.

A *reset* moves the branch to another snapshot, a *deletion* ends it until a reset revives it, a *fence* sets the
watermark below which commits must not add objects, and an *expiry* removes snapshots from history.
"""

from __future__ import annotations

from dataclasses import replace

from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId
from arraystore._format.refs import Name
from arraystore._format.wire import Id, Number, Time, Wire
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

NO_FENCE = bytes(ID_BYTES)
"""Watermark of a branch without a fence; every id is above it."""


@dataclass(frozen=True)
class Origin(Wire):
    """Record of a snapshot in a branch log, and a checkpoint of it."""

    branch: Name
    sequence: Number
    checkpoint: CheckpointId


@dataclass(frozen=True)
class Deleted(Wire):
    """Deletion of the branch; its log stays, so that record numbers are never reused.

    Later records can be read without earlier ones, which may be deleted as garbage.
    """

    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the tip of the branch and of its parent."""
    time: Time
    """Time in microseconds since 1970."""
    before: BranchLife
    """Life of the branch before this entry."""


@dataclass(frozen=True)
class Fence(Wire):
    """Fence: later commits must not add objects with ids below the watermark."""

    watermark: Id
    """Id, of which only the time matters."""
    time: Time
    """Time in microseconds since 1970."""
    read_only: bool = False
    """True if all commits are refused, until a later fence."""


@dataclass(frozen=True)
class Expiry(Wire):
    """Expiry of the snapshots up to a record, except survivors."""

    time: Time
    """Time in microseconds since 1970."""
    upto: Number
    """Number of the newest record whose snapshots have expired."""
    base: CheckpointId
    """Id of a checkpoint of that record, so that readers need no record up to it."""
    survivors: Id | None
    """Id of the object that lists the retained snapshots; None if there are none."""


@dataclass(frozen=True)
class BranchLife(Wire):
    """State of a branch itself, from the entries of its log up to a record."""

    start: Number = 0
    """Number of the newest birth or reset."""
    origin: Origin | None = None
    """Origin of the snapshot at that start; None for the empty snapshot."""
    fence: Id = NO_FENCE
    """Watermark; commits must not add objects below it."""
    read_only: bool = False
    """True if commits are refused."""
    deleted: bool = False
    """True if the branch is deleted."""
    cause: Number = 0
    """Number of the newest repository record reflected in the log."""
    expired: int = -1
    """Number of the newest record whose snapshots have expired, -1 for none."""
    base: CheckpointId | None = None
    """Id of a checkpoint of that record."""
    survivors: Id | None = None
    """Id of the object that lists the survivors."""
    fenced: int = -1
    """Number of the newest fence, -1 for none."""
    ended: int = -1
    """Number of the newest deletion, -1 for none."""

    @property
    def is_given_up(self) -> bool:
        """True if the branch is deleted and a later collection may have deleted its objects."""
        return self.deleted and self.fenced > self.ended

    @property
    def retention(self) -> tuple[object, ...]:
        """Fields that determine the retained snapshots of the log."""
        return self.start, self.deleted, self.expired, self.survivors

    def check(self, name: str) -> None:
        """Check that numbers and ids are consistent; raises `FormatError`."""
        if min(self.fenced, self.ended) < -1 or (self.deleted and self.ended < self.start):
            raise FormatError(name, "the record of a deletion or fence is inconsistent")
        has_base = self.base is not None
        if self.expired < -1 or (self.expired >= 0) != has_base or (self.survivors is not None and not has_base):
            raise FormatError(name, "the fields of an expiry are inconsistent")

    def after_start(self, sequence: int, origin: Origin | None, fence: bytes, cause: int) -> BranchLife:
        """Return the life after a birth or reset."""
        later = replace(self, start=sequence, origin=origin, deleted=False, read_only=False)
        return replace(later, fence=max(self.fence, fence), cause=max(self.cause, cause))

    def after(self, sequence: int, entry: Deleted | Fence | Expiry) -> BranchLife:
        """Return the life after the entry of a record."""
        if isinstance(entry, Deleted):
            return replace(self, deleted=True, ended=sequence)
        if isinstance(entry, Fence):
            fence = max(self.fence, entry.watermark)
            return replace(self, fence=fence, read_only=entry.read_only, fenced=sequence)
        return replace(self, expired=entry.upto, base=entry.base, survivors=entry.survivors)


@dataclass(frozen=True)
class Reset(Wire):
    """Reset of the branch to another snapshot; revives a deleted branch.

    A log can be read from its newest reset on, without earlier records.
    """

    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the snapshot and of its parent."""
    time: Time
    """Time in microseconds since 1970, by the writer's clock."""
    origin: Origin
    """Origin of the snapshot."""
    before: BranchLife
    """Life of the branch before this entry."""
    fence: Id = NO_FENCE
    """New watermark, if it is above the previous one."""
    cause: Number = 0
    """Number of the repository record that recreated the branch; 0 for a plain reset."""


NEW_LIFE = BranchLife()
"""Life of a branch before its first entry."""
