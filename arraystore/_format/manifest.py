"""Manifests: immutable, columnar tables of chunk references of one array.

A manifest covers a box of chunk-grid coordinates.  The cells of the box are numbered in row-major order; `index`
holds the numbers of the cells that the manifest speaks of, or is None where it speaks of all of them.  Look-ups and
unions are numpy operations on whole columns; there is no Python object per reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.box import Box
from arraystore._format.columns import decode_column, encode_column, narrow
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, id_to_text
from arraystore._format.locations import NO_LOCATIONS, Locations
from arraystore._format.pack import pack_seed, padded_size
from arraystore._format.types import Int64s
from arraystore.errors import FormatError

__all__ = [
    "MAX_REACH",
    "MAX_REFERENCES",
    "Manifest",
    "decode_manifest",
    "decode_presence",
    "encode_manifest",
    "encode_presence",
    "manifest_from_wire",
    "manifest_to_wire",
]

MAX_REFERENCES = 1 << 20
"""Most references that a reader accepts in one manifest; it bounds what a hostile one can cost."""

_CELLS_PER_BIT = 16
"""A bitmap is used where at least one cell in 16 is spoken of; beyond, the index is smaller."""

MAX_REACH = 1 << 62
"""A chunk ends before this byte of its object, so that differences of offsets fit 63 bits with their sign."""

_DENSE, _BITMAP, _INDEX = 0, 1, 2

Column = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Manifest:
    """References of one array within a box.

    Parameters
    ----------
    box
        What it covers, in chunk-grid coordinates (before the shift of its layer).
    index
        Numbers of the cells that it speaks of, ascending; None for every cell of the box.
    source
        Per reference: a pack (``< len(packs)``), then a virtual location, then `inline_source`, then
        `deleted_source`.
    offset, length
        Per reference, bytes in the pack, in the object at the location, or in `inline`.
    packs
        Ids of the packs, 12 bytes each, one after the other.
    locations
        The virtual locations.
    inline
        Bytes of the inlined chunks.
    """

    box: Box
    index: Int64s | None
    source: Column
    offset: Column
    length: Column
    packs: bytes = b""
    locations: Locations = NO_LOCATIONS
    inline: bytes = b""

    @property
    def count(self) -> int:
        """Number of references, those that say "deleted" included."""
        return len(self.source)

    @cached_property
    def pack_count(self) -> int:
        """Number of packs."""
        return len(self.packs) // ID_BYTES

    @cached_property
    def inline_source(self) -> int:
        """Value of `source` that means inlined."""
        return self.pack_count + len(self.locations)

    @cached_property
    def deleted_source(self) -> int:
        """Value of `source` that means deleted."""
        return self.inline_source + 1

    @cached_property
    def pack_keys(self) -> list[str]:
        """Storage keys of the packs."""
        return ["chunks/" + id_to_text(self.pack_id(i)) for i in range(self.pack_count)]

    @cached_property
    def pack_seeds(self) -> list[int]:
        """What checksums of chunks begin with, per pack."""
        return [pack_seed(self.pack_id(i)) for i in range(self.pack_count)]

    @cached_property
    def extents(self) -> Int64s:
        """Per pack, how many of its bytes are known to exist: the end of its last chunk here, with its checksum."""
        ends = np.zeros(self.pack_count, dtype=np.int64)
        native = self.source < self.pack_count
        reach = self.offset.astype(np.int64)[native] + padded_size(self.length.astype(np.int64)[native])
        np.maximum.at(ends, self.source[native], reach)
        return ends

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the columns take."""
        index = 0 if self.index is None else self.index.nbytes
        texts = len(self.packs) + len(self.locations.suffixes) + len(self.locations.etags) + 32 * len(self.locations)
        return index + self.source.nbytes + self.offset.nbytes + self.length.nbytes + len(self.inline) + texts

    def pack_id(self, i: int) -> bytes:
        """Return the id of pack `i`."""
        return self.packs[i * ID_BYTES : (i + 1) * ID_BYTES]

    def find(self, coords: tuple[int, ...]) -> int:
        """Return the position of a cell's reference, -1 if the manifest does not speak of it."""
        box = self.box
        total = 0
        for c, low, high, stride in zip(coords, box.low, box.high, box.strides, strict=True):
            if c < low or c >= high:
                return -1
            total += (c - low) * stride
        if self.index is None:
            return total
        at = int(self.index.searchsorted(total))
        return at if at < len(self.index) and self.index[at] == total else -1

    def numbers(self) -> Int64s:
        """Return the numbers of all cells that it speaks of, ascending."""
        return np.arange(self.box.volume, dtype=np.int64) if self.index is None else self.index

    @cached_property
    def has_deletions(self) -> bool:
        """Whether a reference says "deleted"."""
        return bool((self.source == self.deleted_source).any())


def encode_presence(box: Box, index: Int64s | None, count: int) -> tuple[int, bytes]:
    """Encode which cells of a box are spoken of: the encoding, and its data."""
    if index is None or count == box.volume:
        return _DENSE, b""
    if box.volume <= count * _CELLS_PER_BIT:
        bits = np.zeros(box.volume, dtype=bool)
        bits[index] = True
        return _BITMAP, np.packbits(bits).tobytes()
    return _INDEX, encode_column(index)


def decode_presence(name: str, box: Box, count: int, presence: int, data: bytes) -> Int64s | None:
    """Return the numbers of the cells, ascending; None for all of them.  Raises `FormatError`."""
    if presence == _DENSE:
        if count != box.volume or data:
            raise FormatError(name, f"{count} references do not fill a box of {box.volume}")
        return None
    if presence == _BITMAP:
        if box.volume > count * _CELLS_PER_BIT or len(data) != (box.volume + 7) // 8:
            raise FormatError(name, "bitmap does not fit the box")
        bits = np.frombuffer(data, dtype=np.uint8)
        if int(np.bitwise_count(bits).sum()) != count:  # before they become 64 times as large
            raise FormatError(name, "bitmap does not hold the number of references announced")
        index: Int64s = np.flatnonzero(np.unpackbits(bits)).astype(np.int64)
        if int(index[-1]) >= box.volume:
            raise FormatError(name, "bitmap reaches past the box")
        return index
    if presence == _INDEX:
        index = decode_column(f"{name}: index", data, count, box.volume - 1)
        if count > 1 and int(np.diff(index).min()) <= 0:
            raise FormatError(name, "index is not ascending")
        return index
    raise FormatError(name, f"unknown presence {presence}")


def _steps(source: Int64s, length: Int64s, packs: int) -> Int64s:
    """Return how far behind a reference the next one of its source is expected: in packs, past its checksum."""
    return np.where(source < packs, padded_size(length), length)


def _encode_offsets(source: Int64s, offset: Int64s, length: Int64s, packs: int) -> bytes:
    """Encode what an offset differs from where the reference before it ends, where that is in the same source."""
    expected = np.zeros_like(offset)
    same = source[1:] == source[:-1]
    expected[1:] = np.where(same, (offset + _steps(source, length, packs))[:-1], 0)
    residual = offset - expected
    return encode_column((residual << 1) ^ (residual >> 63))


def _decode_offsets(name: str, column: Any, source: Int64s, length: Int64s, packs: int) -> Int64s:
    zigzag = decode_column(f"{name}: offsets", column, len(source))
    residual = (zigzag >> 1) ^ -(zigzag & 1)
    starts = np.ones(len(source), dtype=bool)
    starts[1:] = source[1:] != source[:-1]
    steps = residual.copy()
    steps[1:] += np.where(starts[1:], 0, _steps(source, length, packs)[:-1])
    sums = np.cumsum(steps)
    before = sums - steps
    offset: Int64s = sums - before[np.maximum.accumulate(np.where(starts, np.arange(len(source)), 0))]
    if not _within_reach(offset, length):
        raise FormatError(name, f"a reference reaches before byte 0 or past byte {MAX_REACH}")
    return offset


def _within_reach(offset: Int64s, length: Int64s) -> bool:
    if not len(offset):
        return True
    least = min(int(offset.min()), int(length.min()))
    most = max(int(offset.max()), int(length.max()))
    return least >= 0 and most < MAX_REACH and int((offset + length).max()) < MAX_REACH


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the object for a manifest; raises `FormatError` if it holds more than a reader accepts."""
    return encode_object(Kind.MANIFEST, pack_body(manifest_to_wire(manifest)))


def manifest_to_wire(manifest: Manifest) -> tuple[Any, ...]:
    """Return what goes into a body.

    Raises
    ------
    FormatError
        If it holds more than a reader accepts.
    """
    count = manifest.count
    if not 0 < count <= MAX_REFERENCES:
        raise FormatError("new manifest", f"{count} references; a manifest holds 1 to {MAX_REFERENCES}")
    source = manifest.source.astype(np.int64)
    length = manifest.length.astype(np.int64)
    offset = manifest.offset.astype(np.int64)
    if not _within_reach(offset, length):
        raise FormatError("new manifest", f"a reference reaches before byte 0 or past byte {MAX_REACH} of its object")
    presence, data = encode_presence(manifest.box, manifest.index, count)
    return (
        manifest.box.to_wire(),
        count,
        presence,
        data,
        manifest.packs,
        encode_column(source),
        _encode_offsets(source, offset, length, manifest.pack_count),
        encode_column(length),
        manifest.locations.to_wire() if len(manifest.locations) else None,
        manifest.inline,
    )


def decode_manifest(name: str, data: bytes | bytearray | memoryview, key: str = "") -> Manifest:
    """Read a manifest.

    Parameters
    ----------
    name
        Key of the object, for errors.
    data
        The whole object.
    key
        Its key, where it is an object of its own and not a part of a record.

    Raises
    ------
    FormatError
        If anything at all is wrong with it.
    """
    return manifest_from_wire(name, read_object(name, Kind.MANIFEST, data, key))


def manifest_from_wire(name: str, value: Any) -> Manifest:
    """Read what `manifest_to_wire` gave; raises `FormatError`."""
    wire_box, count, presence, present, packs, sources, offsets, lengths, wire_locations, inline = read_tuple(
        name, value, tuple, int, int, bytes, bytes, bytes, bytes, bytes, (tuple, type(None)), bytes
    )
    box = Box.from_wire(name, wire_box)
    if not 0 < count <= min(MAX_REFERENCES, box.volume):
        raise FormatError(name, f"{count} references in a box of {box.volume}; at most {MAX_REFERENCES} are allowed")
    if len(packs) % ID_BYTES:
        raise FormatError(name, "the table of packs holds a part of an id")
    locations = NO_LOCATIONS if wire_locations is None else Locations.from_wire(name, wire_locations)
    pack_count = len(packs) // ID_BYTES
    deleted = pack_count + len(locations) + 1
    index = decode_presence(name, box, count, presence, present)
    source = decode_column(f"{name}: sources", sources, count, deleted)
    length = decode_column(f"{name}: lengths", lengths, count, MAX_REACH - 1)
    offset = _decode_offsets(name, offsets, source, length, pack_count)
    inlined = source == deleted - 1
    if bool(inlined.any()) and int((offset[inlined] + length[inlined]).max()) > len(inline):
        raise FormatError(name, "an inlined chunk reaches past the bytes that there are")
    return Manifest(box, index, narrow(source), narrow(offset), narrow(length), packs, locations, inline)
