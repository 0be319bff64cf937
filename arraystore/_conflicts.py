"""Conflicts between the changes of a session and snapshots committed since its base."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._runtime.display import View, section
from arraystore._runtime.formatting import count_text, printable

__all__ = ["Conflict", "ConflictType", "Conflicts", "VersionSelection", "conflict_table"]

_SHOWN_CHUNKS = 3
_SHOWN_CONFLICTS = 20
DELETES_MOVED = "ours deletes it, theirs moved it"
"""Detail of a conflict of a deletion with a move, and nothing else."""

_COLUMNS = ("conflict", "path", "chunks", "with snapshot", "what happened")


class ConflictType(enum.Enum):
    """Kind of a conflict; "ours" are the session's changes, "theirs" those committed since its base."""

    NewNodeConflictsWithExistingNode = 1
    """Ours creates a node at a path where theirs has one, or above or below a node of theirs that rules it out."""
    NewNodeInInvalidGroup = 2
    """Ours creates a node whose parent theirs deleted, moved, or replaced by an array."""
    ZarrMetadataDoubleUpdate = 3
    """Both changed the metadata of the same node."""
    ZarrMetadataUpdateOfDeletedArray = 4
    """Ours changed the metadata of an array, or appended to an array, that theirs deleted."""
    ZarrMetadataUpdateOfDeletedGroup = 5
    """Ours changed the metadata of a group that theirs deleted."""
    ChunkDoubleUpdate = 6
    """Both wrote or deleted the same chunks."""
    ChunksUpdatedInDeletedArray = 7
    """Ours wrote chunks of an array that theirs deleted."""
    ChunksUpdatedInUpdatedArray = 8
    """Ours wrote chunks of an array whose decoding theirs changed."""
    DeleteOfUpdatedArray = 9
    """Ours deletes an array that theirs changed."""
    DeleteOfUpdatedGroup = 10
    """Ours deletes a group that theirs changed, moved, or added a node to."""
    MoveOperationCannotBeRebased = 11
    """Ours moves a node that theirs moved or deleted, or to a path that theirs created or deleted."""
    ZarrMetadataUpdateOfUpdatedChunks = 12
    """Ours changed the decoding of an array of which theirs wrote chunks."""
    DeleteOfDeletedNode = 13
    """Both deleted the same node."""
    UnalignedAppend = 14
    """Both append, and an end is not at the boundary of a chunk."""
    DuplicateAppend = 15
    """Ours appends values of a unique coordinate that theirs appended, too."""
    ReadConflict = 16
    """Ours is serializable and read data that theirs changed."""


class VersionSelection(enum.Enum):
    """Choice between two versions of a chunk."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2


@dataclass(frozen=True, eq=False)
class Conflict:
    """Conflict between a change of the session and a snapshot.

    Parameters
    ----------
    conflict_type
        Kind of the conflict.
    path
        Path of the node in theirs, or before theirs deleted it, with a leading slash.
    conflicted_chunks
        Grid coordinates of the chunks, shape (n, d); None for a conflict that does not concern chunks.
    snapshot
        Id of the conflicting snapshot, the newest of several.
    detail
        Description of the conflict.
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

    def _repr_html_(self) -> str:
        return _view(f"Conflict at {self.path}", [self]).to_html()

    def chunks_text(self) -> str:
        """Format the coordinates of the first chunks and the number of the others."""
        if self.conflicted_chunks is None:
            return ""
        shown = ", ".join(str(tuple(row)) for row in self.conflicted_chunks[:_SHOWN_CHUNKS].tolist())
        rest = len(self.conflicted_chunks) - _SHOWN_CHUNKS
        return f"{shown} and {rest} more" if rest > 0 else shown


class Conflicts(list[Conflict]):
    """List of conflicts, which notebooks show as a table."""

    def __repr__(self) -> str:
        return _view(count_text(len(self), "conflict"), self).to_text()

    def _repr_html_(self) -> str:
        return _view(count_text(len(self), "conflict"), self).to_html()


def _view(title: str, conflicts: Sequence[Conflict]) -> View:
    return View(title, sections=section("", _COLUMNS, conflicts, _row, limit=_SHOWN_CONFLICTS))


def _row(item: Any) -> tuple[str, ...]:
    return item.conflict_type.name, item.path, item.chunks_text(), item.snapshot, item.detail


def conflict_table(conflicts: Sequence[Any]) -> str:
    """Format conflicts as a table with one line each."""
    rows = [_COLUMNS, *(tuple(map(printable, _row(each))) for each in conflicts[:_SHOWN_CONFLICTS])]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in [*widths, len(rows[0][4])]))
    if len(conflicts) > _SHOWN_CONFLICTS:
        lines.append(f"... and {len(conflicts) - _SHOWN_CONFLICTS} more")
    return "\n".join("    " + line for line in lines)
