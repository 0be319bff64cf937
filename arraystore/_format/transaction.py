"""Transaction logs: what one commit changed, enough to rebuild the snapshot and to detect conflicts exactly."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME, Box
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object, read_tuple
from arraystore._format.layer import Here, Layer, read_id
from arraystore._format.manifest import decode_presence, encode_presence
from arraystore._format.node import DOCUMENT_NAMES, Documents, NodeKind, check_path
from arraystore.errors import FormatError

__all__ = [
    "Append",
    "ChunkChange",
    "NodeChange",
    "Operation",
    "Presence",
    "TransactionLog",
    "decode_transaction",
    "encode_transaction",
    "read_log",
]

_DOCUMENT_NAMES = frozenset(DOCUMENT_NAMES)


class Operation(enum.IntEnum):
    """What happened to a node."""

    CREATED = 0
    UPDATED = 1
    DELETED = 2
    MOVED = 3
    APPENDED = 4


@dataclass(frozen=True)
class Append:
    """Growth of an array at its end along one dimension, wherever that end is by the time it is committed.

    Parameters
    ----------
    axis
        The dimension.
    start
        Length along it when the append was prepared, in items.
    items
        By how many items it grows.
    chunk
        Length of a chunk along it; `start` is a multiple of it.
    """

    axis: int
    start: int
    items: int
    chunk: int

    def shift(self, length: int, dimensions: int) -> tuple[int, ...]:
        """Return how far appended chunks move, in chunks, where an array of so many dimensions has this length."""
        steps = (length - self.start) // self.chunk
        return tuple([steps if axis == self.axis else 0 for axis in range(dimensions)])

    def to_wire(self) -> tuple[int, int, int, int]:
        """Return what goes into a body."""
        return (self.axis, self.start, self.items, self.chunk)

    @classmethod
    def from_wire(cls, name: str, value: Any) -> Append:
        """Read what `to_wire` gave; raises `FormatError`."""
        axis, start, items, chunk = read_tuple(name, value, int, int, int, int)
        if not (0 <= axis < MAX_DIMENSIONS and 0 <= start < MAX_VOLUME and 0 < items < MAX_VOLUME):
            raise FormatError(name, "an append along no dimension, or of no items")
        if not 0 < chunk < MAX_VOLUME or start % chunk:
            raise FormatError(name, "an append that does not start where a chunk does")
        return cls(axis, start, items, chunk)


@dataclass(frozen=True)
class NodeChange:
    """A change of one node.

    Parameters
    ----------
    operation
        What happened.
    id
        Of the node.
    path
        Where it is (before a move).
    kind
        What it is.
    documents
        CREATED: all of them.  UPDATED: those that changed, None for removed.
    target
        MOVED: the new path.
    append
        APPENDED: by how much it grows.
    """

    operation: Operation
    id: bytes
    path: str
    kind: NodeKind
    documents: dict[str, bytes | None]
    target: str | None = None
    append: Append | None = None

    def applied_to(self, documents: Documents) -> Documents:
        """Return the documents of the node after the change, given those before it."""
        merged = {**documents, **self.documents}
        return {name: document for name, document in merged.items() if document is not None}

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        rest = self.append.to_wire() if self.append is not None else self.target
        return (int(self.operation), self.id, self.path, int(self.kind), self.documents or None, rest)

    @classmethod
    def from_wire(cls, name: str, value: Any) -> NodeChange:
        """Read what `to_wire` gave; raises `FormatError`."""
        operation, identifier, path, kind, documents, rest = read_tuple(
            name, value, int, bytes, str, int, (dict, type(None)), (str, tuple, type(None))
        )
        try:
            operation, kind = Operation(operation), NodeKind(kind)
        except ValueError as error:
            raise FormatError(name, str(error)) from None
        documents = documents or {}
        if not _DOCUMENT_NAMES.issuperset(documents):
            raise FormatError(name, f"unknown metadata documents {sorted(map(repr, documents))[:8]}")
        if documents and (kind == NodeKind.FILE or operation not in (Operation.CREATED, Operation.UPDATED)):
            raise FormatError(name, "metadata documents of a file, or of a node that is deleted or moved")
        removable = operation == Operation.UPDATED
        for document in documents.values():
            if type(document) is not bytes and not (document is None and removable):
                raise FormatError(name, "a metadata document is no bytes")
        target = rest if type(rest) is str else None
        append = Append.from_wire(name, rest) if type(rest) is tuple else None
        if (target is not None) != (operation == Operation.MOVED):
            raise FormatError(name, "only a move has a target")
        if (append is not None) != (operation == Operation.APPENDED) or (append and kind != NodeKind.ARRAY):
            raise FormatError(name, "only an append of an array has a length")
        if target is not None:
            check_path(name, target, kind)
        return cls(operation, read_id(name, identifier), check_path(name, path, kind), kind, documents, target, append)


@dataclass(frozen=True)
class Presence:
    """Which cells of a box a layer speaks of; compact, exact."""

    box: Box
    count: int
    kind: int
    data: bytes

    @classmethod
    def of(cls, box: Box, index: npt.NDArray[np.int64] | None, count: int) -> Presence:
        """Encode the numbers of cells (None for all)."""
        return cls(box, count, *encode_presence(box, index, count))

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """Return the numbers of the cells, ascending; raises `FormatError`."""
        index = decode_presence(name, self.box, self.count, self.kind, self.data)
        return np.arange(self.box.volume, dtype=np.int64) if index is None else index


@dataclass(frozen=True)
class ChunkChange:
    """Chunks of one array that a transaction wrote or deleted: one layer.

    Parameters
    ----------
    node
        Id of the array.
    layer
        The layer that it put on top.
    presence
        Which cells: kind and data of a `Presence`; None where the layer is dense or its manifest is inline and
        tells itself.
    appended
        Whether these chunks belong to what the transaction appends to the array, and go where that ends up.
    """

    node: bytes
    layer: Layer
    presence: tuple[int, bytes] | None = None
    appended: bool = False

    def to_wire(self, record: Here | None) -> tuple[Any, ...]:
        """Return what goes into a body."""
        return (self.node, self.layer.to_wire(record), self.presence, self.appended)

    @classmethod
    def from_wire(cls, name: str, value: Any, record: Here | None) -> ChunkChange:
        """Read what `to_wire` gave; raises `FormatError`."""
        node, wire, presence, appended = read_tuple(name, value, bytes, tuple, (tuple, type(None)), bool)
        layer = Layer.from_wire(name, wire, record)
        if presence is not None:
            read_tuple(name, presence, int, bytes)
            decode_presence(name, layer.box, layer.count, *presence)
        elif layer.inline is None and not layer.dense:
            raise FormatError(name, "a sparse layer does not tell its cells")
        if appended and layer.shift is not None:
            raise FormatError(name, "an appended layer is shifted before it is appended")
        return cls(read_id(name, node), layer, presence, appended)


@dataclass(frozen=True)
class TransactionLog:
    """What one transaction changed; nodes in the order in which the changes apply."""

    nodes: tuple[NodeChange, ...] = ()
    chunks: tuple[ChunkChange, ...] = ()

    def to_wire(self, record: Here | None = None) -> tuple[Any, ...]:
        """Return what goes into a body; `record` is where it is written to."""
        return (tuple(n.to_wire() for n in self.nodes), tuple(c.to_wire(record) for c in self.chunks))


def read_log(name: str, value: Any, record: Here | None = None) -> TransactionLog:
    """Read what `TransactionLog.to_wire` gave; raises `FormatError`."""
    nodes, chunks = read_tuple(name, value, tuple, tuple)
    log = TransactionLog(
        tuple([NodeChange.from_wire(name, node) for node in nodes]),
        tuple([ChunkChange.from_wire(name, chunk, record) for chunk in chunks]),
    )
    grown = {change.id for change in log.nodes if change.append is not None}
    if len(grown) < sum(change.append is not None for change in log.nodes):
        raise FormatError(name, "appends to an array twice")
    if any(chunk.appended and chunk.node not in grown for chunk in log.chunks):
        raise FormatError(name, "appended chunks of an array that is not appended to")
    return log


def encode_transaction(key: str, log: TransactionLog) -> bytes:
    """Return the object of a key for a log that is too large for a commit record."""
    return encode_object(Kind.TRANSACTION, pack_body(log.to_wire()), key)


def decode_transaction(name: str, data: bytes | bytearray | memoryview) -> TransactionLog:
    """Read an object of ``transactions/``; raises `FormatError`."""
    return read_log(name, read_object(name, Kind.TRANSACTION, data, name))
