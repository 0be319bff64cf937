"""Verification of chunks of packs against the checksums that follow them."""

from __future__ import annotations

from arraystore._format.pack import CHECKSUM_BYTES, is_sound
from arraystore.errors import ChunkDamagedError
from arraystore.storage.protocol import BytesLike

_LARGEST_WHOLE = 1 << 16
"""Bytes that cost less than the request that brings them, half a millisecond's worth."""


def read_whole(length: int, start: int, stop: int) -> bool:
    """Tell whether a part of a chunk is read with the rest, so that it can be verified."""
    return length <= _LARGEST_WHOLE or 2 * (stop - start) >= length


def checked(key: str, seed: int, offset: int, framed: BytesLike, start: int = 0, stop: int | None = None) -> memoryview:
    """Return a part of a chunk, the whole by default, after verifying the checksum that was read with it."""
    part = sound_part(seed, offset, framed, start, stop)
    if part is None:
        raise ChunkDamagedError(key, offset, len(framed) - CHECKSUM_BYTES)
    return part


def sound_part(seed: int, offset: int, framed: BytesLike, start: int, stop: int | None) -> memoryview | None:
    """Return a part of a chunk as `checked` does; None for a chunk that does not match its checksum."""
    if not is_sound(seed, offset, framed):
        return None
    return memoryview(framed)[start : -CHECKSUM_BYTES if stop is None else stop]
