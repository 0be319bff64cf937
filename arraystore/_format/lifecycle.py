"""Lifecycle entries of a branch log, which change no data.

A *reset* moves the branch to another snapshot, a *deletion* ends it until a reset revives it, a *fence* sets the
watermark below which commits must not add objects, and an *expiry* removes snapshots from history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from arraystore._format.envelope import check_time, read_tuple
from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId
from arraystore._format.layer import read_id
from arraystore._format.refs import read_name
from arraystore.errors import FormatError

__all__ = [
    "NEW_LIFE",
    "NO_FENCE",
    "BranchLife",
    "Deleted",
    "Expiry",
    "Fence",
    "Origin",
    "Reset",
    "life_to_wire",
    "origin_to_wire",
    "read_deleted",
    "read_expiry",
    "read_fence",
    "read_life",
    "read_origin",
    "read_reset",
]

NO_FENCE = bytes(ID_BYTES)
"""Watermark of a branch without a fence; every id is above it."""


@dataclass(frozen=True)
class Origin:
    """Record of a snapshot in a branch log, and a checkpoint of it."""

    branch: str
    sequence: int
    checkpoint: CheckpointId


@dataclass(frozen=True)
class Deleted:
    """Deletion of the branch; its log stays, so that record numbers are never reused.

    Later records can be read without earlier ones, which may be deleted as garbage.
    """

    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the tip of the branch and of its parent."""
    time: int
    """Time in microseconds since 1970."""
    before: BranchLife
    """Life of the branch before this entry."""

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        return (self.snapshot, self.parent, self.time, life_to_wire(self.before))


@dataclass(frozen=True)
class Fence:
    """Fence: later commits must not add objects with ids below the watermark."""

    watermark: bytes
    """Id, of which only the time matters."""
    time: int
    """Time in microseconds since 1970."""
    read_only: bool = False
    """True if all commits are refused, until a later fence."""

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        return (self.watermark, self.time, self.read_only)


@dataclass(frozen=True)
class Expiry:
    """Expiry of the snapshots up to a record, except survivors."""

    time: int
    """Time in microseconds since 1970."""
    upto: int
    """Number of the newest record whose snapshots have expired."""
    base: CheckpointId
    """Id of a checkpoint of that record, so that readers need no record up to it."""
    survivors: bytes | None
    """Id of the object that lists the retained snapshots; None if there are none."""

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        return (self.time, self.upto, self.base, self.survivors)


@dataclass(frozen=True)
class BranchLife:
    """State of a branch itself, from the entries of its log up to a record."""

    start: int = 0
    """Number of the newest birth or reset."""
    origin: Origin | None = None
    """Origin of the snapshot at that start; None for the empty snapshot."""
    fence: bytes = NO_FENCE
    """Watermark; commits must not add objects below it."""
    read_only: bool = False
    """True if commits are refused."""
    deleted: bool = False
    """True if the branch is deleted."""
    cause: int = 0
    """Number of the newest repository record reflected in the log."""
    expired: int = -1
    """Number of the newest record whose snapshots have expired, -1 for none."""
    base: CheckpointId | None = None
    """Id of a checkpoint of that record."""
    survivors: bytes | None = None
    """Id of the object that lists the survivors."""
    fenced: int = -1
    """Number of the newest fence, -1 for none."""
    ended: int = -1
    """Number of the newest deletion, -1 for none."""

    @property
    def is_given_up(self) -> bool:
        """True if the branch is deleted and a later collection may have deleted its objects."""
        return self.deleted and self.fenced > self.ended

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
class Reset:
    """Reset of the branch to another snapshot; revives a deleted branch.

    A log can be read from its newest reset on, without earlier records.
    """

    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the snapshot and of its parent."""
    time: int
    """Time in microseconds since 1970, by the writer's clock."""
    origin: Origin
    """Origin of the snapshot."""
    before: BranchLife
    """Life of the branch before this entry."""
    fence: bytes = NO_FENCE
    """New watermark, if it is above the previous one."""
    cause: int = 0
    """Number of the repository record that recreated the branch; 0 for a plain reset."""

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        origin, before = origin_to_wire(self.origin), life_to_wire(self.before)
        return (self.snapshot, self.parent, self.time, origin, before, self.fence, self.cause)


NEW_LIFE = BranchLife()
"""Life of a branch before its first entry."""


def life_to_wire(life: BranchLife) -> tuple[Any, ...]:
    """Encode as a msgpack value of a checkpoint."""
    return (
        life.start,
        origin_to_wire(life.origin),
        life.fence,
        life.read_only,
        life.deleted,
        life.cause,
        life.expired,
        life.base,
        life.survivors,
        life.fenced,
        life.ended,
    )


def read_life(name: str, value: Any) -> BranchLife:
    """Decode the value of `life_to_wire`; raises `FormatError`."""
    optional = (bytes, type(None))
    start, origin, fence, read_only, deleted, cause, expired, base, survivors, fenced, ended = read_tuple(
        name, value, int, (tuple, type(None)), bytes, bool, bool, int, int, optional, optional, int, int
    )
    if min(fenced, ended) < -1 or (deleted and ended < start):
        raise FormatError(name, "the record of a deletion or fence is inconsistent")
    if expired < -1 or (expired >= 0) != (base is not None) or (survivors is not None and base is None):
        raise FormatError(name, "the fields of an expiry are inconsistent")
    return BranchLife(
        _number(name, start),
        None if origin is None else read_origin(name, origin),
        read_id(name, fence),
        read_only,
        deleted,
        _number(name, cause),
        expired,
        None if base is None else CheckpointId(read_id(name, base)),
        None if survivors is None else read_id(name, survivors),
        fenced,
        ended,
    )


def origin_to_wire(origin: Origin | None) -> tuple[Any, ...] | None:
    """Encode as a msgpack value."""
    return None if origin is None else (origin.branch, origin.sequence, origin.checkpoint)


def read_origin(name: str, value: Any) -> Origin:
    """Decode the value of `origin_to_wire`; raises `FormatError`."""
    branch, sequence, checkpoint = read_tuple(name, value, str, int, bytes)
    return Origin(read_name(name, branch), _number(name, sequence), CheckpointId(read_id(name, checkpoint)))


def read_reset(name: str, value: Any) -> Reset:
    """Decode a reset; raises `FormatError`."""
    snapshot, parent, time, origin, before, fence, cause = read_tuple(
        name, value, bytes, (bytes, type(None)), int, tuple, tuple, bytes, int
    )
    return Reset(
        SnapshotId(read_id(name, snapshot)),
        None if parent is None else SnapshotId(read_id(name, parent)),
        check_time(name, time),
        read_origin(name, origin),
        read_life(name, before),
        read_id(name, fence),
        _number(name, cause),
    )


def read_deleted(name: str, value: Any) -> Deleted:
    """Decode a deletion; raises `FormatError`."""
    snapshot, parent, time, before = read_tuple(name, value, bytes, (bytes, type(None)), int, tuple)
    return Deleted(
        SnapshotId(read_id(name, snapshot)),
        None if parent is None else SnapshotId(read_id(name, parent)),
        check_time(name, time),
        read_life(name, before),
    )


def read_fence(name: str, value: Any) -> Fence:
    """Decode a fence; raises `FormatError`."""
    watermark, time, read_only = read_tuple(name, value, bytes, int, bool)
    return Fence(read_id(name, watermark), check_time(name, time), read_only)


def read_expiry(name: str, value: Any, sequence: int) -> Expiry:
    """Decode the expiry of a record; raises `FormatError`."""
    time, upto, base, survivors = read_tuple(name, value, int, int, bytes, (bytes, type(None)))
    if not 0 <= upto < sequence:
        raise FormatError(name, f"an expiry in record {sequence} must be of earlier records, not up to {upto}")
    survivors_id = None if survivors is None else read_id(name, survivors)
    return Expiry(check_time(name, time), upto, CheckpointId(read_id(name, base)), survivors_id)


def _number(name: str, value: int) -> int:
    if value < 0:
        raise FormatError(name, "the number of a record must be >= 0")
    return value
