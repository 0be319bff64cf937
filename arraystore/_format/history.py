"""History pages: the snapshots of 64 records or of 64 pages, for a look-up in a few requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import LATEST_TIME, Kind, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId, all_different, id_to_text, split_ids
from arraystore._format.layer import read_id
from arraystore._format.record import LONG_SKIP
from arraystore.errors import FormatError

__all__ = [
    "HistoryPage",
    "SnapshotRow",
    "Survivors",
    "decode_history",
    "decode_survivors",
    "encode_history",
    "encode_survivors",
    "history_key",
    "page_span",
    "survivors_key",
]

MAX_ROWS = 1 << 20
_NO_ID = bytes(ID_BYTES)


@dataclass(frozen=True)
class SnapshotRow:
    """Snapshot in a history."""

    sequence: int
    """Number of its record."""
    id: SnapshotId
    parent: SnapshotId | None
    """Ids of the snapshot and of its parent."""
    time: int
    """Time of commit in microseconds since 1970, by the writer's clock."""
    note: bytes
    """Encoded message and metadata."""


@dataclass(frozen=True)
class HistoryPage:
    """Snapshots of a range of records, oldest first, and the checkpoints among them."""

    branch: str
    level: int
    index: int
    """Position, see `page_span`."""
    rows: tuple[SnapshotRow, ...]
    """Snapshots, oldest first."""
    checkpoints: tuple[tuple[int, CheckpointId], ...]
    """Numbers of records with the ids of their checkpoints."""


def page_span(level: int, index: int) -> tuple[int, int]:
    """Return the first and the last record covered by a page; record 0 is in the first page."""
    size = LONG_SKIP**level
    return size * index + (1 if index else 0), size * (index + 1)


def history_key(history_prefix: str, level: int, index: int) -> str:
    """Return the key of a history page."""
    return f"{history_prefix}{level}/{index:012d}"


def encode_history(page: HistoryPage) -> bytes:
    """Encode a page as an object; raises `FormatError` above a reader's limits."""
    body = (page.branch, page.level, page.index, _rows_to_wire(page.rows), page.checkpoints)
    return encode_object(Kind.HISTORY, pack_body(body))


def _rows_to_wire(rows: tuple[SnapshotRow, ...]) -> tuple[Any, ...]:
    if len(rows) > MAX_ROWS:
        raise FormatError("new history page", f"{len(rows)} rows; at most {MAX_ROWS} are allowed")
    return (
        len(rows),
        encode_column(np.array([row.sequence for row in rows], dtype=np.int64)),
        b"".join(row.id for row in rows),
        b"".join(row.parent or _NO_ID for row in rows),
        encode_column(np.array([row.time for row in rows], dtype=np.int64)),
        encode_column(np.array([len(row.note) for row in rows], dtype=np.int64)),
        b"".join(row.note for row in rows),
    )


def decode_history(name: str, data: bytes | bytearray | memoryview, branch: str, level: int, index: int) -> HistoryPage:
    """Decode a page and check that it matches its key; raises `FormatError`."""
    body = read_object(name, Kind.HISTORY, data)
    stored_branch, stored_level, stored_index, wire, checkpoints = read_tuple(name, body, str, int, int, tuple, tuple)
    if (stored_branch, stored_level, stored_index) != (branch, level, index):
        raise FormatError(name, f"holds page {stored_level}/{stored_index} of branch {stored_branch[:80]!r}")
    rows = _read_rows(name, wire, *page_span(level, index))
    return HistoryPage(branch, level, index, rows, tuple([_read_checkpoint(name, c) for c in checkpoints]))


def _read_rows(name: str, wire: Any, first: int, last: int) -> tuple[SnapshotRow, ...]:
    count, sequences, ids, parents, times, lengths, notes = read_tuple(name, wire, int, *(bytes,) * 6)
    if not 0 <= count <= MAX_ROWS or len(ids) != count * ID_BYTES or len(parents) != count * ID_BYTES:
        raise FormatError(name, "columns must have the same length")
    numbers = decode_column(f"{name}: numbers", sequences, count)
    if count and not (
        first <= int(numbers.min()) and int(numbers.max()) <= last and bool((np.diff(numbers) >= 0).all())
    ):
        raise FormatError(name, "rows must be in order, and within the page")
    if not all_different(ids):
        raise FormatError(name, "two rows have the same id")
    sequence_list = numbers.tolist()
    time_list = decode_column(f"{name}: times", times, count, LATEST_TIME).tolist()
    sizes = decode_column(f"{name}: notes", lengths, count, len(notes))
    ends = np.cumsum(sizes)
    if (int(ends[-1]) if count else 0) != len(notes):
        raise FormatError(name, "lengths must add up to the size of the notes")
    rows: list[SnapshotRow] = []
    for i, (end, size) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True)):
        at = slice(i * ID_BYTES, (i + 1) * ID_BYTES)
        parent = parents[at]
        rows.append(
            SnapshotRow(
                sequence_list[i], ids[at], None if parent == _NO_ID else parent, time_list[i], notes[end - size : end]
            )
        )
    return tuple(rows)


@dataclass(frozen=True)
class Survivors:
    """Snapshots of the oldest part of a log that an expiry has retained."""

    branch: str
    upto: int
    """Log, and number of the newest record of that part."""
    rows: tuple[SnapshotRow, ...]
    """Snapshots, oldest first, with retained parents."""
    checkpoints: tuple[CheckpointId, ...]
    """Ids of their checkpoints."""
    links: tuple[tuple[SnapshotId, SnapshotId | None], ...] = ()
    """Expired snapshots that are still named as a parent or as the start of a branch, each with its nearest retained
    ancestor, None if there is none."""


def survivors_key(history_prefix: str, identifier: bytes) -> str:
    """Return the key of a list of survivors."""
    return f"{history_prefix}kept/{id_to_text(identifier)}"


def encode_survivors(key: str, survivors: Survivors) -> bytes:
    """Encode survivors as the object of a key."""
    assert len(survivors.rows) == len(survivors.checkpoints)
    checkpoints = b"".join(survivors.checkpoints)
    links = b"".join(gone + (left or _NO_ID) for gone, left in survivors.links)
    body = (survivors.branch, survivors.upto, _rows_to_wire(survivors.rows), checkpoints, links)
    return encode_object(Kind.SURVIVORS, pack_body(body), key)


def decode_survivors(name: str, data: bytes | bytearray | memoryview, branch: str) -> Survivors:
    """Decode survivors and check that they belong to the branch; raises `FormatError`."""
    body = read_object(name, Kind.SURVIVORS, data, name)
    stored_branch, upto, wire, checkpoints, links = read_tuple(name, body, str, int, tuple, bytes, bytes)
    if stored_branch != branch:
        raise FormatError(name, f"holds snapshots of branch {stored_branch[:80]!r}")
    if upto < 0:
        raise FormatError(name, "the number of a record must be >= 0")
    rows = _read_rows(name, wire, 0, upto)
    if len(checkpoints) != len(rows) * ID_BYTES:
        raise FormatError(name, "there must be one checkpoint for each snapshot")
    if len(links) % (2 * ID_BYTES):
        raise FormatError(name, "links are truncated")
    ids = split_ids(links, SnapshotId)
    pairs = [(gone, None if left == _NO_ID else left) for gone, left in zip(ids[::2], ids[1::2], strict=True)]
    return Survivors(branch, upto, rows, tuple(split_ids(checkpoints, CheckpointId)), tuple(pairs))


def _read_checkpoint(name: str, value: Any) -> tuple[int, CheckpointId]:
    sequence, identifier = read_tuple(name, value, int, bytes)
    if sequence < 0:
        raise FormatError(name, "the number of a record must be >= 0")
    return sequence, CheckpointId(read_id(name, identifier))
