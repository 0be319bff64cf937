"""The layout of packs: each chunk is followed by its checksum, and begins at a multiple of eight bytes.

The checksum is a CRC-32C of the pack's id, of the chunk's offset and of its bytes, so that a chunk that stands in
another pack or at another place does not pass for the one that a reference means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from arraystore.storage.protocol import BytesLike

__all__ = ["CHECKSUM_BYTES", "is_sound", "pack_seed", "padded_size", "trailer"]

CHECKSUM_BYTES = 4
_ALIGNMENT = 8
"""What items of numpy's types of numbers are aligned for, at most."""

_ROUND_UP = CHECKSUM_BYTES + _ALIGNMENT - 1
_RESIDUE = 0x48674BC7
"""CRC-32C of any bytes that are followed by their own CRC-32C, little-endian."""

_Sizes = TypeVar("_Sizes", int, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]")


def padded_size(length: _Sizes) -> _Sizes:
    """Return how many bytes of a pack chunks of some lengths take, with their checksums and the zeros behind them."""
    return (length + _ROUND_UP) & -_ALIGNMENT


def pack_seed(pack: bytes) -> int:
    """Return what checksums of chunks in a pack begin with, from the pack's id."""
    return int(google_crc32c.value(pack))


def trailer(seed: int, offset: int, chunk: BytesLike) -> bytes:
    """Return what stands behind a chunk: its checksum, and zeros up to the beginning of the next one."""
    size = len(chunk)
    checksum: int = google_crc32c.extend(_placed(seed, offset), _readable(chunk))
    return checksum.to_bytes(padded_size(size) - size, "little")


def is_sound(seed: int, offset: int, framed: BytesLike) -> bool:
    """Tell whether a chunk, given with its checksum, is the one that was written to this place."""
    readable = framed if type(framed) is bytes else _readable(framed)  # called for each chunk that is read
    placed = google_crc32c.extend(seed, offset.to_bytes(8, "little"))
    return bool(google_crc32c.extend(placed, readable) == _RESIDUE)


def _placed(seed: int, offset: int) -> int:
    return int(google_crc32c.extend(seed, offset.to_bytes(8, "little")))


def _readable(data: BytesLike) -> bytes:
    """Return bytes in a form that the C function takes, without a copy."""
    return data if type(data) is bytes else np.frombuffer(data, dtype=np.uint8)  # type: ignore[return-value]
