"""Change payloads: what forks send home, compactly.

A payload speaks of cells, which it lists in parts: one a fork and array.  All their references stand in manifests of
one dimension, one after the other, sorted by pack and offset, where an offset follows from the length before it; a
column tells which cell each of them belongs to.  So a reference takes hardly more than its length does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.box import Box
from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
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
    """What one fork changed, besides chunks.

    Parameters
    ----------
    fork
        Its id.
    epoch
        When it was taken: number among the forks of its session.
    number
        Of this state of its changes; a later one holds all that those before it held.
    nodes
        Changes of nodes, in the order in which they apply.
    reads
        What it has read, encoded, where the session is serializable; empty where nothing is known of it.
    """

    fork: bytes
    epoch: int
    number: int
    nodes: tuple[NodeChange, ...] = ()
    reads: bytes = b""


@dataclass(frozen=True, eq=False)
class Part:
    """Cells of one array that one fork wrote or deleted.

    Parameters
    ----------
    fork, array
        Index in the lists of the payload.
    box
        Around the cells.
    index
        Numbers of the cells in the box, ascending; None for all of them.
    """

    fork: int
    array: int
    box: Box
    index: Int64s | None

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.box.volume if self.index is None else len(self.index)

    def numbers(self) -> Int64s:
        """Return the numbers of the cells in the box, ascending."""
        return np.arange(self.box.volume, dtype=np.int64) if self.index is None else self.index

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        presence, data = encode_presence(self.box, self.index, self.count)
        return (self.fork, self.array, *self.box.to_wire(), self.count, presence, data)


@dataclass(frozen=True, eq=False)
class ChangePayload:
    """Changes of one or more forks of one session.

    Parameters
    ----------
    session
        Id of the session.
    forks
        The forks; of two that wrote the same thing, the later one counts where that is allowed.
    arrays
        Id and path of each array or file that they wrote to.
    parts
        The cells that they wrote or deleted; together they are numbered from 0.
    order
        For each reference the number of its cell; None where references stand in the order of the cells.
    manifests
        The references, over places from 0.
    """

    session: bytes
    forks: tuple[ForkChanges, ...]
    arrays: tuple[tuple[bytes, str], ...] = ()
    parts: tuple[Part, ...] = ()
    order: Int64s | None = None
    manifests: tuple[Manifest, ...] = ()


def encode_changes(payload: ChangePayload) -> bytes:
    """Return the bytes of a payload.

    Raises
    ------
    FormatError
        If it holds more than a reader accepts.
    """
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
    """Read a payload, which may come from anywhere; raises `FormatError`."""
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
        raise FormatError(name, "changes of no fork")
    if len({item.fork for item in payload.forks}) < len(forks) or len({node for node, _ in payload.arrays}) < len(
        arrays
    ):
        raise FormatError(name, "a fork or an array is listed twice")
    return payload


def _encode_order(order: Int64s | None) -> bytes:
    """Encode what each number differs from the one that follows the number before it."""
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
        raise FormatError(name, "a reference belongs to no cell")
    met = np.zeros(count, dtype=bool)
    met[order] = True
    if not bool(met.all()):
        raise FormatError(name, "two references belong to one cell")
    return order


def _read_manifests(name: str, manifests: tuple[Any, ...]) -> tuple[Manifest, ...]:
    """Read manifests that fill places from 0 without a gap."""
    decoded: list[Manifest] = []
    end = 0
    for value in manifests:
        manifest = manifest_from_wire(name, value)
        if manifest.box.low != (end,) or manifest.index is not None:
            raise FormatError(name, "a manifest does not go on where the one before it ends")
        end += manifest.count
        decoded.append(manifest)
    return tuple(decoded)


def _read_fork(name: str, value: Any) -> ForkChanges:
    fork, epoch, number, nodes, reads = read_tuple(name, value, bytes, int, int, tuple, bytes)
    if epoch < 0 or number < 0:
        raise FormatError(name, "a fork has a negative number")
    return ForkChanges(
        read_id(name, fork), epoch, number, tuple([NodeChange.from_wire(name, node) for node in nodes]), reads
    )


def _read_array(name: str, value: Any) -> tuple[bytes, str]:
    node, path = read_tuple(name, value, bytes, str)
    return read_id(name, node), check_path(name, path, NodeKind.ARRAY)


def _read_parts(name: str, values: tuple[Any, ...], count: int, forks: int, arrays: int) -> tuple[Part, ...]:
    """Read parts of `count` cells together; so much is bounded before their cells are decoded."""
    parts: list[Part] = []
    left = count
    for value in values:
        fork, array, low, high, size, presence, data = read_tuple(name, value, int, int, tuple, tuple, int, int, bytes)
        box = Box.from_wire(name, (low, high))
        if not (0 <= fork < forks and 0 <= array < arrays and 0 < size <= min(left, box.volume)):
            raise FormatError(name, "a part of a fork or array that is not listed, or with more cells than references")
        left -= size
        parts.append(Part(fork, array, box, decode_presence(name, box, size, presence, data)))
    if left:
        raise FormatError(name, f"{left} references belong to no cell")
    return tuple(parts)
