"""Message and metadata of a commit, checked and encoded."""

from __future__ import annotations

from typing import Any

from arraystore._format.derivation import RESERVED, Derivation
from arraystore._format.record import MAX_MESSAGE, MAX_METADATA, encode_note
from arraystore.errors import InvalidInputError

_DEEPEST = 32
"""Levels to which JSON values of the metadata may be nested."""


def check_note(
    message: Any, metadata: Any, defaults: dict[str, Any] | None = None, derivation: Derivation | None = None
) -> bytes:
    """Encode message and metadata of a commit, which override `defaults`; raises `InvalidInputError`."""
    if not isinstance(message, str):
        raise InvalidInputError(f"a commit message must be a string, not {type(message).__name__}")
    if metadata is None or isinstance(metadata, dict):
        metadata = {**(defaults or {}), **(metadata or {})}
    if not isinstance(metadata, dict) or not _is_json(metadata, _DEEPEST):
        raise InvalidInputError(
            f"commit metadata must be a dict with string keys and JSON values, nested at most {_DEEPEST} deep"
        )
    if RESERVED in metadata:
        raise InvalidInputError(f"commit metadata must not have the key {RESERVED!r}: use another one")
    if derivation is not None:
        metadata |= derivation.entries()
    if len(message.encode("utf-8", "surrogatepass")) > MAX_MESSAGE:
        raise InvalidInputError(f"the commit message must take at most {MAX_MESSAGE} bytes: shorten it")
    try:
        note = encode_note(message, metadata)
    except (ValueError, OverflowError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"message or metadata cannot be stored: {error}") from None
    if len(note) > MAX_MESSAGE + MAX_METADATA:
        raise InvalidInputError(
            f"the commit metadata must take at most {MAX_METADATA} bytes: keep what is larger in an array"
        )
    return note


def _is_json(value: Any, depth: int) -> bool:
    if depth < 0:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_json(item, depth - 1) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return -(1 << 63) <= value < 1 << 64
    return value is None or isinstance(value, str | bool | float)
