"""Prepared transactions: what stays the same on every attempt of a commit."""

from __future__ import annotations

from dataclasses import field, replace

from arraystore._format.ids import NodeId, SnapshotId
from arraystore._format.layer import Attachment, Layer
from arraystore._format.record import MAX_NOTE_IN_BODY, Transaction
from arraystore._format.transaction import AppendMark, ChunkChange, TransactionLog
from arraystore._runtime.values import dataclass


@dataclass(frozen=True)
class Prepared:
    """Transaction, ready to be put into a record."""

    id: SnapshotId
    """Id of the snapshot that it makes."""
    note: bytes
    """Encoded message and metadata; in the body of the record, or attachment 0 if long."""
    log: TransactionLog
    """Change log; attachments are those of an unknown record."""
    log_place: TransactionLog | int | bytes
    """The log itself, the number of its attachment or the id of its object."""
    attachments: tuple[bytes, ...]
    """What the record carries besides its body."""
    time: int
    """Microseconds since 1970."""
    isolation: int = 0
    """0 snapshot, 1 serializable."""
    marks: dict[NodeId, AppendMark] = field(default_factory=dict)
    """Ends of the arrays that it appends to, by id, those included that are not ends of chunks."""
    cuts: dict[NodeId, tuple[int, ...]] = field(default_factory=dict)
    """Grids outside of which it deletes all chunks, by id of the array: arrays that were smaller in between."""
    swept: frozenset[NodeId] = frozenset()
    """Nodes that it deletes only since others put them into what it deletes; to move one away again saves it."""
    oldest: bytes | None = None
    """Smallest id of the objects that it adds, and of checkpoints that hold what it refers to besides; None for
    none."""
    packs: bytes | None = b""
    """Ids of the packs of its manifests, as its record names them."""
    amends: SnapshotId | None = None
    """Id of the snapshot that it replaces."""

    def as_snapshot(self, amends: SnapshotId | None, time: int | None = None) -> Prepared:
        """Return the same as a replacement of a snapshot, or as one of another time, if these are not None."""
        return replace(self, amends=amends, time=self.time if time is None else time)

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
        attached = len(note) > MAX_NOTE_IN_BODY
        if attached != (len(self.note) > MAX_NOTE_IN_BODY):
            return None
        return replace(self, note=note, attachments=(note, *self.attachments[1:]) if attached else self.attachments)
