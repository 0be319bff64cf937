"""The repository log: tags, branches, settings and watermarks, one entry a record.

A record carries the entries since the last multiple of 64, and at multiples of 64 the table that all entries so far
make; so whoever reads the newest record needs one other at most.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arraystore.errors import FormatError
from arraystore.format.digest import DIGEST_BYTES, chained, log_start
from arraystore.format.envelope import Kind, check_plain, check_time, encode_object, pack_body, read_object, read_tuple
from arraystore.format.ids import ID_BYTES
from arraystore.format.layer import check_owner, read_id
from arraystore.format.lifecycle import NO_FENCE, Origin, origin_to_wire, read_origin
from arraystore.format.refs import read_name, refs_prefix

__all__ = [
    "FIRST_BRANCH",
    "MAX_SETTING",
    "TABLE_EVERY",
    "BranchRow",
    "RepositoryEntry",
    "RepositoryOperation",
    "RepositoryRecord",
    "RepositoryTable",
    "Tag",
    "carried_from",
    "decode_repository_record",
    "encode_repository_record",
    "entry_digest",
    "repository_log_prefix",
]

FIRST_BRANCH = "main"
TABLE_EVERY = 64
MAX_SETTING = 64 * 1024
"""Bytes of one setting: it is repeated by the records that follow."""


class RepositoryOperation(enum.IntEnum):
    """What an entry of the repository log says."""

    TAG_CREATED = 0
    TAG_DELETED = 1
    BRANCH_CREATED = 2
    BRANCH_DELETED = 3
    SETTING = 4
    WATERMARK = 5
    COLLECTED = 6
    EXPIRED = 7


@dataclass(frozen=True)
class Tag:
    """A name for one snapshot, for ever.

    Parameters
    ----------
    snapshot
        What it names.
    origin
        Record that made the snapshot, and a checkpoint of exactly it.
    """

    snapshot: bytes
    origin: Origin


@dataclass(frozen=True)
class BranchRow:
    """A branch in the table.

    Parameters
    ----------
    number
        Of the repository record that says so.
    deleted
        Whether it does not exist any more.
    snapshot, parent
        Of what it was created from, and of what was before that.
    origin
        Where that is; None for the first branch.
    fence
        Watermark at its creation.
    """

    number: int
    deleted: bool
    snapshot: bytes | None = None
    parent: bytes | None = None
    origin: Origin | None = None
    fence: bytes = NO_FENCE


@dataclass(frozen=True)
class RepositoryEntry:
    """One entry.

    Parameters
    ----------
    operation
        What happened.
    time
        Microseconds since 1970, by the writer's clock.
    name
        Of the branch, tag or setting; empty for none.
    snapshot, parent, origin
        Of a branch or tag that is created.
    value
        Of a setting, or what a collection or an expiry did, for people.
    watermark
        Id below which things were, or are about to be, collected.
    object
        Id of the object in which a collection left what the next one has to know.
    """

    operation: RepositoryOperation
    time: int
    name: str = ""
    snapshot: bytes | None = None
    parent: bytes | None = None
    origin: Origin | None = None
    value: Any = None
    watermark: bytes | None = None
    object: bytes | None = None


@dataclass(frozen=True)
class RepositoryTable:
    """What all entries up to a record make.

    Parameters
    ----------
    number
        Of the record, 0 before the first one.
    tags
        By name.
    burnt
        Names of deleted tags, which are never given again.
    branches
        By name, deleted ones included.
    settings
        By name.
    watermark
        The highest one.
    collection
        Id of what the last finished collection left.
    digest
        Of the log up to the record.
    """

    number: int = 0
    tags: Mapping[str, Tag] = field(default_factory=dict[str, Tag])
    burnt: frozenset[str] = frozenset()
    branches: Mapping[str, BranchRow] = field(default_factory=lambda: {FIRST_BRANCH: BranchRow(0, deleted=False)})
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    watermark: bytes = NO_FENCE
    collection: bytes | None = None
    digest: bytes = field(default=b"", compare=False)

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
            left = {tag: value for tag, value in self.tags.items() if tag != name}
            return replace(now, tags=left, burnt=self.burnt | {name})
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
    """A record as stored.

    Parameters
    ----------
    number
        Its own.
    entries
        Those from `carried_from` on, its own last.
    table
        What all entries make, where the number is a multiple of 64.
    repository
        Id of the repository.
    before
        Digest of the log up to the record before it.
    """

    number: int
    entries: tuple[RepositoryEntry, ...]
    table: RepositoryTable | None = None
    repository: bytes = bytes(ID_BYTES)
    before: bytes = bytes(DIGEST_BYTES)


def repository_log_prefix(repository: bytes) -> str:
    """Return what the keys of the records of the repository log start with."""
    return f"{refs_prefix(repository)}repository/"


def carried_from(number: int) -> int:
    """Return the number of the first entry that a record carries."""
    return (number - 1) // TABLE_EVERY * TABLE_EVERY + 1


def encode_repository_record(record: RepositoryRecord) -> bytes:
    """Return the object for a record."""
    table = None if record.table is None else _table_to_wire(record.table)
    body = (
        record.repository,
        record.number,
        record.before,
        tuple(_entry_to_wire(entry) for entry in record.entries),
        table,
    )
    return encode_object(Kind.REPOSITORY_LOG, pack_body(body))


def decode_repository_record(
    name: str, data: bytes | bytearray | memoryview, number: int, repository: bytes
) -> RepositoryRecord:
    """Read a record and check that it is the one that its key promises; raises `FormatError`."""
    body = read_object(name, Kind.REPOSITORY_LOG, data)
    owner, found, before, wires, wire = read_tuple(name, body, bytes, int, bytes, tuple, (tuple, type(None)))
    check_owner(name, owner, repository)
    if found != number:
        raise FormatError(name, f"holds record {found} of the repository log")
    if number < 1 or len(wires) != number - carried_from(number) + 1:
        raise FormatError(name, f"carries {len(wires)} entries")
    if (wire is not None) != (number % TABLE_EVERY == 0):
        raise FormatError(name, "a table stands in every 64th record, and only there")
    if len(before) != DIGEST_BYTES:
        raise FormatError(name, f"a digest of {len(before)} bytes")
    entries = tuple([_read_entry(name, item) for item in wires])
    if wire is None:
        return RepositoryRecord(number, entries, None, repository, before)
    digest = entry_digest(before, entries[-1])
    return RepositoryRecord(
        number, entries, replace(_read_table(name, wire, number), digest=digest), repository, before
    )


def entry_digest(before: bytes, entry: RepositoryEntry) -> bytes:
    """Return the digest of the log with one more entry."""
    return chained(before, pack_body(_entry_to_wire(entry)))


def _entry_to_wire(entry: RepositoryEntry) -> tuple[Any, ...]:
    return (
        int(entry.operation),
        entry.time,
        entry.name,
        entry.snapshot,
        entry.parent,
        origin_to_wire(entry.origin),
        (entry.value,),
        entry.watermark,
        entry.object,
    )


def _read_entry(name: str, value: Any) -> RepositoryEntry:
    optional = (bytes, type(None))
    kind, time, about, snapshot, parent, origin, content, watermark, identifier = read_tuple(
        name, value, int, int, str, optional, optional, (tuple, type(None)), tuple, optional, optional
    )
    try:
        operation = RepositoryOperation(kind)
    except ValueError:
        raise FormatError(name, f"unknown entry of kind {kind}") from None
    for item in (snapshot, parent, watermark, identifier):
        if item is not None:
            read_id(name, item)
    created = operation in (RepositoryOperation.TAG_CREATED, RepositoryOperation.BRANCH_CREATED)
    if created or operation in (RepositoryOperation.TAG_DELETED, RepositoryOperation.BRANCH_DELETED):
        read_name(name, about)
    if created and (snapshot is None or origin is None):
        raise FormatError(name, f"creates {about[:80]!r} from nothing")
    if operation == RepositoryOperation.WATERMARK and watermark is None:
        raise FormatError(name, "a watermark without an id")
    return RepositoryEntry(
        operation,
        check_time(name, time),
        about,
        snapshot,
        parent,
        None if origin is None else read_origin(name, origin),
        _read_value(name, content),
        watermark,
        identifier,
    )


def _read_value(name: str, value: Any) -> Any:
    if type(value) is not tuple or len(value) != 1:
        raise FormatError(name, "expected one value")
    return check_plain(name, value)[0]


def _table_to_wire(table: RepositoryTable) -> tuple[Any, ...]:
    tags = tuple((name, tag.snapshot, origin_to_wire(tag.origin)) for name, tag in sorted(table.tags.items()))
    branches = tuple(
        (name, row.number, row.deleted, row.snapshot, row.parent, origin_to_wire(row.origin), row.fence)
        for name, row in sorted(table.branches.items())
    )
    settings = tuple((name, (table.settings[name],)) for name in sorted(table.settings))
    return (tags, tuple(sorted(table.burnt)), branches, settings, table.watermark, table.collection)


def _read_table(name: str, value: Any, number: int) -> RepositoryTable:
    tags, burnt, branches, settings, watermark, collection = read_tuple(
        name, value, tuple, tuple, tuple, tuple, bytes, (bytes, type(None))
    )
    if not all(type(tag) is str for tag in burnt):
        raise FormatError(name, "the name of a tag is no text")
    for tag in burnt:
        read_name(name, tag)
    if collection is not None:
        read_id(name, collection)
    rows = dict([_read_branch(name, row) for row in branches])
    if FIRST_BRANCH not in rows:
        raise FormatError(name, f"there is no branch {FIRST_BRANCH!r}")
    return RepositoryTable(
        number,
        dict([_read_tag(name, row) for row in tags]),
        frozenset(burnt),
        rows,
        dict([_read_setting(name, row) for row in settings]),
        read_id(name, watermark),
        collection,
    )


def _read_tag(name: str, value: Any) -> tuple[str, Tag]:
    tag, snapshot, origin = read_tuple(name, value, str, bytes, tuple)
    return read_name(name, tag), Tag(read_id(name, snapshot), read_origin(name, origin))


def _read_branch(name: str, value: Any) -> tuple[str, BranchRow]:
    optional = (bytes, type(None))
    branch, number, deleted, snapshot, parent, origin, fence = read_tuple(
        name, value, str, int, bool, optional, optional, (tuple, type(None)), bytes
    )
    for item in (snapshot, parent):
        if item is not None:
            read_id(name, item)
    if number < 0 or (origin is None) != (snapshot is None):
        raise FormatError(name, f"the row of branch {branch[:80]!r} does not fit together")
    place = None if origin is None else read_origin(name, origin)
    return read_name(name, branch), BranchRow(number, deleted, snapshot, parent, place, read_id(name, fence))


def _read_setting(name: str, value: Any) -> tuple[str, Any]:
    setting, content = read_tuple(name, value, str, tuple)
    return setting, _read_value(name, content)
