"""Which forks a session has handed out, and which of them have come home."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from arraystore.commit.changes import ChangeSet
from arraystore.errors import UnmergedForksWarning
from arraystore.forks import Merged
from arraystore.format.changes import ForkChanges
from arraystore.provisional import Provisional

__all__ = ["Handed", "Taken", "warn_of_unmerged"]


class Fork(Protocol):
    """A fork, as far as it matters here."""

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether something was written through it."""
        ...


@dataclass(eq=False)
class Taken:
    """What a session knows of a fork that it has handed out.

    Parameters
    ----------
    fork
        The fork, as long as anybody holds it.
    sent
        Whether it, or what it changed, has been sent away.
    """

    fork: weakref.ref[Fork] | None = None
    sent: bool = False

    @property
    def missed(self) -> bool:
        """Whether something may get lost that was written through it."""
        fork = None if self.fork is None else self.fork()
        return self.sent or (fork is not None and fork.has_uncommitted_changes)


@dataclass(eq=False)
class Handed:
    """The forks that a session has handed out.

    Parameters
    ----------
    merged
        What has come home.
    taken
        Forks that have not, by epoch.
    below
        What forks see below their own changes, with the change set and its version that it shows.
    """

    merged: Merged = field(default_factory=Merged)
    taken: dict[int, Taken] = field(default_factory=dict)
    below: tuple[ChangeSet, int, Provisional] | None = None

    def came_home(self, forks: Iterable[ForkChanges]) -> None:
        """Note forks that were merged."""
        for fork in forks:
            self.taken.pop(fork.epoch, None)


def warn_of_unmerged(handed: Handed, stacklevel: int) -> None:
    """Warn if forks that may have written something have not come home; `stacklevel` as in `warnings.warn`."""
    count = sum(taken.missed for taken in list(handed.taken.values()))
    if count:
        what = "fork of this session was" if count == 1 else "forks of this session were"
        warnings.warn(
            f"{count} {what} sent away or written to, and not merged: what was written there will not be part of this "
            "commit. Merge what changes() of the forks returns before committing, with session.merge(...).",
            UnmergedForksWarning,
            stacklevel=stacklevel + 1,
        )
