"""What a conflict is: which of our changes collides with which snapshot, where, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Conflict", "ConflictType", "VersionSelection", "conflict_table"]

_SHOWN_CHUNKS = 3
_SHOWN_CONFLICTS = 20


class ConflictType(enum.Enum):
    """What collides; "ours" is the session's change, "theirs" what was committed since its base."""

    NewNodeConflictsWithExistingNode = 1
    """Ours creates a node at a path where theirs has one, or below or above which theirs has one that forbids it."""
    NewNodeInInvalidGroup = 2
    """Ours creates a node whose parent theirs deleted, moved away, or made an array."""
    ZarrMetadataDoubleUpdate = 3
    """Both changed the metadata of one node."""
    ZarrMetadataUpdateOfDeletedArray = 4
    """Ours changed the metadata of an array, or appended to it, which theirs deleted."""
    ZarrMetadataUpdateOfDeletedGroup = 5
    """Ours changed the metadata of a group that theirs deleted."""
    ChunkDoubleUpdate = 6
    """Both wrote or deleted the same chunks."""
    ChunksUpdatedInDeletedArray = 7
    """Ours wrote chunks of an array that theirs deleted."""
    ChunksUpdatedInUpdatedArray = 8
    """Ours wrote chunks of an array of which theirs changed how chunks are read."""
    DeleteOfUpdatedArray = 9
    """Ours deletes an array that theirs changed."""
    DeleteOfUpdatedGroup = 10
    """Ours deletes a group that theirs changed, moved, or put a node into."""
    MoveOperationCannotBeRebased = 11
    """Ours moves a node that theirs moved or deleted, or to a place that theirs took or took away."""
    ZarrMetadataUpdateOfUpdatedChunks = 12
    """Ours changed how chunks of an array are read, of which theirs wrote chunks."""
    DeleteOfDeletedNode = 13
    """Both deleted the same node."""
    UnalignedAppend = 14
    """Ours appends, and theirs appended, and the ends are not those of whole chunks."""
    DuplicateAppend = 15
    """Ours appends values of a unique coordinate that theirs has appended."""
    ReadConflict = 16
    """Ours is serializable and read something that theirs changed."""


class VersionSelection(enum.Enum):
    """Which of two versions of a chunk counts."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2


@dataclass(frozen=True, eq=False)
class Conflict:
    """One collision.

    Parameters
    ----------
    conflict_type
        What collides.
    path
        Of the node, with a slash in front, where theirs has it (or had it).
    conflicted_chunks
        Grid coordinates of the chunks, shape (n, d); None where it is not about chunks.
    snapshot
        Id of the snapshot that it collides with; of several the newest.
    detail
        What happened, for people.
    node
        Id of the node.
    """

    conflict_type: ConflictType
    path: str
    conflicted_chunks: npt.NDArray[np.int64] | None = None
    snapshot: str = ""
    detail: str = ""
    node: bytes = field(default=b"", repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conflict):
            return NotImplemented
        mine, theirs = self.conflicted_chunks, other.conflicted_chunks
        same = (self.conflict_type, self.path, self.snapshot) == (other.conflict_type, other.path, other.snapshot)
        if mine is None or theirs is None:
            return same and mine is theirs
        return same and np.array_equal(mine, theirs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Conflict({self.conflict_type.name}, {self.path!r}, chunks={self.chunks_text() or None})"

    def chunks_text(self) -> str:
        """Return the first of the chunks, and how many more there are."""
        if self.conflicted_chunks is None:
            return ""
        shown = ", ".join(str(tuple(row)) for row in self.conflicted_chunks[:_SHOWN_CHUNKS].tolist())
        rest = len(self.conflicted_chunks) - _SHOWN_CHUNKS
        return f"{shown} and {rest} more" if rest > 0 else shown


def conflict_table(conflicts: Sequence[Any]) -> str:
    """Return conflicts as a table of text, a line each."""
    rows = [("conflict", "path", "chunks", "with snapshot", "what happened")]
    rows += [
        (item.conflict_type.name, item.path, item.chunks_text(), item.snapshot, item.detail)
        for item in conflicts[:_SHOWN_CONFLICTS]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in [*widths, len(rows[0][4])]))
    if len(conflicts) > _SHOWN_CONFLICTS:
        lines.append(f"... and {len(conflicts) - _SHOWN_CONFLICTS} more")
    return "\n".join("    " + line for line in lines)
