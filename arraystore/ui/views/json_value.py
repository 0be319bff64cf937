"""Views as JSON: dataclasses by field, arrays as base64 of little-endian items, no NaN."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import numpy as np

__all__ = ["exact", "json_value"]

_MAX_DEPTH = 40
"""Levels of attributes; deeper ones are shown as text."""

_EXACT = 1 << 53


def json_value(value: Any, depth: int = 0) -> Any:
    """Return a view as values that `json.dumps` takes; anything unknown as its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return json_value(value.item(), depth + 1)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name), depth + 1) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, depth + 1) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.name if isinstance(value, Enum) else str(value)


def exact(value: Any, depth: int = 0) -> Any:
    """Return values of a document with integers as text that a page, whose numbers have 53 bits, would change."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: exact(item, depth + 1) for key, item in value.items()}
    return [exact(item, depth + 1) for item in value] if isinstance(value, list) else value


def _array(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the items of an array, which a page decodes as a typed array."""
    plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return {"dtype": plain.dtype.str, "shape": list(plain.shape), "data": base64.b64encode(plain.tobytes()).decode()}
