"""Commit records: the entries of a branch log.

A record has a *body* (a few hundred bytes), *attachments* (too large for a body, small enough to save a request), and
the bodies of its predecessors, byte for byte, back to the last multiple of 8, of 64 if its own number is a multiple of
8, or of 512 if it is a multiple of 64.
"""

from __future__ import annotations

import enum
from dataclasses import field
from functools import partial
from typing import Any

from arraystore._format.digest import DIGEST_BYTES, chained, read_digest
from arraystore._format.envelope import (
    Kind,
    check_plain,
    encode_object,
    pack_body,
    packed_size,
    read_object,
    unpack_body,
)
from arraystore._format.ids import ID_BYTES, LayerId, NodeId, SnapshotId
from arraystore._format.layer import EnclosingRecord, Layer, check_owner
from arraystore._format.lifecycle import NO_FENCE, Deleted, Expiry, Fence, Origin, Reset
from arraystore._format.msgpack_limits import measure
from arraystore._format.transaction import TransactionLog, read_log
from arraystore._format.wire import (
    Id,
    Number,
    Time,
    Wire,
    optional,
    read_id,
    read_ids,
    read_isolation,
    read_number,
    read_time,
    read_tuple,
    tuple_of,
)
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError, InvalidInputError

SHORT_SKIP = 8
LONG_SKIP = 64
LONGEST_SKIP = 512
_DIGITS = 12

MAX_BODY = 16 * 1024
"""Maximum size of a body, which some eleven successors repeat; 511 of the largest are 8 MiB."""

MAX_MANIFEST_IN_BODY = 160
"""Size up to which a manifest is in the body; a larger one is an attachment, which is not repeated."""

MAX_LOG_IN_BODY = 4 * 1024
MAX_PACKED_LOG_IN_BODY = 640
"""Sizes, uncompressed and compressed, above which a change log is an attachment.

Repeated metadata documents compress well within a record.  With these limits the logs of appends are in the body, and
a commit of one chunk stays below 4 KiB, all repetitions included.
"""

MAX_NOTE_IN_BODY = 256
"""Size above which message and metadata are an attachment."""

MOST_PACKS_IN_BODY = 8
"""Number of packs that a body lists; a commit with more of them writes megabytes."""

MAX_ATTACHED = 256 * 1024
"""Maximum size of all attachments of a record, still as fast as a small object (20 ms a MiB to S3)."""

MAX_MESSAGE = 64 * 1024
MAX_METADATA = 64 * 1024


class EntryKind(enum.IntEnum):
    """Kind of an entry of a branch log."""

    BIRTH = 0
    COMMIT = 1
    REWRITE = 2
    RESET = 3
    DELETED = 4
    FENCE = 5
    EXPIRY = 6


@dataclass(frozen=True)
class Birth(Wire):
    """First entry of a branch: an empty snapshot, or one of another branch."""

    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the snapshot and of its parent."""
    time: Time
    """Time in microseconds since 1970, by the writer's clock."""
    origin: Origin | None = None
    """Origin of the snapshot, if it is of another branch."""
    fence: Id = NO_FENCE
    """Initial watermark."""
    cause: Number = 0
    """Number of the repository record that created the branch; 0 for the first branch."""


@dataclass(frozen=True)
class Transaction:
    """Commit of one session."""

    id: SnapshotId
    """Id of its snapshot."""
    parent: SnapshotId
    """Id of the parent snapshot."""
    time: int
    """Time in microseconds since 1970, by the writer's clock; never compared for safety."""
    isolation: int
    """Isolation level: 0 snapshot, 1 serializable."""
    note: bytes | int
    """Encoded message and metadata, or the number of their attachment."""
    log: TransactionLog | int | bytes
    """Change log, or the number of its attachment, or the id of its object in ``transactions/``."""
    first: int = 0
    """Number of its first attachment in the record; its own attachments are numbered from there."""
    amends: SnapshotId | None = None
    """Id of the snapshot that it replaces in history: the newest one, to which its changes apply."""
    packs: bytes | None = b""
    """Concatenated ids of the packs that it adds; None for more than `MOST_PACKS_IN_BODY`, listed only in its
    manifests."""


@dataclass(frozen=True)
class Commit:
    """Entry that commits one or more transactions."""

    transactions: tuple[Transaction, ...]
    """Transactions, at least one."""
    refused: tuple[SnapshotId, ...] = ()
    """Ids of proposals (see `arraystore._format.intent`) that conflict with earlier commits: no later record may commit
    them from intents that precede this record."""


@dataclass(frozen=True)
class Replacement:
    """Replacement of consecutive layers of one array by others with the same content."""

    node: NodeId
    first: LayerId
    """Id of the oldest replaced layer."""
    last: LayerId
    """Id of the newest replaced layer."""
    count: int
    """Number of replaced layers."""
    added: tuple[Layer, ...]


@dataclass(frozen=True)
class Rewrite:
    """Entry that replaces layers without changing data; it is no snapshot and not part of history."""

    replacements: tuple[Replacement, ...]
    packs: bytes | None = b""
    """Concatenated ids of the packs that it adds, as in a `Transaction`."""


Body = Birth | Commit | Rewrite | Reset | Deleted | Fence | Expiry


@dataclass(frozen=True)
class Record:
    """Record as stored."""

    branch: str
    sequence: int
    """Position of the record, repeated inside to detect a misplaced object."""
    body: bytes
    """Encoded entry of this record."""
    attachments: tuple[bytes, ...] = ()
    """Attachments, to which the body refers by number."""
    previous: tuple[bytes, ...] = field(default=())
    """Encoded bodies of preceding records, in order."""
    repository: bytes = bytes(ID_BYTES)
    """Id of the repository, set by the log that appends the record."""
    before: bytes = bytes(DIGEST_BYTES)
    """Digest of the log up to the preceding record, see `chained`; set by the log."""

    @property
    def digest(self) -> bytes:
        """Digest of the log up to this record."""
        return chained(self.before, self.body)

    def bodies(self) -> dict[int, bytes]:
        """Return its own and the carried bodies by record number."""
        first = self.sequence - len(self.previous)
        bodies = {first + i: body for i, body in enumerate(self.previous)}
        bodies[self.sequence] = self.body
        return bodies


def record_key(branch_prefix: str, sequence: int) -> str:
    """Return the key of a record, with twelve digits so that keys sort by number."""
    return f"{branch_prefix}{sequence:0{_DIGITS}d}"


def read_record_key(branch_prefix: str, key: str) -> int | None:
    """Parse the key of a record into its number, None for any other key."""
    text = key[len(branch_prefix) :]
    is_number = len(text) == _DIGITS and text.isascii() and text.isdigit()
    return int(text) if is_number and key.startswith(branch_prefix) else None


def first_carried(sequence: int) -> int:
    """Return the number of the oldest record whose body record `sequence` carries, its own if none."""
    if sequence <= 0:
        return sequence
    skip = SHORT_SKIP if sequence % SHORT_SKIP else LONG_SKIP if sequence % LONG_SKIP else LONGEST_SKIP
    return (sequence - 1) // skip * skip + 1


def fits_body(log: bytes) -> bool:
    """Return whether an encoded change log is small enough for the body of a record."""
    if len(log) <= MAX_PACKED_LOG_IN_BODY:
        return True
    return len(log) <= MAX_LOG_IN_BODY and packed_size(log) <= MAX_PACKED_LOG_IN_BODY


def encode_record(record: Record) -> bytes:
    """Encode a record as an object; raises `FormatError` above a reader's limits."""
    if len(record.body) > MAX_BODY:
        raise FormatError("new commit record", f"a body of {len(record.body)} bytes; at most {MAX_BODY} are allowed")
    if sum(map(len, record.attachments)) > 4 * MAX_ATTACHED:
        raise FormatError("new commit record", f"attachments must have <= {4 * MAX_ATTACHED} bytes in all")
    body = (
        *(record.repository, record.branch, record.sequence, record.before),
        *(record.body, record.attachments, record.previous),
    )
    return encode_object(Kind.RECORD, pack_body(body))


def decode_record(
    name: str, data: bytes | bytearray | memoryview, branch: str, sequence: int, repository: bytes
) -> Record:
    """Decode a record and check that it matches its key; raises `FormatError`."""
    body = read_object(name, Kind.RECORD, data)
    owner, stored_branch, stored_sequence, before, own, attachments, previous = read_tuple(
        name, body, bytes, str, int, read_digest, bytes, read_attachments, tuple
    )
    check_owner(name, owner, repository)
    if (stored_branch, stored_sequence) != (branch, sequence):
        raise FormatError(name, f"holds record {stored_sequence} of branch {stored_branch[:80]!r}")
    if len(previous) != sequence - first_carried(sequence):
        raise FormatError(name, f"carries {len(previous)} bodies, not {sequence - first_carried(sequence)}")
    for part in (own, *previous):
        if type(part) is not bytes or len(part) > MAX_BODY:
            raise FormatError(name, f"a body must be bytes, at most {MAX_BODY}")
    return Record(branch, sequence, own, attachments, previous, repository, before)


def read_attachments(name: str, value: Any, limit: int = 4 * MAX_ATTACHED) -> tuple[bytes, ...]:
    """Check attachments; raises `FormatError`."""
    if type(value) is not tuple or not all(type(part) is bytes for part in value) or sum(map(len, value)) > limit:
        raise FormatError(name, f"attachments must be bytes, at most {limit} in all")
    return value


def encode_note(message: str, metadata: dict[str, Any]) -> bytes:
    """Encode message and metadata of a commit; raises `InvalidInputError` above a reader's limits."""
    note = pack_body((message, metadata or None))
    try:
        measure("message and metadata", note, MAX_MESSAGE + MAX_METADATA)
    except FormatError as error:
        raise InvalidInputError(f"message and metadata are not valid: {error}") from None
    return note


def decode_note(name: str, note: bytes) -> tuple[str, dict[str, Any]]:
    """Decode message and metadata of a commit; raises `FormatError`."""
    message, metadata = read_tuple(name, unpack_body(name, note), str, (dict, type(None)))
    return message, check_plain(name, metadata or {})


_KINDS = {
    Birth: EntryKind.BIRTH,
    Commit: EntryKind.COMMIT,
    Rewrite: EntryKind.REWRITE,
    Reset: EntryKind.RESET,
    Deleted: EntryKind.DELETED,
    Fence: EntryKind.FENCE,
    Expiry: EntryKind.EXPIRY,
}


def encode_body(sequence: int, body: Body, branch: str) -> bytes:
    """Encode the entry of a record."""
    content: Any = body
    if isinstance(body, Commit):
        content = (tuple(_transaction_wire(t, branch, sequence) for t in body.transactions), b"".join(body.refused))
    elif isinstance(body, Rewrite):
        record = EnclosingRecord(branch, sequence)
        replacements = tuple(
            (r.node, r.first, r.last, r.count, tuple(a.to_wire(record) for a in r.added)) for r in body.replacements
        )
        content = (replacements, body.packs)
    return pack_body((sequence, _KINDS[type(body)], content))


def _transaction_wire(item: Transaction, branch: str, sequence: int) -> tuple[Any, ...]:
    here = EnclosingRecord(branch, sequence, item.first)
    log = item.log.to_wire(here) if isinstance(item.log, TransactionLog) else item.log
    return (item.id, item.parent, item.time, item.isolation, item.note, log, item.first, item.amends, item.packs)


def decode_body(name: str, data: bytes, branch: str, sequence: int) -> Body:
    """Decode the entry of a record; raises `FormatError`."""
    number, kind, content = read_tuple(name, unpack_body(name, data), int, int, tuple)
    if number != sequence:
        raise FormatError(name, f"the body is of record {number}, not {sequence}")
    if (kind == EntryKind.BIRTH) != (sequence == 0):
        raise FormatError(name, "a log must have one birth, as its first entry")
    if kind == EntryKind.COMMIT:
        return _read_commit(name, content, branch, sequence)
    if kind == EntryKind.REWRITE:
        return _read_rewrite(name, content, EnclosingRecord(branch, sequence))
    for whole in (Birth, Reset, Deleted, Fence, Expiry):
        if kind == _KINDS[whole]:
            body = whole.from_wire(name, content)
            if isinstance(body, Expiry) and body.upto >= sequence:
                raise FormatError(
                    name, f"an expiry in record {sequence} must be of earlier records, not up to {body.upto}"
                )
            return body
    raise FormatError(name, f"unknown entry of kind {kind}")


def check_packs(name: str, packs: Any) -> Any:
    """Check the ids of packs in a body; raises `FormatError`."""
    if packs is not None and len(read_ids(name, packs)) > MOST_PACKS_IN_BODY:
        raise FormatError(name, f"a body must list <= {MOST_PACKS_IN_BODY} packs")
    return packs


def _read_commit(name: str, value: Any, branch: str, sequence: int) -> Commit:
    transactions, refused = read_tuple(name, value, tuple, read_ids)
    if not transactions:
        raise FormatError(name, "a commit must have transactions")
    return Commit(tuple([_read_transaction(name, item, branch, sequence) for item in transactions]), refused)


_TRANSACTION = (
    *(read_id, read_id, read_time, read_isolation, (bytes, int), (tuple, bytes, int)),
    *(read_number, optional(read_id), check_packs),
)


def _read_transaction(name: str, value: Any, branch: str, sequence: int) -> Transaction:
    identifier, parent, time, isolation, note, log, first, amends, packs = read_tuple(name, value, *_TRANSACTION)
    for place in (note, log):
        if type(place) is int:
            read_number(name, place)
    if type(log) is bytes:
        read_id(name, log)
    if type(log) is tuple:
        log = read_log(name, log, EnclosingRecord(branch, sequence, first))
    return Transaction(identifier, parent, time, isolation, note, log, first, amends, packs)


def _read_rewrite(name: str, value: Any, record: EnclosingRecord) -> Rewrite:
    read_layers = tuple_of(partial(Layer.from_wire, record=record))

    def read(name: str, item: Any) -> Replacement:
        return Replacement(*read_tuple(name, item, read_id, read_id, read_id, int, read_layers))

    rewrite = Rewrite(*read_tuple(name, value, tuple_of(read), check_packs))
    if not rewrite.replacements or any(item.count < 1 for item in rewrite.replacements):
        raise FormatError(name, "a rewrite must have replacements, each of >= 1 layers")
    return rewrite
