"""Snapshots and their differences, in Icechunk's shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from arraystore._history import diff as core
from arraystore._repository import snapshots
from arraystore.compat.icechunk._display import Shown, html_of
from arraystore.compat.icechunk._graph import AncestryGraph

__all__ = ["FIRST_SNAPSHOT", "AncestryGraph", "ChunkStorageStats", "Diff", "ManifestFileInfo", "SnapshotInfo"]

FIRST_SNAPSHOT = "1CECHNKREP0F1RSTCMT0"
"""Id that the first snapshot of every repository has in Icechunk."""

_OF_ROOT = {"__icechunk": {"is_root": True}}
"""Metadata that the first snapshot of every repository has in Icechunk."""

_SHOWN_CHUNKS = 10


@dataclass(frozen=True, repr=False)
class SnapshotInfo(Shown):
    """A snapshot in the history."""

    _title: ClassVar[str] = "icechunk.snapshots.SnapshotInfo"

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any]

    @classmethod
    def of(cls, info: snapshots.SnapshotInfo, first: str | None) -> SnapshotInfo:
        """Return a snapshot of arraystore; the id of the first one is replaced by Icechunk's."""
        parent = FIRST_SNAPSHOT if info.parent_id is not None and info.parent_id == first else info.parent_id
        if info.parent_id is None and info.id == first:
            message, metadata = info.message or "Repository initialized", {**_OF_ROOT, **info.metadata}
            return cls(FIRST_SNAPSHOT, None, info.written_at, message, metadata)
        return cls(info.id, parent, info.written_at, info.message, info.metadata)

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, repr=False)
class ManifestFileInfo(Shown):
    """References of one array, as of one snapshot."""

    _title: ClassVar[str] = "icechunk.snapshots.ManifestFileInfo"

    id: str
    size_bytes: int
    num_chunk_refs: int


@dataclass(frozen=True, repr=False)
class ChunkStorageStats(Shown):
    """Bytes of chunks."""

    _title: ClassVar[str] = "icechunk.stats.ChunkStorageStats"

    native_bytes: int
    virtual_bytes: int
    inlined_bytes: int

    def non_virtual_bytes(self) -> int:
        """Return the bytes in the repository."""
        return self.native_bytes + self.inlined_bytes

    def total_bytes(self) -> int:
        """Return all bytes."""
        return self.non_virtual_bytes() + self.virtual_bytes

    def __add__(self, other: ChunkStorageStats, /) -> ChunkStorageStats:
        return ChunkStorageStats(
            *(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True))
        )


@dataclass(frozen=True, repr=False)
class Diff:
    """Changes: paths, and chunks by path."""

    new_groups: set[str]
    new_arrays: set[str]
    deleted_groups: set[str]
    deleted_arrays: set[str]
    updated_groups: set[str]
    updated_arrays: set[str]
    updated_chunks: dict[str, list[list[int]]]
    moved_nodes: list[tuple[str, str]]

    @classmethod
    def of(cls, diff: core.Diff, moved: list[tuple[str, str]]) -> Diff:
        """Return differences of arraystore in Icechunk's shapes, with every node that has moved."""
        return cls(
            diff.new_groups,
            diff.new_arrays,
            diff.deleted_groups,
            diff.deleted_arrays,
            diff.updated_groups,
            diff.updated_arrays,
            {path: chunks.tolist() for path, chunks in diff.updated_chunks.items()},
            moved,
        )

    def is_empty(self) -> bool:
        """Tell whether nothing changed."""
        return not any(vars(self).values())

    def _sections(self) -> dict[str, list[str]]:
        chunks: list[str] = []
        for path, rows in sorted(self.updated_chunks.items()):
            chunks += [f"{path}:", *(f"    {row}" for row in rows[:_SHOWN_CHUNKS])]
            if len(rows) > _SHOWN_CHUNKS:
                chunks.append(f"    ... {len(rows) - _SHOWN_CHUNKS} more")
        return {
            "Nodes moved/renamed": [f"{old} -> {new}" for old, new in self.moved_nodes],
            "Groups created": sorted(self.new_groups),
            "Arrays created": sorted(self.new_arrays),
            "Group definitions updated": sorted(self.updated_groups),
            "Array definitions updated": sorted(self.updated_arrays),
            "Chunks updated": chunks,
            "Groups deleted": sorted(self.deleted_groups),
            "Arrays deleted": sorted(self.deleted_arrays),
        }

    def __repr__(self) -> str:
        parts = [_section(title, lines) for title, lines in self._sections().items() if lines]
        text = "\n".join(parts)
        return (
            text
            if self.updated_chunks and not (self.deleted_groups or self.deleted_arrays)
            else text + "\n" * bool(text)
        )

    def _repr_html_(self) -> str:
        return html_of(
            "icechunk.snapshots.Diff", {title: ", ".join(rows) for title, rows in self._sections().items() if rows}
        )


def _section(title: str, lines: Iterable[str]) -> str:
    return f"{title}:\n" + "".join(f"    {line}\n" for line in lines)
