"""Transaction logs: changes of one commit, sufficient to rebuild the snapshot and to detect conflicts exactly."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME, Box
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import NodeId
from arraystore._format.layer import EnclosingRecord, Layer
from arraystore._format.manifest import decode_presence, encode_presence
from arraystore._format.node import Documents, NodeKind, check_path
from arraystore._format.types import Int64s
from arraystore._format.wire import Wire, enum_reader, read_id, read_tuple, tuple_of
from arraystore._format.zarr_metadata import DOCUMENT_NAMES
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

_DOCUMENT_NAMES = frozenset(DOCUMENT_NAMES)


class Operation(enum.IntEnum):
    """Kind of a change of a node."""

    CREATED = 0
    UPDATED = 1
    DELETED = 2
    MOVED = 3
    APPENDED = 4


@dataclass(frozen=True)
class Append(Wire):
    """Growth of an array along one dimension, from its end at the time of the commit."""

    axis: int
    """Dimension."""
    start: int
    """Length in items when the append was prepared, a multiple of `chunk`."""
    items: int
    """Number of appended items."""
    chunk: int
    """Length of a chunk along the dimension."""

    def shift(self, length: int, dimensions: int) -> tuple[int, ...]:
        """Return the shift of appended chunks, in chunks, for an array that now has this length."""
        steps = (length - self.start) // self.chunk
        return tuple([steps if axis == self.axis else 0 for axis in range(dimensions)])

    def check(self, name: str) -> None:
        """Check dimension and lengths; raises `FormatError`."""
        if not (0 <= self.axis < MAX_DIMENSIONS and 0 <= self.start < MAX_VOLUME and 0 < self.items < MAX_VOLUME):
            raise FormatError(name, "an append has a dimension, start or number of items out of range")
        if not 0 < self.chunk < MAX_VOLUME or self.start % self.chunk:
            raise FormatError(name, "an append must start at the boundary of a chunk")


class AppendMark(NamedTuple):
    """End of an array before a session appended to it."""

    axis: int
    """The dimension."""
    start: int
    """Its length then, in items."""
    chunk: int | None
    """Length of a chunk along it; None where chunks differ in length."""

    @property
    def aligned(self) -> bool:
        """True if the array ended where a chunk does, so that what is appended can be moved as whole chunks."""
        return self.chunk is not None and self.start % self.chunk == 0


@dataclass(frozen=True)
class NodeChange(Wire):
    """Change of one node."""

    operation: Operation
    """Kind of the change."""
    id: NodeId
    """Id of the node."""
    path: str
    """Path, before a move."""
    kind: NodeKind
    """Kind of the node."""
    documents: dict[str, bytes | None]
    """Documents of a created node, or those that an update changes, None for removed ones."""
    target: str | None = None
    """New path of a moved node."""
    append: Append | None = None
    """Growth of an array."""

    def applied_to(self, documents: Documents) -> Documents:
        """Return the documents of the node after the change."""
        merged = {**documents, **self.documents}
        return {name: document for name, document in merged.items() if document is not None}

    def to_wire(self) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        rest = self.target if self.append is None else self.append
        return (self.operation, self.id, self.path, self.kind, self.documents or None, rest)

    @classmethod
    def from_wire(cls, name: str, value: Any) -> NodeChange:
        """Decode the value of `to_wire`; raises `FormatError`."""
        operation, identifier, path, kind, documents, rest = read_tuple(
            name, value, _read_operation, read_id, str, _read_kind, (dict, type(None)), (str, tuple, type(None))
        )
        documents = documents or {}
        if not _DOCUMENT_NAMES.issuperset(documents):
            raise FormatError(name, f"unknown metadata documents {sorted(map(repr, documents))[:8]}")
        if documents and (kind == NodeKind.FILE or operation not in (Operation.CREATED, Operation.UPDATED)):
            raise FormatError(name, "only a created or updated group or array may have metadata documents")
        removable = operation == Operation.UPDATED
        for document in documents.values():
            if type(document) is not bytes and not (document is None and removable):
                raise FormatError(name, "a metadata document must be bytes")
        target = rest if type(rest) is str else None
        append = Append.from_wire(name, rest) if type(rest) is tuple else None
        if (target is not None) != (operation == Operation.MOVED):
            raise FormatError(name, "a move, and nothing else, must have a target")
        if (append is not None) != (operation == Operation.APPENDED) or (append and kind != NodeKind.ARRAY):
            raise FormatError(name, "an append of an array, and nothing else, must have a length")
        if target is not None:
            check_path(name, target, kind)
        return cls(operation, identifier, check_path(name, path, kind), kind, documents, target, append)


_read_operation, _read_kind = enum_reader(Operation), enum_reader(NodeKind)
_read_nodes = tuple_of(NodeChange.from_wire)


@dataclass(frozen=True)
class Presence:
    """Compact, exact set of the cells of a box that have a reference."""

    box: Box
    count: int
    kind: int
    data: bytes

    @classmethod
    def of(cls, box: Box, index: Int64s | None, count: int) -> Presence:
        """Encode the numbers of cells, None for all cells."""
        return cls(box, count, *encode_presence(box, index, count))

    def numbers(self, name: str) -> Int64s:
        """Return the numbers of the cells, ascending; raises `FormatError`."""
        index = decode_presence(name, self.box, self.count, self.kind, self.data)
        return np.arange(self.box.volume, dtype=np.int64) if index is None else index


@dataclass(frozen=True)
class ChunkChange:
    """Layer of chunks of one array that a transaction wrote or deleted."""

    node: NodeId
    """Id of the array."""
    layer: Layer
    """Layer."""
    presence: tuple[int, bytes] | None = None
    """Kind and data of the `Presence` of its cells; None if the layer is dense or its manifest is inline."""
    appended: bool = False
    """True if these chunks belong to the append of the transaction, and shift with it."""

    def to_wire(self, record: EnclosingRecord | None) -> tuple[Any, ...]:
        """Encode as a msgpack value."""
        return (self.node, self.layer.to_wire(record), self.presence, self.appended)

    @classmethod
    def from_wire(cls, name: str, value: Any, record: EnclosingRecord | None) -> ChunkChange:
        """Decode the value of `to_wire`; raises `FormatError`."""
        node, wire, presence, appended = read_tuple(name, value, read_id, tuple, _read_presence, bool)
        layer = Layer.from_wire(name, wire, record)
        if presence is not None:
            decode_presence(name, layer.box, layer.count, *presence)
        elif layer.inline is None and not layer.dense:
            raise FormatError(name, "a sparse layer must list its cells")
        if appended and layer.shift is not None:
            raise FormatError(name, "an appended layer must not have a shift")
        return cls(node, layer, presence, appended)


def _read_presence(name: str, value: Any) -> tuple[Any, ...] | None:
    return None if value is None else read_tuple(name, value, int, bytes)


@dataclass(frozen=True)
class TransactionLog:
    """Changes of one transaction, with node changes in order."""

    nodes: tuple[NodeChange, ...] = ()
    chunks: tuple[ChunkChange, ...] = ()

    def to_wire(self, record: EnclosingRecord | None = None) -> tuple[Any, ...]:
        """Encode as a msgpack value, with attachments relative to the enclosing record."""
        return (self.nodes, tuple(chunk.to_wire(record) for chunk in self.chunks))


def read_log(name: str, value: Any, record: EnclosingRecord | None = None) -> TransactionLog:
    """Decode the value of `TransactionLog.to_wire`; raises `FormatError`."""
    nodes, chunks = read_tuple(name, value, _read_nodes, tuple)
    log = TransactionLog(nodes, tuple([ChunkChange.from_wire(name, chunk, record) for chunk in chunks]))
    grown = {change.id for change in log.nodes if change.append is not None}
    if len(grown) < sum(change.append is not None for change in log.nodes):
        raise FormatError(name, "a log must not append to an array twice")
    if any(chunk.appended and chunk.node not in grown for chunk in log.chunks):
        raise FormatError(name, "appended chunks need an append of their array")
    return log


def encode_transaction(key: str, log: TransactionLog) -> bytes:
    """Encode a log that is too large for a record as the object of a key."""
    return encode_object(Kind.TRANSACTION, pack_body(log.to_wire()), key)


def decode_transaction(name: str, data: bytes | bytearray | memoryview) -> TransactionLog:
    """Decode an object of ``transactions/``; raises `FormatError`."""
    return read_log(name, read_object(name, Kind.TRANSACTION, data, name))
