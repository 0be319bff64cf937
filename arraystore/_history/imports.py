"""Origins of copied snapshots: the ids that they had elsewhere, and when they were copied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from arraystore._context.context import Context
from arraystore._format.history import SnapshotRow
from arraystore._format.ids import ID_CHARS, SnapshotId, id_time, is_id_text
from arraystore._format.record import decode_note
from arraystore._log.ancestry import ancestry
from arraystore._log.loading import Tip, load_checkpoint
from arraystore.errors import ObjectNotFoundError, RefNotFoundError

COPIED_FROM = "arraystore.copied_from"
"""Key in the metadata of a copied snapshot: id of the snapshot that it is a copy of."""

WRITTEN_AT = "arraystore.written_at"
"""Key in the metadata of a copied snapshot: time of the commit of the first original, in ISO 8601."""

_LAST_OF_96_BITS = "0G"
"""Last characters of ids in Icechunk: 96 bits, and four zeros after them."""


def copied_from(metadata: Mapping[str, Any]) -> str | None:
    """Return the id of the snapshot that one is a copy of; None if it is not a copy."""
    origin = metadata.get(COPIED_FROM)
    return origin if isinstance(origin, str) else None


def imported_at(snapshot: SnapshotId, metadata: Mapping[str, Any]) -> datetime | None:
    """Return the time at which a snapshot was copied, which is that of its id; None if it is not a copy."""
    return None if copied_from(metadata) is None else datetime.fromtimestamp(id_time(snapshot) / 1000, UTC)


def may_be_of_icechunk(text: str) -> bool:
    """Return whether a string may be the id of a snapshot in Icechunk."""
    return len(text) == ID_CHARS and text[-1] in _LAST_OF_96_BITS and is_id_text(text)


async def find_import(context: Context, original: str) -> SnapshotId | None:
    """Find the import of a snapshot by its id in Icechunk: in memory, else in the histories of branches and tags."""
    if not may_be_of_icechunk(original):
        return None
    known = context.imports
    if original not in known:
        async for rows in _histories(context):
            known.update(_origins(rows))
    return known.get(original)


def _origins(rows: list[SnapshotRow]) -> dict[str, SnapshotId]:
    """Return the snapshots that are copies, by the id of their original."""
    key = COPIED_FROM.encode()
    copies = [row for row in rows if key in row.note]  # most are none, and decoding a note takes microseconds
    origins = {row.id: copied_from(decode_note("note of a snapshot", row.note)[1]) for row in copies}
    return {origin: identifier for identifier, origin in origins.items() if origin is not None}


async def _histories(context: Context) -> AsyncIterator[list[SnapshotRow]]:
    """Yield the snapshots of all branches and tags, those of several more than once."""
    table = await context.repository_log.table()
    tips: list[Tip] = []
    for name, row in sorted(table.branches.items()):
        if not row.deleted:
            try:
                tips.append(await context.tip(name))
            except RefNotFoundError:  # it is being created, or has been deleted meanwhile
                continue
    for tag in table.tags.values():
        try:
            tips.append(Tip(await load_checkpoint(context.storage, tag.origin.checkpoint), {}))
        except ObjectNotFoundError:  # the tag has been deleted, and collected
            continue
    seen: set[SnapshotId] = set()
    for tip in tips:
        async for rows in ancestry(context.log(tip.state.branch), tip, context.newest_state):
            new = [row for row in rows if row.id not in seen]
            if not new:
                break  # the rest is shared with a history that was read
            seen.update(row.id for row in new)
            yield new
