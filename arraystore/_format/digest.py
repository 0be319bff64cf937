"""Digests of logs: each record names all that came before it."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "chained", "log_start"]

DIGEST_BYTES = 8


def log_start(repository: bytes, branch: str) -> bytes:
    """Return the digest of a log without records: what the first one has before it."""
    return chained(repository, branch.encode())


def chained(before: bytes, body: bytes) -> bytes:
    """Return the digest of a log with one more entry.

    Eight bytes: they are compared only with those of the few records that may stand in one place, and nobody gains
    anything by forging them, since whoever can write to the log can write a whole one.
    """
    return blake2b(before + body, digest_size=DIGEST_BYTES).digest()
