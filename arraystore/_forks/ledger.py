"""The ledger of the forks that a session has issued, merged or not."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from arraystore._changes.change_set import ChangeSet
from arraystore._forks.merged import Merged
from arraystore._runtime.values import dataclass
from arraystore.errors import UnmergedForksWarning

if TYPE_CHECKING:
    from arraystore._forks.uncommitted import UncommittedView
    from arraystore._format.fork_payload import ForkChanges
    from arraystore._format.ids import ForkId

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BETWEEN = (_PACKAGE, contextlib.__file__)
"""Where frames between the caller and the ledger are: this package, and the end of a ``with`` block."""


class Fork(Protocol):
    """A fork, as the ledger sees it."""

    @property
    def has_uncommitted_changes(self) -> bool:
        """True if the fork has changes."""
        ...


@dataclass(eq=False)
class IssuedFork:
    """A fork that a session has issued."""

    fork: weakref.ref[Fork] | None = None
    """The fork, as long as anybody references it."""
    sent: bool = False
    """True if the fork, or its changes, left the session's process."""

    @property
    def missed(self) -> bool:
        """True if changes that were written through it may get lost."""
        fork = None if self.fork is None else self.fork()
        return self.sent or (fork is not None and fork.has_uncommitted_changes)


@dataclass
class CachedView:
    """A view of uncommitted changes, and what it shows."""

    changes: ChangeSet
    version: int
    """Version of the change set."""
    view: UncommittedView


@dataclass(eq=False)
class ForkLedger:
    """The forks that a session has issued."""

    merged: Merged = field(default_factory=Merged)
    """Changes merged so far."""
    issued: dict[int, IssuedFork] = field(default_factory=dict)
    """Forks not merged yet, by epoch."""
    view: CachedView | None = None
    """The uncommitted changes that forks read."""
    reported: set[int] = field(default_factory=set)
    """Epochs of forks that a warning has named."""
    rebased: int = 0
    """Epoch of the last fork issued before the newest rebase: it and earlier ones cannot be merged."""

    @property
    def merged_forks(self) -> int:
        """Number of forks merged so far."""
        return len(self.merged.numbers)

    def issue(self, epoch: int) -> IssuedFork:
        """Add a fork to the unmerged ones."""
        self.issued[epoch] = IssuedFork()
        return self.issued[epoch]

    def abandon(self, fork: Fork) -> None:
        """Drop a fork whose changes are not wanted."""
        for epoch, issued in list(self.issued.items()):
            if issued.fork is not None and issued.fork() is fork:
                del self.issued[epoch]

    def settle(self, forks: Iterable[ForkChanges], owner: ForkId | None = None) -> None:
        """Drop forks that were merged into `owner`, None for the session; forks are numbered as those of the owner."""
        for fork in forks:
            issuer = fork.parents[-1][0] if fork.parents else None
            if issuer == owner:
                self.issued.pop(fork.epoch, None)
            elif (issued := self.issued.get(fork.epoch)) is not None:
                issued.sent = False  # a fork of it came back in its place; what it holds here may still get lost


def warn_of_unmerged(ledger: ForkLedger, owner: str = "session", target: str = "this commit") -> None:
    """Warn, once for each fork, of forks that may have been written to and were not merged."""
    missed = {epoch for epoch, issued in list(ledger.issued.items()) if issued.missed} - ledger.reported
    if missed:
        ledger.reported |= missed
        what = f"fork of this {owner} was" if len(missed) == 1 else f"forks of this {owner} were"
        warnings.warn(
            f"{len(missed)} {what} sent away or written to, and not merged: what was written there will not be part of "
            f"{target}. Merge what changes() of the forks returns before, with {owner}.merge(...).",
            UnmergedForksWarning,
            stacklevel=_caller(),
        )


def _caller() -> int:
    """Return the stack level of the caller's frame."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    return level
