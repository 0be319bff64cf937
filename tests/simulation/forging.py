"""Objects as nobody honest writes them, for tests of who must find out."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import google_crc32c
import msgpack

from arraystore._format.envelope import bind_object
from tests.simulation.checker.decoder import Reader, chained, oldest_carried
from tests.simulation.checker.decoding import body

RECORD, CHECKPOINT, PAGE, HINT, REPOSITORY = 3, 5, 8, 9, 12


def enveloped(kind: int, value: Any) -> bytes:
    """Return an object with a body."""
    packed: bytes = msgpack.packb(value) or b""
    head = struct.pack("<4sBBBBI", b"ARST", 2, kind, 0, 0, len(packed))
    return head + struct.pack("<I", google_crc32c.value(head + packed)) + packed


def forged(objects: dict[str, bytes], key: str, kind: int, change: Callable[[Any], None]) -> None:
    """Change the body of an object in place."""
    value = body(key, objects[key], kind)
    change(value)
    objects[key] = enveloped(kind, value) if kind != CHECKPOINT else bind_object(key, enveloped(kind, value))


def record_key(objects: dict[str, bytes], branch: str, number: int) -> str:
    """Return the key of a record."""
    return Reader(objects).record_key(branch, number)


def tip_of(objects: dict[str, bytes], branch: str = "main") -> int:
    """Return the number of the newest record."""
    prefix = Reader(objects).log_prefix(branch)
    return max(int(key.removeprefix(prefix)) for key in objects if key.startswith(prefix) and "-" not in key)


def entry_of(objects: dict[str, bytes], number: int, branch: str = "main") -> Any:
    """Return the entry of a record: number, kind, content."""
    key = record_key(objects, branch, number)
    return msgpack.unpackb(body(key, objects[key], RECORD)[4])


def forged_tip(objects: dict[str, bytes], change: Callable[[Any], None], branch: str = "main") -> None:
    """Change the first transaction of the newest record, which no other one carries."""
    number = tip_of(objects, branch)
    key = record_key(objects, branch, number)

    def write(record: Any) -> None:
        entry = msgpack.unpackb(record[4])
        change(entry[2][0][0])
        record[4] = msgpack.packb(entry)

    forged(objects, key, RECORD, write)


def put_record(objects: dict[str, bytes], kind: int, content: Any, branch: str = "main") -> int:
    """Write one more record; returns its number."""
    number = tip_of(objects, branch) + 1
    previous = [
        body("", objects[record_key(objects, branch, n)], RECORD)[4] for n in range(oldest_carried(number), number)
    ]
    entry = msgpack.packb([number, kind, content])
    owner, *_, at, before, own, _, _ = body("", objects[record_key(objects, branch, number - 1)], RECORD)
    assert at == number - 1
    parts = [owner, branch, number, chained(before, own), entry, [], previous]
    objects[record_key(objects, branch, number)] = enveloped(RECORD, parts)
    return number


def put_commit(
    objects: dict[str, bytes],
    message: str,
    *,
    parent: bytes,
    identifier: bytes = b"forged snap.",
    nodes: list[Any] | None = None,
    chunks: list[Any] | None = None,
    refused: bytes = b"",
    packs: bytes = b"",
) -> int:
    """Write one more record with one transaction; returns its number."""
    note = msgpack.packb([message, None])
    transaction = [identifier, parent, 1, 0, note, [nodes or [], chunks or []], 0, None, packs]
    return put_record(objects, 1, [[transaction], refused])
