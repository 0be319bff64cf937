"""What a second reader makes of a branch's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tests.simulation.checker.applying import Touched
from tests.simulation.checker.lives import Era, Life
from tests.simulation.checker.states import Node, Snapshot

__all__ = ["Branch", "Commit", "Rewrite"]


@dataclass(frozen=True)
class Commit:
    """One transaction of a log.

    Parameters
    ----------
    branch, number, place
        The record, and which of its transactions.
    isolation
        0 snapshot, 1 serializable.
    before, after
        The snapshots before and after it.
    touched
        What it changed.
    amends
        Id of the snapshot that it takes the place of; None for an ordinary commit.
    """

    branch: str
    number: int
    place: int
    isolation: int
    before: Snapshot = field(repr=False)
    after: Snapshot = field(repr=False)
    touched: Touched = field(repr=False)
    amends: bytes | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Its place in the log."""
        return self.number, self.place

    @property
    def id(self) -> bytes:
        """Of the snapshot that it made."""
        return self.after.id


@dataclass(frozen=True)
class Rewrite:
    """What a rewrite did to one node."""

    number: int
    before: Node
    after: Node


@dataclass
class Branch:
    """A log, replayed.

    Parameters
    ----------
    name
        Of the branch.
    prefix
        What the keys of its records start with.
    first
        The snapshot of its birth.
    origin
        Branch and record of the birth's origin.
    commits
        All transactions, in order.
    rewrites
        All that rewrites did.
    refusals
        Ids of proposed transactions that records refuse, with the numbers of these.
    states
        The snapshot of each record.
    eras
        What begins with the birth and with each reset.
    lives
        What each record says of the branch itself, all before it taken together.
    changes
        Ids of change logs that are objects of their own, with the numbers of their records.
    brought
        Ids of packs that bodies name, with the numbers of their records.
    """

    name: str
    prefix: str
    first: Snapshot
    origin: tuple[str, int] | None
    commits: list[Commit] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    refusals: list[tuple[int, bytes]] = field(default_factory=list)
    states: list[Snapshot] = field(default_factory=list)
    eras: list[Era] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    changes: list[tuple[int, bytes]] = field(default_factory=list)
    brought: list[tuple[int, bytes]] = field(default_factory=list)

    def key(self, number: int) -> str:
        """Return the key of a record."""
        return f"{self.prefix}{number:012d}"

    @cached_property
    def positions(self) -> dict[bytes, int]:
        """Place of each snapshot in the log, of a commit how many transactions there are up to it.

        The last one of a snapshot that the branch was reset to.
        """
        found = {commit.id: i for i, commit in enumerate(self.commits, 1)}
        for era in self.eras:
            found[era.first.id] = max(era.place, found.get(era.first.id, 0))
        return found

    @cached_property
    def _made(self) -> dict[bytes, Snapshot]:
        begun = {era.first.id: era.first for era in reversed(self.eras)}
        return begun | {commit.id: commit.after for commit in self.commits}

    def snapshot(self, identifier: bytes) -> Snapshot | None:
        """Return a snapshot of this log; None if it has none of this id."""
        return self._made.get(identifier)

    def made(self, identifier: bytes) -> int:
        """Return the place of the transaction that made a snapshot."""
        return self._own_places[identifier]

    @cached_property
    def _own_places(self) -> dict[bytes, int]:
        return {commit.id: i for i, commit in enumerate(self.commits, 1)}

    def committed(self, identifier: bytes) -> int | None:
        """Return the number of the record that commits a snapshot; None if none of this log does."""
        place = self._own_places.get(identifier)
        return None if place is None else self.commits[place - 1].number

    def after(self, number: int) -> int:
        """Return the place behind the last transaction up to a record."""
        return sum(commit.number <= number for commit in self.commits)

    def places(self, identifier: bytes) -> list[int]:
        """Return all places of a snapshot, in order: that of its commit, and those of resets to it."""
        found = {era.place for era in self.eras if era.first.id == identifier}
        at = self._own_places.get(identifier)
        return sorted(found if at is None else found | {at})

    def standing(self, identifier: bytes) -> list[tuple[int, int]]:
        """Return the stretches of records, first and last, after which the branch stood at a snapshot."""
        found: list[tuple[int, int]] = []
        for number, state in enumerate(self.states):
            if state.id == identifier and not self.lives[number].deleted:
                if found and found[-1][1] == number - 1:
                    found[-1] = found[-1][0], number
                else:
                    found.append((number, number))
        return found

    def ends(self) -> list[int]:
        """Return the records that delete the branch."""
        return [n for n in range(1, len(self.lives)) if self.lives[n].last_end != self.lives[n - 1].last_end]

    def era(self, place: int, first: bytes | None = None) -> Era:
        """Return the era of a place; of a place where one begins, that one for its first snapshot, else the former."""
        fitting = [era for era in self.eras if era.place < place or (era.first.id == first and era.place == place)]
        return fitting[-1] if fitting else self.eras[0]
