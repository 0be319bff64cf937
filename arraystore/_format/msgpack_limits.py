"""Limits of msgpack bodies, checked before anything is allocated.

A decoder allocates a list as soon as it has read its length, so that a few nested lists with lengths of millions
would cost gigabytes before the first missing item is noticed.
"""

from __future__ import annotations

from arraystore.errors import FormatError

MAX_DEPTH = 64
"""Maximum nesting of lists and maps, which bounds the recursion of decoders."""

_SCALAR, _ARRAY, _MAP, _BYTES, _REFUSED = range(5)


def _table() -> tuple[tuple[int, int, int], ...]:
    """Return kind, bytes of the length field, and length or size in the byte itself, for each first byte."""
    table = [(_SCALAR, 0, 0)] * 256
    for low in range(16):
        table[0x80 + low] = (_MAP, 0, low)
        table[0x90 + low] = (_ARRAY, 0, low)
    for low in range(32):
        table[0xA0 + low] = (_BYTES, 0, low)
    for first, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4), (0xD9, 1), (0xDA, 2), (0xDB, 4)):
        table[first] = (_BYTES, width, 0)
    for first, size in ((0xCA, 4), (0xCB, 8), (0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        table[first] = (_BYTES, 0, size)
    for first, size in ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)):
        table[first] = (_BYTES, 0, size)
    for first, kind, width in ((0xDC, _ARRAY, 2), (0xDD, _ARRAY, 4), (0xDE, _MAP, 2), (0xDF, _MAP, 4)):
        table[first] = (kind, width, 0)
    for first in (0xC1, 0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8):
        table[first] = (_REFUSED, 0, 0)
    return tuple(table)


_TABLE = _table()


def measure(name: str, body: bytes | bytearray, limit: int) -> int:
    """Count the values of a msgpack body, lists and maps included; raises `FormatError` beyond the limits."""
    size = len(body)
    at = 0
    announced = left = 1
    outer: list[int] = []
    while True:
        while not left:
            if not outer:
                if at != size:
                    raise FormatError(name, f"{size - at} bytes follow the body")
                return announced
            left = outer.pop()
        if at >= size:
            raise FormatError(name, "the body ends too early")
        left -= 1
        first = body[at]
        kind, width, length = _TABLE[first]
        at += 1
        if kind == _SCALAR:
            continue
        if width:
            length = int.from_bytes(body[at : at + width], "big")
            at += width
        if kind == _BYTES:
            at += length
        elif kind == _REFUSED:
            raise FormatError(name, f"a value of type {first:#x}, which the format does not allow")
        else:
            outer.append(left)
            left = length if kind == _ARRAY else 2 * length
            announced += left
            if announced > limit or len(outer) > MAX_DEPTH:
                raise FormatError(name, "too many values, or too deeply nested lists")
