"""Look-up of snapshots by branch, tag, id or time, in all logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

from arraystore._context.context import Context
from arraystore._format.derivation import split_metadata
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId, id_from_text, id_to_text
from arraystore._format.record import decode_note
from arraystore._format.repository_log import Tag
from arraystore._history.imports import find_import, imported_at
from arraystore._history.pinning import check_kept
from arraystore._history.snapshot_lookup import find, find_outside_logs, load_by_id
from arraystore._history.time_travel import microseconds_of, nearer, newest_until
from arraystore._log.ancestry import ancestry
from arraystore._log.loading import Tip, load_checkpoint
from arraystore._runtime.display import View
from arraystore._runtime.formatting import time_text, value_text
from arraystore.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    RefNotFoundError,
    SnapshotNotFoundError,
)

_T = TypeVar("_T")

_SHOWN_LINES, _SHOWN_CHARACTERS = 20, 4_000
"""Lines and characters of a message, and values of metadata, that a notebook shows."""


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot in the history.

    Parameters
    ----------
    id, parent_id
        Ids of the snapshot and of its parent.
    written_at
        Time of the commit by the writer's clock, in UTC; of an imported snapshot that of the original.
    message, metadata
        Message and metadata of the commit.
    imported_at
        Time of the import or of the copy; None for a snapshot that was made here.
    base_id
        Id of the snapshot that the changes were made on, which is another one than the parent if they were rebased;
        None for a commit without a solver, and where an older release has made it.
    merged_forks
        Number of forks that were merged into the session before the commit.
    """

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any] = field(default_factory=dict)
    imported_at: datetime | None = None
    base_id: str | None = None
    merged_forks: int = 0

    def _repr_html_(self) -> str:
        facts: dict[str, str] = {
            "parent": self.parent_id or "none",
            "time (UTC)": time_text(self.written_at),
            **({"imported at (UTC)": time_text(self.imported_at)} if self.imported_at is not None else {}),
            **({"made on": self.base_id} if self.base_id not in (None, self.parent_id) else {}),
            **({"merged forks": f"{self.merged_forks:,}"} if self.merged_forks else {}),
            **{f"metadata {name}": value_text(value) for name, value in islice(self.metadata.items(), _SHOWN_LINES)},
        }
        message = "\n".join(self.message[:_SHOWN_CHARACTERS].splitlines()[:_SHOWN_LINES])
        return View(f"Snapshot {self.id}", tuple(facts.items()), prose=message).to_html()


def snapshot_info(row: SnapshotRow) -> SnapshotInfo:
    """Return a row of the history as a public value."""
    message, noted = decode_note(f"note of snapshot {id_to_text(row.id)}", row.note)
    metadata, derivation = split_metadata(noted)
    parent = None if row.parent is None else id_to_text(row.parent)
    written = datetime.fromtimestamp(row.time / 1_000_000, UTC)
    return SnapshotInfo(
        id_to_text(row.id), parent, written, message, metadata, imported_at(row.id, metadata), derivation.base,
        derivation.forks,
    )  # fmt: skip


def check_name(name: str) -> None:
    """Check that the name of a branch or a tag is a string; raises `InvalidInputError`."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller without types
        raise InvalidInputError(f"the name of a branch or a tag must be a string, not {name!r}")


async def load_snapshot(
    context: Context, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> Tip:
    """Load the snapshot of a branch, a tag or an id; exactly one must not be None."""
    if sum(value is not None for value in (branch, tag, snapshot_id)) != 1:
        raise InvalidInputError("pass exactly one of branch, tag and snapshot_id")
    if branch is not None:
        return await context.tip(branch)
    if tag is not None:
        return await _load_tagged(context, tag)
    assert snapshot_id is not None
    return await _look_up(context, snapshot_id, load_by_id)


async def load_snapshot_as_of(
    context: Context, as_of: datetime, *, branch: str | None, tag: str | None, snapshot_id: str | None
) -> Tip:
    """Load the newest snapshot of a branch that was written at a time or before."""
    if branch is None or tag is not None or snapshot_id is not None:
        raise InvalidInputError("as_of needs a branch, and no tag or snapshot_id")
    until = microseconds_of(as_of, "as_of")
    log, tip = context.log(branch), await context.tip(branch)
    try:
        start = await nearer(log, tip, until)
        row, last = await newest_until(ancestry(log, start, context.newest_state), until)
    except ObjectNotFoundError:
        await check_kept(context, tip.state)
        raise
    if row is None:
        oldest = "" if last is None else f": its first one is of {datetime.fromtimestamp(last.time / 1e6, UTC)}"
        raise SnapshotNotFoundError(f"branch {branch!r} has no snapshot of {as_of} or before{oldest}")
    return await load_snapshot(context, snapshot_id=id_to_text(row.id))


async def lookup_snapshot(context: Context, snapshot_id: str) -> SnapshotInfo:
    """Return the row of a snapshot in the history."""
    return snapshot_info(await _look_up(context, snapshot_id, _find_row))


async def _look_up(context: Context, snapshot_id: str, look: Callable[[Context, SnapshotId], Awaitable[_T]]) -> _T:
    """Look a snapshot up by its id, or by the one that it had in Icechunk before it was imported."""
    try:
        return await look(context, SnapshotId(id_from_text(snapshot_id)))
    except (InvalidInputError, SnapshotNotFoundError):
        copy = await find_import(context, snapshot_id)
        if copy is None:
            raise
    return await look(context, copy)


async def _find_row(context: Context, identifier: SnapshotId) -> SnapshotRow:
    try:
        return (await find(context, identifier)).row
    except SnapshotNotFoundError:
        state = await find_outside_logs(context, identifier)
        if state is None:
            raise
        return SnapshotRow(state.sequence, state.snapshot, state.parent, state.time, state.note)


async def read_tag(context: Context, tag: str) -> Tag:
    """Return the entry of a tag in the repository log; raises `RefNotFoundError`."""
    check_name(tag)
    entry = (await context.repository_log.table()).tags.get(tag)
    if entry is None:
        raise RefNotFoundError(f"there is no tag {tag!r}")
    return entry


async def _load_tagged(context: Context, tag: str) -> Tip:
    entry = await read_tag(context, tag)
    try:
        return Tip(await load_checkpoint(context.storage, entry.origin.checkpoint), {})
    except ObjectNotFoundError:
        await read_tag(context, tag)  # which may have been deleted, and collected
        raise
