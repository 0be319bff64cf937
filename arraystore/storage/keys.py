"""Object keys and byte ranges: the same rules on every backend, so that a repository can move between them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from arraystore.errors import InvalidInputError, InvalidKeyError

__all__ = ["MAX_KEY_BYTES", "check_key", "check_range", "merge_ranges"]

MAX_KEY_BYTES = 1024
"""Limit of S3, GCS and Azure, the storage's own prefix included."""

# A part that is empty, '.' or '..', a control character, or a backslash (a separator to some backends).
_UNSAFE = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|[\x00-\x1f\x7f\\]")


def check_key(key: str) -> None:
    """Refuse a key that some backend would read as another key, or as a path outside the storage.

    Raises `InvalidKeyError` if the key is empty or absolute, has an empty part or one that is ``.`` or ``..``, a
    backslash, a control character, a lone surrogate, or more than 1024 bytes in UTF-8.
    """
    if _UNSAFE.search(key):
        raise InvalidKeyError(
            f"the object key {key!r} is not a valid key: no part between slashes may be empty, '.' or '..', "
            "and it must not contain a backslash or a control character"
        )
    if not key.isascii() or len(key) > MAX_KEY_BYTES:
        _check_encoding(key)


def _check_encoding(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidKeyError(f"the object key {key!r} is not a valid key: it is not valid Unicode") from None
    if size > MAX_KEY_BYTES:
        raise InvalidKeyError(
            f"the object key {key[:64]!r}… is not a valid key: it has {size} bytes, and must have <= {MAX_KEY_BYTES}; "
            "use shorter names"
        )


def check_range(key: str, start: int, stop: int) -> None:
    """Refuse a range that is not ascending; raises `InvalidInputError`."""
    if not 0 <= start <= stop:
        raise InvalidInputError(f"bytes {start}..{stop} of {key!r} are not a valid range: 0 <= start <= stop must hold")


def merge_ranges(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Return ascending ranges that cover `ranges`, with those at most `gap` bytes apart merged."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if start == stop:
            continue
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
