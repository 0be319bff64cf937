"""Change payloads: compact encoding of the change sets of forks.

A payload lists cells in parts, one per fork and array.  All references are in consecutive one-dimensional manifests,
sorted by pack and offset, so that most offsets follow from the preceding length; a column maps each reference to its
cell.  A reference therefore takes little more than its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.box import Box
from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ForkId, NodeId
from arraystore._format.layer import read_id
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
from arraystore.errors import FormatError

__all__ = ["ChangePayload", "ForkChanges", "Part", "decode_changes", "encode_changes"]


@dataclass(frozen=True)
class ForkChanges:
    """Changes of one fork, except chunks."""

    fork: ForkId
    """Id of the fork."""
    epoch: int
    """Number of the fork among those of its session."""
    number: int
    """Version of its changes; a later one includes all earlier ones."""
    nodes: tuple[NodeChange, ...] = ()
    """Node changes, in order."""
    reads: bytes = b""
    """Encoded read set of a serializable session; empty if unknown."""


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


def encode_changes(payload: ChangePayload) -> bytes:
    """Encode a payload; raises `FormatError` above a reader's limits."""
    forks = tuple(
        (item.fork, item.epoch, item.number, tuple(node.to_wire() for node in item.nodes), item.reads)
        for item in payload.forks
    )
    body = (
        payload.session,
        forks,
        payload.arrays,
        tuple(part.to_wire() for part in payload.parts),
        _encode_order(payload.order),
        tuple(manifest_to_wire(manifest) for manifest in payload.manifests),
    )
    return encode_object(Kind.CHANGES, pack_body(body))


def decode_changes(name: str, data: bytes | bytearray | memoryview) -> ChangePayload:
    """Decode an untrusted payload; raises `FormatError`."""
    body = read_object(name, Kind.CHANGES, data)
    session, forks, arrays, parts, order, manifests = read_tuple(name, body, bytes, tuple, tuple, tuple, bytes, tuple)
    decoded = _read_manifests(name, manifests)
    count = sum(manifest.count for manifest in decoded)
    payload = ChangePayload(
        read_id(name, session),
        tuple([_read_fork(name, item) for item in forks]),
        tuple([_read_array(name, item) for item in arrays]),
        _read_parts(name, parts, count, len(forks), len(arrays)),
        _decode_order(name, order, count),
        decoded,
    )
    if not payload.forks:
        raise FormatError(name, "a payload must have at least one fork")
    if len({item.fork for item in payload.forks}) < len(forks) or len({node for node, _ in payload.arrays}) < len(
        arrays
    ):
        raise FormatError(name, "a fork or an array is listed twice")
    return payload


def _encode_order(order: Int64s | None) -> bytes:
    """Encode cell numbers as differences from the predecessor plus one."""
    if order is None:
        return b""
    steps = np.diff(order, prepend=np.int64(-1)) - 1
    return encode_column((steps << 1) ^ (steps >> 63))


def _decode_order(name: str, column: bytes, count: int) -> Int64s | None:
    if not column:
        return None
    zigzag = decode_column(f"{name}: order", column, count)
    order: Int64s = np.cumsum(((zigzag >> 1) ^ -(zigzag & 1)) + 1) - 1
    if count and (int(order.min()) < 0 or int(order.max()) >= count):
        raise FormatError(name, "the cell of a reference is out of range")
    seen = np.zeros(count, dtype=bool)
    seen[order] = True
    if not bool(seen.all()):
        raise FormatError(name, "two references have the same cell")
    return order


def _read_manifests(name: str, manifests: tuple[Any, ...]) -> tuple[Manifest, ...]:
    """Decode manifests that cover positions from 0 without a gap."""
    decoded: list[Manifest] = []
    end = 0
    for value in manifests:
        manifest = manifest_from_wire(name, value)
        if manifest.box.low != (end,) or manifest.index is not None:
            raise FormatError(name, "a manifest must begin where the preceding one ends")
        end += manifest.count
        decoded.append(manifest)
    return tuple(decoded)


def _read_fork(name: str, value: Any) -> ForkChanges:
    fork, epoch, number, nodes, reads = read_tuple(name, value, bytes, int, int, tuple, bytes)
    if epoch < 0 or number < 0:
        raise FormatError(name, "the numbers of a fork must be >= 0")
    return ForkChanges(
        ForkId(read_id(name, fork)), epoch, number, tuple([NodeChange.from_wire(name, node) for node in nodes]), reads
    )


def _read_array(name: str, value: Any) -> tuple[NodeId, str]:
    node, path = read_tuple(name, value, bytes, str)
    return NodeId(read_id(name, node)), check_path(name, path, NodeKind.ARRAY)


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
