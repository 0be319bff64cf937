"""Envelope of all metadata objects.

::

    0   magic "ARST"
    4   format version        u8
    5   kind of object        u8
    6   codec of the body     u8   0 as is, 1 zstd
    7   reserved, zero        u8
    8   length of the decoded body  u32, little-endian
    12  CRC-32C of bytes 0-11 and of the stored body  u32, little-endian
    16  stored body

A body is one msgpack value.  Readers bound every size before they allocate, so that hostile bytes cost little.
"""

from __future__ import annotations

import enum
import struct
from typing import Any

import google_crc32c
import msgpack
from numcodecs import zstd  # pyright: ignore[reportAttributeAccessIssue] - a compiled module

from arraystore._format.msgpack_limits import measure
from arraystore._format.wire import Wire
from arraystore.errors import FormatError

FORMAT_VERSION = 2
MAGIC = b"ARST"
_HEADER = struct.Struct("<4sBBBBII")
_STORED, _ZSTD = 0, 1
_ZSTD_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SMALLEST_COMPRESSED = 48  # smaller bodies do not gain from zstd

MiB = 1 << 20

BytesLike = bytes | bytearray | memoryview


class Kind(enum.IntEnum):
    """Kind of an object; 2 and 4 were used by earlier versions, and are not reused."""

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
    STATISTICS = 15


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
    # a million chunks, with some 60 bytes for each
    Kind.STATISTICS: 256 * MiB,
    Kind.HINT: 64 * 1024,
    Kind.CHANGES: 1024 * MiB,
    # attachments and bodies of a record, and what serializable transactions have read
    Kind.INTENT: 4 * MiB,
}
"""Largest decoded body, in bytes, of each kind of object."""

_FREE_SIZE = 16 * MiB
_LARGEST_RATIO = 256
"""Maximum compression ratio of a body above 16 MiB, which limits decompression bombs."""

_FREE_VALUES = 1 << 18
"""Number of values that any body may hold; each stored byte allows one more."""


def encode_object(kind: Kind, body: bytes, key: str = "") -> bytes:
    """Encode a body as an object, compressed if that is smaller; raises `FormatError` above a reader's limits.

    `key` is the key of an object that is stored under an id, which the checksum covers; empty for any other.
    """
    if len(body) > BODY_LIMIT[kind]:
        raise FormatError(
            f"new {kind.name.lower()}", f"a body of {len(body)} bytes; at most {BODY_LIMIT[kind]} are allowed"
        )
    stored, codec = body, _STORED
    if len(body) >= _SMALLEST_COMPRESSED:
        compressed = bytes(zstd.compress(body, _ZSTD_LEVEL))
        if len(compressed) < len(body) and not _exceeds_ratio(len(compressed), len(body)):
            stored, codec = compressed, _ZSTD
    if len(body) > _FREE_VALUES:  # a smaller body cannot hold too many
        measure(f"new {kind.name.lower()}", body, _FREE_VALUES + len(stored))
    head = _HEADER.pack(MAGIC, FORMAT_VERSION, kind, codec, 0, len(body), 0)[:12]
    checksum = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(head), stored), _identity(key))
    return b"".join((head, struct.pack("<I", checksum), stored))


def bind_object(key: str, data: bytes) -> bytes:
    """Bind an object, encoded without a key, to the id in its key, which the checksum then covers."""
    (checksum,) = struct.unpack_from("<I", data, 12)
    return b"".join((data[:12], struct.pack("<I", google_crc32c.extend(checksum, _identity(key))), data[16:]))


def _identity(key: str) -> bytes:
    """Return the id in a key as ASCII, empty for a key without a folder."""
    folder, _, identifier = key.rpartition("/")
    return identifier.encode() if folder else b""


def _exceeds_ratio(stored: int, size: int) -> bool:
    return size > _FREE_SIZE and size > _LARGEST_RATIO * stored


def read_object(name: str, kind: Kind, data: BytesLike, key: str = "") -> Any:
    """Decode an object to the value of its body; raises `FormatError`."""
    return unpack_body(name, decode_object(name, kind, data, key), stored=len(data))


def decode_object(name: str, kind: Kind, data: BytesLike, key: str = "") -> bytes | bytearray:
    """Check the envelope of an object of some kind and return its body; raises `FormatError` naming `name`.

    `key` is the key of an object that is stored under an id, which the checksum covers; empty for any other.
    """
    if len(data) < _HEADER.size:
        raise FormatError(name, f"{len(data)} bytes are too few: the object is truncated, or not an arraystore object")
    magic, version, stored_kind, codec, reserved, size, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(name, "not an arraystore object (wrong magic bytes)")
    if version != FORMAT_VERSION:
        raise FormatError(
            name, f"format version {version}; this release reads version {FORMAT_VERSION} only. {_remedy(version)}"
        )
    if stored_kind != kind:
        raise FormatError(name, f"kind of object is {stored_kind}, not {int(kind)} ({kind.name.lower()})")
    if codec not in (_STORED, _ZSTD) or reserved:
        raise FormatError(name, f"unknown codec {codec} or reserved byte {reserved}")
    if size > BODY_LIMIT[kind]:
        raise FormatError(name, f"body of {size} bytes; at most {BODY_LIMIT[kind]} are allowed")
    view = bytes(data)
    stored = view[_HEADER.size :]
    actual = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(view[:12]), stored), _identity(key))
    if actual != checksum:
        raise FormatError(name, "checksum does not match: the object is damaged, truncated, or that of another key")
    if codec == _STORED:
        if len(stored) != size:
            raise FormatError(name, f"body has {len(stored)} bytes, and the header says {size}")
        return stored
    return _decompress(name, stored, size)


def _remedy(version: int) -> str:
    """Return advice about an object of another format version."""
    if version < FORMAT_VERSION:
        return (
            "Copy its data with the release that wrote it (`export` to plain Zarr), and import it into a new repository"
        )
    return "Upgrade arraystore"


def _decompress(name: str, stored: bytes, size: int) -> bytearray:
    if _frame_content_size(stored) != size:
        raise FormatError(name, "the size of the compressed body is not the one in the header")
    if _exceeds_ratio(len(stored), size):
        raise FormatError(
            name, f"{len(stored)} bytes decompress to {size}, beyond the allowed ratio of {_LARGEST_RATIO}"
        )
    body = bytearray(size)
    try:
        zstd.decompress(stored, body)
    except (RuntimeError, ValueError) as error:
        raise FormatError(name, f"body cannot be decompressed: {error}") from None
    return body


def _frame_content_size(frame: bytes) -> int | None:
    """Return the content size in the header of a zstd frame (RFC 8878, 3.1.1.1), None without one."""
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
    """Return the compressed size of bytes."""
    return len(zstd.compress(data, _ZSTD_LEVEL))


def pack_body(value: Any) -> bytes:
    """Encode a body as msgpack with separate binary and string types; a `Wire` is the list of its fields."""
    packed: bytes | None = msgpack.packb(value, use_bin_type=True, default=_to_wire)
    assert packed is not None  # for the type checker
    return packed


def _to_wire(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Wire):
        return value.to_wire()
    raise TypeError(f"can not serialize {type(value).__name__!r} object")


def unpack_body(name: str, body: bytes | bytearray, *, stored: int = 0) -> Any:
    """Decode a body into None, bool, int, float, str, bytes, tuple and dict; raises `FormatError`.

    `stored` is the size of the object as stored, which bounds the number of values.
    """
    measure(name, body, _FREE_VALUES + stored)
    try:
        return msgpack.unpackb(body, raw=False, use_list=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise FormatError(name, f"body is not valid msgpack: {error or type(error).__name__}") from None


def check_plain(name: str, value: Any) -> Any:
    """Return free-form data as JSON values; raises `FormatError` for any other value."""
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            raise FormatError(name, "every key of free-form data must be a string")
        return {key: check_plain(name, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [check_plain(name, item) for item in value]
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise FormatError(name, f"free-form data must be JSON, and contains {type(value).__name__}")
