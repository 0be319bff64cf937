"""Representations of a repository, its snapshots and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from arraystore._context.context import Context
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId
from arraystore._history.graph import draw_history
from arraystore._log.status import RepoAvailability, status_of_table
from arraystore._repository.comparison import first_branch_first, read_newest
from arraystore._repository.snapshots import snapshot_info
from arraystore._runtime import run
from arraystore._runtime.display import LOOK_SECONDS, Section, View, view_or_reason
from arraystore._runtime.formatting import one_line, time_text
from arraystore._runtime.redaction import redact

__all__ = ["history_view", "look_at_repository"]

_SNAPSHOTS, _NAMES = 10, 12
"""Snapshots, and names of branches and of tags, in the view of a repository."""


def history_view(
    title: str,
    rows: Sequence[SnapshotRow],
    labels: Mapping[SnapshotId, Sequence[str]],
    *,
    more: bool,
    picture: bool = False,
) -> View:
    """Return a table of snapshots, newest first; in a notebook also their graph."""
    lines = tuple([_history_line(row, labels) for row in rows])
    columns = ("snapshot", "time (UTC)", *(("names",) if picture else ()), "message")
    shown = lines if picture else tuple([(line[0], line[1], line[3]) for line in lines])
    table = Section("", columns, shown, more=None if more else 0)
    drawing = draw_history({row.id: row for row in rows}, labels, len(rows))._repr_svg_() if picture else ""
    return View(title, sections=(table,), picture=drawing, picture_title="Graph", picture_folded=True)


def _history_line(row: SnapshotRow, labels: Mapping[SnapshotId, Sequence[str]]) -> tuple[str, str, str, str]:
    info = snapshot_info(row)
    return info.id, time_text(info.written_at), names_text(labels.get(row.id, ())), one_line(info.message)


def look_at_repository(context: Context, identifier: str) -> View:
    """Return what a repository shows of itself, or why it cannot be read."""
    title = f"Repository {redact(context.storage.location)}"
    work = partial(_repository_view, context, title, identifier)
    return view_or_reason(title, lambda: run(work(), seconds=LOOK_SECONDS))


async def _repository_view(context: Context, title: str, identifier: str) -> View:
    """Read what a repository shows of itself, in requests whose count is bounded."""
    table = await context.repository_log.table()
    rows, labels = await read_newest(context, _SNAPSHOTS)
    branches = [name for name, row in table.branches.items() if not row.deleted]
    status = status_of_table(table)
    read_only = status.availability != RepoAvailability.online
    reason = f": {status.limited_availability_reason}" if status.limited_availability_reason else ""
    facts = [
        ("id", identifier),
        ("branches", f"{len(branches):,}: {names_text(sorted(branches, key=first_branch_first))}"),
        ("tags", f"{len(table.tags):,}: {names_text(sorted(table.tags))}" if table.tags else "none"),
        *([("status", f"{status.availability.value}{reason}")] if read_only else []),
    ]
    drawing = draw_history(rows, labels, _SNAPSHOTS)
    return View(title, tuple(facts), picture=drawing._repr_svg_(), picture_title="Newest snapshots")


def names_text(names: Sequence[str]) -> str:
    """Return the first names, and the count of the others."""
    shown = ", ".join([one_line(name, 60) for name in names[:_NAMES]])
    return f"{shown} and {len(names) - _NAMES:,} more" if len(names) > _NAMES else shown
