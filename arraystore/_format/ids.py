"""Identifiers: 12 bytes, a 6-byte time in milliseconds and 6 random bytes, shown as 20 Crockford base32 characters.

Both forms sort by time, so listings of objects are in order of time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NewType, TypeVar

import numpy as np

from arraystore._format.types import Bools, IdColumn, Int64s
from arraystore.errors import InvalidInputError
from arraystore.storage.forking import ForkSafeLock

ID_BYTES = 12
ID_CHARS = 20

SnapshotId = NewType("SnapshotId", bytes)
CheckpointId = NewType("CheckpointId", bytes)
NodeId = NewType("NodeId", bytes)
LayerId = NewType("LayerId", bytes)
PackId = NewType("PackId", bytes)
ForkId = NewType("ForkId", bytes)

_Id = TypeVar("_Id", bound=bytes)

_ID: np.dtype[np.bytes_] = np.dtype(f"S{ID_BYTES}")

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]  # ten bits at a time: half the steps
_MAX_TIME = (1 << 48) - 1
_RANDOM_BYTES = 6


@lru_cache(maxsize=1024)
def id_to_text(identifier: bytes) -> str:
    """Encode an identifier in Crockford base32, most significant character first.

    As in ULID, the 96 bits are the low bits of 100, so that the first character is ``0`` or ``1``.
    """
    number = int.from_bytes(identifier, "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(90, -1, -10)])


def is_id_text(text: str) -> bool:
    """Return whether a string has as many characters of Crockford's base32 as an id; it may be too large for one."""
    return len(text) == ID_CHARS and all(character in _VALUES for character in text)


def id_from_text(text: str) -> bytes:
    """Decode the string form of an identifier; raises `InvalidInputError` for any other string."""
    if not isinstance(text, str) or len(text) != ID_CHARS:
        raise InvalidInputError(
            f"{text!r} is not a valid id: an id must have {ID_CHARS} characters of Crockford's base32"
        )
    number = 0
    for character in text:
        value = _VALUES.get(character)
        if value is None:
            raise InvalidInputError(
                f"{text!r} is not a valid id: {character!r} is not a character of Crockford's base32"
            )
        number = number << 5 | value
    if number >> 96:
        raise InvalidInputError(f"{text!r} is not a valid id: it must be < 2**96")
    return number.to_bytes(ID_BYTES, "big")


_VALUE_OF = np.full(256, 255, dtype=np.uint8)
_VALUE_OF[np.frombuffer(_ALPHABET.encode(), dtype=np.uint8)] = np.arange(32, dtype=np.uint8)


def ids_from_texts(texts: Sequence[str]) -> tuple[IdColumn, Bools]:
    """Decode many ids in string form, with a mask of the valid ones; the value of an invalid one is arbitrary."""
    valid = np.array([len(text) == ID_CHARS and text.isascii() for text in texts], dtype=bool)
    blob = "".join(text if ok else "0" * ID_CHARS for text, ok in zip(texts, valid.tolist(), strict=True))
    values = _VALUE_OF[np.frombuffer(blob.encode(), dtype=np.uint8).reshape(len(texts), ID_CHARS)]
    valid &= (values < 32).all(axis=1) & (values[:, 0] < 2)
    bits = ((values[:, :, None] >> np.arange(4, -1, -1, dtype=np.uint8)) & 1).reshape(len(values), 5 * ID_CHARS)
    packed = np.packbits(bits[:, 4:], axis=1)
    ids: IdColumn = np.ascontiguousarray(packed).view(_ID).reshape(-1)
    return ids, valid


def ids_of(concatenated: bytes) -> IdColumn:
    """Return concatenated ids as a column."""
    return np.frombuffer(concatenated, dtype=_ID)


def split_ids(joined: bytes, kind: Callable[[bytes], _Id]) -> list[_Id]:
    """Split concatenated identifiers."""
    return [kind(joined[at : at + ID_BYTES]) for at in range(0, len(joined), ID_BYTES)]


def id_at(ids: IdColumn, position: int) -> PackId:
    """Return one id of a column of packs, with its trailing zeros."""
    return PackId(bytes(ids[position]).ljust(ID_BYTES, b"\0"))


def find_ids(ids: IdColumn, wanted: IdColumn) -> Int64s:
    """Return the positions of ids in a sorted column, -1 for missing ones."""
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, at, -1).astype(np.int64)


def all_different(identifiers: bytes) -> bool:
    """Return whether concatenated identifiers are all different."""
    items = np.frombuffer(identifiers, dtype=np.dtype((np.void, ID_BYTES)))
    return len(set(items.tolist())) == len(items)


def id_time(identifier: bytes) -> int:
    """Return the time of an identifier in milliseconds since 1970."""
    return int.from_bytes(identifier[:6], "big")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class IdSource:
    """Source of strictly increasing identifiers, from a clock in milliseconds and a source of random bytes."""

    def __init__(
        self, clock_ms: Callable[[], int] = _now_ms, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock_ms = clock_ms
        self._random_bytes = random_bytes
        self._last = b""
        self._lock = ForkSafeLock()

    def __call__(self) -> bytes:
        """Return a new identifier."""
        with self._lock:
            now = min(max(self._clock_ms(), 0), _MAX_TIME)
            identifier = now.to_bytes(6, "big") + self._random_bytes(_RANDOM_BYTES)
            if identifier <= self._last:  # same millisecond, or clock set back
                later = max(now, id_time(self._last))
                identifier = later.to_bytes(6, "big") + self._random_bytes(_RANDOM_BYTES)
                while identifier <= self._last:
                    later += 1
                    identifier = later.to_bytes(6, "big") + self._random_bytes(_RANDOM_BYTES)
            self._last = identifier
            return identifier

    def advance(self, identifier: bytes) -> None:
        """Generate only ids above this one from now on."""
        if identifier > self._last:
            with self._lock:
                self._last = max(self._last, identifier)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._clock_ms, self._random_bytes))
