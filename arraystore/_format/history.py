"""History pages: the snapshots of 64 records or of 64 pages, for a look-up in a few requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from arraystore._format.columns import decode_column, decode_strings, encode_column, encode_strings
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId, all_different, id_to_text
from arraystore._format.record import LONG_SKIP
from arraystore._format.wire import LATEST_TIME, Number, Wire, read_id, read_ids, read_number, read_tuple, tuple_of
from arraystore.errors import FormatError

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
class HistoryPage(Wire):
    """Snapshots of a range of records, oldest first, and the checkpoints among them."""

    branch: str
    level: int
    index: int
    """Position, see `page_span`."""
    rows: Rows
    """Snapshots, oldest first."""
    checkpoints: Annotated[tuple[tuple[int, CheckpointId], ...], _read_checkpoints]
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
    return encode_object(Kind.HISTORY, pack_body(page))


def _rows_to_wire(rows: tuple[SnapshotRow, ...]) -> tuple[Any, ...]:
    if len(rows) > MAX_ROWS:
        raise FormatError("new history page", f"{len(rows)} rows; at most {MAX_ROWS} are allowed")
    return (
        len(rows),
        encode_column([row.sequence for row in rows]),
        b"".join(row.id for row in rows),
        b"".join(row.parent or _NO_ID for row in rows),
        encode_column([row.time for row in rows]),
        *encode_strings(row.note for row in rows),
    )


def decode_history(name: str, data: bytes | bytearray | memoryview, branch: str, level: int, index: int) -> HistoryPage:
    """Decode a page and check that it matches its key; raises `FormatError`."""
    page = HistoryPage.from_wire(name, read_object(name, Kind.HISTORY, data))
    if (page.branch, page.level, page.index) != (branch, level, index):
        raise FormatError(name, f"holds page {page.level}/{page.index} of branch {page.branch[:80]!r}")
    _check_span(name, page.rows, *page_span(level, index))
    return page


def _check_span(name: str, rows: tuple[SnapshotRow, ...], first: int, last: int) -> None:
    if rows and not first <= rows[0].sequence <= rows[-1].sequence <= last:
        raise FormatError(name, f"rows must be of records {first} to {last}")


def _read_rows(name: str, wire: Any) -> tuple[SnapshotRow, ...]:
    count, sequences, joined, parents, times, lengths, notes = read_tuple(
        name, wire, int, bytes, bytes, read_ids, *(bytes,) * 3
    )
    ids = read_ids(name, joined)
    if not count == len(ids) == len(parents) <= MAX_ROWS:
        raise FormatError(name, "columns must have the same length")
    numbers = decode_column(f"{name}: numbers", sequences, count)
    if bool((np.diff(numbers) < 0).any()):
        raise FormatError(name, "rows must be in order")
    if not all_different(joined):
        raise FormatError(name, "two rows have the same id")
    columns = (
        numbers.tolist(),
        ids,
        map(_or_none, parents),
        decode_column(f"{name}: times", times, count, LATEST_TIME).tolist(),
        decode_strings(f"{name}: notes", lengths, notes, count),
    )
    return tuple([SnapshotRow(*row) for row in zip(*columns, strict=True)])


Rows = Annotated[tuple[SnapshotRow, ...], _read_rows, _rows_to_wire]


@dataclass(frozen=True)
class Survivors(Wire):
    """Snapshots of the oldest part of a log that an expiry has retained."""

    branch: str
    upto: Number
    """Log, and number of the newest record of that part."""
    rows: Rows
    """Snapshots, oldest first, with retained parents."""
    checkpoints: Annotated[tuple[CheckpointId, ...], read_ids, b"".join]
    """Ids of their checkpoints."""
    links: Annotated[tuple[tuple[SnapshotId, SnapshotId | None], ...], _read_links, _links_to_wire] = ()
    """Expired snapshots that are still named as a parent or as the start of a branch, each with its nearest retained
    ancestor, None if there is none."""


def survivors_key(history_prefix: str, identifier: bytes) -> str:
    """Return the key of a list of survivors."""
    return f"{history_prefix}kept/{id_to_text(identifier)}"


def encode_survivors(key: str, survivors: Survivors) -> bytes:
    """Encode survivors as the object of a key."""
    assert len(survivors.rows) == len(survivors.checkpoints)
    return encode_object(Kind.SURVIVORS, pack_body(survivors), key)


def decode_survivors(name: str, data: bytes | bytearray | memoryview, branch: str) -> Survivors:
    """Decode survivors and check that they belong to the branch; raises `FormatError`."""
    survivors = Survivors.from_wire(name, read_object(name, Kind.SURVIVORS, data, name))
    if survivors.branch != branch:
        raise FormatError(name, f"holds snapshots of branch {survivors.branch[:80]!r}")
    _check_span(name, survivors.rows, 0, survivors.upto)
    if len(survivors.checkpoints) != len(survivors.rows):
        raise FormatError(name, "there must be one checkpoint for each snapshot")
    return survivors


def _links_to_wire(links: tuple[tuple[SnapshotId, SnapshotId | None], ...]) -> bytes:
    return b"".join(gone + (left or _NO_ID) for gone, left in links)


def _read_links(name: str, value: Any) -> tuple[tuple[SnapshotId, SnapshotId | None], ...]:
    ids = read_ids(name, value)
    if len(ids) % 2:
        raise FormatError(name, "links are truncated")
    return tuple(zip(ids[::2], map(_or_none, ids[1::2]), strict=True))


def _or_none(identifier: SnapshotId) -> SnapshotId | None:
    return None if identifier == _NO_ID else identifier


def _read_checkpoints(name: str, value: Any) -> Any:
    return tuple_of(_read_checkpoint)(name, value)


def _read_checkpoint(name: str, value: Any) -> tuple[Any, ...]:
    return read_tuple(name, value, read_number, read_id)
