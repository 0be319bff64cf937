"""Conflicts: those of an error, and those that the changes of a snapshot would have with a branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arraystore._conflicts import Conflict, ConflictType
from arraystore._format.ids import id_to_text
from arraystore._history.three_way_merge import transplant
from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError
from arraystore.ui.views.snapshots import load_session, state_of

__all__ = ["ConflictRow", "Conflicts", "conflict_rows", "conflicts_of"]

_MOST = 200
_MOST_CHUNKS = 400


@dataclass(frozen=True)
class ConflictRow:
    """One conflict."""

    kind: str
    meaning: str
    path: str
    snapshot: str
    detail: str
    chunks: tuple[tuple[int, ...], ...]
    """Grid coordinates of conflicting chunks, at most 400."""
    count: int
    """Number of all conflicting chunks."""


@dataclass(frozen=True)
class Conflicts:
    """Conflicts of the changes of one snapshot with another snapshot."""

    ours: str
    """Snapshot whose changes these are."""
    base: str
    """Snapshot that they were made on."""
    onto: str
    """Snapshot that they would be rebased onto."""
    rows: tuple[ConflictRow, ...]
    more: int
    changes: bool
    """Whether anything is left to apply."""


async def conflicts_of(repository: Repository, ours: str, onto: str) -> Conflicts:
    """Return the conflicts that the changes of a snapshot would have on top of another one; nothing is committed.

    Raises `InvalidInputError` for the first snapshot, which has no changes.
    """
    mine, theirs = state_of(await load_session(repository, ours)), state_of(await load_session(repository, onto))
    if mine.parent is None:
        raise InvalidInputError(f"snapshot {id_to_text(mine.snapshot)} is the first one, and changes nothing")
    base = state_of(await load_session(repository, id_to_text(mine.parent)))
    merged = await transplant(base, mine, theirs, repository.context)
    names = [id_to_text(state.snapshot) for state in (mine, base, theirs)]
    rows = conflict_rows(merged.conflicts)
    return Conflicts(names[0], names[1], names[2], rows, max(0, len(merged.conflicts) - len(rows)), not merged.empty)


def conflict_rows(conflicts: Sequence[Conflict]) -> tuple[ConflictRow, ...]:
    """Return the first conflicts as values that can travel."""
    return tuple([_row(each) for each in conflicts[:_MOST]])


def _row(conflict: Conflict) -> ConflictRow:
    cells = conflict.conflicted_chunks
    chunks = () if cells is None else tuple([tuple(row) for row in cells[:_MOST_CHUNKS].tolist()])
    kind = conflict.conflict_type
    return ConflictRow(
        kind.name, _MEANINGS[kind], conflict.path, conflict.snapshot, conflict.detail, chunks,
        0 if cells is None else len(cells),
    )  # fmt: skip


_MEANINGS = {
    ConflictType.NewNodeConflictsWithExistingNode: "ours creates a node where theirs has one",
    ConflictType.NewNodeInInvalidGroup: "ours creates a node in a group that theirs removed",
    ConflictType.ZarrMetadataDoubleUpdate: "both changed the metadata",
    ConflictType.ZarrMetadataUpdateOfDeletedArray: "ours changed the metadata of an array that theirs deleted",
    ConflictType.ZarrMetadataUpdateOfDeletedGroup: "ours changed the metadata of a group that theirs deleted",
    ConflictType.ChunkDoubleUpdate: "both wrote the same chunks",
    ConflictType.ChunksUpdatedInDeletedArray: "ours wrote chunks of an array that theirs deleted",
    ConflictType.ChunksUpdatedInUpdatedArray: "ours wrote chunks of an array whose decoding theirs changed",
    ConflictType.DeleteOfUpdatedArray: "ours deletes an array that theirs changed",
    ConflictType.DeleteOfUpdatedGroup: "ours deletes a group that theirs changed",
    ConflictType.MoveOperationCannotBeRebased: "ours moves a node that theirs moved or deleted",
    ConflictType.ZarrMetadataUpdateOfUpdatedChunks: "ours changed the decoding of chunks that theirs wrote",
    ConflictType.DeleteOfDeletedNode: "both deleted the node",
    ConflictType.UnalignedAppend: "both append, and an end is within a chunk",
    ConflictType.DuplicateAppend: "both append the same coordinate",
    ConflictType.ReadConflict: "ours has read what theirs changed",
}
