"""Checkpoints: complete snapshots, which save readers from replaying a log from its start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.digest import DIGEST_BYTES
from arraystore._format.envelope import Kind, check_time, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, CheckpointId, SnapshotId, all_different, id_to_text
from arraystore._format.layer import Layer, read_id
from arraystore._format.layer_table import decode_layers, encode_layers
from arraystore._format.lifecycle import NEW_LIFE, BranchLife, life_to_wire, read_life
from arraystore._format.node import DOCUMENT_NAMES, Documents, Node, NodeKind, check_path
from arraystore.errors import FormatError

__all__ = ["MAX_NODES", "Checkpoint", "PageRef", "checkpoint_key", "decode_checkpoint", "encode_checkpoint"]

MAX_NODES = 1 << 22


@dataclass(frozen=True, order=True)
class PageRef:
    """Reference to a history page."""

    level: int
    index: int
    """Position; page `index` of a level covers records ``64**level * index + 1`` to ``64**level * (index + 1)``."""
    lowest: SnapshotId
    highest: SnapshotId
    """Smallest and largest id of its snapshots."""


@dataclass(frozen=True)
class Checkpoint:
    """Complete state of a branch at a record."""

    branch: str
    sequence: int
    """Position of the record."""
    snapshot: SnapshotId
    parent: SnapshotId | None
    """Ids of the newest snapshot at that record and of its parent."""
    time: int
    """Time of commit in microseconds since 1970."""
    note: bytes
    """Encoded message and metadata of that snapshot."""
    nodes: tuple[Node, ...]
    """Nodes."""
    pages: tuple[PageRef, ...]
    """References to the history pages of the branch, oldest first."""
    life: BranchLife = NEW_LIFE
    """Life of the branch."""
    digest: bytes | None = None
    """Digest of the log up to the record, needed to append without reading it; None if unknown to the writer."""


def checkpoint_key(identifier: CheckpointId) -> str:
    """Return the key of a checkpoint."""
    return "snapshots/" + id_to_text(identifier)


def _lengths(items: Iterable[bytes]) -> bytes:
    return encode_column(np.fromiter(map(len, items), dtype=np.int64))


def _encode_nodes(nodes: tuple[Node, ...]) -> tuple[Any, ...]:
    ordered = sorted(nodes, key=lambda node: node.key)
    paths = [node.path.encode() for node in ordered]
    names: dict[str, int] = {}
    document_names = [names.setdefault(name, len(names)) for node in ordered for name in node.documents]
    documents = [document for node in ordered for document in node.documents.values()]
    return (
        len(ordered),
        b"".join(node.id for node in ordered),
        _lengths(paths),
        b"".join(paths),
        encode_column(np.array([int(node.kind) for node in ordered], dtype=np.int64)),
        encode_column(np.array([len(node.documents) for node in ordered], dtype=np.int64)),
        tuple(names),
        encode_column(np.array(document_names, dtype=np.int64)),
        _lengths(documents),
        b"".join(documents),
        encode_column(np.array([len(node.layers) for node in ordered], dtype=np.int64)),
        encode_layers([layer for node in ordered for layer in node.layers]),
    )


def _split(name: str, lengths: Any, count: int, blob: bytes) -> list[bytes]:
    sizes = decode_column(name, lengths, count, len(blob))
    ends = np.cumsum(sizes)
    if (int(ends[-1]) if count else 0) != len(blob):
        raise FormatError(name, "lengths must add up to the size of the data")
    return [blob[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def _decode_nodes(name: str, value: Any) -> tuple[Node, ...]:
    count, ids, path_lengths, paths, kinds, counts, names, document_names, document_lengths, documents, *rest = (
        read_tuple(name, value, int, *(bytes,) * 5, tuple, *(bytes,) * 4, tuple)
    )
    if not 0 <= count <= MAX_NODES or len(ids) != count * ID_BYTES:
        raise FormatError(name, "columns of the table of nodes must have the same length")
    if not all_different(ids):
        raise FormatError(name, "two nodes have the same id")
    if not all(type(item) is str for item in names) or not set(DOCUMENT_NAMES).issuperset(names):
        raise FormatError(name, "unknown names of metadata documents")
    path_list = _split(f"{name}: paths", path_lengths, count, paths)
    kind_list = decode_column(f"{name}: kinds", kinds, count, max(NodeKind)).tolist()
    per_node = decode_column(f"{name}: documents", counts, count, len(DOCUMENT_NAMES))
    total = int(per_node.sum())
    name_list = decode_column(f"{name}: documents", document_names, total, max(len(names) - 1, 0)).tolist()
    if total and not names:
        raise FormatError(name, "documents must have names")
    contents = _split(f"{name}: documents", document_lengths, total, documents)
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
        nodes.append(Node(ids[i * ID_BYTES : (i + 1) * ID_BYTES], path, kind, of_node, layers[i]))
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
    body = (
        checkpoint.branch,
        checkpoint.sequence,
        checkpoint.snapshot,
        checkpoint.parent,
        checkpoint.time,
        checkpoint.note,
        _encode_nodes(checkpoint.nodes),
        tuple((p.level, p.index, p.lowest, p.highest) for p in checkpoint.pages),
        life_to_wire(checkpoint.life),
        checkpoint.digest,
    )
    return encode_object(Kind.CHECKPOINT, pack_body(body), key)


def decode_checkpoint(name: str, data: bytes | bytearray | memoryview) -> Checkpoint:
    """Decode a checkpoint; raises `FormatError`."""
    body = read_object(name, Kind.CHECKPOINT, data, name)
    branch, sequence, snapshot, parent, time, note, nodes, pages, life, digest = read_tuple(
        name, body, str, int, bytes, (bytes, type(None)), int, bytes, tuple, tuple, tuple, (bytes, type(None))
    )
    if digest is not None and len(digest) != DIGEST_BYTES:
        raise FormatError(name, f"a digest must have {DIGEST_BYTES} bytes, not {len(digest)}")
    if sequence < 0:
        raise FormatError(name, "the number of a record must be >= 0")
    return Checkpoint(
        branch,
        sequence,
        SnapshotId(read_id(name, snapshot)),
        None if parent is None else SnapshotId(read_id(name, parent)),
        check_time(name, time),
        note,
        _decode_nodes(name, nodes),
        tuple([_read_page_ref(name, page) for page in pages]),
        read_life(name, life),
        digest,
    )


def _read_page_ref(name: str, value: Any) -> PageRef:
    level, index, lowest, highest = read_tuple(name, value, int, int, bytes, bytes)
    if not 0 < level < 11 or index < 0:
        raise FormatError(name, "a reference to a history page has an invalid level or index")
    return PageRef(level, index, SnapshotId(read_id(name, lowest)), SnapshotId(read_id(name, highest)))
