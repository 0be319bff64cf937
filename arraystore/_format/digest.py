"""Digests of logs: each record names the digest of all records before it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from arraystore.errors import FormatError

DIGEST_BYTES = 8


def log_start(repository: bytes, branch: str) -> bytes:
    """Return the digest of an empty log, named by the first record."""
    return chained(repository, branch.encode())


def chained(before: bytes, body: bytes) -> bytes:
    """Return the digest of a log with one more entry.

    Eight bytes suffice: digests are only compared with those of the few candidates for one position, and forging one
    gains nothing, since whoever can write to a log can write all of it.
    """
    return blake2b(before + body, digest_size=DIGEST_BYTES).digest()


def read_digest(name: str, value: Any) -> bytes:
    """Check that a value is a digest; raises `FormatError`."""
    if type(value) is not bytes or len(value) != DIGEST_BYTES:
        raise FormatError(name, f"a digest must have {DIGEST_BYTES} bytes")
    return value
