"""How what is kept changes in the course of a run: what was needed until when, and what ceased to be shown when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from tests.simulation.checker.decoder import Branch
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.moments import Moments
from tests.simulation.checker.repository import RefLog, Table
from tests.simulation.checker.retained import Held, Need, held_at

__all__ = ["Lifetimes"]

_START = -inf


@dataclass
class Lifetimes:
    """What is kept, from the first moment to the last.

    Parameters
    ----------
    logs, refs
        Of the repository.
    moments
        When which object was written and deleted.
    lag
        Seconds of writes that listings may have missed.
    """

    logs: Logs
    refs: RefLog
    moments: Moments
    lag: float = 0.0
    _held: dict[float, Held] = field(default_factory=dict[float, Held])

    def at(self, moment: float) -> Held:
        """Return what was kept at a moment: after everything that took effect up to then."""
        found = self._held.get(moment)
        if found is None:
            newest = {
                name: number for name, log in self.logs.branches.items() if (number := self._upto(log, moment)) >= 0
            }
            found = self._held[moment] = held_at(self.logs, newest, self.table(moment))
        return found

    def may_be_unlisted(self, snapshot: str, began: float) -> bool:
        """Tell whether a snapshot is so new, or was so where its branch began, that listings from then on miss it."""
        made = self.logs.snapshot(snapshot)
        if not self.lag or made is None:
            return False
        if made.id not in self.logs.places:
            return False  # on no branch: it is read without any listing
        branch = self.logs.places[made.id][0]
        return self.times(branch)[made.number] > began - self.lag

    def table(self, moment: float) -> Table:
        """Return what the repository log made up to a moment."""
        count = sum(self._since(self.logs.reader.repository_key(entry.number)) <= moment for entry in self.refs.entries)
        return self.refs.tables[count]

    def _upto(self, log: Branch, moment: float) -> int:
        return sum(time <= moment for time in self.times(log.name)) - 1

    def newest(self, branch: str, moment: float) -> int:
        """Return the newest record of a branch at a moment; the first one if there was none."""
        return max(0, self._upto(self.logs.branches[branch], moment))

    def times(self, branch: str) -> list[float]:
        """Return when each record of a branch was written."""
        if branch not in self._times:
            count = len(self.logs.branches[branch].states)
            self._times[branch] = [self._since(self.logs.reader.record_key(branch, number)) for number in range(count)]
        return self._times[branch]

    @cached_property
    def _times(self) -> dict[str, list[float]]:
        return {}

    def _since(self, key: str) -> float:
        found = self.moments.since(key)
        return _START if found is None else found

    def since_entry(self, number: int) -> float:
        """Return when a record of the repository log was written."""
        return self._since(self.logs.reader.repository_key(number))

    @cached_property
    def changes(self) -> list[float]:
        """When something may have ceased to be shown: resets, deletions, expiries, amendments."""
        found = {self._since(self.logs.reader.repository_key(e.number)) for e in self.refs.entries if e.ref is not None}
        for name, log in self.logs.branches.items():
            times = self.times(name)
            found |= {times[n] for n in range(1, len(times)) if log.lives[n] != log.lives[n - 1]}
            found |= {times[c.number] for c in log.commits if c.after.parent != c.before.id}
        if self.logs.detached:  # what is on no branch stays until a collection passes it
            found |= {self.since_entry(e.number) for e in self.refs.entries if e.watermark is not None}
        return sorted(found - {_START})

    def between(self, began: float, ended: float) -> list[float]:
        """Return when something may have ceased to be shown between two moments."""
        return [moment for moment in self.changes if began < moment < ended]

    @cached_property
    def needed_until(self) -> dict[Need, tuple[float, str]]:
        """Until when each object was needed, and for what."""
        found: dict[Need, tuple[float, str]] = {}
        for held, until in self._spans():
            for need, what in held.needs.items():
                found[need] = until, what  # later ones come later
        return found

    def _spans(self) -> Iterator[tuple[Held, float]]:
        """Return what was kept right before each change, and in the end."""
        for moment in self.changes:
            yield self.at(_before(moment)), moment
        yield self.at(inf), inf

    @cached_property
    def lapsed(self) -> dict[bytes, float]:
        """When each snapshot first ceased to be shown."""
        found: dict[bytes, float] = {}
        for moment in self.changes:
            for identifier in self.at(_before(moment)).shown.keys() - self.at(moment).shown.keys():
                found.setdefault(identifier, moment)
        return found


def _before(moment: float) -> float:
    return moment - 1e-9
