"""Locks that survive a fork: another thread of the parent may have held one, and no such thread exists in the child."""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol

__all__ = ["HasLocks", "bury", "renew_locks_after_fork"]


class HasLocks(Protocol):
    """An object that can replace its locks by fresh ones."""

    def renew_locks(self) -> None:
        """Replace every lock of this object; called in a forked child before anything else runs there."""


_buried: list[Any] = []


def bury(inherited: Any) -> None:
    """Keep something of the parent's from ever being dropped in this forked child.

    A client that closes its connections in the child would take them from the event loop of the parent, whose epoll
    instance the two share, and the parent would wait for an answer for ever; other destructors wait for threads that
    a fork does not copy.
    """
    _buried.append(inherited)


_holders: weakref.WeakSet[HasLocks] = weakref.WeakSet()


def renew_locks_after_fork(holder: HasLocks) -> None:
    """See to it that `holder` gets fresh locks in every forked child."""
    _holders.add(holder)


def _renew() -> None:
    for holder in tuple(_holders):
        holder.renew_locks()


os.register_at_fork(after_in_child=_renew)
