"""Compact encoding of columns of non-negative integers.

A column is one byte of encoding, one byte of item width and its payload; its length is stored elsewhere.  Widths are
the narrowest of 1, 2, 4 and 8 bytes that hold every value.  Items are stored shuffled (all first bytes, then all second
bytes, …), which helps zstd to compress them.

=======  ===========================================================================
CONST 0  one value, little-endian, for all items
PLAIN 1  the values
DELTA 2  zigzag differences to the preceding value (to 0 for the first), modulo 2**64
=======  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore.errors import FormatError

_CONST, _PLAIN, _DELTA = 0, 1, 2
_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


def _width(largest: int) -> int:
    return int(np.min_scalar_type(largest).itemsize)


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return non-negative integers in the narrowest unsigned dtype that holds them."""
    largest = int(values.max()) if values.size else 0
    return values.astype(_DTYPES[_width(largest)], copy=False)


def _shuffle(values: npt.NDArray[Any], width: int) -> bytes:
    items = np.ascontiguousarray(values.astype(_DTYPES[width], copy=False))
    if width == 1:
        return items.tobytes()
    return items.view(np.uint8).reshape(-1, width).T.tobytes()


def encode_column(values: npt.ArrayLike) -> bytes:
    """Encode a one-dimensional array of integers from 0 to 2**63 - 1."""
    plain = np.asarray(values, dtype=np.int64)
    first = int(plain[0]) if plain.size else 0
    if plain.size <= 1 or bool((plain == first).all()):
        width = _width(first)
        return bytes((_CONST, width)) + first.to_bytes(width, "little")
    steps = np.diff(plain, prepend=np.int64(0))
    zigzag = to_zigzag(steps).view(np.uint64)
    plain_width = _width(int(plain.max()))
    delta_width = _width(int(zigzag.max()))
    # constant steps compress to next to nothing; otherwise the narrower encoding wins
    if delta_width < plain_width or bool((zigzag[1:] == zigzag[1]).all()):
        return bytes((_DELTA, delta_width)) + _shuffle(zigzag, delta_width)
    return bytes((_PLAIN, plain_width)) + _shuffle(plain, plain_width)


def decode_column(name: str, column: Any, count: int, largest: int = (1 << 63) - 1) -> Int64s:
    """Decode a column of `count` values from 0 to `largest`; raises `FormatError` naming `name`."""
    if type(column) is not bytes or len(column) < 2:
        raise FormatError(name, "column is missing")
    encoding, width = column[0], column[1]
    if encoding == _CONST:
        if width not in _DTYPES or len(column) != 2 + width:
            raise FormatError(name, "constant column has the wrong length")
        value = int.from_bytes(column[2:], "little")
        if value > largest:
            raise FormatError(name, f"value {value} must be <= {largest}")
        return np.full(count, value, dtype=np.int64)
    if encoding not in (_PLAIN, _DELTA) or width not in _DTYPES:
        raise FormatError(name, f"unknown column encoding {encoding} of width {width}")
    if len(column) != 2 + width * count:
        raise FormatError(name, f"column has {len(column) - 2} bytes, and must have {count} items of {width}")
    planes = np.frombuffer(column, dtype=np.uint8, offset=2)
    items = np.ascontiguousarray(planes.reshape(width, count).T).reshape(-1).view(_DTYPES[width])
    wide = items.astype(np.uint64)
    if encoding == _DELTA:
        steps = (wide >> np.uint64(1)).astype(np.int64) ^ -((wide & np.uint64(1)).astype(np.int64))
        values: Int64s = np.cumsum(steps, dtype=np.int64)
    else:
        values = wide.view(np.int64)
    if count and (int(values.min()) < 0 or int(values.max()) > largest):
        raise FormatError(name, f"every value must be >= 0 and <= {largest}")
    return values


def to_zigzag(values: Int64s) -> Int64s:
    """Map integers to non-negative ones, small ones to small ones."""
    return (values << 1) ^ (values >> 63)


def from_zigzag(values: Int64s) -> Int64s:
    """Invert `to_zigzag`."""
    return (values >> 1) ^ -(values & 1)


def encode_strings(items: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Encode byte strings as a column of their lengths, and all their bytes."""
    strings = list(items)
    return encode_column(list(map(len, strings))), b"".join(strings)


def decode_strings(name: str, lengths: Any, blob: bytes, count: int) -> list[bytes]:
    """Decode `count` byte strings; raises `FormatError` naming `name`."""
    sizes = decode_column(name, lengths, count, len(blob))
    ends = np.cumsum(sizes)
    if (int(ends[-1]) if count else 0) != len(blob):
        raise FormatError(name, "lengths must add up to the size of the data")
    return [blob[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
