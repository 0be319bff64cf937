"""Checksums of virtual chunks in the manifests of an Icechunk repository, which the package does not expose.

A manifest is a header of 39 bytes and a FlatBuffers table, compressed by zstd.  Only what leads to the checksums is
read: tables refer to others by offsets, and a table's own table of fields says where each field is, 0 for none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from numcodecs import Zstd

from arraystore.copying.errors import CopyError
from arraystore.storage.protocol import Storage

__all__ = ["ChecksumsByCell", "read_checksums"]

ChecksumsByCell: TypeAlias = dict[tuple[int, ...], str | datetime]
"""Entity tags and times of modification, by coordinates of the chunk."""

_MAGIC = "ICE🧊CHUNK".encode()
_HEADER = 39
_ZSTD = 1
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

# Numbers of fields in their tables.
_ARRAYS = 1
_NODE, _REFERENCES = 0, 1
_INDEX, _ETAG, _MODIFIED = 0, 6, 7

_SECOND = timedelta(microseconds=999_999)
"""Times are cut down to seconds there: an object of the same second is the one that was referred to."""


async def read_checksums(files: Storage, manifests: Iterable[str], node: str) -> ChecksumsByCell:
    """Read the checksums of an array's virtual chunks from its manifests; those without one are left out."""
    found: ChecksumsByCell = {}
    for identifier in dict.fromkeys(manifests):
        data = bytes(await files.get(f"manifests/{identifier}"))
        try:
            found.update(_checksums(_body(data), node))
        except (struct.error, IndexError, UnicodeDecodeError, RuntimeError, ValueError) as error:
            raise CopyError(
                f"manifest {identifier} of the Icechunk repository at {files.location} cannot be read for checksums of "
                f"virtual chunks ({error}); leave files out to import them unchecked"
            ) from error
    return found


def _body(data: bytes) -> bytes:
    """Return the FlatBuffers table of a manifest."""
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as a file of Icechunk")
    body: bytes = bytes(Zstd().decode(data[_HEADER:])) if data[_HEADER - 1] == _ZSTD else data[_HEADER:]
    return body


def _checksums(data: bytes, node: str) -> Iterator[tuple[tuple[int, ...], str | datetime]]:
    """Yield the checksums of one array in a manifest."""
    for array in _tables(data, _field(data, _follow(data, 0), _ARRAYS)):
        at = _field(data, array, _NODE)
        if _node_text(data[at : at + 8]) != node:
            continue
        for reference in _tables(data, _field(data, array, _REFERENCES)):
            etag, modified = _field(data, reference, _ETAG), _field(data, reference, _MODIFIED)
            if etag:
                yield _cell(data, reference), _vector(data, etag).decode()
            elif modified:
                seconds = struct.unpack_from("<I", data, modified)[0]
                yield _cell(data, reference), datetime.fromtimestamp(seconds, UTC) + _SECOND


def _follow(data: bytes, at: int) -> int:
    """Return the place that an offset leads to."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Return the place of a field of a table; 0 if it is not set."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    if 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, fields + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _tables(data: bytes, field: int) -> Iterator[int]:
    """Yield the places of a vector's tables."""
    if field:
        start = _follow(data, field)
        for number in range(struct.unpack_from("<I", data, start)[0]):
            yield _follow(data, start + 4 + 4 * number)


def _vector(data: bytes, field: int, size: int = 1) -> bytes:
    """Return the bytes of a vector of items of a size."""
    start = _follow(data, field)
    length = size * int(struct.unpack_from("<I", data, start)[0])
    return data[start + 4 : start + 4 + length]


def _cell(data: bytes, reference: int) -> tuple[int, ...]:
    index = _vector(data, _field(data, reference, _INDEX), 4)
    return struct.unpack(f"<{len(index) // 4}I", index)


def _node_text(identifier: bytes) -> str:
    """Return the id of a node as Icechunk shows it: 64 bits in Crockford's base32, and a zero after them."""
    number = int.from_bytes(identifier, "big") << 1
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5))
