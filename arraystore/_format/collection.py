"""What a garbage collection leaves for the next one, so that it need not look at everything again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, id_to_text
from arraystore._format.layer import read_id
from arraystore._format.lifecycle import BranchLife, life_to_wire, read_life
from arraystore._format.refs import read_name
from arraystore.errors import FormatError

__all__ = ["Collection", "LogSeen", "collection_key", "decode_collection", "encode_collection"]


@dataclass(frozen=True)
class LogSeen:
    """How far a collection has read a branch's log.

    Parameters
    ----------
    sequence
        Number of the newest record that it took into account.
    life
        What the log said of the branch there.
    """

    sequence: int
    life: BranchLife


@dataclass(frozen=True)
class Collection:
    """A finished collection.

    Parameters
    ----------
    watermark
        Everything with an id below it was looked at, and is there because something needs it.
    table
        Number of the newest repository record that it took into account.
    logs
        By name of the branch.
    tags
        Ids of the checkpoints of all tags.
    early
        Ids of objects above the watermark that something needs already, one after the other, ascending.
    """

    watermark: bytes
    table: int
    logs: dict[str, LogSeen]
    tags: tuple[bytes, ...]
    early: bytes


def collection_key(identifier: bytes) -> str:
    """Return the key of what a collection left."""
    return "collections/" + id_to_text(identifier)


def encode_collection(key: str, collection: Collection) -> bytes:
    """Return the object of a key for what a collection left."""
    logs = tuple((name, seen.sequence, life_to_wire(seen.life)) for name, seen in sorted(collection.logs.items()))
    body = (collection.watermark, collection.table, logs, b"".join(collection.tags), collection.early)
    return encode_object(Kind.COLLECTION, pack_body(body), key)


def decode_collection(name: str, data: bytes | bytearray | memoryview) -> Collection:
    """Read what a collection left; raises `FormatError`."""
    watermark, table, logs, tags, early = read_tuple(
        name, read_object(name, Kind.COLLECTION, data, name), bytes, int, tuple, bytes, bytes
    )
    if table < 0 or len(tags) % ID_BYTES or len(early) % ID_BYTES:
        raise FormatError(name, "ids of which a part is missing")
    ids = tuple([tags[at : at + ID_BYTES] for at in range(0, len(tags), ID_BYTES)])
    return Collection(read_id(name, watermark), table, dict([_read_log(name, log) for log in logs]), ids, early)


def _read_log(name: str, value: Any) -> tuple[str, LogSeen]:
    branch, sequence, life = read_tuple(name, value, str, int, tuple)
    if sequence < 0:
        raise FormatError(name, "a negative number of a record")
    return read_name(name, branch), LogSeen(sequence, read_life(name, life))
