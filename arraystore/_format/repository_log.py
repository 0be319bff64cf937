"""Repository log: tags, branches, settings and watermarks, one entry per record.

A record carries the entries since the last multiple of 64, and at multiples of 64 the table of all entries so far, so
that reading the newest record needs at most one other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any

from arraystore._format.digest import DIGEST_BYTES, chained, log_start, read_digest
from arraystore._format.envelope import Kind, check_plain, encode_object, pack_body, read_object
from arraystore._format.ids import ID_BYTES, SnapshotId
from arraystore._format.layer import check_owner
from arraystore._format.lifecycle import NO_FENCE, Origin
from arraystore._format.refs import read_name, refs_prefix
from arraystore._format.wire import (
    Id,
    Number,
    Time,
    Wire,
    optional,
    read_id,
    read_tuple,
    rows_of,
    rows_to_wire,
    tuple_of,
)
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

FIRST_BRANCH = "main"
TABLE_EVERY = 64
MAX_SETTING = 64 * 1024
"""Maximum bytes of one setting, which later records repeat."""


class RepositoryOperation(enum.IntEnum):
    """Kind of an entry of the repository log."""

    TAG_CREATED = 0
    TAG_DELETED = 1
    BRANCH_CREATED = 2
    BRANCH_DELETED = 3
    SETTING = 4
    WATERMARK = 5
    COLLECTED = 6
    EXPIRED = 7


@dataclass(frozen=True)
class Tag(Wire):
    """Immutable name of one snapshot."""

    snapshot: SnapshotId
    """Id of the snapshot."""
    origin: Origin
    """Record of the snapshot, and a checkpoint of exactly that record."""


@dataclass(frozen=True)
class BranchRow(Wire):
    """Row of a branch in the table."""

    number: Number
    """Number of the repository record of its creation or deletion."""
    deleted: bool
    """True if it is deleted."""
    snapshot: SnapshotId | None = None
    parent: SnapshotId | None = None
    """Ids of its first snapshot and of its parent."""
    origin: Origin | None = None
    """Origin of that snapshot; None for the first branch."""
    fence: Id = NO_FENCE
    """Watermark at its creation."""

    def check(self, name: str) -> None:
        """Check that the origin is that of the snapshot; raises `FormatError`."""
        if (self.origin is None) != (self.snapshot is None):
            raise FormatError(name, "the row of a branch is inconsistent")


def _read_value(name: str, value: Any) -> Any:
    if type(value) is not tuple or len(value) != 1:
        raise FormatError(name, "expected a list of one value")
    return check_plain(name, value)[0]


Value = Annotated[Any, _read_value, lambda value: (value,)]


@dataclass(frozen=True)
class RepositoryEntry(Wire):
    """Entry of the repository log."""

    operation: RepositoryOperation
    """Kind of the entry."""
    time: Time
    """Time in microseconds since 1970, by the writer's clock."""
    name: str = ""
    """Name of the branch, tag or setting; empty for none."""
    snapshot: SnapshotId | None = None
    parent: SnapshotId | None = None
    origin: Origin | None = None
    """Snapshot, its parent and its origin, of a created branch or tag."""
    value: Value = None
    """Value of a setting, or a summary of a collection or an expiry."""
    watermark: Id | None = None
    """Id below which objects are subject to collection."""
    object: Id | None = None
    """Id of the object with the state of a collection."""

    def check(self, name: str) -> None:
        """Check that the entry has what its operation needs; raises `FormatError`."""
        created = self.operation in (RepositoryOperation.TAG_CREATED, RepositoryOperation.BRANCH_CREATED)
        if created or self.operation in (RepositoryOperation.TAG_DELETED, RepositoryOperation.BRANCH_DELETED):
            read_name(name, self.name)
        if created and (self.snapshot is None or self.origin is None):
            raise FormatError(name, f"creates {self.name[:80]!r} without a snapshot")
        if self.operation == RepositoryOperation.WATERMARK and self.watermark is None:
            raise FormatError(name, "a watermark must have an id")


@dataclass(frozen=True)
class RepositoryTable:
    """State of the repository log after a record."""

    number: int = 0
    """Number of the record, 0 before the first one."""
    tags: Mapping[str, Tag] = field(default_factory=dict[str, Tag])
    """Tags by name."""
    burnt: frozenset[str] = frozenset()
    """Names of deleted tags, which are never reused."""
    branches: Mapping[str, BranchRow] = field(default_factory=lambda: {FIRST_BRANCH: BranchRow(0, deleted=False)})
    """Branches by name, deleted ones included."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings by name."""
    watermark: bytes = NO_FENCE
    """Highest watermark."""
    collection: bytes | None = None
    """Id of the state of the last finished collection."""
    digest: bytes = field(default=b"", compare=False)
    """Digest of the log up to the record."""

    @classmethod
    def first(cls, repository: bytes) -> RepositoryTable:
        """Return the table before the first record."""
        return cls(digest=log_start(repository, ""))

    def after(self, entry: RepositoryEntry) -> RepositoryTable:
        """Return the table after one more entry."""
        number, kind, name = self.number + 1, entry.operation, entry.name
        now = replace(self, number=number, digest=entry_digest(self.digest, entry))
        if kind == RepositoryOperation.TAG_CREATED:
            assert entry.snapshot is not None and entry.origin is not None  # noqa: PT018
            return replace(now, tags={**self.tags, name: Tag(entry.snapshot, entry.origin)})
        if kind == RepositoryOperation.TAG_DELETED:
            remaining = {tag: value for tag, value in self.tags.items() if tag != name}
            return replace(now, tags=remaining, burnt=self.burnt | {name})
        if kind == RepositoryOperation.BRANCH_CREATED:
            row = BranchRow(number, False, entry.snapshot, entry.parent, entry.origin, self.watermark)
            return replace(now, branches={**self.branches, name: row})
        if kind == RepositoryOperation.BRANCH_DELETED:
            return replace(now, branches={**self.branches, name: BranchRow(number, deleted=True)})
        if kind == RepositoryOperation.SETTING:
            return replace(now, settings={**self.settings, name: entry.value})
        if kind == RepositoryOperation.WATERMARK:
            return replace(now, watermark=max(self.watermark, entry.watermark or NO_FENCE))
        if kind == RepositoryOperation.COLLECTED:
            return replace(now, collection=entry.object)
        return now


@dataclass(frozen=True)
class RepositoryRecord:
    """Record of the repository log as stored."""

    number: int
    """Number of the record."""
    entries: tuple[RepositoryEntry, ...]
    """Entries from `carried_from` on, its own last."""
    table: RepositoryTable | None = None
    """State after the record, if its number is a multiple of 64."""
    repository: bytes = bytes(ID_BYTES)
    """Id of the repository."""
    before: bytes = bytes(DIGEST_BYTES)
    """Digest of the log up to the preceding record."""


def repository_log_prefix(repository: bytes) -> str:
    """Return the prefix of the records of the repository log."""
    return f"{refs_prefix(repository)}repository/"


def carried_from(number: int) -> int:
    """Return the number of the first entry carried by a record."""
    return (number - 1) // TABLE_EVERY * TABLE_EVERY + 1


def encode_repository_record(record: RepositoryRecord) -> bytes:
    """Encode a record as an object."""
    table = None if record.table is None else _table_to_wire(record.table)
    body = (record.repository, record.number, record.before, record.entries, table)
    return encode_object(Kind.REPOSITORY_LOG, pack_body(body))


def decode_repository_record(
    name: str, data: bytes | bytearray | memoryview, number: int, repository: bytes
) -> RepositoryRecord:
    """Decode a record and check that it matches its key; raises `FormatError`."""
    body = read_object(name, Kind.REPOSITORY_LOG, data)
    owner, stored_number, before, wires, wire = read_tuple(
        name, body, bytes, int, read_digest, tuple, (tuple, type(None))
    )
    check_owner(name, owner, repository)
    if stored_number != number:
        raise FormatError(name, f"holds record {stored_number} of the repository log")
    if number < 1 or len(wires) != number - carried_from(number) + 1:
        raise FormatError(name, f"carries {len(wires)} entries, not {number - carried_from(number) + 1}")
    if (wire is not None) != (number % TABLE_EVERY == 0):
        raise FormatError(name, "every 64th record, and no other, must have a table")
    entries = tuple([RepositoryEntry.from_wire(name, item) for item in wires])
    table = None if wire is None else _read_table(name, wire, number, entry_digest(before, entries[-1]))
    return RepositoryRecord(number, entries, table, repository, before)


def entry_digest(before: bytes, entry: RepositoryEntry) -> bytes:
    """Return the digest of the log with one more entry."""
    return chained(before, pack_body(entry))


def _table_to_wire(table: RepositoryTable) -> tuple[Any, ...]:
    settings = tuple((name, (table.settings[name],)) for name in sorted(table.settings))
    return (
        *(rows_to_wire(table.tags), tuple(sorted(table.burnt)), rows_to_wire(table.branches)),
        *(settings, table.watermark, table.collection),
    )


_TABLE = (
    rows_of(Tag, read_name),
    tuple_of(read_name),
    rows_of(BranchRow, read_name),
    tuple_of(lambda name, row: read_tuple(name, row, str, _read_value)),
    read_id,
    optional(read_id),
)


def _read_table(name: str, value: Any, number: int, digest: bytes) -> RepositoryTable:
    tags, burnt, branches, settings, watermark, collection = read_tuple(name, value, *_TABLE)
    if FIRST_BRANCH not in branches:
        raise FormatError(name, f"the table must have a row of branch {FIRST_BRANCH!r}")
    return RepositoryTable(number, tags, frozenset(burnt), branches, dict(settings), watermark, collection, digest)
