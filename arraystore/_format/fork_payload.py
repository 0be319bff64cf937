"""Change payloads: compact encoding of the change sets of forks.

A payload lists cells in parts, one per fork and array.  All references are in consecutive one-dimensional manifests,
sorted by pack and offset, so that most offsets follow from the preceding length; a column maps each reference to its
cell.  A reference therefore takes little more than its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from arraystore._format.box import Box
from arraystore._format.chunk_statistics import ChunkStatistics
from arraystore._format.columns import decode_column, encode_column, from_zigzag, to_zigzag
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import ForkId, NodeId
from arraystore._format.manifest import (
    Manifest,
    decode_presence,
    encode_presence,
    manifest_from_wire,
    manifest_to_wire,
)
from arraystore._format.node import NodeKind, check_path
from arraystore._format.transaction import NodeChange
from arraystore._format.types import Int64s
from arraystore._format.wire import Number, Wire, read_id, read_number, read_tuple, tuple_of
from arraystore._format.zarr_changes import DECODING_BYTES
from arraystore.errors import FormatError

_MOST_MEASURED = 1 << 22
"""Chunks above which what is known of them is left out, so that it never is what makes a payload too large."""


def _read_parent(name: str, value: Any) -> Any:
    return read_tuple(name, value, read_id, read_number)


def _read_decoding(name: str, value: Any) -> bytes:
    if type(value) is not bytes or len(value) not in (0, DECODING_BYTES):
        raise FormatError(name, f"the digest of a decoding must have {DECODING_BYTES} bytes, or none for a file")
    return value


def _read_cut(name: str, value: Any) -> Any:
    return None if value is None else tuple_of(read_number)(name, value)


@dataclass(frozen=True)
class WrittenArray(Wire):
    """An array or file of which a fork has written or deleted chunks, as the fork saw it."""

    node: NodeId
    """Id of the array."""
    decoding: Annotated[bytes, _read_decoding]
    """Digest of how its chunks are decoded (see `arraystore._format.zarr_changes.decoding_digest`); empty for a file.
    """
    cut: Annotated[tuple[int, ...] | None, _read_cut] = None
    """Grid to which the fork had shrunk it in between (see `ArrayChanges.visible`); None if it had not."""


@dataclass(frozen=True)
class ForkChanges(Wire):
    """Changes of one fork, except chunks."""

    fork: ForkId
    """Id of the fork."""
    epoch: Number
    """Number of the fork among those of its session."""
    number: Number
    """Version of its changes; a later one includes all earlier ones."""
    nodes: tuple[NodeChange, ...] = ()
    """Node changes, in order."""
    reads: bytes = b""
    """Encoded read set of a serializable session; empty if unknown."""
    parents: Annotated[tuple[tuple[ForkId, int], ...], tuple_of(_read_parent)] = ()
    """Forks that it was forked from, that of the session first, each with its number among the forks of that one."""
    arrays: tuple[WrittenArray, ...] = ()
    """Arrays that it has written to."""

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value, without parents and arrays where there are none."""
        values = super().to_wire()
        return values if self.arrays else values[:-1] if self.parents else values[:-2]

    @classmethod
    def from_wire(cls, name: str, value: Any) -> Self:
        """Decode; raises `FormatError`."""
        missing = {5: ((), ()), 6: ((),)}.get(len(value), ()) if type(value) is tuple else ()
        return super().from_wire(name, (*value, *missing) if missing else value)


@dataclass(frozen=True, eq=False)
class Part:
    """Cells of one array written or deleted by one fork."""

    fork: int
    array: int
    """Indices in the lists of the payload."""
    box: Box
    """Bounding box of the cells."""
    index: Int64s | None
    """Numbers of the cells in the box, ascending; None for all cells."""

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.box.volume if self.index is None else len(self.index)

    def numbers(self) -> Int64s:
        """Return the numbers of the cells in the box, ascending."""
        return np.arange(self.box.volume, dtype=np.int64) if self.index is None else self.index

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        presence, data = encode_presence(self.box, self.index, self.count)
        return (self.fork, self.array, *self.box.to_wire(), self.count, presence, data)


@dataclass(frozen=True, eq=False)
class ChangePayload:
    """Changes of one or more forks of one session."""

    session: bytes
    """Id of the session."""
    forks: tuple[ForkChanges, ...]
    """Forks; where overlap is allowed, the later one wins."""
    arrays: tuple[tuple[NodeId, str], ...] = ()
    """Id and path of each array or file written to."""
    parts: tuple[Part, ...] = ()
    """Cells written or deleted, numbered consecutively from 0."""
    order: Int64s | None = None
    """Number of the cell of each reference; None if references are in the order of the cells."""
    manifests: tuple[Manifest, ...] = ()
    """References, at positions from 0."""
    statistics: tuple[ChunkStatistics, ...] = ()
    """What is known of the chunks that are referred to, and perhaps of others."""


def encode_changes(payload: ChangePayload) -> bytes:
    """Encode a payload; raises `FormatError` above a reader's limits."""
    manifests = tuple(map(manifest_to_wire, payload.manifests))
    parts = tuple(part.to_wire() for part in payload.parts)
    body = (payload.session, payload.forks, payload.arrays, parts, _encode_order(payload.order), manifests)
    measured = sum(map(len, payload.statistics)) <= _MOST_MEASURED
    known = tuple(table.to_wire() for table in payload.statistics) if measured else ()
    return encode_object(Kind.CHANGES, pack_body((*body, known) if known else body))


def decode_changes(name: str, data: bytes | bytearray | memoryview) -> ChangePayload:
    """Decode an untrusted payload; raises `FormatError`."""
    body = read_object(name, Kind.CHANGES, data)
    if type(body) is tuple and len(body) == 6:
        body = (*body, ())
    readers = (read_id, tuple_of(ForkChanges.from_wire), tuple_of(_read_array), tuple, bytes, _read_manifests)
    session, forks, arrays, parts, order, manifests, statistics = read_tuple(
        name, body, *readers, tuple_of(ChunkStatistics.from_wire)
    )
    count = sum(manifest.count for manifest in manifests)
    cells = _read_parts(name, parts, count, len(forks), len(arrays))
    if not forks:
        raise FormatError(name, "a payload must have at least one fork")
    if len({item.fork for item in forks}) < len(forks) or len({node for node, _ in arrays}) < len(arrays):
        raise FormatError(name, "a fork or an array is listed twice")
    return ChangePayload(session, forks, arrays, cells, _decode_order(name, order, count), manifests, statistics)


def _encode_order(order: Int64s | None) -> bytes:
    """Encode cell numbers as differences from the predecessor plus one."""
    if order is None:
        return b""
    return encode_column(to_zigzag(np.diff(order, prepend=np.int64(-1)) - 1))


def _decode_order(name: str, column: bytes, count: int) -> Int64s | None:
    if not column:
        return None
    order: Int64s = np.cumsum(from_zigzag(decode_column(f"{name}: order", column, count)) + 1) - 1
    if count and (int(order.min()) < 0 or int(order.max()) >= count):
        raise FormatError(name, "the cell of a reference is out of range")
    seen = np.zeros(count, dtype=bool)
    seen[order] = True
    if not bool(seen.all()):
        raise FormatError(name, "two references have the same cell")
    return order


def _read_manifests(name: str, manifests: Any) -> tuple[Manifest, ...]:
    """Decode manifests that cover positions from 0 without a gap."""
    decoded: tuple[Manifest, ...] = tuple_of(manifest_from_wire)(name, manifests)
    end = 0
    for manifest in decoded:
        if manifest.box.low != (end,) or manifest.index is not None:
            raise FormatError(name, "a manifest must begin where the preceding one ends")
        end += manifest.count
    return decoded


def _read_array(name: str, value: Any) -> tuple[NodeId, str]:
    node, path = read_tuple(name, value, read_id, str)
    return node, check_path(name, path, NodeKind.ARRAY)


def _read_parts(name: str, values: tuple[Any, ...], count: int, forks: int, arrays: int) -> tuple[Part, ...]:
    """Decode parts of `count` cells in total, which bounds memory before their cells are decoded."""
    parts: list[Part] = []
    left = count
    for value in values:
        fork, array, low, high, size, presence, data = read_tuple(name, value, int, int, tuple, tuple, int, int, bytes)
        box = Box.from_wire(name, (low, high))
        if not (0 <= fork < forks and 0 <= array < arrays and 0 < size <= min(left, box.volume)):
            raise FormatError(
                name, "a part must name a listed fork and array, and have at most as many cells as there are references"
            )
        left -= size
        parts.append(Part(fork, array, box, decode_presence(name, box, size, presence, data)))
    if left:
        raise FormatError(name, f"{left} references have no cell")
    return tuple(parts)
