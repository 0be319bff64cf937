"""Statistics of chunks: least and greatest value and counts, each bound to the bytes that it was computed from.

An object belongs to a layer, whose id it is stored under, and is named by nothing: who does not know it ignores it, and
who does not find it reads the chunks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import LayerId, PackId, id_to_text
from arraystore._format.references import VIRTUAL, References
from arraystore._format.types import Array, Bools, Int64s
from arraystore._format.wire import read_ids, read_tuple
from arraystore.errors import FormatError

DIGEST_BYTES = 8
MOST_ROWS = 1 << 20
"""Most references of a manifest."""

_DECIDING = {
    "zarr.json": ("data_type", "codecs", "chunk_grid", "fill_value"),
    ".zarray": ("dtype", "filters", "compressor", "order", "chunks", "fill_value"),
}
"""Members of the metadata that decide which values the bytes of a chunk mean."""

VALUE_TYPES = {"i": np.dtype("<i8"), "u": np.dtype("<u8"), "f": np.dtype("<f8")}
"""Type of least and greatest values, by kind: every value of the array is one of it exactly."""


def statistics_key(layer: LayerId) -> str:
    """Return the key of the statistics of a layer's chunks."""
    return "statistics/" + id_to_text(layer)


def value_kind(dtype: np.dtype[Any]) -> str | None:
    """Return the kind under which the values of an array are kept; None for types without statistics."""
    if dtype.kind == "b":
        return "i"
    exact = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize <= VALUE_TYPES["f"].itemsize)
    return dtype.kind if exact else None


def digest_of_encoding(documents: Mapping[str, bytes]) -> bytes | None:
    """Return the digest of what an array's metadata says of the meaning of its bytes.

    None where documents of both Zarr versions could say two things.
    """
    named = [name for name in _DECIDING if name in documents]
    if len(named) != 1:
        return None
    document = json.loads(documents[named[0]])
    deciding = {name: document.get(name) for name in _DECIDING[named[0]]}
    text = json.dumps([named[0], deciding], sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, eq=False)
class ChunkStatistics:
    """Statistics of chunks of one array in packs; columns of one row a chunk."""

    encoding: bytes
    """Digest of the metadata under which the values were computed."""
    kind: str
    """Kind of the values: signed and unsigned integers, and floats."""
    packs: tuple[PackId, ...]
    source: Int64s
    """Index into `packs`."""
    offset: Int64s
    length: Int64s
    least: Array
    """Least value that is neither NaN nor the fill value; 0 where there is none."""
    greatest: Array
    """Greatest such value."""
    nans: Int64s
    """Count of NaN, the fill value or not."""
    fills: Int64s
    """Count of values that equal the fill value, NaN aside."""
    valued: Bools
    """Whether there is a least and a greatest value."""

    def __len__(self) -> int:
        return len(self.source)

    def take(self, at: Any) -> ChunkStatistics:
        """Return only some rows."""
        names = ("source", "offset", "length", "least", "greatest", "nans", "fills", "valued")
        return replace(self, **{name: getattr(self, name)[at] for name in names})

    def rows_of(self, references: References) -> Int64s:
        """Return the row of each reference, by pack, offset and length; -1 where there is none."""
        numbers = {pack: number for number, pack in enumerate(self.packs)}
        table = np.array([*(numbers.get(pack, -1) for pack in references.packs), -1], dtype=np.int64)
        native = (references.source >= 0) & (references.source < VIRTUAL)
        source = table[np.where(native, references.source, -1)]
        return _match((self.source, self.offset, self.length), (source, references.offset, references.length))

    def pieces(self) -> list[ChunkStatistics]:
        """Return tables of no more rows than one may have."""
        return [self.take(slice(first, first + MOST_ROWS)) for first in range(0, len(self), MOST_ROWS)]

    def bound_to(self, references: References) -> ChunkStatistics | None:
        """Return the rows of some references alone, with the packs that these name; None if there are none."""
        return self.moved(references, references)

    def moved(self, before: References, after: References) -> ChunkStatistics | None:
        """Return the rows of chunks that were copied: of `before`, under the places that `after` has for them."""
        rows = self.rows_of(before)
        there = rows >= 0
        return self.take(rows[there])._placed_at(after, there) if bool(there.any()) else None

    def _placed_at(self, references: References, there: Bools) -> Self:
        used, source = np.unique(references.source[there], return_inverse=True)
        packs = tuple([references.packs[number] for number in used.tolist()])
        offset, length = references.offset[there], references.length[there]
        return replace(self, packs=packs, source=source.astype(np.int64), offset=offset, length=length)

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        kind = VALUE_TYPES[self.kind]
        columns = (self.source, self.offset, self.length, self.nans, self.fills, self.valued.astype(np.int64))
        values = [_shuffle(column.astype(kind)) for column in (self.least, self.greatest)]
        return (self.encoding, self.kind, len(self), b"".join(self.packs), *map(encode_column, columns), *values)

    @classmethod
    def from_wire(cls, name: str, value: Any) -> Self:
        """Decode untrusted columns; raises `FormatError`."""
        encoding, kind, count, packs, *columns, least, greatest = read_tuple(
            name, value, bytes, str, int, read_ids, *[bytes] * 8
        )
        if len(encoding) != DIGEST_BYTES or kind not in VALUE_TYPES or not 0 <= count <= MOST_ROWS:
            raise FormatError(name, "statistics must have a digest, a known kind of values, and at most 1,048,576 rows")
        low, high = [_read_values(name, column, count, VALUE_TYPES[kind]) for column in (least, greatest)]
        most = (len(packs) - 1, *[(1 << 62) - 1] * 4, 1)
        if count and not packs:
            raise FormatError(name, "statistics of chunks must name their packs")
        read = [decode_column(name, column, count, max(top, 0)) for column, top in zip(columns, most, strict=True)]
        source, offset, length, nans, fills, valued = read
        if bool(np.isnan(low).any() or np.isnan(high).any()):
            raise FormatError(name, "least and greatest values must not be NaN")
        there = valued.astype(np.bool_)
        return cls(encoding, kind, packs, source, offset, length, low, high, nans, fills, there)


def _match(known: Sequence[Int64s], wanted: Sequence[Int64s]) -> Int64s:
    """Return for each wanted row of columns the known row that equals it, -1 for none."""
    columns = [np.concatenate(pair) for pair in zip(known, wanted, strict=True)]
    count, total = len(known[0]), len(columns[0])
    order = np.lexsort(columns)
    differs = np.zeros(total, dtype=np.bool_)
    for column in columns:
        differs[1:] |= column[order][1:] != column[order][:-1]
    group = np.empty(total, dtype=np.int64)
    group[order] = np.cumsum(differs)
    rows = np.full(total + 1, -1, dtype=np.int64)
    rows[group[:count]] = np.arange(count)
    return rows[group[count:]]


def _shuffle(column: Array) -> bytes:
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, 8).T.tobytes()


def _read_values(name: str, column: bytes, count: int, kind: np.dtype[Any]) -> Array:
    if len(column) != 8 * count:
        raise FormatError(name, f"a column of {count} values must have {8 * count} bytes")
    planes = np.frombuffer(column, dtype=np.uint8).reshape(8, count)
    return np.ascontiguousarray(planes.T).reshape(-1).view(kind)


def combine_statistics(tables: Sequence[ChunkStatistics], encoding: bytes | None) -> ChunkStatistics | None:
    """Return all rows that were computed under an encoding as one table; None if there are none."""
    same = [table for table in tables if table.encoding == encoding]
    same = [table for table in same if table.kind == same[0].kind]
    if len(same) < 2:
        return same[0] if same else None
    packs: dict[PackId, int] = {}
    numbers = [
        np.array([packs.setdefault(pack, len(packs)) for pack in table.packs], dtype=np.int64)[table.source]
        for table in same
    ]
    others = ("offset", "length", "least", "greatest", "nans", "fills", "valued")
    columns: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in same]) for name in others}
    return replace(same[0], packs=tuple(packs), source=np.concatenate(numbers), **columns)


def encode_statistics(key: str, statistics: ChunkStatistics) -> bytes:
    """Encode the statistics of a layer as the object of a key."""
    return encode_object(Kind.STATISTICS, pack_body(statistics.to_wire()), key)


def decode_statistics(key: str, data: bytes | bytearray | memoryview) -> ChunkStatistics:
    """Decode the statistics of a layer; raises `FormatError`."""
    return ChunkStatistics.from_wire(key, read_object(key, Kind.STATISTICS, data, key))
