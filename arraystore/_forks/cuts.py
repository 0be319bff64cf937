"""Cells that a session, or a fork merged into it, has cut off from arrays by making them smaller."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._format.fork_payload import ForkChanges
from arraystore._format.ids import ForkId, NodeId
from arraystore._format.types import Bools, Int64s
from arraystore._runtime.values import dataclass


@dataclass(frozen=True)
class Cut:
    """A grid beyond which chunks of an array were cut off."""

    epoch: int
    """Number of the newest fork that was issued before."""
    owner: ForkId | None
    """The fork that cut them off; None for the session."""
    grid: tuple[int, ...]
    """What was left; a dimension in which nothing was cut off is out of reach."""


def take_cuts(changes: ChangeSet, cuts: dict[NodeId, list[Cut]], owner: ForkId | None) -> None:
    """Move what was cut off since the last time from a change set to those of its owner."""
    taken, changes.cuts = changes.cuts, {}
    for identifier, grids in taken.items():
        cuts.setdefault(identifier, []).extend([Cut(epoch, owner, grid) for epoch, grid in grids.items()])


def cut_off(cuts: Sequence[Cut], forks: Sequence[ForkChanges], of_cells: Int64s, coords: Int64s) -> Bools:
    """Tell which cells, shape (n, d), others have cut off since the fork that wrote them, shape (n,), was issued."""
    found: Bools = np.zeros(len(coords), dtype=bool)
    for cut in cuts:
        unseen = np.array([cut.epoch >= fork.epoch and cut.owner != fork.fork for fork in forks], dtype=bool)
        found |= unseen[of_cells] & (coords >= np.array(cut.grid, dtype=np.int64)).any(axis=1)
    return found
