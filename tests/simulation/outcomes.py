"""What became of something that was tried."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Committed", "Outcome", "Refused", "Unknown"]


@dataclass(frozen=True)
class Committed:
    """The commit was acknowledged with this snapshot."""

    snapshot: str


@dataclass(frozen=True)
class Refused:
    """The commit failed, and for certain nothing was committed.

    Parameters
    ----------
    error
        Name of the error's class.
    conflicts
        Kinds of the conflicts (names) and their paths, with a slash in front.
    """

    error: str
    conflicts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Unknown:
    """It cannot be known whether it was committed: the storage gave no answer."""

    reason: str


Outcome = Committed | Refused | Unknown
