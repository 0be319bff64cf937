"""Manifests: immutable, columnar tables of chunk references of one array.

A manifest covers a box of chunk-grid coordinates.  The cells of the box are numbered in row-major order; `index`
holds the numbers of the cells that have a reference, or is None if all have one.  Look-ups and unions are numpy
operations on whole columns; there is no Python object per reference.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.box import Box
from arraystore._format.columns import decode_column, encode_column, from_zigzag, narrow, to_zigzag
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import ID_BYTES, PackId, id_to_text
from arraystore._format.locations import NO_LOCATIONS, Locations
from arraystore._format.pack import pack_seed, padded_size
from arraystore._format.types import Int64s
from arraystore._format.wire import read_tuple
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

MAX_REFERENCES = 1 << 20
"""Maximum number of references that a reader accepts in one manifest."""

_CELLS_PER_BIT = 16
"""Cells per reference up to which a bitmap is used; beyond, an index is smaller."""

MAX_REACH = 1 << 62
"""Exclusive limit of the end of a chunk in its object, so that zigzag differences of offsets fit 63 bits."""

_FEW = 16
"""References up to which offsets are summed up one by one: a small commit has a few, and arrays take 75 µs for any."""

_SIGN = 1 << 63

_DENSE, _BITMAP, _INDEX = 0, 1, 2

Column = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Manifest:
    """Chunk references of one array within a box."""

    box: Box
    """Covered box in chunk-grid coordinates, before the shift of the layer."""
    index: Int64s | None
    """Numbers of the cells with a reference, ascending; None for all cells."""
    source: Column
    """Source of each reference: a pack, then a virtual location, then `inline_source`, then `deleted_source`."""
    offset: Column
    length: Column
    """Byte range of each reference in its pack, in the object at its location, or in `inline`."""
    packs: bytes = b""
    """Concatenated ids of the packs."""
    locations: Locations = NO_LOCATIONS
    """Virtual locations."""
    inline: bytes = b""
    """Bytes of the inlined chunks."""

    @property
    def count(self) -> int:
        """Number of references, deletions included."""
        return len(self.source)

    @cached_property
    def pack_count(self) -> int:
        """Number of packs."""
        return len(self.packs) // ID_BYTES

    @cached_property
    def inline_source(self) -> int:
        """Value of `source` for inlined chunks."""
        return self.pack_count + len(self.locations)

    @cached_property
    def deleted_source(self) -> int:
        """Value of `source` for deleted chunks."""
        return self.inline_source + 1

    @cached_property
    def pack_keys(self) -> list[str]:
        """Storage keys of the packs."""
        return ["chunks/" + id_to_text(self.pack_id(i)) for i in range(self.pack_count)]

    @cached_property
    def pack_seeds(self) -> list[int]:
        """Initial checksums of the chunks of each pack."""
        return [pack_seed(self.pack_id(i)) for i in range(self.pack_count)]

    @cached_property
    def extents(self) -> Int64s:
        """Known size of each pack: the end of its last referenced chunk, with its checksum."""
        ends = np.zeros(self.pack_count, dtype=np.int64)
        native = self.source < self.pack_count
        reach = self.offset.astype(np.int64)[native] + padded_size(self.length.astype(np.int64)[native])
        np.maximum.at(ends, self.source[native], reach)
        return ends

    @property
    def nbytes(self) -> int:
        """Memory of the columns in bytes."""
        index = 0 if self.index is None else self.index.nbytes
        tables = len(self.packs) + len(self.locations.suffixes) + len(self.locations.etags) + 32 * len(self.locations)
        return index + self.source.nbytes + self.offset.nbytes + self.length.nbytes + len(self.inline) + tables

    def pack_id(self, i: int) -> PackId:
        """Return the id of pack `i`."""
        return PackId(self.packs[i * ID_BYTES : (i + 1) * ID_BYTES])

    def find(self, coords: tuple[int, ...]) -> int:
        """Return the position of the reference of a cell, -1 if it has none."""
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
        """Return the numbers of all cells with a reference, ascending."""
        return np.arange(self.box.volume, dtype=np.int64) if self.index is None else self.index

    @cached_property
    def has_deletions(self) -> bool:
        """True if any reference is a deletion."""
        return bool((self.source == self.deleted_source).any())


def encode_presence(box: Box, index: Int64s | None, count: int) -> tuple[int, bytes]:
    """Encode the set of cells with a reference as an encoding and its data."""
    if index is None or count == box.volume:
        return _DENSE, b""
    if box.volume <= count * _CELLS_PER_BIT:
        bits = np.zeros(box.volume, dtype=bool)
        bits[index] = True
        return _BITMAP, np.packbits(bits).tobytes()
    return _INDEX, encode_column(index)


def decode_presence(name: str, box: Box, count: int, presence: int, data: bytes) -> Int64s | None:
    """Decode the numbers of the cells, ascending, None for all cells; raises `FormatError`."""
    if presence == _DENSE:
        if count != box.volume or data:
            raise FormatError(name, f"{count} references must fill the box of {box.volume} cells")
        return None
    if presence == _BITMAP:
        if box.volume > count * _CELLS_PER_BIT or len(data) != (box.volume + 7) // 8:
            raise FormatError(name, "a bitmap must have one bit per cell of the box")
        bits = np.frombuffer(data, dtype=np.uint8)
        if int(np.bitwise_count(bits).sum()) != count:  # before it is expanded 64-fold
            raise FormatError(name, "a bitmap must have one bit set per reference")
        index: Int64s = np.flatnonzero(np.unpackbits(bits)).astype(np.int64)
        if int(index[-1]) >= box.volume:
            raise FormatError(name, "a bitmap must not have bits beyond the box")
        return index
    if presence == _INDEX:
        index = decode_column(f"{name}: index", data, count, box.volume - 1)
        if count > 1 and int(np.diff(index).min()) <= 0:
            raise FormatError(name, "an index must be ascending")
        return index
    raise FormatError(name, f"unknown presence {presence}")


def _steps(source: Int64s, length: Int64s, packs: int) -> Int64s:
    """Return the expected difference to the next offset in the same source, in packs with the checksum."""
    return np.where(source < packs, padded_size(length), length)


def _encode_offsets(source: Int64s, offset: Int64s, length: Int64s, packs: int) -> bytes:
    """Encode offsets as differences from the end of the preceding reference of the same source."""
    expected = np.zeros_like(offset)
    same = source[1:] == source[:-1]
    expected[1:] = np.where(same, (offset + _steps(source, length, packs))[:-1], 0)
    return encode_column(to_zigzag(offset - expected))


def _decode_offsets(name: str, column: Any, source: Int64s, length: Int64s, packs: int) -> Int64s:
    residual = from_zigzag(decode_column(f"{name}: offsets", column, len(source)))
    if len(source) <= _FEW:
        return _sum_few_offsets(name, residual, source, length, packs)
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


def _sum_few_offsets(name: str, residual: Int64s, source: Int64s, length: Int64s, packs: int) -> Int64s:
    """Return offsets as `_decode_offsets` does, one by one."""
    offsets: list[int] = []
    expected, before = 0, -1
    for at, size, difference in zip(source.tolist(), length.tolist(), residual.tolist(), strict=True):
        offset = difference + (expected if at == before else 0)
        offset = (offset + _SIGN) % (2 * _SIGN) - _SIGN  # as 64-bit numbers wrap: the end of a chunk may be padded
        if not (offset >= 0 and size >= 0 and offset + size < MAX_REACH):
            raise FormatError(name, f"a reference reaches before byte 0 or past byte {MAX_REACH}")
        offsets.append(offset)
        expected, before = offset + (padded_size(size) if at < packs else size), at
    return np.array(offsets, dtype=np.int64)


def _within_reach(offset: Int64s, length: Int64s) -> bool:
    if not len(offset):
        return True
    least = min(int(offset.min()), int(length.min()))
    most = max(int(offset.max()), int(length.max()))
    return least >= 0 and most < MAX_REACH and int((offset + length).max()) < MAX_REACH


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest as an object; raises `FormatError` above a reader's limits."""
    return encode_object(Kind.MANIFEST, pack_body(manifest_to_wire(manifest)))


def manifest_to_wire(manifest: Manifest) -> tuple[Any, ...]:
    """Encode a manifest as a msgpack value; raises `FormatError` above a reader's limits."""
    count = manifest.count
    if not 0 < count <= MAX_REFERENCES:
        raise FormatError("new manifest", f"{count} references; a manifest must have 1 to {MAX_REFERENCES}")
    source = manifest.source.astype(np.int64)
    length = manifest.length.astype(np.int64)
    offset = manifest.offset.astype(np.int64)
    if not _within_reach(offset, _steps(source, length, manifest.pack_count)):  # offsets are told from padded ends
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
    """Decode a manifest; raises `FormatError`.

    `key` is its key if it is an object of its own, empty if it is part of a record.
    """
    return manifest_from_wire(name, read_object(name, Kind.MANIFEST, data, key))


def manifest_from_wire(name: str, value: Any) -> Manifest:
    """Decode the value of `manifest_to_wire`; raises `FormatError`."""
    wire_box, count, presence, present, packs, sources, offsets, lengths, wire_locations, inline = read_tuple(
        name, value, tuple, int, int, bytes, bytes, bytes, bytes, bytes, (tuple, type(None)), bytes
    )
    box = Box.from_wire(name, wire_box)
    if not 0 < count <= min(MAX_REFERENCES, box.volume):
        raise FormatError(name, f"{count} references in a box of {box.volume}; at most {MAX_REFERENCES} are allowed")
    if len(packs) % ID_BYTES:
        raise FormatError(name, "the table of packs is truncated")
    locations = NO_LOCATIONS if wire_locations is None else Locations.from_wire(name, wire_locations)
    pack_count = len(packs) // ID_BYTES
    deleted = pack_count + len(locations) + 1
    index = decode_presence(name, box, count, presence, present)
    source = decode_column(f"{name}: sources", sources, count, deleted)
    length = decode_column(f"{name}: lengths", lengths, count, MAX_REACH - 1)
    offset = _decode_offsets(name, offsets, source, length, pack_count)
    inlined = source == deleted - 1
    if bool(inlined.any()) and int((offset[inlined] + length[inlined]).max()) > len(inline):
        raise FormatError(name, "an inlined chunk reaches past the inlined bytes")
    return Manifest(box, index, narrow(source), narrow(offset), narrow(length), packs, locations, inline)
