"""Sizes as people write them: ``8MiB``."""

from __future__ import annotations

import re

from arraystore.errors import InvalidInputError

__all__ = ["is_size", "size"]

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "kib": 1 << 10, "m": 10**6, "mb": 10**6, "mib": 1 << 20,
          "g": 10**9, "gb": 10**9, "gib": 1 << 30, "t": 10**12, "tb": 10**12, "tib": 1 << 40}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)


def is_size(text: str) -> bool:
    """Tell whether a text is a number with a unit of bytes."""
    found = _SIZE.fullmatch(text.strip())
    return found is not None and found[2].lower() in _UNITS


def size(text: str, *, option: str) -> int:
    """Return the number of bytes that a text means; raises `InvalidInputError` if it means none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise InvalidInputError(f"{option} {text!r} is no size; give one as in 500MB, 8MiB or 2GiB")
    return int(float(found[1]) * _UNITS[found[2].lower()])
