"""Layers: the manifests of an array, each one generation over those before it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from arraystore._format.box import Box
from arraystore._format.envelope import read_tuple
from arraystore._format.ids import ID_BYTES, id_to_text
from arraystore._format.manifest import MAX_REFERENCES
from arraystore.errors import FormatError

__all__ = ["LARGEST_SHIFT", "Attachment", "Here", "Layer", "Place", "check_owner", "read_id"]

LARGEST_SHIFT = (1 << 62) - 1


class Place(enum.IntEnum):
    """Where the bytes of a manifest are."""

    OBJECT = 0
    """In an object of their own, ``manifests/<id>``."""
    INLINE = 1
    """In the layer itself."""
    ATTACHMENT = 2
    """Among the attachments of a commit record."""


class Here(NamedTuple):
    """The record that something is in, and the first attachment of the transaction that it belongs to."""

    branch: str
    sequence: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Attachment:
    """Bytes that travel in a commit record, and in that one only."""

    branch: str
    sequence: int
    index: int


@dataclass(frozen=True)
class Layer:
    """One manifest of an array, as a snapshot names it.

    Parameters
    ----------
    id
        Id of the manifest; unique wherever its bytes are.
    box
        What it covers, in chunk-grid coordinates, after the shift.
    count
        Number of references, deletions included.
    deletions
        Whether some reference says "deleted".
    inline
        The manifest's bytes, where they are in the layer.
    attachment
        Where they are, if they are attached to a commit record.
    shift
        What is added to the manifest's coordinates; None for nothing.
    """

    id: bytes
    box: Box
    count: int
    deletions: bool = False
    inline: bytes | None = None
    attachment: Attachment | None = None
    shift: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        """Key of the manifest's object, where it has one."""
        return "manifests/" + id_to_text(self.id)

    @property
    def is_object(self) -> bool:
        """Whether the manifest has an object of its own."""
        return self.inline is None and self.attachment is None

    @property
    def dense(self) -> bool:
        """Whether the manifest speaks of every cell of the box."""
        return self.count == self.box.volume

    def to_wire(self, record: Here | None = None) -> tuple[Any, ...]:
        """Return what goes into a body.

        Parameters
        ----------
        record
            Where in which record the body is written; attachments are named relative to it.
        """
        place: Place
        where: Any
        if self.inline is not None:
            place, where = Place.INLINE, self.inline
        elif self.attachment is not None:
            place = Place.ATTACHMENT
            at = self.attachment
            where = (at.branch, at.sequence, at.index)
            if record is not None and where[:2] == record[:2] and at.index >= record.first:
                where = at.index - record.first
        else:
            place, where = Place.OBJECT, None
        return (self.id, *self.box.to_wire(), self.count, self.deletions, int(place), where, self.shift)

    @classmethod
    def from_wire(cls, name: str, value: Any, record: Here | None = None) -> Layer:
        """Read what `to_wire` gave; raises `FormatError`."""
        identifier, low, high, count, deletions, place, where, shift = read_tuple(
            name, value, bytes, tuple, tuple, int, bool, int, (type(None), bytes, int, tuple), (type(None), tuple)
        )
        read_id(name, identifier)
        box = Box.from_wire(name, (low, high))
        if not 0 < count <= min(MAX_REFERENCES, box.volume):
            raise FormatError(name, f"a layer of {count} references in a box of {box.volume}")
        if shift is not None and (
            len(shift) != len(low) or not all(type(s) is int and abs(s) <= LARGEST_SHIFT for s in shift)
        ):
            raise FormatError(name, "the shift of a layer does not fit its box")
        inline: bytes | None = None
        attachment: Attachment | None = None
        if place == Place.INLINE and type(where) is bytes:
            inline = where
        elif place == Place.ATTACHMENT:
            attachment = _read_attachment(name, where, record)
        elif place != Place.OBJECT or where is not None:
            raise FormatError(name, f"unknown place {place} of a manifest")
        return cls(identifier, box, count, deletions, inline, attachment, shift)


def _read_attachment(name: str, where: Any, record: Here | None) -> Attachment:
    if type(where) is int and record is not None and where >= 0:
        return Attachment(record.branch, record.sequence, record.first + where)
    branch, sequence, index = read_tuple(name, where, str, int, int)
    if sequence < 0 or index < 0:
        raise FormatError(name, "an attachment has a negative number")
    return Attachment(branch, sequence, index)


def check_owner(name: str, found: Any, repository: bytes) -> None:
    """Check the id of the repository that an object names; raises `FormatError`."""
    if read_id(name, found) != repository:
        raise FormatError(
            name, f"belongs to repository {id_to_text(found)}; the one that is read is {id_to_text(repository)}"
        )


def read_id(name: str, value: Any) -> bytes:
    """Check that a value is an id."""
    if type(value) is not bytes or len(value) != ID_BYTES:
        raise FormatError(name, "expected an id")
    return value
