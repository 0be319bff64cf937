"""Chunks and documents that references of kerchunk have inlined."""

from __future__ import annotations

import base64
import binascii

from arraystore.virtual.errors import VirtualizeError

_BASE64 = b"base64:"


def decode_inline(value: str | bytes) -> bytes:
    """Return the bytes of an inlined reference."""
    text = value.encode() if isinstance(value, str) else value
    if not text.startswith(_BASE64):
        return text
    try:
        return base64.b64decode(text[len(_BASE64) :], validate=True)
    except binascii.Error as error:
        raise VirtualizeError(f"an inlined reference is not valid base64: {error}") from None
