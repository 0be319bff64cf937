"""Layers: the stacked manifests of an array, newer ones hiding older ones."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

from arraystore._format.box import Box
from arraystore._format.ids import LayerId, id_to_text
from arraystore._format.manifest import MAX_REFERENCES
from arraystore._format.wire import Number, Wire, read_id, read_tuple
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

LARGEST_SHIFT = (1 << 62) - 1


class Placement(enum.IntEnum):
    """Placement of the bytes of a manifest."""

    OBJECT = 0
    """Object ``manifests/<id>``."""
    INLINE = 1
    """The layer itself."""
    ATTACHMENT = 2
    """Attachment of a commit record."""


class EnclosingRecord(NamedTuple):
    """Record around an encoded value, and first attachment of the transaction that it belongs to."""

    branch: str
    sequence: int
    first: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment(Wire):
    """Address of an attachment of a commit record."""

    branch: str
    sequence: Number
    index: Number


@dataclass(frozen=True)
class Layer:
    """Manifest of an array, as referenced by a snapshot."""

    id: LayerId
    """Id of the manifest, unique for all placements."""
    box: Box
    """Covered box in chunk-grid coordinates, after the shift."""
    count: int
    """Number of references, deletions included."""
    deletions: bool = False
    """True if any reference is a deletion."""
    inline: bytes | None = None
    """Bytes of the manifest if they are in the layer."""
    attachment: Attachment | None = None
    """Address of the bytes if they are an attachment."""
    shift: tuple[int, ...] | None = None
    """Vector added to the manifest's coordinates; None for no shift."""

    @property
    def key(self) -> str:
        """Key of the manifest's object, if it has one."""
        return "manifests/" + id_to_text(self.id)

    @property
    def placement(self) -> Placement:
        """Placement of the manifest."""
        if self.inline is not None:
            return Placement.INLINE
        return Placement.OBJECT if self.attachment is None else Placement.ATTACHMENT

    @property
    def is_object(self) -> bool:
        """True if the manifest has an object of its own."""
        return self.placement is Placement.OBJECT

    @property
    def dense(self) -> bool:
        """True if the manifest has a reference for every cell of the box."""
        return self.count == self.box.volume

    def to_wire(self, record: EnclosingRecord | None = None) -> tuple[Any, ...]:
        """Encode as a msgpack value, with attachments relative to the enclosing record."""
        address: Any = self.attachment if self.inline is None else self.inline
        if isinstance(address, Attachment) and record is not None:
            is_near = (address.branch, address.sequence) == record[:2] and address.index >= record.first
            address = address.index - record.first if is_near else address
        return (self.id, *self.box.to_wire(), self.count, self.deletions, self.placement, address, self.shift)

    @classmethod
    def from_wire(cls, name: str, value: Any, record: EnclosingRecord | None = None) -> Layer:
        """Decode the value of `to_wire`; raises `FormatError`."""
        identifier, low, high, count, deletions, place, address, shift = read_tuple(
            name, value, read_id, tuple, tuple, int, bool, int, (type(None), bytes, int, tuple), (type(None), tuple)
        )
        box = Box.from_wire(name, (low, high))
        if not 0 < count <= min(MAX_REFERENCES, box.volume):
            raise FormatError(name, f"a layer has {count} references in a box of {box.volume}")
        if shift is not None and (
            len(shift) != len(low) or not all(type(s) is int and abs(s) <= LARGEST_SHIFT for s in shift)
        ):
            raise FormatError(name, "the shift of a layer must have the dimensions of its box")
        inline: bytes | None = None
        attachment: Attachment | None = None
        if place == Placement.INLINE and type(address) is bytes:
            inline = address
        elif place == Placement.ATTACHMENT:
            attachment = _read_attachment(name, address, record)
        elif place != Placement.OBJECT or address is not None:
            raise FormatError(name, f"unknown placement {place} of a manifest")
        return cls(identifier, box, count, deletions, inline, attachment, shift)


def _read_attachment(name: str, address: Any, record: EnclosingRecord | None) -> Attachment:
    if type(address) is int and record is not None and address >= 0:
        return Attachment(record.branch, record.sequence, record.first + address)
    return Attachment.from_wire(name, address)


def check_owner(name: str, owner: Any, repository: bytes) -> None:
    """Check that an object belongs to a repository; raises `FormatError`."""
    if read_id(name, owner) != repository:
        raise FormatError(name, f"belongs to repository {id_to_text(owner)}, not to {id_to_text(repository)}")
