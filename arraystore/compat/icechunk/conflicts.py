"""Conflicts and their solvers; those of arraystore, with conflicted chunks as lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from arraystore import _conflicts
from arraystore._commit.solvers import BasicConflictSolver, ConflictDetector, ConflictSolver
from arraystore._conflicts import ConflictType, VersionSelection
from arraystore.compat.icechunk._display import lines_of

__all__ = [
    "BasicConflictSolver",
    "Conflict",
    "ConflictDetector",
    "ConflictSolver",
    "ConflictType",
    "VersionSelection",
]


def as_listed(conflicts: Iterable[Conflict]) -> list[Conflict]:
    """Return the conflicts of a failed rebase as Icechunk lists them.

    Where both changed the metadata of an array and chunks of it, Icechunk has a conflict of the one's chunks with the
    other's metadata, too.
    """
    found = list(conflicts)
    changed = {one.path for one in found if one.conflict_type is ConflictType.ZarrMetadataDoubleUpdate}
    told = {one.path for one in found if one.conflict_type is ConflictType.ChunksUpdatedInUpdatedArray}
    listed: list[Conflict] = []
    for one in found:
        if one.conflict_type is ConflictType.ChunkDoubleUpdate and one.path in changed - told:
            listed.append(Conflict(ConflictType.ChunksUpdatedInUpdatedArray, one.path))
        listed.append(one)
    return listed


class Conflict(_conflicts.Conflict):
    """A conflict, whose chunks are lists of integers."""

    conflicted_chunks: Any  # list[list[int]] | None

    def __init__(
        self, conflict_type: ConflictType, path: str, conflicted_chunks: Sequence[Sequence[int]] | None = None
    ) -> None:
        chunks = None if conflicted_chunks is None else [list(map(int, chunk)) for chunk in conflicted_chunks]
        super().__init__(conflict_type, path, chunks)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    @classmethod
    def of(cls, conflict: _conflicts.Conflict) -> Conflict:
        """Return a conflict of arraystore as one of Icechunk, which has one type for all that collides with a move."""
        kind = conflict.conflict_type
        both_wrote = kind is ConflictType.ChunkDoubleUpdate
        chunks = conflict.conflicted_chunks if both_wrote else None  # Icechunk names those of no other conflict
        kind = ConflictType.MoveOperationCannotBeRebased if conflict.detail == _conflicts.DELETES_MOVED else kind
        again = cls(kind, conflict.path, None if chunks is None else list(chunks))
        for name in ("snapshot", "detail", "node"):
            object.__setattr__(again, name, getattr(conflict, name))
        return again

    def chunks_text(self) -> str:
        """Format the coordinates of the first chunks and the number of the others."""
        chunks = self.conflicted_chunks or []
        more = f" and {len(chunks) - 3} more" if len(chunks) > 3 else ""
        return ", ".join(str(tuple(row)) for row in chunks[:3]) + more

    def __repr__(self) -> str:
        rows = {"conflict_type": self.conflict_type, "path": self.path, "conflicted_chunks": self.conflicted_chunks}
        return lines_of("icechunk.conflicts.Conflict", rows)
