"""The format's smallest parts, decoded after docs/format.md alone: envelopes, columns, ids, cells, manifests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import google_crc32c
import msgpack
import numpy as np
from numcodecs import zstd  # pyright: ignore[reportAttributeAccessIssue] - a compiled module

from tests.simulation.checker.violations import DecodingError

__all__ = [
    "Cells",
    "Coords",
    "Objects",
    "body",
    "cells",
    "column",
    "id_text",
    "key_name",
    "manifest",
    "texts",
    "unpack",
]

Objects = Mapping[str, bytes]
Coords = tuple[int, ...]
Cells = dict[Coords, bytes | None]
"""What is said of each cell: the bytes of its chunk, or None for deleted."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")


def id_text(identifier: bytes) -> str:
    """Return the text of an id."""
    number = int.from_bytes(identifier, "big")
    return "".join([_ALPHABET[(number >> shift) & 31] for shift in range(95, -1, -5)])


def key_name(name: str) -> str:
    """Return the name of a branch or tag as it stands in keys."""
    encoded = "".join(chr(b) if b in _UNRESERVED else f"%{b:02X}" for b in name.encode())
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


_UNDER_IDS = ("snapshots", "manifests", "transactions", "collections")
"""What stands before the ids of objects whose checksums cover these."""


def body(key: str, data: bytes, kind: int) -> Any:
    """Return the body of an object."""
    if len(data) < 16:
        raise DecodingError(key, "shorter than an envelope")
    magic, version, found, codec, reserved, size, checksum = struct.unpack_from("<4sBBBBII", data)
    if (magic, version, found, reserved) != (b"ARST", 2, kind, 0) or codec > 1:
        raise DecodingError(key, f"no envelope of kind {kind}")
    stored = data[16:]
    place, _, last = key.rpartition("/")
    identity = last.encode() if place in _UNDER_IDS or place.endswith("/kept") else b""
    if google_crc32c.value(data[:12] + stored + identity) != checksum:
        raise DecodingError(key, "the checksum is wrong")
    decoded = bytes(zstd.decompress(stored)) if codec == 1 else stored
    if len(decoded) != size:
        raise DecodingError(key, f"{len(decoded)} bytes, not {size} as its envelope says")
    return unpack(key, decoded)


def unpack(key: str, encoded: bytes) -> Any:
    """Return a msgpack value."""
    try:
        return msgpack.unpackb(encoded)
    except (ValueError, msgpack.UnpackException) as error:
        raise DecodingError(key, f"no msgpack: {error}") from None


def column(data: bytes, count: int) -> list[int]:
    """Return the values of a column."""
    encoding, width = data[0], data[1]
    if encoding == 0:
        return [int.from_bytes(data[2 : 2 + width], "little")] * count
    if encoding not in (1, 2) or len(data) != 2 + width * count:
        raise ValueError("a column of another length or encoding")
    planes = np.frombuffer(data, np.uint8, offset=2).reshape(width, count)
    items: list[int] = np.ascontiguousarray(planes.T).view(f"<u{width}").ravel().tolist()
    if encoding == 1:
        return items
    value = 0
    values: list[int] = []
    for item in items:
        value = (value + unzigzag(item)) % (1 << 64)
        values.append(value)
    return values


def unzigzag(item: int) -> int:
    """Return the signed number that a zigzag one stands for."""
    return item >> 1 if not item & 1 else -((item + 1) >> 1)


def texts(lengths: bytes, blob: bytes, count: int) -> list[bytes]:
    """Return the items of a table of texts."""
    found: list[bytes] = []
    at = 0
    for length in column(lengths, count):
        found.append(blob[at : at + length])
        at += length
    if at != len(blob):
        raise ValueError("a table of texts whose lengths do not add up")
    return found


def cells(low: list[int], high: list[int], presence: int, data: bytes, count: int) -> list[Coords]:
    """Return the coordinates of the cells that are spoken of."""
    sides = [h - b for b, h in zip(low, high, strict=True)]
    total = 1
    for side in sides:
        total *= side
    if presence == 0:
        if count != total:
            raise ValueError("a dense box with another count than cells")
        return list(product(*(range(b, h) for b, h in zip(low, high, strict=True))))
    numbers = [n for n in range(total) if data[n >> 3] >> (7 - n & 7) & 1] if presence == 1 else column(data, count)
    if len(numbers) != count:
        raise ValueError("another number of cells than references")
    found: list[Coords] = []
    for number in numbers:
        coords: list[int] = []
        rest = number
        for side, first in zip(reversed(sides), reversed(low), strict=True):
            coords.append(first + rest % side)
            rest //= side
        found.append(tuple(reversed(coords)))
    return found


def manifest(
    key: str, value: Any, objects: Objects, virtual: Callable[[str, str, int, int, int], bytes]
) -> tuple[Cells, dict[Coords, str]]:
    """Return what a decoded manifest says of each of its cells, with all bytes fetched, and the keys of their packs.

    Raises
    ------
    DecodingError
        If a reference leads nowhere: the pack is missing, or shorter.
    """
    (low, high), count, presence, present, packs, sources, offsets, lengths, locations, inline = value
    pack_count = len(packs) // 12
    urls = [] if locations is None else _locations(locations)
    source, length, residuals = column(sources, count), column(lengths, count), column(offsets, count)
    found: Cells = {}
    places: dict[Coords, str] = {}
    expected = 0
    last = -1
    for coords, where, size, residual in zip(
        cells(low, high, presence, present, count), source, length, residuals, strict=True
    ):
        start = (expected if where == last else 0) + unzigzag(residual)
        end, last = start + size, where
        expected = end if where >= pack_count else start + _slot(size)
        if where == pack_count + len(urls) + 1:
            found[coords] = None
            continue
        if where < pack_count:
            name = "chunks/" + id_text(packs[12 * where : 12 * where + 12])
            pack = objects.get(name)
            if pack is None:
                raise DecodingError(key, f"refers to {name}, which does not exist")
            data = pack[start:end]
            if not _is_marked(packs[12 * where : 12 * where + 12], start, data, pack[end : start + _slot(size)]):
                raise DecodingError(name, f"the checksum behind the {size} bytes from {start} on is not theirs")
            places[coords] = name
        elif where < pack_count + len(urls):
            data = virtual(*urls[where - pack_count], start, end)
        elif where == pack_count + len(urls):
            data = inline[start:end]
        else:
            raise DecodingError(key, f"a reference to source {where}, which there is not")
        if len(data) != size or start < 0:
            raise DecodingError(key, f"chunk {coords} refers to bytes {start} to {end}, which are not all there")
        found[coords] = data
    return found, places


def _slot(size: int) -> int:
    """Return the bytes that a chunk takes in a pack: its own, four of its checksum, zeros up to a multiple of 8."""
    return (size + 4 + 7) // 8 * 8


def _is_marked(pack: bytes, start: int, chunk: bytes, behind: bytes) -> bool:
    """Tell whether what stands behind a chunk is the checksum of its pack's id, its place and its bytes, and zeros."""
    checksum = google_crc32c.value(pack + struct.pack("<Q", start) + chunk)
    return behind == struct.pack("<I", checksum).ljust(_slot(len(chunk)) - len(chunk), b"\0")


def _locations(table: Any) -> list[tuple[str, str, int]]:
    """Return URL, entity tag and latest time of modification of each location."""
    count, prefixes, prefix, suffix_lengths, suffixes, etag_lengths, etags, modified = table
    ends, tags = texts(suffix_lengths, suffixes, count), texts(etag_lengths, etags, count)
    urls = [prefixes[p] + e.decode() for p, e in zip(column(prefix, count), ends, strict=True)]
    return [(u, t.decode(), m) for u, t, m in zip(urls, tags, column(modified, count), strict=True)]
