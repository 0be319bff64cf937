"""What copying reports: while it goes on, and in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = [
    "BranchCopyReport",
    "CopyProgress",
    "CopyReport",
    "ImportReport",
    "LeftOut",
    "Progress",
    "Tally",
    "TransferReport",
]


@dataclass(frozen=True)
class CopyProgress:
    """How far a copy is.

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


Progress = Callable[[CopyProgress], None]
"""Is told how far a copy is, after each object."""


@dataclass(frozen=True)
class LeftOut:
    """Something that was not copied, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class CopyReport:
    """What a clone did.

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
        How many snapshots were checked: that everything that they need is at the target.  None without a check.
    left_out
        Objects that no snapshot of the copy needs, and that could not be copied: damaged, or deleted meanwhile.
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
    """What the copy of a branch did.

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
    """What the import of a repository did.

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
    """

    branches: dict[str, str]
    tags: dict[str, str]
    snapshots: int
    known: int
    chunks: int
    bytes: int
    virtual: int


@dataclass(frozen=True)
class TransferReport:
    """What the import or export of a plain Zarr hierarchy did.

    Parameters
    ----------
    snapshot_id
        The snapshot that was made, or that was exported.
    documents, chunks, files
        Keys that were written, by what is behind them.
    bytes
        Their values.
    skipped
        Keys that an interrupted export had written.
    left_out
        Keys that were not taken over: chunks outside of the grid of their array, which no reader looks for.
    """

    snapshot_id: str
    documents: int
    chunks: int
    files: int
    bytes: int
    skipped: int = 0
    left_out: tuple[LeftOut, ...] = ()


@dataclass
class Tally:
    """Counts what a copy does, and tells whoever wants to know.

    Parameters
    ----------
    progress
        Is told.
    """

    progress: Progress | None = None
    stage: str = ""
    objects: int = 0
    bytes: int = 0
    skipped: int = 0
    virtual: int = 0
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])

    def copied(self, size: int, objects: int = 1) -> None:
        """Count what was written."""
        self.objects += objects
        self.bytes += size
        self.tell()

    def skip(self) -> None:
        """Count what was there."""
        self.skipped += 1
        self.tell()

    def leave_out(self, key: str, reason: str) -> None:
        """Count what was not copied."""
        self.left_out.append(LeftOut(key, reason))

    def enter(self, stage: str) -> None:
        """Begin another stage."""
        self.stage = stage
        self.tell()

    def tell(self) -> None:
        """Tell how far it is."""
        if self.progress is not None:
            self.progress(CopyProgress(self.stage, self.objects, self.bytes, self.skipped))
