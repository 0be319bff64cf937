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
from collections.abc import Sequence
from typing import Any

import google_crc32c
import msgpack
from numcodecs import zstd  # pyright: ignore[reportAttributeAccessIssue] - a compiled module

from arraystore._format.msgpack_limits import measure
from arraystore.errors import FormatError

__all__ = [
    "FORMAT_VERSION",
    "LATEST_TIME",
    "Kind",
    "bind_object",
    "check_plain",
    "check_time",
    "decode_object",
    "encode_object",
    "pack_body",
    "read_object",
    "read_tuple",
    "unpack_body",
]

FORMAT_VERSION = 2
MAGIC = b"ARST"
_HEADER = struct.Struct("<4sBBBBII")
_STORED, _ZSTD = 0, 1
_ZSTD_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SMALLEST_COMPRESSED = 48  # below it zstd's frame costs more than it saves

MiB = 1 << 20

BytesLike = bytes | bytearray | memoryview

LATEST_TIME = 253_402_300_799_999_999
"""The last microsecond of the year 9999, which is where calendars of programs end."""


class Kind(enum.IntEnum):
    """What an object is; 2 and 4 were other things once, and are not given again."""

    REPOSITORY = 1
    RECORD = 3
    CHECKPOINT = 5
    MANIFEST = 6
    TRANSACTION = 7
    HISTORY = 8
    HINT = 9
    CHANGES = 10
    INTENT = 11
    REPOSITORY_LOG = 12
    SURVIVORS = 13
    COLLECTION = 14


BODY_LIMIT: dict[Kind, int] = {
    Kind.REPOSITORY: 1 * MiB,
    # 512 bodies of at most 16 KiB, and the attachments of one commit
    Kind.RECORD: 12 * MiB,
    # a million nodes of 1 KiB: the largest hierarchy that one object may describe
    Kind.CHECKPOINT: 1024 * MiB,
    # 65,536 references with the longest virtual locations, or full of inline chunks
    Kind.MANIFEST: 256 * MiB,
    Kind.TRANSACTION: 1024 * MiB,
    Kind.HISTORY: 256 * MiB,
    Kind.SURVIVORS: 256 * MiB,
    # a table of all tags and branches, some 100 bytes each
    Kind.REPOSITORY_LOG: 256 * MiB,
    # ids of objects that were committed with clocks ahead of the watermark
    Kind.COLLECTION: 256 * MiB,
    Kind.HINT: 64 * 1024,
    Kind.CHANGES: 1024 * MiB,
    # attachments and bodies of a record, and what serializable transactions have read
    Kind.INTENT: 4 * MiB,
}
"""Largest decoded body, in bytes, of each kind of object."""

_FREE_SIZE = 16 * MiB
_LARGEST_RATIO = 256
"""A body above 16 MiB is compressed at most 256-fold, or stored as it is: a few bytes never unfold to a gigabyte."""

_FREE_VALUES = 1 << 18
"""Values that any body may hold; each stored byte buys one more.  Columns hold what is many, so few come near."""


def encode_object(kind: Kind, body: bytes, key: str = "") -> bytes:
    """Put a body into an envelope, compressed where that makes it smaller.

    Parameters
    ----------
    kind, body
        What is in it.
    key
        Key of an object that is stored under an id, which the checksum covers; empty for any other.

    Raises
    ------
    FormatError
        If no reader would take it: the body is larger than its kind allows, or holds too many values.
    """
    if len(body) > BODY_LIMIT[kind]:
        raise FormatError(f"new {kind.name.lower()}", f"{len(body)} bytes are more than the {BODY_LIMIT[kind]} allowed")
    stored, codec = body, _STORED
    if len(body) >= _SMALLEST_COMPRESSED:
        compressed = bytes(zstd.compress(body, _ZSTD_LEVEL))
        if len(compressed) < len(body) and not _unfolds_too_much(len(compressed), len(body)):
            stored, codec = compressed, _ZSTD
    if len(body) > _FREE_VALUES:  # in a smaller one there is no room for too many
        measure(f"new {kind.name.lower()}", body, _FREE_VALUES + len(stored))
    head = _HEADER.pack(MAGIC, FORMAT_VERSION, kind, codec, 0, len(body), 0)[:12]
    checksum = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(head), stored), _identity(key))
    return b"".join((head, struct.pack("<I", checksum), stored))


def bind_object(key: str, data: bytes) -> bytes:
    """Return an object as it is stored under an id: its checksum covers the id, so it passes for no other one.

    Parameters
    ----------
    key
        Its key.
    data
        The object as `encode_object` gives it without a key, and as it is in a record.
    """
    (checksum,) = struct.unpack_from("<I", data, 12)
    return b"".join((data[:12], struct.pack("<I", google_crc32c.extend(checksum, _identity(key))), data[16:]))


def _identity(key: str) -> bytes:
    """Return the text of the id in a key; nothing without a key, or of one outside of any folder."""
    folder, _, identifier = key.rpartition("/")
    return identifier.encode() if folder else b""


def _unfolds_too_much(stored: int, size: int) -> bool:
    return size > _FREE_SIZE and size > _LARGEST_RATIO * stored


def read_object(name: str, kind: Kind, data: BytesLike, key: str = "") -> Any:
    """Take the body out of an envelope and decode it; parameters and errors as of `decode_object`, `unpack_body`."""
    return unpack_body(name, decode_object(name, kind, data, key), stored=len(data))


def decode_object(name: str, kind: Kind, data: BytesLike, key: str = "") -> bytes | bytearray:
    """Take the body out of an envelope.

    Parameters
    ----------
    name
        Key of the object, for errors.
    kind
        What it has to be.
    data
        The whole object.
    key
        Key of an object that is stored under an id, which the checksum covers; empty for any other.

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
        raise FormatError(
            name, f"format version {version}; this release reads version {FORMAT_VERSION} only. {_remedy(version)}"
        )
    if found != kind:
        raise FormatError(name, f"kind of object is {found}, not {int(kind)} ({kind.name.lower()})")
    if codec not in (_STORED, _ZSTD) or reserved:
        raise FormatError(name, f"unknown codec {codec} or reserved byte {reserved}")
    if size > BODY_LIMIT[kind]:
        raise FormatError(name, f"body of {size} bytes is larger than the {BODY_LIMIT[kind]} allowed")
    view = bytes(data)
    stored = view[_HEADER.size :]
    found = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(view[:12]), stored), _identity(key))
    if found != checksum:
        raise FormatError(name, "checksum does not match: the object is damaged, truncated, or that of another key")
    if codec == _STORED:
        if len(stored) != size:
            raise FormatError(name, f"body has {len(stored)} bytes, not the {size} announced")
        return stored
    return _decompress(name, stored, size)


def _remedy(version: int) -> str:
    """Say what to do about an object of another format version."""
    if version < FORMAT_VERSION:
        return (
            "Copy its data with the release that wrote it (`export` to plain Zarr), and import it into a new repository"
        )
    return "Upgrade arraystore"


def _decompress(name: str, stored: bytes, size: int) -> bytearray:
    if _frame_content_size(stored) != size:
        raise FormatError(name, "compressed body does not hold the number of bytes announced")
    if _unfolds_too_much(len(stored), size):
        raise FormatError(name, f"{len(stored)} bytes unfold to {size}, more than any writer does")
    body = bytearray(size)
    try:
        zstd.decompress(stored, body)
    except (RuntimeError, ValueError) as error:
        raise FormatError(name, f"body cannot be decompressed: {error}") from None
    return body


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


def packed_size(data: bytes) -> int:
    """Return how long bytes are when they are compressed as bodies are."""
    return len(zstd.compress(data, _ZSTD_LEVEL))


def pack_body(value: Any) -> bytes:
    """Encode a body: msgpack with binary and text types kept apart."""
    packed: bytes | None = msgpack.packb(value, use_bin_type=True)
    assert packed is not None  # as it is without autoreset=False
    return packed


def unpack_body(name: str, body: bytes | bytearray, *, stored: int = 0) -> Any:
    """Decode a body into plain values: None, bool, int, float, str, bytes, tuple, dict.

    Parameters
    ----------
    name
        Key of the object, for errors.
    body
        What `pack_body` gave.
    stored
        Bytes of the object as stored, which bound how many values there may be.

    Raises
    ------
    FormatError
        If it is no msgpack, holds an extension type, nests too deeply or holds more values than any honest body.
    """
    measure(name, body, _FREE_VALUES + stored)
    try:
        return msgpack.unpackb(body, raw=False, use_list=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise FormatError(name, f"body is not what the format asks for: {error or type(error).__name__}") from None


def check_plain(name: str, value: Any) -> Any:
    """Return free-form data as JSON knows it: maps of text, lists, text, numbers, booleans, None.

    Raises
    ------
    FormatError
        If it holds anything else.
    """
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            raise FormatError(name, "a key of free-form data is no text")
        return {key: check_plain(name, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [check_plain(name, item) for item in value]
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise FormatError(name, f"free-form data holds {type(value).__name__}")


def read_tuple(name: str, value: Any, *kinds: type | tuple[type, ...]) -> tuple[Any, ...]:
    """Check that a value is a list of exactly these types."""
    if type(value) is not tuple or len(value) != len(kinds):
        raise FormatError(name, f"expected a list of {len(kinds)} values")
    for item, kind in zip(value, kinds, strict=True):
        allowed: Sequence[type] = kind if isinstance(kind, tuple) else (kind,)
        if type(item) not in allowed:
            raise FormatError(name, f"expected {[k.__name__ for k in allowed]}, found {type(item).__name__}")
    return value


def check_time(name: str, value: int) -> int:
    """Check microseconds since 1970."""
    if not 0 <= value <= LATEST_TIME:
        raise FormatError(name, f"time {value} is not between the years 1970 and 9999")
    return value
