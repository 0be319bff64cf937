"""What a verification finds, and how it is told."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arraystore._format.ids import id_to_text

__all__ = [
    "EXIT_ERRORS",
    "EXIT_INCOMPLETE",
    "EXIT_WARNINGS",
    "Collector",
    "Finding",
    "Leak",
    "Severity",
    "Use",
    "VerifyReport",
]

EXIT_WARNINGS = 3
EXIT_ERRORS = 4
EXIT_INCOMPLETE = 5
"""Exit codes of programs that verify; 1 and 2 say that they could not, or did not understand what was asked."""

_MOST_FINDINGS = 10_000
_MOST_NAMED = 20
_MOST_USES = 1000


class Severity(enum.StrEnum):
    """How bad it is."""

    WARNING = "warning"
    """Everything can be read; it costs requests, or somebody would be surprised."""
    ERROR = "error"
    """Something that was committed cannot be read, or is not what was committed."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Parameters
    ----------
    severity
        How bad it is.
    key
        Key of the object.
    problem
        What is wrong with it.
    repair
        What to do about it, one sentence.
    snapshots
        Ids of snapshots that are affected, the oldest first, twenty at most.
    snapshot_count
        How many are affected.
    arrays
        Paths of arrays that are affected, twenty at most.
    array_count
        How many are affected.
    """

    severity: Severity
    key: str
    problem: str
    repair: str
    snapshots: tuple[str, ...] = ()
    snapshot_count: int = 0
    arrays: tuple[str, ...] = ()
    array_count: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "severity": str(self.severity),
            "key": self.key,
            "problem": self.problem,
            "repair": self.repair,
            "snapshots": list(self.snapshots),
            "snapshot_count": self.snapshot_count,
            "arrays": list(self.arrays),
            "array_count": self.array_count,
        }

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.key}: {self.problem}"]
        if self.snapshot_count:
            lines.append(f"  snapshots: {_enumeration(self.snapshots, self.snapshot_count)}")
        if self.array_count:
            lines.append(f"  arrays: {_enumeration(self.arrays, self.array_count)}")
        lines.append(f"  repair: {self.repair}")
        return "\n".join(lines)


def _enumeration(named: Sequence[str], count: int) -> str:
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return ", ".join(named) + more


@dataclass(frozen=True)
class Leak:
    """Objects of one kind that nothing leads to: not wrong, but they take room until they are collected.

    Some of them may belong to a commit that is being prepared.

    Parameters
    ----------
    objects, bytes
        How many, and how large together.
    """

    objects: int
    bytes: int


@dataclass(frozen=True)
class VerifyReport:
    """What a verification found.

    Parameters
    ----------
    level
        How deep it looked: ``metadata`` or ``chunks``.
    findings
        Errors first.
    omitted
        Findings beyond the first ten thousand, which are only counted.
    counts
        How much was looked at, by kind.
    leaks
        Objects that nothing leads to, by kind.
    unread
        Virtual chunks that could not be read from here, so that nothing is said of them, by place and reason.
    """

    level: str
    findings: tuple[Finding, ...]
    omitted: int
    counts: Mapping[str, int]
    leaks: Mapping[str, Leak] = field(default_factory=dict[str, Leak])
    unread: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def complete(self) -> bool:
        """Whether everything was read that was to be read."""
        return not self.unread

    @property
    def ok(self) -> bool:
        """Whether everything that was committed is there and can be read."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that are more than warnings."""
        return tuple(finding for finding in self.findings if finding.severity == Severity.ERROR)

    @property
    def exit_code(self) -> int:
        """For programs: 0 if nothing was found, 3 for warnings, 5 if not all could be read, 4 for errors."""
        if self.errors:
            return EXIT_ERRORS
        if self.unread:
            return EXIT_INCOMPLETE
        return EXIT_WARNINGS if self.findings else 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "level": self.level,
            "ok": self.ok,
            "complete": self.complete,
            "unread": dict(self.unread),
            "findings": [finding.to_dict() for finding in self.findings],
            "omitted": self.omitted,
            "counts": dict(self.counts),
            "leaks": {kind: {"objects": leak.objects, "bytes": leak.bytes} for kind, leak in self.leaks.items()},
        }

    def __str__(self) -> str:
        errors = len(self.errors)
        warnings = len(self.findings) - errors
        lines = [str(finding) for finding in self.findings]
        if self.omitted:
            lines.append(f"… and {self.omitted} more findings")
        looked = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in self.counts.items() if count)
        lines.append(f"verified {looked or 'nothing'} ({self.level})")
        lines += [
            f"unreached: {leak.objects:,} {kind.replace('_', ' ')}, {leak.bytes:,} bytes"
            for kind, leak in self.leaks.items()
            if leak.objects
        ]
        shown = sorted(self.unread.items(), key=lambda item: (-item[1], item[0]))[:_MOST_NAMED]
        lines += [f"not read: {count:,} virtual chunks in {place}" for place, count in shown]
        if self.unread:
            lines.append(
                f"{sum(self.unread.values()):,} virtual chunks could not be read, so nothing is known of them: verify "
                "where their sources can be reached, with authorize_virtual_chunk_access={prefix: storage}"
            )
        if self.findings:
            lines.append(f"{errors} errors, {warnings} warnings")
        else:
            lines.append("nothing is wrong" if self.complete else "nothing is wrong with what was read")
        return "\n".join(lines)


class Use:
    """Where something is used: an array, and the snapshots of one log that have it.

    Parameters
    ----------
    path
        Of the array; empty for the hierarchy as a whole.
    kept
        Retained snapshots of the log, in order; the list grows as the log is read.
    first, end
        Position of the first one that has it, and of the first one after that that has not; None as long as all have.
    """

    __slots__ = ("also", "end", "first", "kept", "path")

    def __init__(self, path: str | None, kept: list[bytes], first: int, end: int | None = None) -> None:
        self.path = path
        self.kept = kept
        self.first = first
        self.end = end
        self.also: list[Use] | None = None
        """Other places where the same thing is used."""

    def share(self, other: Use) -> None:
        """Take note of another place."""
        if self.also is None:
            self.also = []
        self.also.append(other)

    @property
    def required(self) -> bool:
        """Whether a retained snapshot has it, as far as the log was read."""
        return self.first < (len(self.kept) if self.end is None else self.end)

    def snapshots(self) -> Iterator[bytes]:
        """Yield the ids of the snapshots."""
        for at in range(self.first, len(self.kept) if self.end is None else self.end):
            yield self.kept[at]

    def places(self) -> Iterator[Use]:
        """Yield this and all other places."""
        yield self
        yield from self.also or ()


class _Entry:
    def __init__(self, severity: Severity, key: str, problem: str, repair: str) -> None:
        self.severity = severity
        self.key = key
        self.problem = problem
        self.repair = repair
        self.uses: list[Use] = []

    def finding(self) -> Finding:
        uses = [place for use in self.uses for place in use.places()]
        snapshots = sorted({snapshot for use in uses for snapshot in use.snapshots()})
        arrays = sorted({use.path for use in uses if use.path is not None})
        return Finding(
            self.severity,
            self.key,
            self.problem,
            self.repair,
            tuple([id_to_text(snapshot) for snapshot in snapshots[:_MOST_NAMED]]),
            len(snapshots),
            tuple(["/" + path for path in arrays[:_MOST_NAMED]]),
            len(arrays),
        )


class Collector:
    """Gathers findings: the same problem of an object once, with all that it affects."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self.omitted = 0
        self.consequences: set[tuple[str, str]] = set()
        """Key and problem of findings that are gone when others are."""

    def __len__(self) -> int:
        return len(self._entries)

    def error(self, key: str, problem: str, repair: str, uses: Iterable[Use] = ()) -> None:
        """Note an error."""
        self._add(Severity.ERROR, key, problem, repair, uses)

    def warning(self, key: str, problem: str, repair: str, uses: Iterable[Use] = ()) -> None:
        """Note a warning."""
        self._add(Severity.WARNING, key, problem, repair, uses)

    def consequence(self, severity: Severity, key: str, problem: str) -> None:
        """Note what other findings bring about."""
        self.consequences.add((key, problem))
        self._add(severity, key, problem, "see to the other findings first", ())

    def _add(self, severity: Severity, key: str, problem: str, repair: str, uses: Iterable[Use]) -> None:
        entry = self._entries.get((key, problem))
        if entry is None:
            if len(self._entries) >= _MOST_FINDINGS:
                self.omitted += 1
                return
            entry = self._entries[key, problem] = _Entry(severity, key, problem, repair)
        if severity == Severity.ERROR:
            entry.severity = severity
        for use in uses:
            if len(entry.uses) < _MOST_USES:
                entry.uses.append(use)

    def findings(self) -> tuple[Finding, ...]:
        """Return all, errors first, then in order of keys."""
        found = [entry.finding() for entry in self._entries.values()]
        return tuple(sorted(found, key=lambda item: (item.severity != Severity.ERROR, item.key, item.problem)))
