"""Intents: transactions that a process proposes for a group commit by the leader.

The key of an intent sorts right after the record on which it was checked, so that one listing returns the tip and the
queue of intents in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, unpack_body
from arraystore._format.ids import NodeId, SnapshotId, id_from_text, id_to_text
from arraystore._format.layer import EnclosingRecord
from arraystore._format.manifest import decode_manifest
from arraystore._format.record import (
    MAX_ATTACHED,
    MAX_LOG_IN_BODY,
    MAX_NOTE_IN_BODY,
    check_packs,
    decode_note,
    read_attachments,
    read_record_key,
    record_key,
)
from arraystore._format.transaction import AppendMark, TransactionLog, read_log
from arraystore._format.wire import (
    Wire,
    optional,
    read_id,
    read_ids,
    read_isolation,
    read_time,
    read_tuple,
    tuple_of,
)
from arraystore.errors import FormatError, InvalidInputError

PATIENCE = 32
"""Number of records after the one on which an intent was checked that may commit it: some six seconds at five records
a second.  The leader keeps the snapshots of as many records."""

MAX_INTENT = 512 * 1024
"""Largest intent in bytes that a leader fetches; larger transactions are committed by their writers."""

_UNKNOWN_RECORD = EnclosingRecord("", 0)


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
    marks: Mapping[NodeId, AppendMark] = field(default_factory=dict[NodeId, AppendMark])
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
class Intent(Wire):
    """Transactions that one process proposes together."""

    branch: str
    """Target branch."""
    sequence: int
    """Number of the record on which it was checked."""
    last: int
    """Number of the last record that may commit any of it."""
    proposals: Annotated[tuple[Proposal, ...], _read_proposals, _proposals_to_wire]
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
    return encode_object(Kind.INTENT, pack_body(intent))


def _proposals_to_wire(proposals: tuple[Proposal, ...]) -> tuple[Any, ...]:
    return tuple(map(_proposal_to_wire, proposals))


def _proposal_to_wire(item: Proposal) -> tuple[Any, ...]:
    log: Any = item.log.to_wire(_UNKNOWN_RECORD) if item.log_place is None else item.log_place
    marks = tuple((node, *mark) for node, mark in item.marks.items())
    cuts = tuple(item.cuts.items())
    return (
        *(item.id, item.note, log, item.attachments, item.time, item.isolation),
        *(marks, cuts, item.reads, b"".join(item.guard), item.oldest, item.packs),
    )


def decode_intent(name: str, data: bytes | bytearray | memoryview, branch: str, sequence: int) -> Intent:
    """Decode an intent and check that it matches its key; raises `FormatError`."""
    intent = Intent.from_wire(name, read_object(name, Kind.INTENT, data))
    if (intent.branch, intent.sequence) != (branch, sequence):
        raise FormatError(name, f"holds an intent for record {intent.sequence} of branch {intent.branch[:80]!r}")
    if not sequence < intent.last <= sequence + PATIENCE or not intent.proposals:
        raise FormatError(name, f"an intent must have proposals, and a last record at most {PATIENCE} after its own")
    return intent


def _read_proposals(name: str, value: Any) -> Any:
    return tuple_of(_read_proposal)(name, value)


def _read_proposal(name: str, value: Any) -> Proposal:
    identifier, note, wire, attachments, time, isolation, marks, cuts, *rest = read_tuple(name, value, *_PROPOSAL)
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
    return Proposal(identifier, note, log, place, attachments, time, isolation, dict(marks), dict(cuts), *rest)


def _read_mark(name: str, value: Any) -> tuple[NodeId, AppendMark]:
    node, axis, start, chunk = read_tuple(name, value, read_id, int, int, (int, type(None)))
    if not (0 <= axis < MAX_DIMENSIONS and 0 <= start < MAX_VOLUME and (chunk is None or 0 < chunk < MAX_VOLUME)):
        raise FormatError(name, "an append has a dimension or length out of range")
    return node, AppendMark(axis, start, chunk)


def _read_cut(name: str, value: Any) -> tuple[NodeId, tuple[int, ...]]:
    node, grid = read_tuple(name, value, read_id, tuple)
    if len(grid) > MAX_DIMENSIONS or not all(type(side) is int and 0 <= side < MAX_VOLUME for side in grid):
        raise FormatError(name, "a grid has an invalid side")
    return node, grid


_PROPOSAL = (
    *(read_id, bytes, (tuple, int), partial(read_attachments, limit=MAX_ATTACHED), read_time, read_isolation),
    *(tuple_of(_read_mark), tuple_of(_read_cut), (bytes, type(None)), read_ids, optional(read_id), check_packs),
)
