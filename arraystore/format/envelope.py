"""The envelope that every metadata object shares, and the checks that its readers share.

::

    0   magic "ARST"
    4   format version        u8
    5   kind of object        u8
    6   codec of the body     u8   0 as is, 1 zstd
    7   reserved, zero        u8
    8   length of the decoded body  u32, little-endian
    12  CRC-32C of bytes 0-11 and of the stored body  u32, little-endian
    16  stored body

A body is one msgpack value.  Readers bound every size before they allocate, so hostile bytes cost little.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import google_crc32c
import msgpack
from numcodecs import zstd

from arraystore.errors import FormatError
from arraystore.format.ids import ID_BYTES

__all__ = ["FORMAT_VERSION", "Fields", "Kind", "decode_object", "encode_object", "pack_body", "unpack_body"]

FORMAT_VERSION = 1
MAGIC = b"ARST"
_HEADER = struct.Struct("<4sBBBBII")
_STORED, _ZSTD = 0, 1
_ZSTD_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SMALLEST_COMPRESSED = 48  # below it zstd's frame costs more than it saves

MiB = 1 << 20

T = TypeVar("T")


class Kind(enum.IntEnum):
    """What an object is."""

    REPOSITORY = 1
    CONFIG = 2
    RECORD = 3
    TAG = 4
    CHECKPOINT = 5
    MANIFEST = 6
    TRANSACTION = 7
    HISTORY = 8
    HINT = 9
    CHANGES = 10


BODY_LIMIT: dict[Kind, int] = {
    Kind.REPOSITORY: 1 * MiB,
    Kind.CONFIG: 1 * MiB,
    # 64 bodies of at most 4 KiB, and the attachments of one commit
    Kind.RECORD: 4 * MiB,
    Kind.TAG: 1 * MiB,
    # a million nodes of 1 KiB: the largest hierarchy that one object may describe
    Kind.CHECKPOINT: 1024 * MiB,
    # 65,536 references with the longest virtual locations, or full of inline chunks
    Kind.MANIFEST: 256 * MiB,
    Kind.TRANSACTION: 1024 * MiB,
    Kind.HISTORY: 256 * MiB,
    Kind.HINT: 64 * 1024,
    Kind.CHANGES: 1024 * MiB,
}
"""Largest decoded body, in bytes, of each kind of object."""

_CONTAINERS_LIMIT = 1 << 20
"""Most maps and lists in one body.  Columns hold what is many, so honest bodies stay far below."""


def encode_object(kind: Kind, body: bytes) -> bytes:
    """Put a body into an envelope, compressed where that makes it smaller.

    Raises
    ------
    FormatError
        If the body is larger than its kind allows.
    """
    if len(body) > BODY_LIMIT[kind]:
        raise FormatError(f"new {kind.name.lower()}", f"{len(body)} bytes are more than the {BODY_LIMIT[kind]} allowed")
    stored, codec = body, _STORED
    if len(body) >= _SMALLEST_COMPRESSED:
        compressed = bytes(zstd.compress(body, _ZSTD_LEVEL))
        if len(compressed) < len(body):
            stored, codec = compressed, _ZSTD
    head = _HEADER.pack(MAGIC, FORMAT_VERSION, kind, codec, 0, len(body), 0)[:12]
    checksum = google_crc32c.extend(google_crc32c.value(head), stored)
    return b"".join((head, struct.pack("<I", checksum), stored))


def decode_object(name: str, kind: Kind, data: bytes | bytearray | memoryview) -> bytes:
    """Take the body out of an envelope.

    Parameters
    ----------
    name
        Key of the object, for errors.
    kind
        What it has to be.
    data
        The whole object.

    Raises
    ------
    FormatError
        If anything at all is wrong with it.
    """
    if len(data) < _HEADER.size:
        raise FormatError(name, f"{len(data)} bytes are too few: truncated, or not an arraystore object")
    magic, version, found, codec, reserved, size, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(name, "not an arraystore object (wrong magic bytes)")
    if version != FORMAT_VERSION:
        raise FormatError(name, f"format version {version}; this release reads version {FORMAT_VERSION} only")
    if found != kind:
        raise FormatError(name, f"kind of object is {found}, not {int(kind)} ({kind.name.lower()})")
    if codec not in (_STORED, _ZSTD) or reserved:
        raise FormatError(name, f"unknown codec {codec} or reserved byte {reserved}")
    if size > BODY_LIMIT[kind]:
        raise FormatError(name, f"body of {size} bytes is larger than the {BODY_LIMIT[kind]} allowed")
    view = bytes(data)
    stored = view[_HEADER.size :]
    if google_crc32c.extend(google_crc32c.value(view[:12]), stored) != checksum:
        raise FormatError(name, "checksum does not match: the object is damaged or truncated")
    if codec == _STORED:
        if len(stored) != size:
            raise FormatError(name, f"body has {len(stored)} bytes, not the {size} announced")
        return stored
    return _decompress(name, stored, size)


def _decompress(name: str, stored: bytes, size: int) -> bytes:
    if _frame_content_size(stored) != size:
        raise FormatError(name, "compressed body does not hold the number of bytes announced")
    body = bytearray(size)
    try:
        zstd.decompress(stored, body)
    except (RuntimeError, ValueError) as error:
        raise FormatError(name, f"body cannot be decompressed: {error}") from None
    return bytes(body)


def _frame_content_size(frame: bytes) -> int | None:
    """Content size in the header of a zstd frame (RFC 8878, 3.1.1.1), None where it has none."""
    if frame[:4] != _ZSTD_MAGIC or len(frame) < 6:
        return None
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if width == 0 or len(frame) < start + width:
        return None
    size = int.from_bytes(frame[start : start + width], "little")
    return size + 256 if width == 2 else size


def pack_body(value: Any) -> bytes:
    """Encode a body: msgpack with binary and text types kept apart."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def unpack_body(name: str, body: bytes) -> Any:
    """Decode a body into plain values: None, bool, int, float, str, bytes, tuple, dict.

    Raises
    ------
    FormatError
        If it is no msgpack, holds an extension type, nests too deeply or has more containers than any honest body.
    """
    seen = 0

    def count(value: T) -> T:
        nonlocal seen
        seen += 1
        if seen > _CONTAINERS_LIMIT:
            raise ValueError("too many containers")
        return value

    def refuse(code: int, data: bytes) -> Any:
        raise ValueError(f"extension type {code}")

    try:
        return msgpack.unpackb(
            body,
            raw=False,
            use_list=False,
            strict_map_key=True,
            list_hook=count,
            object_hook=count,
            ext_hook=refuse,
            timestamp=0,
        )
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise FormatError(name, f"body is not what the format asks for: {error or type(error).__name__}") from None


class Fields:
    """Checked access to the fields of a decoded map: each has a type, each is taken once, none is left over.

    Parameters
    ----------
    name
        Key of the object, for errors.
    value
        What msgpack gave.
    """

    __slots__ = ("_name", "_rest")

    def __init__(self, name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise FormatError(name, f"expected a map, found {type(value).__name__}")
        self._name = name
        self._rest = dict(value)

    def fail(self, reason: str) -> FormatError:
        """Return the error for this object."""
        return FormatError(self._name, reason)

    def _take(self, key: str, kind: type[T], optional: bool) -> T | None:
        value = self._rest.pop(key, None)
        if value is None and optional:
            return None
        if type(value) is not kind:
            raise self.fail(f"field {key!r} is {type(value).__name__}, not {kind.__name__}")
        return value

    def integer(self, key: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
        """Take an integer between `low` and `high`."""
        value = self._take(key, int, optional=False)
        if value is None or not low <= value <= high:
            raise self.fail(f"field {key!r} is {value}, not within {low}…{high}")
        return value

    def text(self, key: str, longest: int = 1 << 20) -> str:
        """Take a string of at most `longest` characters."""
        value = self._take(key, str, optional=False)
        if value is None or len(value) > longest:
            raise self.fail(f"field {key!r} has more than {longest} characters")
        return value

    def binary(self, key: str) -> bytes:
        """Take bytes."""
        value = self._take(key, bytes, optional=False)
        if value is None:
            raise self.fail(f"field {key!r} is missing")
        return value

    def optional_binary(self, key: str) -> bytes | None:
        """Take bytes or nothing."""
        return self._take(key, bytes, optional=True)

    def identifier(self, key: str) -> bytes:
        """Take an id."""
        return self._id(key, self.binary(key))

    def optional_identifier(self, key: str) -> bytes | None:
        """Take an id or nothing."""
        value = self._take(key, bytes, optional=True)
        return None if value is None else self._id(key, value)

    def _id(self, key: str, value: bytes) -> bytes:
        if len(value) != ID_BYTES:
            raise self.fail(f"field {key!r} is no id: it has {len(value)} bytes")
        return value

    def sequence(self, key: str) -> tuple[Any, ...]:
        """Take a list."""
        value = self._take(key, tuple, optional=False)
        if value is None:
            raise self.fail(f"field {key!r} is missing")
        return value

    def optional_sequence(self, key: str) -> tuple[Any, ...] | None:
        """Take a list or nothing."""
        return self._take(key, tuple, optional=True)

    def mapping(self, key: str) -> dict[str, Any]:
        """Take a map with string keys."""
        value = self._take(key, dict, optional=False)
        if value is None or not all(isinstance(k, str) for k in value):
            raise self.fail(f"field {key!r} is no map of strings")
        return value

    def each(self, key: str, read: Callable[[Any], T]) -> tuple[T, ...]:
        """Take a list and read each of its items."""
        return tuple([read(item) for item in self.sequence(key)])

    def close(self) -> None:
        """Check that no field is left: an unknown one might change the meaning of the rest."""
        if self._rest:
            raise self.fail(f"unknown fields {sorted(map(str, self._rest))[:8]}")


def read_tuple(name: str, value: Any, *kinds: type | tuple[type, ...]) -> tuple[Any, ...]:
    """Check that a value is a list of exactly these types."""
    if type(value) is not tuple or len(value) != len(kinds):
        raise FormatError(name, f"expected a list of {len(kinds)} values")
    for item, kind in zip(value, kinds, strict=True):
        allowed: Sequence[type] = kind if isinstance(kind, tuple) else (kind,)
        if type(item) not in allowed:
            raise FormatError(name, f"expected {[k.__name__ for k in allowed]}, found {type(item).__name__}")
    return value
