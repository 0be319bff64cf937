"""Intents: transactions that a process has proposed, for whoever leads to commit them together with others'.

An intent stands among the records of its branch, right behind the one on which it was checked, so one listing tells
the tip and who waits, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME
from arraystore._format.envelope import Kind, check_time, encode_object, pack_body, read_object, read_tuple, unpack_body
from arraystore._format.ids import ID_BYTES, id_from_text, id_to_text
from arraystore._format.layer import Here, read_id
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
"""Records after the one on which an intent was checked that may take it.  With some five records a second that is six
seconds; whoever leads has to keep the snapshots of as many records."""

MAX_INTENT = 512 * 1024
"""Largest object, in bytes, that a leader fetches for others; larger transactions are committed by their writers."""

_UNKNOWN_RECORD = Here("", 0)

Mark = tuple[int, int, int | None]
"""Where an array ended that is appended to: dimension, length in items, items a chunk (None where they differ)."""


@dataclass(frozen=True)
class Proposal:
    """A transaction, with all that it takes to check it and to put it into a record.

    Parameters
    ----------
    id
        Of the snapshot that it makes; a record that refuses it names this id, too, and speaks of what was proposed
        before that record.
    note
        Message and metadata, encoded; attachment 0 where it is long.
    log
        What it changes; its attachments are those of the proposal.
    log_place
        None where the log travels in the body of a record, else the number of the attachment that holds it.
    attachments
        What the record carries besides its body.
    time
        Microseconds since 1970.
    isolation
        0 snapshot, 1 serializable.
    marks
        Where arrays ended that it appends to, by id.
    cuts
        Grids outside of which it deletes what there is, by id of the array.
    reads
        What it depends on, encoded; None for nothing but what it overwrites.
    guard
        Arrays to which, if others have appended, its owner wants to look before it goes on.
    oldest
        Smallest id of the objects that it brings in; None if it brings in none.
    packs
        Ids of the packs that it brings in, as its record will name them.
    """

    id: bytes
    note: bytes
    log: TransactionLog
    log_place: int | None
    attachments: tuple[bytes, ...]
    time: int
    isolation: int
    marks: Mapping[bytes, Mark] = field(default_factory=dict[bytes, Mark])
    cuts: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict[bytes, tuple[int, ...]])
    reads: bytes | None = None
    guard: tuple[bytes, ...] = ()
    oldest: bytes | None = None
    packs: bytes | None = b""


@dataclass(frozen=True)
class Intent:
    """What one process proposes at once.

    Parameters
    ----------
    branch
        Where it is to be committed.
    sequence
        Number of the record on which it was checked.
    last
        Number of the last record that may take any of it.
    proposals
        In the order in which they are to be tried.
    """

    branch: str
    sequence: int
    last: int
    proposals: tuple[Proposal, ...]


def intent_key(branch_prefix: str, sequence: int, identifier: bytes) -> str:
    """Return the key of an intent; its id is that of the first transaction in it, unless that was proposed before."""
    return f"{record_key(branch_prefix, sequence)}-{id_to_text(identifier)}"


def read_intent_key(branch_prefix: str, key: str) -> tuple[int, bytes] | None:
    """Return the record and the id that a key names; None if it is not the key of an intent."""
    record, _, text = key.rpartition("-")
    number = read_record_key(branch_prefix, record)
    if number is None:
        return None
    try:
        return number, id_from_text(text)
    except InvalidInputError:
        return None


def encode_intent(intent: Intent) -> bytes:
    """Return the object for an intent."""
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
    """Read an intent and check that it is one that its key promises; raises `FormatError`."""
    body = read_object(name, Kind.INTENT, data)
    found_branch, found_sequence, last, proposals = read_tuple(name, body, str, int, int, tuple)
    if (found_branch, found_sequence) != (branch, sequence):
        raise FormatError(name, f"holds an intent for record {found_sequence} of branch {found_branch[:80]!r}")
    if not sequence < last <= sequence + PATIENCE or not proposals:
        raise FormatError(name, "an intent that no record may take, or of nothing")
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
        raise FormatError(name, "an attachment is no bytes, or they are too large for a record")
    decode_note(name, note)
    if len(note) > MAX_NOTE_IN_BODY and attachments[:1] != (note,):
        raise FormatError(name, "a long note is not attached")
    place = None if type(wire) is tuple else wire
    if place is not None:
        if not 0 <= place < len(attachments):
            raise FormatError(name, f"has no attachment {place}")
        wire = unpack_body(f"{name}: change log", attachments[place])
    elif len(pack_body(wire)) > MAX_LOG_IN_BODY:
        raise FormatError(name, "a change log that is too large for the body of a record")
    log = read_log(name, wire, _UNKNOWN_RECORD)
    for change in log.chunks:
        at = change.layer.attachment
        if at is not None and ((at.branch, at.sequence) != _UNKNOWN_RECORD[:2] or at.index >= len(attachments)):
            raise FormatError(name, "a manifest among attachments that it does not have")
        encoded = change.layer.inline if at is None else attachments[at.index]
        if encoded is not None:
            manifest = decode_manifest(name, encoded)
            if manifest.box != change.layer.box or manifest.count != change.layer.count:
                raise FormatError(name, "a manifest is not the one that its layer describes")
    if len(guard) % ID_BYTES:
        raise FormatError(name, "guarded arrays that are no ids")
    return Proposal(
        read_id(name, identifier),
        note,
        log,
        place,
        attachments,
        check_time(name, time),
        isolation,
        dict([_read_mark(name, item) for item in marks]),
        dict([_read_cut(name, item) for item in cuts]),
        reads,
        tuple([guard[at : at + ID_BYTES] for at in range(0, len(guard), ID_BYTES)]),
        oldest,
        check_packs(name, packs),
    )


def _read_mark(name: str, value: Any) -> tuple[bytes, Mark]:
    node, axis, start, chunk = read_tuple(name, value, bytes, int, int, (int, type(None)))
    if not (0 <= axis < MAX_DIMENSIONS and 0 <= start < MAX_VOLUME and (chunk is None or 0 < chunk < MAX_VOLUME)):
        raise FormatError(name, "an append along no dimension")
    return read_id(name, node), (axis, start, chunk)


def _read_cut(name: str, value: Any) -> tuple[bytes, tuple[int, ...]]:
    node, grid = read_tuple(name, value, bytes, tuple)
    if len(grid) > MAX_DIMENSIONS or not all(type(side) is int and 0 <= side < MAX_VOLUME for side in grid):
        raise FormatError(name, "a grid that is none")
    return read_id(name, node), grid
