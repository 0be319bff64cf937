"""Changes of valid input: of bytes, of msgpack values, and of what is inside of other things, put together again.

Everything is drawn from a `random.Random`, which may be seeded, or be Hypothesis's own, which shrinks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import google_crc32c
import msgpack
import numpy as np
from numcodecs import zstd

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import FORMAT_VERSION
from arraystore.errors import FormatError

__all__ = ["Trees", "change_bytes", "change_tree", "envelope", "open_envelope", "pack", "unpack"]

Path = tuple[Any, ...]

INTEGERS = [
    *(0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 127, 128, 255, 256, 4095, 4096, 65535, 65536),
    *((1 << bits) + off for bits in (20, 22, 31, 32, 61, 62, 63) for off in (-1, 0, 1)),
    *((1 << 64) - 1, -1, -2, -(1 << 31), -(1 << 62), -(1 << 63), 253_402_300_799_999_999),
]
TEXTS = ["", "a", "\0", "/", ".", "..", "a/", "/a", "a//b", "../x", "zarr.json", ".zattrs", "é", "\ud800", "x" * 4097]
BLOBS = [b"", b"\0", b"\xff", bytes(12), b"\xff" * 12, b"\0\1\0", b"\0\1\1", b"\0\x08" + b"\xff" * 8, b"\xc0", b"ARST"]
OTHERS: list[Any] = [None, True, False, 0.5, float("nan"), (), ((),), (0,), ((), ()), {}, {"a": 1}, {b"a": (1,)}]


def envelope(
    kind: int, body: bytes, *, codec: int = 0, size: int | None = None, version: int = FORMAT_VERSION
) -> bytes:
    """Put a body into an envelope whose checksum is right, whatever else is not."""
    stored = bytes(zstd.compress(body, 3)) if codec == 1 else body
    head = struct.pack("<4sBBBBI", b"ARST", version, kind, codec, 0, len(body) if size is None else size)
    return head + struct.pack("<I", google_crc32c.extend(google_crc32c.value(head), stored)) + stored


def open_envelope(data: bytes) -> tuple[int, bytes] | None:
    """Return kind and body of an object, None for what is none; nothing else is checked."""
    if len(data) < 16 or data[:4] != b"ARST":
        return None
    if data[6] != 1:
        return data[5], data[16:]
    size = int.from_bytes(data[8:12], "little")
    if size > 1 << 22:
        return None
    try:
        return data[5], bytes(zstd.decompress(data[16:], bytearray(size)))
    except (RuntimeError, ValueError):
        return None


def unpack(body: bytes) -> Any:
    """Return a msgpack value as tuples and dictionaries; raises ValueError for what is none."""
    try:
        found = msgpack.unpackb(body, raw=False, use_list=False, strict_map_key=False, unicode_errors="surrogateescape")
    except (msgpack.exceptions.UnpackException, RecursionError, TypeError, MemoryError) as error:
        raise ValueError(str(error)) from None
    return found


def pack(value: Any) -> bytes:
    """Encode a value, surrogates and all; integers beyond 64 bits lose their high ones."""
    packed: bytes | None = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogatepass", default=_low_bits)
    assert packed is not None
    return packed


def _low_bits(value: Any) -> int:
    if isinstance(value, int):  # pragma: no branch
        return value & ((1 << 64) - 1)
    raise TypeError(type(value).__name__)


# -- bytes ----------------------------------------------------------------


def change_bytes(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Flip, insert, leave out, repeat, cut off, overwrite with a number, or splice with another input."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = len(found)
        at = rng.randrange(size + 1)
        end = min(size, at + rng.choice((1, 1, 2, 4, 8, 12, 64)))
        match rng.randrange(8):
            case 0 if at < size:
                found[at] ^= 1 << rng.randrange(8)
            case 1 if at < size:
                found[at] = rng.choice((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xDD, 0xDF, 0xFF, rng.randrange(256)))
            case 2:
                found[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 4, 12))))
            case 3:
                del found[at:end]
            case 4:
                found[at:at] = found[at:end] * rng.choice((1, 2, 30))
            case 5:
                del found[at:]
            case 6:
                number = rng.choice(INTEGERS) & ((1 << 64) - 1)
                found[at:end] = number.to_bytes(8, rng.choice(("little", "big")))[: end - at]
            case _ if others:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                found[at:end] = other[start : start + rng.choice((1, 4, 16, 1000))]
            case _:
                found += b"\0"
    return bytes(found)


# -- msgpack values ----------------------------------------------------------------


class Trees:
    """Parts of valid values, by type, to put where others stand.

    Parameters
    ----------
    values
        The valid values.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._parts: dict[type, list[Any]] = {}
        for value in values:
            for path in places(value):
                part = part_at(value, path)
                self._parts.setdefault(type(part), []).append(part)

    def any_like(self, rng: Random, value: Any) -> Any:
        """Return a part of the type of a value, or any other value."""
        found = self._parts.get(type(value), [])
        return rng.choice(found) if found and rng.random() < 0.8 else rng.choice(OTHERS)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the way to each part of a value, itself first."""
    yield path
    if isinstance(value, tuple):
        for at, part in enumerate(value):
            yield from places(part, (*path, at))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))


def part_at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def with_part(value: Any, path: Path, part: Any) -> Any:
    """Return a value with another part."""
    if not path:
        return part
    inner = with_part(value[path[0]], path[1:], part)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return (*value[: path[0]], inner, *value[path[0] + 1 :])


def change_tree(rng: Random, value: Any, trees: Trees) -> Any:
    """Change some parts of a value."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        path = rng.choice(list(places(value)))
        part = part_at(value, path)
        value = with_part(value, path, _changed(rng, part, trees))
    return value


def _changed(rng: Random, part: Any, trees: Trees) -> Any:
    if rng.random() < 0.15:
        return trees.any_like(rng, part)
    change = _CHANGES.get(type(part))
    return rng.choice(OTHERS) if change is None else change(rng, part, trees)


def _change_integer(rng: Random, value: int, trees: Trees) -> Any:
    found = rng.choice(
        (value + 1, value - 1, value * 2, -value, value ^ (1 << rng.randrange(63)), rng.choice(INTEGERS), 64 * value)
    )
    return max(-(1 << 63), min(found, (1 << 64) - 1))


def _change_text(rng: Random, value: str, trees: Trees) -> Any:
    at = rng.randrange(len(value) + 1)
    return rng.choice((value[:at], value[at:], value[:at] + rng.choice(TEXTS) + value[at:], rng.choice(TEXTS)))


def _change_list(rng: Random, value: tuple[Any, ...], trees: Trees) -> Any:
    at = rng.randrange(len(value) + 1)
    match rng.randrange(6):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return value[: at + 1] + value[at:]
        case 2:
            return value[:at]
        case 3:
            return tuple(rng.sample(value, len(value)))
        case 4:
            return (*value[:at], trees.any_like(rng, value[at] if at < len(value) else None), *value[at:])
        case _:
            return value * rng.choice((2, 3, 70)) if len(value) < 20 else value[::-1]


def _change_map(rng: Random, value: dict[Any, Any], trees: Trees) -> Any:
    found = dict(value)
    if found and rng.random() < 0.6:
        key = rng.choice(list(found))
        part = found.pop(key)
        if rng.random() < 0.5:
            found[_change_text(rng, key, trees) if isinstance(key, str) else "x"] = part
        return found
    found[rng.choice((*TEXTS, ".zarray", ".zgroup", b"x", 1))] = trees.any_like(rng, b"")
    return found


def _change_blob(rng: Random, value: bytes, trees: Trees) -> Any:
    """Change what is inside where that can be told: an object, a value, a column; else the bytes."""
    if rng.random() < 0.75:
        inner = _change_inside(rng, value, trees)
        if inner is not None:
            return inner
    return rng.choice(BLOBS) if rng.random() < 0.2 else change_bytes(rng, value)


def _change_inside(rng: Random, value: bytes, trees: Trees) -> bytes | None:
    opened = open_envelope(value)
    if opened is not None:
        kind, body = opened
        return envelope(kind, change_body(rng, body, trees), codec=rng.choice((0, 1)))
    if len(value) >= 3 and value[0] in (0x92, 0x93, 0x96, 0x97):  # notes, bodies of records, what forks have read
        try:
            return pack(change_tree(rng, unpack(value), trees))
        except ValueError:
            return None
    return _change_column(rng, value)


def _change_column(rng: Random, value: bytes) -> bytes | None:
    if len(value) < 3 or value[0] > 2 or value[1] not in (1, 2, 4, 8):
        return None
    count = rng.choice((1, 2, 3)) if value[0] == 0 else (len(value) - 2) // value[1]
    try:
        items = decode_column("a column", value, count)
    except FormatError:
        return None
    items = items.copy()
    for _ in range(rng.choice((1, 1, 2, count))):
        at = rng.randrange(count)
        items[at] = rng.choice((int(items[at]) ^ 1, int(items[rng.randrange(count)]), _positive(rng)))
    if rng.random() < 0.2:
        items = np.sort(items) if rng.random() < 0.5 else np.append(items, items[-1:])
    return encode_column(np.maximum(items, 0))


def _positive(rng: Random) -> int:
    return abs(rng.choice(INTEGERS)) & ((1 << 63) - 1)


_CHANGES: dict[type, Callable[[Random, Any, Trees], Any]] = {
    int: _change_integer,
    str: _change_text,
    tuple: _change_list,
    dict: _change_map,
    bytes: _change_blob,
}


def change_body(rng: Random, body: bytes, trees: Trees) -> bytes:
    """Change a body as a value where it is one, and as bytes now and then."""
    if rng.random() < 0.9:
        try:
            return pack(change_tree(rng, unpack(body), trees))
        except (ValueError, OverflowError):
            pass
    return change_bytes(rng, body)
