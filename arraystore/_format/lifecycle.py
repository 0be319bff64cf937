"""Entries of a branch log that say where the branch stands, what is kept of its past, and what may still be committed.

They change no data: a *reset* puts the branch on another snapshot, a *deletion* ends it until a reset revives it, a
*fence* tells commits how old the objects may be that they bring in, and an *expiry* tells readers which snapshots are
gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from arraystore._format.envelope import check_time, read_tuple
from arraystore._format.ids import ID_BYTES
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
"""Watermark of a branch that no collection has passed: every id is above it."""


@dataclass(frozen=True)
class Origin:
    """A snapshot in some log, and its checkpoint."""

    branch: str
    sequence: int
    checkpoint: bytes


@dataclass(frozen=True)
class Deleted:
    """The branch does not exist any more; its log stays, so that no number is given twice.

    What a log says from here on can be read without what was before: that may be garbage.

    Parameters
    ----------
    snapshot, parent
        Of the snapshot that the branch stood at, and of the one before it.
    time
        Microseconds since 1970.
    before
        What the log said of the branch until then.
    """

    snapshot: bytes
    parent: bytes | None
    time: int
    before: BranchLife

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        return (self.snapshot, self.parent, self.time, life_to_wire(self.before))


@dataclass(frozen=True)
class Fence:
    """From here on commits bring in no object with an id below the watermark.

    Parameters
    ----------
    watermark
        An id; only the time in it is of interest.
    time
        Microseconds since 1970.
    read_only
        Whether nothing at all may be committed, until a later fence says otherwise.
    """

    watermark: bytes
    time: int
    read_only: bool = False

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        return (self.watermark, self.time, self.read_only)


@dataclass(frozen=True)
class Expiry:
    """Snapshots up to a record are gone, but for some.

    Parameters
    ----------
    time
        Microseconds since 1970.
    upto
        Number of the newest record whose snapshots are gone.
    base
        Id of a checkpoint of that record: what is read later needs no record up to it.
    survivors
        Id of the object that lists the snapshots up to that record that are kept; None for none.
    """

    time: int
    upto: int
    base: bytes
    survivors: bytes | None

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        return (self.time, self.upto, self.base, self.survivors)


@dataclass(frozen=True)
class BranchLife:
    """What the entries of a log up to a record say of the branch itself.

    Parameters
    ----------
    start
        Number of the newest birth or reset.
    origin
        Where the snapshot is that the branch began with there; None for the empty one.
    fence
        Watermark that objects which a commit brings in must not be below.
    read_only
        Whether nothing may be committed.
    deleted
        Whether the branch does not exist any more.
    cause
        Number of the newest repository record that the log has taken into account.
    expired
        Number of the newest record whose snapshots are gone, -1 if none are.
    base
        Id of a checkpoint of that record.
    survivors
        Id of the object that lists which of those snapshots are kept.
    fenced
        Number of the newest fence, -1 if there is none.
    ended
        Number of the newest deletion, -1 if there is none.
    """

    start: int = 0
    origin: Origin | None = None
    fence: bytes = NO_FENCE
    read_only: bool = False
    deleted: bool = False
    cause: int = 0
    expired: int = -1
    base: bytes | None = None
    survivors: bytes | None = None
    fenced: int = -1
    ended: int = -1

    @property
    def is_given_up(self) -> bool:
        """Whether the deletion, if there is one, has been seen by a collection, or may have been."""
        return self.deleted and self.fenced > self.ended

    def after_start(self, sequence: int, origin: Origin | None, fence: bytes, cause: int) -> BranchLife:
        """Return what holds after a birth or a reset."""
        later = replace(self, start=sequence, origin=origin, deleted=False, read_only=False)
        return replace(later, fence=max(self.fence, fence), cause=max(self.cause, cause))

    def after(self, sequence: int, entry: Deleted | Fence | Expiry) -> BranchLife:
        """Return what holds after one more entry, that of a record of some number."""
        if isinstance(entry, Deleted):
            return replace(self, deleted=True, ended=sequence)
        if isinstance(entry, Fence):
            fence = max(self.fence, entry.watermark)
            return replace(self, fence=fence, read_only=entry.read_only, fenced=sequence)
        return replace(self, expired=entry.upto, base=entry.base, survivors=entry.survivors)


@dataclass(frozen=True)
class Reset:
    """The branch stands at another snapshot from here on; a deleted branch exists again.

    A log can be read from its newest reset on, whatever has become of what was before it.

    Parameters
    ----------
    snapshot, parent
        Of the snapshot, and of the one before it.
    time
        Microseconds since 1970, by the writer's clock.
    origin
        Where the snapshot is.
    before
        What the log said of the branch until then.
    fence
        Watermark that holds from here on, if it is above the one that held before.
    cause
        Number of the repository record that created the branch anew; 0 for a plain reset.
    """

    snapshot: bytes
    parent: bytes | None
    time: int
    origin: Origin
    before: BranchLife
    fence: bytes = NO_FENCE
    cause: int = 0

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        origin, before = origin_to_wire(self.origin), life_to_wire(self.before)
        return (self.snapshot, self.parent, self.time, origin, before, self.fence, self.cause)


NEW_LIFE = BranchLife()
"""Of a branch of which nothing is said."""


def life_to_wire(life: BranchLife) -> tuple[Any, ...]:
    """Return what goes into a checkpoint."""
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
    """Read what `life_to_wire` gave; raises `FormatError`."""
    optional = (bytes, type(None))
    start, origin, fence, read_only, deleted, cause, expired, base, survivors, fenced, ended = read_tuple(
        name, value, int, (tuple, type(None)), bytes, bool, bool, int, int, optional, optional, int, int
    )
    if min(fenced, ended) < -1 or (deleted and ended < start):
        raise FormatError(name, "a branch that is deleted by no record, or fenced by none")
    if expired < -1 or (expired >= 0) != (base is not None) or (survivors is not None and base is None):
        raise FormatError(name, "what has expired does not fit together")
    return BranchLife(
        _number(name, start),
        None if origin is None else read_origin(name, origin),
        read_id(name, fence),
        read_only,
        deleted,
        _number(name, cause),
        expired,
        None if base is None else read_id(name, base),
        None if survivors is None else read_id(name, survivors),
        fenced,
        ended,
    )


def origin_to_wire(origin: Origin | None) -> tuple[Any, ...] | None:
    """Return what goes into a body."""
    return None if origin is None else (origin.branch, origin.sequence, origin.checkpoint)


def read_origin(name: str, value: Any) -> Origin:
    """Read what `origin_to_wire` gave; raises `FormatError`."""
    branch, sequence, checkpoint = read_tuple(name, value, str, int, bytes)
    return Origin(read_name(name, branch), _number(name, sequence), read_id(name, checkpoint))


def read_reset(name: str, value: Any) -> Reset:
    """Read a reset; raises `FormatError`."""
    snapshot, parent, time, origin, before, fence, cause = read_tuple(
        name, value, bytes, (bytes, type(None)), int, tuple, tuple, bytes, int
    )
    return Reset(
        read_id(name, snapshot),
        None if parent is None else read_id(name, parent),
        check_time(name, time),
        read_origin(name, origin),
        read_life(name, before),
        read_id(name, fence),
        _number(name, cause),
    )


def read_deleted(name: str, value: Any) -> Deleted:
    """Read a deletion; raises `FormatError`."""
    snapshot, parent, time, before = read_tuple(name, value, bytes, (bytes, type(None)), int, tuple)
    return Deleted(
        read_id(name, snapshot),
        None if parent is None else read_id(name, parent),
        check_time(name, time),
        read_life(name, before),
    )


def read_fence(name: str, value: Any) -> Fence:
    """Read a fence; raises `FormatError`."""
    watermark, time, read_only = read_tuple(name, value, bytes, int, bool)
    return Fence(read_id(name, watermark), check_time(name, time), read_only)


def read_expiry(name: str, value: Any, sequence: int) -> Expiry:
    """Read an expiry that stands in a record of some number; raises `FormatError`."""
    time, upto, base, survivors = read_tuple(name, value, int, int, bytes, (bytes, type(None)))
    if not 0 <= upto < sequence:
        raise FormatError(name, f"snapshots up to record {upto} expire in record {sequence}")
    kept = None if survivors is None else read_id(name, survivors)
    return Expiry(check_time(name, time), upto, read_id(name, base), kept)


def _number(name: str, value: int) -> int:
    if value < 0:
        raise FormatError(name, "a negative number of a record")
    return value
