"""Intents: transactions that a process proposes for a group commit by the leader.

The key of an intent sorts right after the record on which it was checked, so that one listing returns the tip and the
queue of intents in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME
from arraystore._format.envelope import Kind, check_time, encode_object, pack_body, read_object, read_tuple, unpack_body
from arraystore._format.ids import ID_BYTES, NodeId, SnapshotId, id_from_text, id_to_text, split_ids
from arraystore._format.layer import EnclosingRecord, read_id
from arraystore._format.manifest import decode_manifest
from arraystore._format.record import (
    MAX_ATTACHED,
    MAX_LOG_IN_BODY,
    MAX_NOTE_IN_BODY,
    check_packs,
    decode_note,
    read_record_key,
    record_key,
)
from arraystore._format.transaction import TransactionLog, read_log
from arraystore.errors import FormatError, InvalidInputError

__all__ = [
    "MAX_INTENT",
    "PATIENCE",
    "Intent",
    "Proposal",
    "decode_intent",
    "encode_intent",
    "intent_key",
    "read_intent_key",
]

PATIENCE = 32
"""Number of records after the one on which an intent was checked that may commit it: some six seconds at five records
a second.  The leader keeps the snapshots of as many records."""

MAX_INTENT = 512 * 1024
"""Largest intent in bytes that a leader fetches; larger transactions are committed by their writers."""

_UNKNOWN_RECORD = EnclosingRecord("", 0)

Mark = tuple[int, int, int | None]
"""End of an array that is appended to: dimension, length in items, items per chunk (None if chunks differ)."""


@dataclass(frozen=True)
class Proposal:
    """Transaction with everything needed to check it and to commit it in a record."""

    id: SnapshotId
    """Id of its snapshot; a record that refuses the proposal names this id."""
    note: bytes
    """Encoded message and metadata; attachment 0 if it is long."""
    log: TransactionLog
    """Change log, with attachments of the proposal."""
    log_place: int | None
    """Index of the attachment that holds the log, None if it goes into the body of the record."""
    attachments: tuple[bytes, ...]
    """Attachments for the record."""
    time: int
    """Time in microseconds since 1970."""
    isolation: int
    """Isolation level: 0 snapshot, 1 serializable."""
    marks: Mapping[NodeId, Mark] = field(default_factory=dict[NodeId, Mark])
    """Ends of the arrays that it appends to, by id."""
    cuts: Mapping[NodeId, tuple[int, ...]] = field(default_factory=dict[NodeId, tuple[int, ...]])
    """Grids outside of which it deletes all chunks, by id of the array."""
    reads: bytes | None = None
    """Encoded read set; None if it depends only on what it overwrites."""
    guard: tuple[NodeId, ...] = ()
    """Arrays that the proposer checks again if others have appended to them."""
    oldest: bytes | None = None
    """Smallest id of the objects that it adds; None if it adds none."""
    packs: bytes | None = b""
    """Ids of the packs that it adds, as in its record."""


@dataclass(frozen=True)
class Intent:
    """Transactions that one process proposes together."""

    branch: str
    """Target branch."""
    sequence: int
    """Number of the record on which it was checked."""
    last: int
    """Number of the last record that may commit any of it."""
    proposals: tuple[Proposal, ...]
    """Proposals, in the order in which to check them."""


def intent_key(branch_prefix: str, sequence: int, identifier: SnapshotId) -> str:
    """Return the key of an intent; its id is that of its first transaction, unless that was proposed before."""
    return f"{record_key(branch_prefix, sequence)}-{id_to_text(identifier)}"


def read_intent_key(branch_prefix: str, key: str) -> tuple[int, SnapshotId] | None:
    """Parse the key of an intent into record number and id, None for any other key."""
    record, _, text = key.rpartition("-")
    number = read_record_key(branch_prefix, record)
    if number is None:
        return None
    try:
        return number, SnapshotId(id_from_text(text))
    except InvalidInputError:
        return None


def encode_intent(intent: Intent) -> bytes:
    """Encode an intent as an object."""
    proposals = tuple(_proposal_wire(item) for item in intent.proposals)
    body = (intent.branch, intent.sequence, intent.last, proposals)
    return encode_object(Kind.INTENT, pack_body(body))


def _proposal_wire(item: Proposal) -> tuple[Any, ...]:
    log: Any = item.log.to_wire(_UNKNOWN_RECORD) if item.log_place is None else item.log_place
    marks = tuple((node, *mark) for node, mark in item.marks.items())
    cuts = tuple(item.cuts.items())
    return (
        *(item.id, item.note, log, item.attachments, item.time, item.isolation),
        *(marks, cuts, item.reads, b"".join(item.guard), item.oldest, item.packs),
    )


def decode_intent(name: str, data: bytes | bytearray | memoryview, branch: str, sequence: int) -> Intent:
    """Decode an intent and check that it matches its key; raises `FormatError`."""
    body = read_object(name, Kind.INTENT, data)
    stored_branch, stored_sequence, last, proposals = read_tuple(name, body, str, int, int, tuple)
    if (stored_branch, stored_sequence) != (branch, sequence):
        raise FormatError(name, f"holds an intent for record {stored_sequence} of branch {stored_branch[:80]!r}")
    if not sequence < last <= sequence + PATIENCE or not proposals:
        raise FormatError(name, f"an intent must have proposals, and a last record at most {PATIENCE} after its own")
    return Intent(branch, sequence, last, tuple([_read_proposal(name, item) for item in proposals]))


def _read_proposal(name: str, value: Any) -> Proposal:
    optional = (bytes, type(None))
    identifier, note, wire, attachments, time, isolation, marks, cuts, reads, guard, oldest, packs = read_tuple(
        name, value, bytes, bytes, (tuple, int), tuple, int, int, tuple, tuple, optional, bytes, optional, optional
    )
    if oldest is not None:
        read_id(name, oldest)
    if isolation not in (0, 1):
        raise FormatError(name, f"unknown isolation {isolation}")
    if not all(type(part) is bytes for part in attachments) or sum(map(len, attachments)) > MAX_ATTACHED:
        raise FormatError(name, f"attachments must be bytes, at most {MAX_ATTACHED} in all")
    decode_note(name, note)
    if len(note) > MAX_NOTE_IN_BODY and attachments[:1] != (note,):
        raise FormatError(name, "a long note must be attached")
    place = None if type(wire) is tuple else wire
    if place is not None:
        if not 0 <= place < len(attachments):
            raise FormatError(name, f"has no attachment {place}")
        wire = unpack_body(f"{name}: change log", attachments[place])
    elif len(pack_body(wire)) > MAX_LOG_IN_BODY:
        raise FormatError(name, f"a change log in the body must have <= {MAX_LOG_IN_BODY} bytes")
    log = read_log(name, wire, _UNKNOWN_RECORD)
    for change in log.chunks:
        at = change.layer.attachment
        if at is not None and ((at.branch, at.sequence) != _UNKNOWN_RECORD[:2] or at.index >= len(attachments)):
            raise FormatError(name, "a manifest among attachments that it does not have")
        encoded = change.layer.inline if at is None else attachments[at.index]
        if encoded is not None:
            manifest = decode_manifest(name, encoded)
            if manifest.box != change.layer.box or manifest.count != change.layer.count:
                raise FormatError(name, "a manifest does not match its layer")
    if len(guard) % ID_BYTES:
        raise FormatError(name, "ids of guarded arrays are truncated")
    return Proposal(
        SnapshotId(read_id(name, identifier)),
        note,
        log,
        place,
        attachments,
        check_time(name, time),
        isolation,
        dict([_read_mark(name, item) for item in marks]),
        dict([_read_cut(name, item) for item in cuts]),
        reads,
        tuple(split_ids(guard, NodeId)),
        oldest,
        check_packs(name, packs),
    )


def _read_mark(name: str, value: Any) -> tuple[NodeId, Mark]:
    node, axis, start, chunk = read_tuple(name, value, bytes, int, int, (int, type(None)))
    if not (0 <= axis < MAX_DIMENSIONS and 0 <= start < MAX_VOLUME and (chunk is None or 0 < chunk < MAX_VOLUME)):
        raise FormatError(name, "an append has a dimension or length out of range")
    return NodeId(read_id(name, node)), (axis, start, chunk)


def _read_cut(name: str, value: Any) -> tuple[NodeId, tuple[int, ...]]:
    node, grid = read_tuple(name, value, bytes, tuple)
    if len(grid) > MAX_DIMENSIONS or not all(type(side) is int and 0 <= side < MAX_VOLUME for side in grid):
        raise FormatError(name, "a grid has an invalid side")
    return NodeId(read_id(name, node)), grid
