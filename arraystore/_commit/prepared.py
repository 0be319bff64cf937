"""Prepared transactions: what stays the same on every attempt of a commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from arraystore._format.ids import NodeId, SnapshotId
from arraystore._format.intent import AppendMark
from arraystore._format.layer import Attachment, Layer
from arraystore._format.record import MAX_NOTE_IN_BODY, Transaction
from arraystore._format.transaction import ChunkChange, TransactionLog

__all__ = ["Prepared"]


@dataclass(frozen=True)
class Prepared:
    """A transaction, ready to be put into a record.

    Parameters
    ----------
    id
        Of the snapshot that it makes.
    note
        Message and metadata, encoded; its place is in the body, or attachment 0 where it is long.
    log
        What it changes; attachments are those of an unknown record.
    log_place
        The log itself, the number of its attachment or the id of its object.
    attachments
        What the record carries besides its body.
    time
        Microseconds since 1970.
    isolation
        0 snapshot, 1 serializable.
    marks
        Where arrays ended that it appends to, by id, those included whose end is not that of a chunk.
    cuts
        Grids outside of which it deletes what there is, by id of the array: those that were smaller in between.
    swept
        Ids of what it deletes only since others have put it where everything goes; who takes it away from there again
        has saved it.
    oldest
        Smallest id of the objects that it brings in, and of the checkpoints that keep what it refers to besides; None
        for neither.
    packs
        Ids of the packs that its manifests refer to, as its record names them.
    amends
        Id of the snapshot whose place it takes.
    """

    id: SnapshotId
    note: bytes
    log: TransactionLog
    log_place: TransactionLog | int | bytes
    attachments: tuple[bytes, ...]
    time: int
    isolation: int = 0
    marks: dict[NodeId, AppendMark] = field(default_factory=dict)
    cuts: dict[NodeId, tuple[int, ...]] = field(default_factory=dict)
    swept: frozenset[NodeId] = frozenset()
    oldest: bytes | None = None
    packs: bytes | None = b""
    amends: SnapshotId | None = None

    def transaction(self, parent: SnapshotId, branch: str, sequence: int, first: int = 0) -> Transaction:
        """Return the transaction as it stands in the record of a number, with its attachments from `first` on."""
        log = self.log_place
        if isinstance(log, TransactionLog):
            log = self.located(branch, sequence, first)
        note: bytes | int = self.note if len(self.note) <= MAX_NOTE_IN_BODY else 0
        return Transaction(self.id, parent, self.time, self.isolation, note, log, first, self.amends, self.packs)

    def located(self, branch: str, sequence: int, first: int = 0) -> TransactionLog:
        """Return the log with its attachments placed in the record of a number."""

        def place(layer: Layer) -> Layer:
            at = layer.attachment
            return layer if at is None else replace(layer, attachment=Attachment(branch, sequence, first + at.index))

        return replace(self.log, chunks=tuple(replace(c, layer=place(c.layer)) for c in self.log.chunks))

    def manifest(self, change: ChunkChange) -> bytes | None:
        """Return the encoded manifest of a change of chunks; None where it is in an object of its own."""
        at = change.layer.attachment
        return change.layer.inline if at is None else self.attachments[at.index]

    def with_note(self, note: bytes) -> Prepared | None:
        """Return the same with another message; None where that would number the attachments anew."""
        if max(len(note), len(self.note)) > MAX_NOTE_IN_BODY:
            return self if note == self.note else None
        return replace(self, note=note)
