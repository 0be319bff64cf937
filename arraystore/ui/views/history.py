"""The history of all branches and tags as columns, and one snapshot of it in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from arraystore._context.context import Context
from arraystore._format.derivation import split_metadata
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId, id_from_text, id_time, id_to_text
from arraystore._format.record import decode_note
from arraystore._history.graph import GraphRow, draw_history
from arraystore._repository.comparison import read_graph
from arraystore._repository.repository import Repository
from arraystore.ui.views.json_value import exact
from arraystore.ui.views.limits import MAX_COMMITS, MAX_MESSAGE, MAX_SUBJECT
from arraystore.ui.views.overview import branch_tips

__all__ = ["HistoryView", "SnapshotView", "history", "snapshot"]

_SOURCES = {"cherry_picked_from": "cherry-pick", "reverts": "revert"}
"""Metadata that names the snapshot that a commit repeats or undoes."""


@dataclass(frozen=True)
class HistoryView:
    """Snapshots, newest first and each below its children, as columns of equal length."""

    ids: list[str]
    parents: list[int]
    """Row of the parent; -1 for none, -2 for one that is not in these rows."""
    times: list[float]
    """Times of the commits in milliseconds since 1970."""
    subjects: list[str]
    """First lines of the messages, cut off."""
    lanes: list[int]
    """Column of the graph."""
    labels: dict[str, tuple[str, ...]]
    """Branches and, as ``tag: NAME``, tags by row."""
    marks: dict[str, str]
    """What a row is besides a commit: ``cherry-pick`` or ``revert``."""
    sources: dict[str, str]
    """Id of the snapshot that a row repeats or undoes."""
    rebased: dict[str, tuple[int, int]]
    """Rows that were rebased: over how many snapshots, and the row that their changes were made on; -1 if unknown."""
    forks: dict[str, int]
    """Number of forks that were merged into a row."""
    complete: bool
    """Whether there are no older snapshots than these."""


@dataclass(frozen=True)
class SnapshotView:
    """One snapshot."""

    id: str
    parent: str | None
    time: float
    """Time of the commit in milliseconds since 1970."""
    message: str
    metadata: dict[str, Any]
    imported: float | None
    """Time of the import, in milliseconds since 1970; None for a snapshot that was made here."""
    base: str | None
    """Snapshot that the changes were made on; None where that is not recorded."""
    forks: int
    """Number of forks that were merged."""


_kept: WeakKeyDictionary[Context, tuple[Any, HistoryView]] = WeakKeyDictionary()


async def history(repository: Repository, limit: int = MAX_COMMITS) -> HistoryView:
    """Return the newest snapshots of all branches and tags, at most `limit`."""
    limit = max(1, min(limit, MAX_COMMITS))
    context = repository.context
    table = await context.repository_log.table()
    tips = {tip.name: tip.snapshot for tip in await branch_tips(context, table) if tip.snapshot is not None}
    rows, labels = await read_graph(context, limit, tips, table.tags)
    state = (limit, len(rows), tuple(sorted((bytes(key), *names) for key, names in labels.items())))
    kept = _kept.get(context)
    if kept is not None and kept[0] == state:
        return kept[1]
    view = _view(rows, labels, limit)
    _kept[context] = state, view
    return view


def _view(
    rows: Mapping[SnapshotId, SnapshotRow], labels: Mapping[SnapshotId, Sequence[str]], limit: int
) -> HistoryView:
    drawn = draw_history(dict(rows), labels, limit).rows
    place = {row.id: at for at, row in enumerate(drawn)}
    parents = [-1 if row.parent_id is None else place.get(row.parent_id, -2) for row in drawn]
    marks = _Marks(place, _depths(parents))
    for at, row in enumerate(drawn):
        marks.add(at, parents[at], rows[SnapshotId(id_from_text(row.id))])
    return HistoryView(
        [row.id for row in drawn],
        parents,
        [row.written_at.timestamp() * 1000 for row in drawn],
        [_subject(row) for row in drawn],
        [row.lane for row in drawn],
        {str(at): row.labels for at, row in enumerate(drawn) if row.labels},
        marks.kinds,
        marks.sources,
        marks.rebased,
        marks.forks,
        all(row.parent_id is None or row.parent_id in place for row in drawn),
    )


def _subject(row: GraphRow) -> str:
    return row.subject if len(row.subject) <= MAX_SUBJECT else row.subject[:MAX_SUBJECT] + "…"


def _depths(parents: Sequence[int]) -> list[int]:
    """Return the number of ancestors of each row among the rows, which come before their parents."""
    depths = [0] * len(parents)
    for at in range(len(parents) - 1, -1, -1):
        if parents[at] > at:
            depths[at] = depths[parents[at]] + 1
    return depths


@dataclass(eq=False)
class _Marks:
    """Kinds of rows besides commits."""

    place: Mapping[str, int]
    """Rows by id."""
    depths: Sequence[int]
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    rebased: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    forks: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, at: int, parent: int, row: SnapshotRow) -> None:
        """Add what the metadata of a row tells."""
        _, noted = decode_note(f"note of snapshot {id_to_text(row.id)}", row.note)
        metadata, derivation = split_metadata(noted)
        for name, kind in _SOURCES.items():
            if isinstance(source := metadata.get(name), str):
                self.kinds[str(at)], self.sources[str(at)] = kind, source[:40]
        if derivation.forks:
            self.forks[str(at)] = derivation.forks
        rebased = self._rebased(row, parent, derivation.base)
        if rebased is not None:
            self.rebased[str(at)] = rebased

    def _rebased(self, row: SnapshotRow, parent: int, base: str | None) -> tuple[int, int] | None:
        if row.parent is None or base == id_to_text(row.parent):
            return None
        if base is None:
            # An id is made before the first attempt, so one older than its parent's was prepared on another parent.
            return (-1, -1) if id_time(row.id) < id_time(row.parent) else None
        there = self.place.get(base, -1)
        over = self.depths[parent] - self.depths[there] if parent >= 0 and there > parent else -1
        return (over, there) if over > 0 else (-1, -1)


async def snapshot(repository: Repository, identifier: str) -> SnapshotView:
    """Return one snapshot with its message and metadata."""
    info = await repository.lookup_snapshot_async(identifier)
    imported = None if info.imported_at is None else info.imported_at.timestamp() * 1000
    return SnapshotView(
        info.id,
        info.parent_id,
        info.written_at.timestamp() * 1000,
        info.message[:MAX_MESSAGE],
        exact(info.metadata),
        imported,
        info.base_id,
        info.merged_forks,
    )
