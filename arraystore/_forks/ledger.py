"""The forks that a session has issued, and which of them were merged."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from arraystore._changes.change_set import ChangeSet
from arraystore._forks.merge import Merged
from arraystore._forks.uncommitted import UncommittedView
from arraystore._format.fork_payload import ForkChanges
from arraystore.errors import UnmergedForksWarning

__all__ = ["ForkLedger", "IssuedFork", "warn_of_unmerged"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Fork(Protocol):
    """A fork, as far as it matters here."""

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether something was written through it."""
        ...


@dataclass(eq=False)
class IssuedFork:
    """What a session knows of a fork that it has issued.

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
class ForkLedger:
    """The forks that a session has issued.

    Parameters
    ----------
    merged
        What was merged.
    issued
        Forks that were not merged yet, by epoch.
    view
        What forks see below their own changes, with the change set and its version that it shows.
    reported
        Epochs of forks that a warning has named.
    rebased
        Epoch of the last fork that was issued before the newest rebase: it and those before it cannot be merged.
    """

    merged: Merged = field(default_factory=Merged)
    issued: dict[int, IssuedFork] = field(default_factory=dict)
    view: tuple[ChangeSet, int, UncommittedView] | None = None
    reported: set[int] = field(default_factory=set)
    rebased: int = 0

    def issue(self, epoch: int) -> IssuedFork:
        """Note a fork that is issued now."""
        self.issued[epoch] = IssuedFork()
        return self.issued[epoch]

    def abandon(self, fork: Fork) -> None:
        """Note that nobody wants what was written through a fork."""
        for epoch, issued in list(self.issued.items()):
            if issued.fork is not None and issued.fork() is fork:
                del self.issued[epoch]

    def settle(self, forks: Iterable[ForkChanges]) -> None:
        """Note forks that were merged."""
        for fork in forks:
            self.issued.pop(fork.epoch, None)


def warn_of_unmerged(ledger: ForkLedger) -> None:
    """Warn if forks that may have written something were not merged; of each fork once."""
    missed = {epoch for epoch, issued in list(ledger.issued.items()) if issued.missed} - ledger.reported
    if missed:
        ledger.reported |= missed
        what = "fork of this session was" if len(missed) == 1 else "forks of this session were"
        warnings.warn(
            f"{len(missed)} {what} sent away or written to, and not merged: what was written there will not be part of "
            "this commit. Merge what changes() of the forks returns before committing, with session.merge(...).",
            UnmergedForksWarning,
            stacklevel=_caller(),
        )


def _caller() -> int:
    """Return the level of the first frame above the function that warns that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
