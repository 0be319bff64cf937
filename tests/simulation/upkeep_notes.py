"""Notes of what was done to branches and tags, and to what is old; see `tests.simulation.observations`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.outcomes import Outcome

__all__ = ["Missing", "RefChange", "RefCreation", "RefListing", "RefLook", "Upkeep"]


@dataclass
class RefCreation:
    """A branch or tag was to be created; without an outcome the process crashed, or has not ended.

    Parameters
    ----------
    process
        Who.
    kind
        ``branch`` or ``tag``.
    name
        Of the branch or tag.
    snapshot
        Which it is to point at.
    began, ended
        When.
    outcome
        `Committed` (with the snapshot), `Refused` or `Unknown`.
    """

    process: str
    kind: str
    name: str
    snapshot: str
    began: float
    ended: float | None = None
    outcome: Outcome | None = None

    def end(self, at: float, outcome: Outcome) -> None:
        """Note what came of it."""
        self.ended, self.outcome = at, outcome


@dataclass
class RefChange:
    """A branch or tag was to be deleted, or a branch to be reset; outcomes as of `RefCreation`.

    Parameters
    ----------
    process
        Who.
    kind
        ``branch`` or ``tag``.
    name
        Of the branch or tag.
    snapshot
        To which the branch is to be reset; None for a deletion.
    began, ended
        When.
    outcome
        What came of it.
    expected
        Of a deletion: where the branch has to stand; None for anywhere.
    """

    process: str
    kind: str
    name: str
    snapshot: str | None
    began: float
    ended: float | None = None
    outcome: Outcome | None = None
    expected: str | None = None

    def end(self, at: float, outcome: Outcome) -> None:
        """Note what came of it."""
        self.ended, self.outcome = at, outcome


@dataclass
class Upkeep:
    """Something was to be done that changes no data: a collection, an expiry, a compaction, another status.

    Parameters
    ----------
    process
        Who.
    what
        ``collect``, ``expire``, ``compact``, ``read only`` or ``online``.
    began, ended
        When.
    older_than
        Of an expiry: microseconds since 1970, by the clocks of those who committed.
    keep_last
        Of an expiry: how many of the newest snapshots of each branch were to be kept in any case.
    expired
        Of an expiry: what it was told has expired.
    outcome
        As of `RefCreation`; without one the process crashed, or has not ended.
    """

    process: str
    what: str
    began: float
    older_than: int = 0
    keep_last: int = 0
    expired: frozenset[str] = frozenset()
    ended: float | None = None
    outcome: Outcome | None = None

    def end(self, at: float, outcome: Outcome) -> None:
        """Note what came of it."""
        self.ended, self.outcome = at, outcome


@dataclass(frozen=True)
class Missing:
    """Somebody was told that something is not there, or not any more.

    Parameters
    ----------
    process
        Who.
    kind
        ``branch`` or ``snapshot``.
    name
        Of the branch, or id of the snapshot.
    error
        Name of the error's class.
    began, ended
        When.
    """

    process: str
    kind: str
    name: str
    error: str
    began: float
    ended: float


@dataclass(frozen=True)
class RefLook:
    """A tag was looked up; None where there was none."""

    process: str
    name: str
    snapshot: str | None
    began: float
    ended: float


@dataclass(frozen=True)
class RefListing:
    """All branches or tags were listed; `kind` is ``branch`` or ``tag``, `names` are sorted."""

    process: str
    kind: str
    names: tuple[str, ...]
    began: float
    ended: float
