"""The lineage of a fork: how much it has seen of its session, and of each fork between the session and it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from arraystore._format.fork_payload import ChangePayload, ForkChanges
from arraystore._format.ids import ForkId

_NOTHING = 0
"""Number of a fork that has seen nothing of another fork: that of the first of its own forks is 1."""


@dataclass(frozen=True)
class Lineage:
    """The forks between a session and a fork."""

    session: bytes
    """Id of the session."""
    epoch: int
    """Number of the fork, or of the first one in between, among the forks of the session."""
    parents: tuple[tuple[ForkId, int], ...] = ()
    """Forks in between, the first one first; with each, the number of the next one among its forks."""

    def child(self, fork: ForkId, epoch: int) -> Lineage:
        """Return the lineage of a fork of the fork."""
        return replace(self, parents=(*self.parents, (fork, epoch)))

    def after_merging(self, forks: Iterable[ForkChanges]) -> Lineage:
        """Return the lineage after a merge: the fork has seen what all that was merged into it has seen."""
        epoch, parents = self.epoch, self.parents
        for fork in forks:
            seen = dict(fork.parents)
            epoch = min(epoch, fork.epoch)
            parents = tuple((parent, min(number, seen.get(parent, _NOTHING))) for parent, number in parents)
        return replace(self, epoch=epoch, parents=parents)


def numbered_by(payload: ChangePayload, fork: ForkId) -> ChangePayload:
    """Return a payload whose forks have their numbers among the forks of one fork; 0 for those that are not of it."""
    forks = (replace(each, epoch=dict(each.parents).get(fork, _NOTHING)) for each in payload.forks)
    return replace(payload, forks=tuple(forks))


def has_strangers(payload: ChangePayload) -> bool:
    """Tell whether a payload of `numbered_by` has changes of a fork that has seen nothing."""
    return any(fork.epoch == _NOTHING for fork in payload.forks)
