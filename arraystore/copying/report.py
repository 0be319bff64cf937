"""Progress and results of copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from arraystore._runtime.engine import expect, unexpected

__all__ = [
    "BranchCopyReport",
    "CopyCounter",
    "CopyProgress",
    "CopyProgressCallback",
    "CopyReport",
    "ImportReport",
    "LeftOut",
    "TransferReport",
]


@dataclass(frozen=True)
class CopyProgress:
    """Progress of a copy.

    Parameters
    ----------
    stage
        What is being copied: ``"chunks"``, ``"refs"``, ``"verify"``, and so on.
    objects, bytes
        Copied so far, in all stages.
    skipped
        Found at the target already.
    """

    stage: str
    objects: int
    bytes: int
    skipped: int


CopyProgressCallback = Callable[[CopyProgress], None]
"""Called with the progress of a copy after each object."""


@dataclass(frozen=True)
class LeftOut:
    """An object that was not copied, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True)
class CopyReport:
    """Result of a clone.

    Parameters
    ----------
    objects, bytes
        Written to the target.
    skipped
        Objects that the target had.
    requests
        Requests to both storages, those of the check included.
    branches
        Number of the newest record that was copied, by branch.
    snapshots
        Count of verified snapshots, which have all their objects at the target; None without verification.
    left_out
        Objects that could not be copied, being damaged or deleted at the source, and that no snapshot of the copy
        needs.
    """

    objects: int
    bytes: int
    skipped: int
    requests: int
    branches: dict[str, int]
    snapshots: int | None
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class BranchCopyReport:
    """Result of copying a branch.

    Parameters
    ----------
    branch
        Of the target.
    snapshot_id
        Its newest snapshot now.
    snapshots
        Commits that were made.
    chunks, bytes
        Chunks that were written to the target, inlined ones included.
    virtual
        References to objects elsewhere that were written.
    """

    branch: str
    snapshot_id: str
    snapshots: int
    chunks: int
    bytes: int
    virtual: int


@dataclass(frozen=True)
class ImportReport:
    """Result of importing a repository.

    Parameters
    ----------
    branches
        Id of the newest snapshot, by branch.
    tags
        Id of the snapshot, by tag.
    snapshots
        Commits that were made.
    known
        Snapshots that an earlier run had imported.
    chunks, bytes
        Chunks that were written.
    virtual
        References to objects elsewhere that were written.
    unchecked
        Those of them that have no checksum, or whose checksum could not be read.
    """

    branches: dict[str, str]
    tags: dict[str, str]
    snapshots: int
    known: int
    chunks: int
    bytes: int
    virtual: int
    unchecked: int = 0


@dataclass(frozen=True)
class TransferReport:
    """Result of importing or exporting a plain Zarr hierarchy.

    Parameters
    ----------
    snapshot_id
        The snapshot that was made, or that was exported.
    documents, chunks, files
        Keys that were written, by kind.
    bytes
        Their values.
    skipped
        Keys that an interrupted export had written.
    left_out
        Keys that were not imported: chunks outside the grid of their array, which no reader asks for.
    """

    snapshot_id: str
    documents: int
    chunks: int
    files: int
    bytes: int
    skipped: int = 0
    left_out: tuple[LeftOut, ...] = ()


@dataclass
class CopyCounter:
    """Counts what a copy does, and reports its progress."""

    progress: CopyProgressCallback | None = None
    """Called with the progress after each object."""
    stage: str = ""
    objects: int = 0
    bytes: int = 0
    skipped: int = 0
    virtual: int = 0
    unchecked: int = 0
    requests: int = 0
    """Requests of workers; those of this process are counted by its storages."""
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])

    def copied(self, size: int, objects: int = 1) -> None:
        """Count objects that were written."""
        self.objects += objects
        self.bytes += size
        self.report()

    def skip(self) -> None:
        """Count an object that the target had."""
        self.skipped += 1
        self.report()

    def leave_out(self, key: str, reason: str) -> None:
        """Count an object that was not copied."""
        self.left_out.append(LeftOut(key, reason))

    def enter(self, stage: str) -> None:
        """Begin the next stage."""
        self.stage = stage
        self.report()

    def report(self) -> None:
        """Report the progress."""
        if self.progress is not None:
            self.progress(CopyProgress(self.stage, self.objects, self.bytes, self.skipped))

    def counts(self) -> tuple[int, int, int, list[tuple[str, str]]]:
        """Return what a worker has counted, as plain values for `add_counts`."""
        return self.objects, self.bytes, self.skipped, [(item.key, item.reason) for item in self.left_out]

    def add_counts(self, counts: Any) -> None:
        """Add what a worker has counted, after checking that it is counts; raise `FormatError`."""
        match counts:
            case (int() as objects, int() as size, int() as skipped, tuple() as left_out):
                expect(min(objects, size, skipped) >= 0, "counts of objects")
            case _:
                raise unexpected("counts of objects")
        for item in left_out:
            match item:
                case (str() as key, str() as reason):
                    self.leave_out(key, reason)
                case _:
                    raise unexpected("a list of objects that were left out")
        self.skipped += skipped
        self.copied(size, objects)
