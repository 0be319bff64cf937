"""Messages between a server and its decoder: JSON, and some bytes; neither side runs anything that it is sent."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import IO, Any

__all__ = ["MAX_MESSAGE_BYTES", "receive", "send"]

MAX_MESSAGE_BYTES = 256 << 20
"""Bytes of one part of a message: more than a page reads."""

_MAX_HEADER_BYTES = 64 << 20

_SIZE = struct.Struct("<Q")


def send(sink: IO[bytes], header: dict[str, Any], parts: Sequence[bytes | memoryview] = ()) -> None:
    """Write a message."""
    head = json.dumps({**header, "sizes": [len(part) for part in parts]}).encode()
    sink.writelines((_SIZE.pack(len(head)), head, *parts))
    sink.flush()


def receive(source: IO[bytes], most_parts: int = 1 << 16) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read a message; None at the end. Raises `ValueError` for what is none, or has more parts."""
    size = source.read(_SIZE.size)
    if not size:
        return None
    header = json.loads(_read(source, _SIZE.unpack(size)[0], _MAX_HEADER_BYTES))
    if not isinstance(header, dict):
        raise ValueError("a message begins with a map")
    if len(header["sizes"]) > most_parts:
        raise ValueError(f"{len(header['sizes'])} parts, and at most {most_parts} are allowed")
    return header, [_read(source, each) for each in header["sizes"]]


def _read(source: IO[bytes], size: int, most: int = MAX_MESSAGE_BYTES) -> bytes:
    if not 0 <= size <= most:
        raise ValueError(f"a part of {size:,} bytes, and at most {most:,} are allowed")
    data = source.read(size)
    if len(data) != size:
        raise ValueError("the message ends early")
    return data
