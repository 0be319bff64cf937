"""What the entries of a log say of the branch itself: where it stands, what has expired, what may be committed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.checker.states import Snapshot

__all__ = ["Era", "Life"]


@dataclass(frozen=True)
class Era:
    """A stretch of a log from its birth, or from a reset, to the next reset.

    Parameters
    ----------
    number
        Of the birth or the reset.
    place
        How many transactions the log has before it.
    first
        The snapshot that it begins with.
    origin
        Branch, record and checkpoint of that; None for the empty one.
    """

    number: int
    place: int
    first: Snapshot
    origin: tuple[str, int, bytes] | None


@dataclass(frozen=True)
class Life:
    """What holds after a record.

    Parameters
    ----------
    start, origin
        Of the newest birth or reset.
    fence
        Commits bring in nothing with an id below it.
    read_only, deleted
        Whether nothing may be committed, whether the branch does not exist.
    cause
        The newest record of the repository log that was taken into account.
    expired, base, survivors
        Up to which record snapshots have expired, a checkpoint of that record, and the list of those that are left.
    last_fence, last_end
        Numbers of the newest fence and of the newest deletion, -1 for none.
    """

    start: int = 0
    origin: tuple[str, int, bytes] | None = None
    fence: bytes = bytes(12)
    read_only: bool = False
    deleted: bool = False
    cause: int = 0
    expired: int = -1
    base: bytes | None = None
    survivors: bytes | None = None
    last_fence: int = -1
    last_end: int = -1

    def begun(self, number: int, origin: Any, fence: bytes, cause: int) -> Life:
        """Return what holds after a birth or a reset."""
        found = None if origin is None else (origin[0], origin[1], origin[2])
        later = replace(self, start=number, origin=found, deleted=False, read_only=False, cause=max(self.cause, cause))
        return replace(later, fence=max(self.fence, fence))

    def ended(self, number: int) -> Life:
        """Return what holds after a deletion."""
        return replace(self, deleted=True, last_end=number)

    def fenced(self, number: int, watermark: bytes, read_only: bool) -> Life:
        """Return what holds after a fence."""
        return replace(self, fence=max(self.fence, watermark), read_only=read_only, last_fence=number)

    def aged(self, upto: int, base: bytes, survivors: bytes | None) -> Life:
        """Return what holds after an expiry."""
        if upto < self.expired:
            raise ValueError(f"an expiry up to record {upto}, after one up to {self.expired}")
        return replace(self, expired=upto, base=base, survivors=survivors)

    def told(self) -> list[Any]:
        """Return it as a checkpoint tells it."""
        origin = None if self.origin is None else list(self.origin)
        flags = [self.fence, self.read_only, self.deleted, self.cause]
        numbers = [self.last_fence, self.last_end]
        return [self.start, origin, *flags, self.expired, self.base, self.survivors, *numbers]
