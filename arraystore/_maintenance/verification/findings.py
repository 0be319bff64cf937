"""Findings of a verification, and the report of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arraystore._format.ids import SnapshotId, id_to_text
from arraystore._runtime.display import Described, View, section
from arraystore._runtime.formatting import bytes_text, count_text

EXIT_WARNINGS = 3
EXIT_ERRORS = 4
EXIT_INCOMPLETE = 5
"""Exit codes of programs that verify; 1 and 2 are failures of the program and wrong arguments."""

_MOST_FINDINGS = 10_000
_MOST_NAMED = 20
_MOST_USES = 1000


class Severity(enum.StrEnum):
    """Severity of a finding."""

    WARNING = "warning"
    """All data can be read; the finding costs requests, or is unexpected."""
    ERROR = "error"
    """Committed data cannot be read, or differs from what was committed."""


@dataclass(frozen=True)
class Finding:
    """Finding of a verification: a problem of one object.

    Parameters
    ----------
    severity
        Error or warning.
    key
        Key of the object.
    problem
        Description of the problem.
    repair
        Remedy, one sentence.
    snapshots
        Ids of affected snapshots, the oldest first, twenty at most.
    snapshot_count
        Number of affected snapshots.
    arrays
        Paths of affected arrays, twenty at most.
    array_count
        Number of affected arrays.
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
        """Return values for JSON."""
        lists = {"snapshots": list(self.snapshots), "arrays": list(self.arrays)}
        return {**vars(self), "severity": str(self.severity), **lists}

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
    """Number and size of unreferenced objects of one kind, which take space until garbage collection deletes them.

    Some may belong to a commit in preparation.  What a compaction wrote and the next one replaced is kept as long as
    the record of the first, since a session may be at it.
    """

    objects: int
    bytes: int


@dataclass(frozen=True, repr=False)
class VerifyReport(Described):
    """Report of a verification.

    Parameters
    ----------
    level
        Level of the verification: ``metadata`` or ``chunks``.
    findings
        Errors first.
    omitted
        Findings beyond the first ten thousand, which are only counted.
    counts
        Number of verified objects, by kind.
    leaks
        Unreferenced objects, by kind.
    unread
        Number of virtual chunks that this process could not read, and so not verify, by place and reason.
    """

    level: str
    findings: tuple[Finding, ...]
    omitted: int
    counts: Mapping[str, int]
    leaks: Mapping[str, Leak] = field(default_factory=dict[str, Leak])
    unread: Mapping[str, int] = field(default_factory=dict[str, int])

    def _view(self) -> View:
        errors = len(self.errors)
        verdict = "incomplete" if self.unread else "nothing is wrong"
        if self.findings:
            warnings = len(self.findings) - errors
            verdict = f"{count_text(errors, 'error')}, {count_text(warnings, 'warning')}"
            verdict += f", and {self.omitted:,} more findings" if self.omitted else ""
        looked = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in self.counts.items() if count]
        leaks = [(kind, leak) for kind, leak in self.leaks.items() if leak.objects]
        columns = "severity", "object", "problem", "arrays", "repair"
        sections = (
            *section("Findings", columns, self.findings, _finding_row, limit=_MOST_NAMED),
            *section("Unreferenced objects", ("kind", "count", "size"), leaks, _leak_row, right=("count", "size")),
            *section(
                "Virtual chunks that could not be read", ("place and reason", "chunks"), sorted(self.unread.items()),
                lambda item: (item[0], f"{item[1]:,}"), right=("chunks",), limit=_MOST_NAMED,
            ),
        )  # fmt: skip
        facts = (("verified", ", ".join(looked) or "nothing"),)
        return View(f"Verification of {self.level}: {verdict}", facts, sections)

    @property
    def complete(self) -> bool:
        """True if all chunks to verify could be read."""
        return not self.unread

    @property
    def ok(self) -> bool:
        """True if there is no error: all committed data exists and can be read."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings with the severity error."""
        return tuple(finding for finding in self.findings if finding.severity == Severity.ERROR)

    @property
    def exit_code(self) -> int:
        """Exit code for programs: 0 without findings, 3 for warnings, 5 if not all could be read, 4 for errors."""
        if self.errors:
            return EXIT_ERRORS
        if self.unread:
            return EXIT_INCOMPLETE
        return EXIT_WARNINGS if self.findings else 0

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
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
            f"unreferenced: {leak.objects:,} {kind.replace('_', ' ')}, {leak.bytes:,} bytes; a collection deletes them"
            for kind, leak in self.leaks.items()
            if leak.objects
        ]
        shown = sorted(self.unread.items(), key=lambda item: (-item[1], item[0]))[:_MOST_NAMED]
        lines += [f"not read: {count:,} virtual chunks in {place}" for place, count in shown]
        if self.unread:
            lines.append(
                f"{sum(self.unread.values()):,} virtual chunks could not be read, so they are not verified: verify "
                "where their sources can be reached, with authorize_virtual_chunk_access={prefix: storage}"
            )
        if self.findings:
            lines.append(f"{errors} errors, {warnings} warnings")
        else:
            lines.append("nothing is wrong" if self.complete else "nothing is wrong with what was read")
        return "\n".join(lines)


def _finding_row(finding: Finding) -> tuple[str, ...]:
    arrays = _enumeration(finding.arrays[:3], finding.array_count)
    return str(finding.severity), finding.key, finding.problem, arrays, finding.repair


def _leak_row(item: tuple[str, Leak]) -> tuple[str, ...]:
    kind, leak = item
    return kind.replace("_", " "), f"{leak.objects:,}", bytes_text(leak.bytes)


@dataclass(eq=False, slots=True)
class Use:
    """Array that uses an object (None for the whole hierarchy), and the snapshots of one log that have it.

    `kept` lists the retained snapshots of the log and grows during the walk. `first` and `end` are the positions of the
    first snapshot that has the object and of the next one that has not, None if all later ones have it.
    """

    path: str | None
    kept: list[SnapshotId]
    first: int
    end: int | None = None
    also: list[Use] | None = None
    """Other uses of the object."""

    def share(self, other: Use) -> None:
        """Add another use of the object."""
        if self.also is None:
            self.also = []
        self.also.append(other)

    @property
    def required(self) -> bool:
        """True if a retained snapshot has the object, as far as the log was read."""
        return self.first < (len(self.kept) if self.end is None else self.end)

    def snapshots(self) -> Iterator[SnapshotId]:
        """Yield the ids of the snapshots."""
        yield from self.kept[self.first : self.end]

    def places(self) -> Iterator[Use]:
        """Yield this and all other uses."""
        yield self
        yield from self.also or ()


@dataclass(frozen=True)
class Problem:
    """Problem of one object, whose uses are yet to be found."""

    key: str
    what: str
    repair: str


@dataclass(eq=False)
class _Entry:
    severity: Severity
    key: str
    problem: str
    repair: str
    uses: list[Use] = field(default_factory=list[Use])

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
    """Gathers findings: the same problem of an object once, with all uses of the object."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self.omitted = 0
        self.consequences: set[tuple[str, str]] = set()
        """Key and problem of findings that disappear with their causes."""

    def __len__(self) -> int:
        return len(self._entries)

    def error(self, key: str, problem: str, repair: str, uses: Iterable[Use] = ()) -> None:
        """Add an error."""
        self._add(Severity.ERROR, key, problem, repair, uses)

    def warning(self, key: str, problem: str, repair: str, uses: Iterable[Use] = ()) -> None:
        """Add a warning."""
        self._add(Severity.WARNING, key, problem, repair, uses)

    def error_of(self, problem: Problem, uses: Iterable[Use]) -> None:
        """Add a problem as an error."""
        self.error(problem.key, problem.what, problem.repair, uses)

    def warning_of(self, problem: Problem, uses: Iterable[Use]) -> None:
        """Add a problem as a warning."""
        self.warning(problem.key, problem.what, problem.repair, uses)

    def consequence(self, severity: Severity, key: str, problem: str) -> None:
        """Add a consequence of other findings."""
        self.consequences.add((key, problem))
        self._add(severity, key, problem, "resolve the other findings first", ())

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
        """Return all findings, errors first, then in order of keys."""
        findings = [entry.finding() for entry in self._entries.values()]
        return tuple(sorted(findings, key=lambda item: (item.severity != Severity.ERROR, item.key, item.problem)))
