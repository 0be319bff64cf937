"""Commit records: the entries of a branch log.

A record holds its own *body* (a few hundred bytes), *attachments* (what is too large for a body and small enough to
save a request), and the bodies of its predecessors, byte for byte, back to the last multiple of 8, of 64 where its
own number is a multiple of 8, or of 512 where it is one of 64.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from arraystore._format.digest import DIGEST_BYTES, chained
from arraystore._format.envelope import (
    Kind,
    check_plain,
    check_time,
    encode_object,
    pack_body,
    packed_size,
    read_object,
    read_tuple,
    unpack_body,
)
from arraystore._format.ids import ID_BYTES
from arraystore._format.layer import Here, Layer, check_owner, read_id
from arraystore._format.lifecycle import (
    NO_FENCE,
    Deleted,
    Expiry,
    Fence,
    Origin,
    Reset,
    origin_to_wire,
    read_deleted,
    read_expiry,
    read_fence,
    read_origin,
    read_reset,
)
from arraystore._format.msgpack_limits import measure
from arraystore._format.transaction import TransactionLog, read_log
from arraystore.errors import FormatError, InvalidInputError

__all__ = [
    "MAX_ATTACHED",
    "MAX_BODY",
    "MAX_LOG_IN_BODY",
    "MAX_MANIFEST_IN_BODY",
    "MAX_MESSAGE",
    "MAX_METADATA",
    "MAX_NOTE_IN_BODY",
    "MAX_PACKED_LOG_IN_BODY",
    "MOST_PACKS_IN_BODY",
    "Birth",
    "Body",
    "Commit",
    "Deleted",
    "EntryKind",
    "Expiry",
    "Fence",
    "Origin",
    "Record",
    "Replacement",
    "Reset",
    "Rewrite",
    "Transaction",
    "check_packs",
    "decode_body",
    "decode_note",
    "decode_record",
    "encode_body",
    "encode_note",
    "encode_record",
    "first_carried",
    "fits_body",
    "read_record_key",
    "record_key",
]

SHORT_SKIP = 8
LONG_SKIP = 64
LONGEST_SKIP = 512
_DIGITS = 12

MAX_BODY = 16 * 1024
"""A body is repeated some eleven times by its successors; 511 of the largest are 8 MiB."""

MAX_MANIFEST_IN_BODY = 160
"""A manifest of one small chunk travels in the body; a larger one is attached, which is not repeated."""

MAX_LOG_IN_BODY = 4 * 1024
MAX_PACKED_LOG_IN_BODY = 640
"""Change logs above either of these, as they are and compressed, are attached.

Repeated metadata documents compress to next to nothing within a record; with these bounds appends, which change the
shape of some arrays, travel in the body, and a commit of one chunk stays below 4 KiB, all repetitions counted.
"""

MAX_NOTE_IN_BODY = 256
"""Message and metadata above this are attached."""

MOST_PACKS_IN_BODY = 8
"""Ids of packs that a body names; who writes more of them in one commit writes megabytes."""

MAX_ATTACHED = 256 * 1024
"""All attachments of a record together: what still travels as fast as a small object (20 ms a MiB to S3)."""

MAX_MESSAGE = 64 * 1024
MAX_METADATA = 64 * 1024


class EntryKind(enum.IntEnum):
    """What an entry of a branch log is."""

    BIRTH = 0
    COMMIT = 1
    REWRITE = 2
    RESET = 3
    DELETED = 4
    FENCE = 5
    EXPIRY = 6


@dataclass(frozen=True)
class Birth:
    """First entry of a branch: its first snapshot, empty or another branch's.

    Parameters
    ----------
    snapshot, parent
        Of the snapshot, and of the one before it.
    time
        Microseconds since 1970, by the writer's clock.
    origin
        Where the snapshot is, if it is another branch's.
    fence
        Watermark that holds from the beginning.
    cause
        Number of the repository record that created the branch; 0 for the first one.
    """

    snapshot: bytes
    parent: bytes | None
    time: int
    origin: Origin | None = None
    fence: bytes = NO_FENCE
    cause: int = 0


@dataclass(frozen=True)
class Transaction:
    """One commit of a user.

    Parameters
    ----------
    id
        Of the snapshot that it makes.
    parent
        Of the snapshot before it on the branch.
    time
        Microseconds since 1970, by the writer's clock; never compared for safety.
    isolation
        0 snapshot, 1 serializable.
    note
        Encoded message and metadata, or the number of the attachment that holds them.
    log
        The changes, or the number of the attachment, or the id of the object in ``transactions/`` that holds them.
    first
        Where the attachments of the transaction begin among those of its record; their numbers count from there.
    amends
        Id of the snapshot whose place it takes in the history: the newest one, on top of which its changes apply.
    packs
        Ids of the packs that it brings in, one after the other; None if they are more than `MOST_PACKS_IN_BODY`, and
        only its manifests tell.
    """

    id: bytes
    parent: bytes
    time: int
    isolation: int
    note: bytes | int
    log: TransactionLog | int | bytes
    first: int = 0
    amends: bytes | None = None
    packs: bytes | None = b""


@dataclass(frozen=True)
class Commit:
    """Entry that makes one or more transactions visible.

    Parameters
    ----------
    transactions
        At least one.
    refused
        Ids of proposed transactions (see `arraystore._format.intent`) that collide with what was committed before this
        record: no later record may take what was proposed before this one.
    """

    transactions: tuple[Transaction, ...]
    refused: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Replacement:
    """Layers of one array that are replaced by others with the same content."""

    node: bytes
    first: bytes
    """Id of the oldest layer that is replaced."""
    last: bytes
    """Id of the newest one; all between them are replaced too."""
    count: int
    """How many they are."""
    added: tuple[Layer, ...]


@dataclass(frozen=True)
class Rewrite:
    """Entry that re-points layers and changes no data; not a snapshot, not shown in history."""

    replacements: tuple[Replacement, ...]
    packs: bytes | None = b""
    """Ids of the packs that it brings in, as in a `Transaction`."""


Body = Birth | Commit | Rewrite | Reset | Deleted | Fence | Expiry


@dataclass(frozen=True)
class Record:
    """A record as stored.

    Parameters
    ----------
    branch, sequence
        Where it stands; repeated inside, so that a misplaced object is noticed.
    body
        Its own entry, encoded.
    attachments
        What its own body refers to by number.
    previous
        Encoded bodies of the records before it, in order.
    repository
        Id of the repository; a log fills it in when it takes the record.
    before
        Digest of the log up to the record before it, see `chained`; a log fills it in.
    """

    branch: str
    sequence: int
    body: bytes
    attachments: tuple[bytes, ...] = ()
    previous: tuple[bytes, ...] = field(default=())
    repository: bytes = bytes(ID_BYTES)
    before: bytes = bytes(DIGEST_BYTES)

    @property
    def digest(self) -> bytes:
        """Digest of the log up to this record."""
        return chained(self.before, self.body)

    def bodies(self) -> dict[int, bytes]:
        """Return its own and the carried bodies by number."""
        first = self.sequence - len(self.previous)
        found = {first + i: body for i, body in enumerate(self.previous)}
        found[self.sequence] = self.body
        return found


def record_key(branch_prefix: str, sequence: int) -> str:
    """Return the key of a record; numbers have twelve digits, so keys sort as the numbers do."""
    return f"{branch_prefix}{sequence:0{_DIGITS}d}"


def read_record_key(branch_prefix: str, key: str) -> int | None:
    """Return the number of the record that a key names; None if it is not the key of a record."""
    text = key[len(branch_prefix) :]
    is_number = len(text) == _DIGITS and text.isascii() and text.isdigit()
    return int(text) if is_number and key.startswith(branch_prefix) else None


def first_carried(sequence: int) -> int:
    """Return the number of the oldest record whose body record `sequence` carries (its own if none)."""
    if sequence <= 0:
        return sequence
    skip = SHORT_SKIP if sequence % SHORT_SKIP else LONG_SKIP if sequence % LONG_SKIP else LONGEST_SKIP
    return (sequence - 1) // skip * skip + 1


def fits_body(log: bytes) -> bool:
    """Tell whether an encoded change log is small enough to be repeated by the records that follow."""
    if len(log) <= MAX_PACKED_LOG_IN_BODY:
        return True
    return len(log) <= MAX_LOG_IN_BODY and packed_size(log) <= MAX_PACKED_LOG_IN_BODY


def encode_record(record: Record) -> bytes:
    """Return the object for a record."""
    if len(record.body) > MAX_BODY:
        raise FormatError("new commit record", f"a body of {len(record.body)} bytes; {MAX_BODY} are allowed")
    if sum(map(len, record.attachments)) > 4 * MAX_ATTACHED:
        raise FormatError("new commit record", "attachments are too large")
    body = (
        *(record.repository, record.branch, record.sequence, record.before),
        *(record.body, record.attachments, record.previous),
    )
    return encode_object(Kind.RECORD, pack_body(body))


def decode_record(
    name: str, data: bytes | bytearray | memoryview, branch: str, sequence: int, repository: bytes
) -> Record:
    """Read a record and check that it is the one that its key promises; raises `FormatError`."""
    body = read_object(name, Kind.RECORD, data)
    owner, found_branch, found_sequence, before, own, attachments, previous = read_tuple(
        name, body, bytes, str, int, bytes, bytes, tuple, tuple
    )
    check_owner(name, owner, repository)
    if (found_branch, found_sequence) != (branch, sequence):
        raise FormatError(name, f"holds record {found_sequence} of branch {found_branch[:80]!r}")
    if len(before) != DIGEST_BYTES:
        raise FormatError(name, f"a digest of {len(before)} bytes")
    if len(previous) != sequence - first_carried(sequence):
        raise FormatError(name, f"carries {len(previous)} bodies")
    for part in (own, *previous):
        if type(part) is not bytes or len(part) > MAX_BODY:
            raise FormatError(name, "a body is no bytes or too large")
    if not all(type(part) is bytes for part in attachments) or sum(map(len, attachments)) > 4 * MAX_ATTACHED:
        raise FormatError(name, "an attachment is no bytes, or they are too large")
    return Record(branch, sequence, own, attachments, previous, repository, before)


def encode_note(message: str, metadata: dict[str, Any]) -> bytes:
    """Encode message and metadata of a commit.

    Raises
    ------
    InvalidInputError
        If the metadata nests more deeply than a reader accepts.
    """
    note = pack_body((message, metadata or None))
    try:
        measure("message and metadata", note, MAX_MESSAGE + MAX_METADATA)
    except FormatError as error:
        raise InvalidInputError(f"they cannot be stored: {error}") from None
    return note


def decode_note(name: str, note: bytes) -> tuple[str, dict[str, Any]]:
    """Read what `encode_note` gave; raises `FormatError`."""
    message, metadata = read_tuple(name, unpack_body(name, note), str, (dict, type(None)))
    return message, check_plain(name, metadata or {})


def encode_body(sequence: int, body: Body, branch: str) -> bytes:
    """Encode the entry of a record."""
    record = Here(branch, sequence)
    content: Any
    if isinstance(body, Birth):
        kind = EntryKind.BIRTH
        content = (body.snapshot, body.parent, body.time, origin_to_wire(body.origin), body.fence, body.cause)
    elif isinstance(body, Commit):
        kind = EntryKind.COMMIT
        content = (tuple(_transaction_wire(t, branch, sequence) for t in body.transactions), b"".join(body.refused))
    elif isinstance(body, Rewrite):
        kind = EntryKind.REWRITE
        replaced = tuple(
            (r.node, r.first, r.last, r.count, tuple(a.to_wire(record) for a in r.added)) for r in body.replacements
        )
        content = (replaced, body.packs)
    else:
        kind = _LIFECYCLE[type(body)]
        content = body.to_wire()
    return pack_body((sequence, int(kind), content))


_LIFECYCLE = {
    Reset: EntryKind.RESET,
    Deleted: EntryKind.DELETED,
    Fence: EntryKind.FENCE,
    Expiry: EntryKind.EXPIRY,
}


def _transaction_wire(item: Transaction, branch: str, sequence: int) -> tuple[Any, ...]:
    here = Here(branch, sequence, item.first)
    log = item.log.to_wire(here) if isinstance(item.log, TransactionLog) else item.log
    return (item.id, item.parent, item.time, item.isolation, item.note, log, item.first, item.amends, item.packs)


def decode_body(name: str, data: bytes, branch: str, sequence: int) -> Body:
    """Read the entry of a record; raises `FormatError`."""
    number, kind, content = read_tuple(name, unpack_body(name, data), int, int, tuple)
    if number != sequence:
        raise FormatError(name, f"body {number} stands where {sequence} should")
    if (kind == EntryKind.BIRTH) != (sequence == 0):
        raise FormatError(name, "a log has one birth, which is its first entry")
    if kind == EntryKind.BIRTH:
        return _read_birth(name, content)
    if kind == EntryKind.COMMIT:
        return _read_commit(name, content, branch, sequence)
    if kind == EntryKind.REWRITE:
        replacements, packs = read_tuple(name, content, tuple, (bytes, type(None)))
        if not replacements:
            raise FormatError(name, "a rewrite of nothing")
        here = Here(branch, sequence)
        return Rewrite(tuple([_read_replacement(name, item, here) for item in replacements]), check_packs(name, packs))
    if kind == EntryKind.RESET:
        return read_reset(name, content)
    if kind == EntryKind.DELETED:
        return read_deleted(name, content)
    if kind == EntryKind.FENCE:
        return read_fence(name, content)
    if kind == EntryKind.EXPIRY:
        return read_expiry(name, content, sequence)
    raise FormatError(name, f"unknown entry of kind {kind}")


def check_packs(name: str, packs: bytes | None) -> bytes | None:
    """Check the ids of packs in a body; raises `FormatError`."""
    if packs is not None and (len(packs) % ID_BYTES or len(packs) > MOST_PACKS_IN_BODY * ID_BYTES):
        raise FormatError(name, "packs that are no ids, or too many")
    return packs


def _read_birth(name: str, value: Any) -> Birth:
    snapshot, parent, time, wire, fence, cause = read_tuple(
        name, value, bytes, (bytes, type(None)), int, (tuple, type(None)), bytes, int
    )
    origin = None if wire is None else read_origin(name, wire)
    if parent is not None:
        read_id(name, parent)
    if cause < 0:
        raise FormatError(name, "a negative number of a record")
    return Birth(read_id(name, snapshot), parent, check_time(name, time), origin, read_id(name, fence), cause)


def _read_commit(name: str, value: Any, branch: str, sequence: int) -> Commit:
    transactions, refused = read_tuple(name, value, tuple, bytes)
    if not transactions:
        raise FormatError(name, "a commit of nothing")
    if len(refused) % ID_BYTES:
        raise FormatError(name, "refused transactions that are no ids")
    ids = [refused[at : at + ID_BYTES] for at in range(0, len(refused), ID_BYTES)]
    return Commit(tuple([_read_transaction(name, t, branch, sequence) for t in transactions]), tuple(ids))


def _read_transaction(name: str, value: Any, branch: str, sequence: int) -> Transaction:
    identifier, parent, time, isolation, note, log, first, amends, packs = read_tuple(
        name, value, bytes, bytes, int, int, (bytes, int), (tuple, bytes, int), int, *((bytes, type(None)),) * 2
    )
    if amends is not None:
        read_id(name, amends)
    if isolation not in (0, 1):
        raise FormatError(name, f"unknown isolation {isolation}")
    if (type(note) is int and note < 0) or (type(log) is int and log < 0) or first < 0:
        raise FormatError(name, "a negative number of an attachment")
    if type(log) is bytes and len(log) != ID_BYTES:
        raise FormatError(name, "expected the id of a transaction log")
    if type(log) is tuple:
        log = read_log(name, log, Here(branch, sequence, first))
    return Transaction(
        read_id(name, identifier),
        read_id(name, parent),
        check_time(name, time),
        isolation,
        note,
        log,
        first,
        amends,
        check_packs(name, packs),
    )


def _read_replacement(name: str, value: Any, record: Here) -> Replacement:
    node, first, last, count, added = read_tuple(name, value, bytes, bytes, bytes, int, tuple)
    if count < 1:
        raise FormatError(name, "a rewrite that replaces nothing")
    return Replacement(
        read_id(name, node),
        read_id(name, first),
        read_id(name, last),
        count,
        tuple([Layer.from_wire(name, item, record) for item in added]),
    )
