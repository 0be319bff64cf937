"""All logs of a repository, and what transactions became of in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from urllib.parse import unquote

from tests.simulation.checker.applying import Touched
from tests.simulation.checker.decoder import Branch, Commit, Reader
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.lives import Era
from tests.simulation.checker.moments import Moments
from tests.simulation.checker.states import Snapshot
from tests.simulation.checker.violations import DecodingError, Violation

__all__ = ["Logs", "id_bytes", "short"]

_DIGITS = {letter: value for value, letter in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}


def id_bytes(text: str) -> bytes:
    """Return the bytes of an id."""
    number = 0
    for letter in text:
        number = number << 5 | _DIGITS[letter]
    return number.to_bytes(12, "big")


def short(value: bytes | None) -> str:
    """Return bytes as they are shown to people."""
    if value is None:
        return "nothing"
    return repr(value[:60]) + (f" and {len(value) - 60} bytes more" if len(value) > 60 else "")


@dataclass
class Logs:
    """Every branch that could be read.

    Parameters
    ----------
    reader
        Of the objects.
    branches
        By name.
    broken
        What could not be read.
    moments
        When which object was written.
    detached
        Snapshots that are on no branch, by id.
    flushed
        Ids of those of which somebody was told.
    """

    reader: Reader
    branches: dict[str, Branch] = field(default_factory=dict)
    broken: list[Violation] = field(default_factory=list)
    moments: Moments = field(default_factory=lambda: Moments({}, {}))
    detached: dict[bytes, Snapshot] = field(default_factory=dict[bytes, Snapshot])
    flushed: set[bytes] = field(default_factory=set[bytes])

    @classmethod
    def read(cls, reader: Reader, moments: Moments | None = None) -> Logs:
        """Read all branches; those that are damaged become violations."""
        logs = cls(reader) if moments is None else cls(reader, moments=moments)
        for name in logs.names():
            try:
                logs.branches[name] = reader.branch(name)
            except DecodingError as error:
                logs.broken.append(Violation("history", error.what, error.key))
        return logs

    def names(self) -> list[str]:
        """Return the names of all branches that have records."""
        prefix = f"refs/{self.reader.repository}/branch/"
        keys = (key[len(prefix) :] for key in self.reader.objects if key.startswith(prefix))
        return sorted({unquote(key.partition("/")[0]) for key in keys})

    @cached_property
    def places(self) -> dict[bytes, tuple[str, int]]:
        """Branch and place of each snapshot; one that a branch was created at is that of the branch that made it."""
        found: dict[bytes, tuple[str, int]] = {}
        for name, branch in self.branches.items():
            for at, commit in enumerate(branch.commits, 1):
                found.setdefault(commit.id, (name, at))
        for name, branch in sorted(self.branches.items(), key=lambda item: item[1].origin is not None):
            for era in branch.eras:
                found.setdefault(era.first.id, (name, era.place))
        return found

    @cached_property
    def labelled(self) -> dict[str, list[Commit]]:
        """All commits by their message."""
        found: dict[str, list[Commit]] = {}
        for commit in self.commits():
            found.setdefault(commit.after.message, []).append(commit)
        return found

    def started(self, branch: Branch, era: Era) -> float | None:
        """Return when an era began; None where no trace tells."""
        return self.moments.since(branch.key(era.number))

    def begun(self, branch: Branch, place: int, first: bytes) -> float:
        """Return when the era of a place began; before everything where nobody knows."""
        since = self.started(branch, branch.era(place, first))
        return -inf if since is None else since

    def commits(self) -> Iterator[Commit]:
        """Iterate over the commits of all branches, each in order."""
        for branch in self.branches.values():
            yield from branch.commits

    def snapshot(self, text: str) -> Snapshot | None:
        """Return a snapshot by the text of its id; None if there never was one."""
        return self.by_id(id_bytes(text))

    def by_id(self, identifier: bytes) -> Snapshot | None:
        """Return a snapshot of a log, or on no branch; None if there never was one."""
        place = self.places.get(identifier)
        return self.detached.get(identifier) if place is None else self.branches[place[0]].snapshot(identifier)

    def ancestry(self, identifier: bytes) -> Iterator[Snapshot]:
        """Iterate over a snapshot and those before it, as their parents tell."""
        seen: set[bytes] = set()
        at = self.by_id(identifier)
        while at is not None and at.id not in seen:  # a damaged log may go round in a circle
            seen.add(at.id)
            yield at
            at = None if at.parent is None else self.by_id(at.parent)

    def between(self, branch: str, start: int, end: int) -> Touched:
        """Return what the commits after one place of a log, and before another, have touched."""
        touched = Touched()
        for commit in self.branches[branch].commits[start:end]:
            touched.add(commit.touched)
        return touched

    def labels(self, branch: str, start: int, end: int) -> str:
        """Return the messages of the commits between two places, for people."""
        return _few([commit.after.message for commit in self.branches[branch].commits[start:end]])


def _few(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:5])
    return shown + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def text_of(identifier: bytes | None) -> str | None:
    """Return the text of an id, None for none."""
    return None if identifier is None else id_text(identifier)
