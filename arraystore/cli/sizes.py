"""Parsing of sizes such as ``8MiB``."""

from __future__ import annotations

import re

from arraystore.errors import InvalidInputError

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "kib": 1 << 10, "m": 10**6, "mb": 10**6, "mib": 1 << 20,
          "g": 10**9, "gb": 10**9, "gib": 1 << 30, "t": 10**12, "tb": 10**12, "tib": 1 << 40}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)


def is_size(text: str) -> bool:
    """Return whether a string is a size in bytes."""
    match = _SIZE.fullmatch(text.strip())
    return match is not None and match[2].lower() in _UNITS


def parse_size(text: str, *, option: str) -> int:
    """Parse a size in bytes; raises `InvalidInputError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise InvalidInputError(
            f"{option} {text!r} is not a valid size: use a number with a unit, e.g. 500MB, 8MiB or 2GiB"
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])
