"""State that a garbage collection leaves for the next one, which then scans only what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import CheckpointId, id_to_text
from arraystore._format.lifecycle import BranchLife
from arraystore._format.refs import read_name
from arraystore._format.wire import Id, Number, Wire, read_ids, rows_of, rows_to_wire


@dataclass(frozen=True)
class LogSeen(Wire):
    """Position up to which a collection has read a branch log, and the life of the branch there."""

    sequence: Number
    life: BranchLife


@dataclass(frozen=True)
class Collection(Wire):
    """State left by a finished collection."""

    watermark: Id
    """Id below which every object was scanned, and is referenced if it exists."""
    table: Number
    """Number of the newest repository record that was taken into account."""
    logs: Annotated[dict[str, LogSeen], rows_of(LogSeen, read_name), rows_to_wire]
    """Scanned position of each branch log, by branch."""
    tags: Annotated[tuple[CheckpointId, ...], read_ids, b"".join]
    """Ids of the checkpoints of all tags."""
    early: Annotated[bytes, _read_early]
    """Concatenated ids of referenced objects above the watermark, ascending."""


def collection_key(identifier: bytes) -> str:
    """Return the key of the state of a collection."""
    return "collections/" + id_to_text(identifier)


def encode_collection(key: str, collection: Collection) -> bytes:
    """Encode the state of a collection as the object of a key."""
    return encode_object(Kind.COLLECTION, pack_body(collection), key)


def decode_collection(name: str, data: bytes | bytearray | memoryview) -> Collection:
    """Decode the state of a collection; raises `FormatError`."""
    return Collection.from_wire(name, read_object(name, Kind.COLLECTION, data, name))


def _read_early(name: str, value: Any) -> bytes:
    return b"".join(read_ids(name, value))
