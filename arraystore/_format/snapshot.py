"""Checkpoints: complete snapshots, which save readers from replaying a log from its start."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from arraystore._format.columns import decode_column, decode_strings, encode_column, encode_strings
from arraystore._format.digest import read_digest
from arraystore._format.envelope import Kind, encode_object, pack_body, read_object
from arraystore._format.ids import CheckpointId, SnapshotId, all_different, id_to_text
from arraystore._format.layer import Layer
from arraystore._format.layer_table import decode_layers, encode_layers
from arraystore._format.lifecycle import NEW_LIFE, BranchLife
from arraystore._format.node import Documents, Node, NodeKind, check_path
from arraystore._format.wire import Number, Time, Wire, read_ids, read_tuple
from arraystore._format.zarr_metadata import DOCUMENT_NAMES
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

MAX_NODES = 1 << 22


@dataclass(frozen=True, order=True)
class PageRef(Wire):
    """Reference to a history page."""

    level: int
    index: int
    """Position; page `index` of a level covers records ``64**level * index + 1`` to ``64**level * (index + 1)``."""
    lowest: SnapshotId
    highest: SnapshotId
    """Smallest and largest id of its snapshots."""

    def check(self, name: str) -> None:
        """Check level and index; raises `FormatError`."""
        if not 0 < self.level < 11 or self.index < 0:
            raise FormatError(name, "a reference to a history page has an invalid level or index")


@dataclass(frozen=True)
class Checkpoint(Wire):
    """Complete state of a branch at a record."""

    branch: str
    sequence: Number
    """Position of the record."""
    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the newest snapshot at that record and of its parent."""
    time: Time
    """Time of commit in microseconds since 1970."""
    note: bytes
    """Encoded message and metadata of that snapshot."""
    nodes: Annotated[tuple[Node, ...], _decode_nodes, _encode_nodes]
    """Nodes."""
    pages: tuple[PageRef, ...]
    """References to the history pages of the branch, oldest first."""
    life: BranchLife = NEW_LIFE
    """Life of the branch."""
    digest: Annotated[bytes, read_digest] | None = None
    """Digest of the log up to the record, needed to append without reading it; None if unknown to the writer."""


def checkpoint_key(identifier: CheckpointId) -> str:
    """Return the key of a checkpoint."""
    return "snapshots/" + id_to_text(identifier)


def _encode_nodes(nodes: tuple[Node, ...]) -> tuple[Any, ...]:
    ordered = sorted(nodes, key=lambda node: node.key)
    names: dict[str, int] = {}
    document_names = [names.setdefault(name, len(names)) for node in ordered for name in node.documents]
    return (
        len(ordered),
        b"".join(node.id for node in ordered),
        *encode_strings(node.path.encode() for node in ordered),
        encode_column([node.kind for node in ordered]),
        encode_column([len(node.documents) for node in ordered]),
        tuple(names),
        encode_column(document_names),
        *encode_strings(document for node in ordered for document in node.documents.values()),
        encode_column([len(node.layers) for node in ordered]),
        encode_layers([layer for node in ordered for layer in node.layers]),
    )


def _decode_nodes(name: str, value: Any) -> tuple[Node, ...]:
    count, joined, path_lengths, paths, kinds, counts, names, document_names, document_lengths, documents, *rest = (
        read_tuple(name, value, int, *(bytes,) * 5, tuple, *(bytes,) * 4, tuple)
    )
    ids = read_ids(name, joined)
    if not count == len(ids) <= MAX_NODES:
        raise FormatError(name, "columns of the table of nodes must have the same length")
    if not all_different(joined):
        raise FormatError(name, "two nodes have the same id")
    if not all(type(item) is str for item in names) or not set(DOCUMENT_NAMES).issuperset(names):
        raise FormatError(name, "unknown names of metadata documents")
    path_list = decode_strings(f"{name}: paths", path_lengths, paths, count)
    kind_list = decode_column(f"{name}: kinds", kinds, count, max(NodeKind)).tolist()
    per_node = decode_column(f"{name}: documents", counts, count, len(DOCUMENT_NAMES))
    total = int(per_node.sum())
    name_list = decode_column(f"{name}: documents", document_names, total, max(len(names) - 1, 0)).tolist()
    if total and not names:
        raise FormatError(name, "documents must have names")
    contents = decode_strings(f"{name}: documents", document_lengths, documents, total)
    layers = _layers_of_nodes(name, count, *rest)
    nodes: list[Node] = []
    at = 0
    for i, (raw_path, raw_kind, document_count) in enumerate(zip(path_list, kind_list, per_node.tolist(), strict=True)):
        kind = NodeKind(raw_kind)
        try:
            path = check_path(name, raw_path.decode(), kind)
        except UnicodeDecodeError:
            raise FormatError(name, "a path must be UTF-8") from None
        of_node: Documents = {names[name_list[j]]: contents[j] for j in range(at, at + document_count)}
        at += document_count
        if len(of_node) != document_count or (document_count and kind == NodeKind.FILE):
            raise FormatError(
                name, f"node {path[:80]!r} must not have a metadata document twice, or be a file with one"
            )
        _check_dimensions(name, path, kind, layers[i])
        nodes.append(Node(ids[i], path, kind, of_node, layers[i]))
    if len({node.key for node in nodes}) != count:
        raise FormatError(name, "two nodes have the same path")
    return tuple(nodes)


def _layers_of_nodes(name: str, count: int, per_node: Any, table: Any) -> list[tuple[Layer, ...]]:
    layers = decode_layers(name, table)
    ends = np.cumsum(decode_column(f"{name}: layers", per_node, count, len(layers))).tolist()
    if (ends[-1] if count else 0) != len(layers):
        raise FormatError(name, "the layers of all nodes must add up to the table of layers")
    return [tuple(layers[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)] if count else []


def _check_dimensions(name: str, path: str, kind: NodeKind, layers: tuple[Layer, ...]) -> None:
    dimensions = {len(layer.box.low) for layer in layers}
    if len(dimensions) > 1 or (layers and kind == NodeKind.GROUP) or (dimensions > {0} and kind == NodeKind.FILE):
        raise FormatError(name, f"layers of node {path[:80]!r} do not match its kind, or each other")


def encode_checkpoint(key: str, checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint as the object of a key."""
    return encode_object(Kind.CHECKPOINT, pack_body(checkpoint), key)


def decode_checkpoint(name: str, data: bytes | bytearray | memoryview) -> Checkpoint:
    """Decode a checkpoint; raises `FormatError`."""
    return Checkpoint.from_wire(name, read_object(name, Kind.CHECKPOINT, data, name))
