"""State that a garbage collection leaves for the next one, which then scans only what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, CheckpointId, id_to_text, split_ids
from arraystore._format.layer import read_id
from arraystore._format.lifecycle import BranchLife, life_to_wire, read_life
from arraystore._format.refs import read_name
from arraystore.errors import FormatError

__all__ = ["Collection", "LogSeen", "collection_key", "decode_collection", "encode_collection"]


@dataclass(frozen=True)
class LogSeen:
    """Position up to which a collection has read a branch log, and the life of the branch there."""

    sequence: int
    life: BranchLife


@dataclass(frozen=True)
class Collection:
    """State left by a finished collection."""

    watermark: bytes
    """Id below which every object was scanned, and is referenced if it exists."""
    table: int
    """Number of the newest repository record that was taken into account."""
    logs: dict[str, LogSeen]
    """Scanned position of each branch log, by branch."""
    tags: tuple[CheckpointId, ...]
    """Ids of the checkpoints of all tags."""
    early: bytes
    """Concatenated ids of referenced objects above the watermark, ascending."""


def collection_key(identifier: bytes) -> str:
    """Return the key of the state of a collection."""
    return "collections/" + id_to_text(identifier)


def encode_collection(key: str, collection: Collection) -> bytes:
    """Encode the state of a collection as the object of a key."""
    logs = tuple((name, seen.sequence, life_to_wire(seen.life)) for name, seen in sorted(collection.logs.items()))
    body = (collection.watermark, collection.table, logs, b"".join(collection.tags), collection.early)
    return encode_object(Kind.COLLECTION, pack_body(body), key)


def decode_collection(name: str, data: bytes | bytearray | memoryview) -> Collection:
    """Decode the state of a collection; raises `FormatError`."""
    watermark, table, logs, tags, early = read_tuple(
        name, read_object(name, Kind.COLLECTION, data, name), bytes, int, tuple, bytes, bytes
    )
    if table < 0 or len(tags) % ID_BYTES or len(early) % ID_BYTES:
        raise FormatError(name, "ids are truncated, or the number of a record is < 0")
    ids = tuple(split_ids(tags, CheckpointId))
    return Collection(read_id(name, watermark), table, dict([_read_log(name, log) for log in logs]), ids, early)


def _read_log(name: str, value: Any) -> tuple[str, LogSeen]:
    branch, sequence, life = read_tuple(name, value, str, int, tuple)
    if sequence < 0:
        raise FormatError(name, "the number of a record must be >= 0")
    return read_name(name, branch), LogSeen(sequence, read_life(name, life))
