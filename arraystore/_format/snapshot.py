"""Checkpoints: complete snapshots, so that readers need not replay a log from its start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.columns import decode_column, encode_column
from arraystore._format.digest import DIGEST_BYTES
from arraystore._format.envelope import Kind, check_time, encode_object, pack_body, read_object, read_tuple
from arraystore._format.ids import ID_BYTES, all_different, id_to_text
from arraystore._format.layer import Layer, read_id
from arraystore._format.layer_table import decode_layers, encode_layers
from arraystore._format.lifecycle import NEW_LIFE, BranchLife, life_to_wire, read_life
from arraystore._format.node import DOCUMENT_NAMES, Documents, Node, NodeKind, check_path
from arraystore.errors import FormatError

__all__ = ["MAX_NODES", "Checkpoint", "PageRef", "checkpoint_key", "decode_checkpoint", "encode_checkpoint"]

MAX_NODES = 1 << 22


@dataclass(frozen=True, order=True)
class PageRef:
    """A history page and what it covers.

    Parameters
    ----------
    level, index
        Page `index` of a level covers records ``64**level * index + 1`` to ``64**level * (index + 1)``.
    lowest, highest
        Smallest and largest id of a snapshot in it.
    """

    level: int
    index: int
    lowest: bytes
    highest: bytes


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot, complete.

    Parameters
    ----------
    branch, sequence
        Record whose state this is.
    snapshot, parent
        Ids of the newest snapshot at that record and of the one before it.
    time
        When it was committed, microseconds since 1970.
    note
        Message and metadata of that snapshot, encoded.
    nodes
        All nodes.
    pages
        Directory of the branch's history pages, oldest first.
    life
        What the log says of the branch itself.
    digest
        Of the log up to the record, so that whoever has this needs no record to go on; None where its writer did not
        know it.
    """

    branch: str
    sequence: int
    snapshot: bytes
    parent: bytes | None
    time: int
    note: bytes
    nodes: tuple[Node, ...]
    pages: tuple[PageRef, ...]
    life: BranchLife = NEW_LIFE
    digest: bytes | None = None


def checkpoint_key(identifier: bytes) -> str:
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


def _cut(name: str, lengths: Any, count: int, blob: bytes) -> list[bytes]:
    sizes = decode_column(name, lengths, count, len(blob))
    ends = np.cumsum(sizes)
    if (int(ends[-1]) if count else 0) != len(blob):
        raise FormatError(name, "lengths do not add up")
    return [blob[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def _decode_nodes(name: str, value: Any) -> tuple[Node, ...]:
    count, ids, path_lengths, paths, kinds, counts, names, document_names, document_lengths, documents, *rest = (
        read_tuple(name, value, int, *(bytes,) * 5, tuple, *(bytes,) * 4, tuple)
    )
    if not 0 <= count <= MAX_NODES or len(ids) != count * ID_BYTES:
        raise FormatError(name, "the table of nodes has columns of different lengths")
    if not all_different(ids):
        raise FormatError(name, "two nodes have the same id")
    if not all(type(item) is str for item in names) or not set(DOCUMENT_NAMES).issuperset(names):
        raise FormatError(name, "unknown names of metadata documents")
    path_list = _cut(f"{name}: paths", path_lengths, count, paths)
    kind_list = decode_column(f"{name}: kinds", kinds, count, max(NodeKind)).tolist()
    per_node = decode_column(f"{name}: documents", counts, count, len(DOCUMENT_NAMES))
    total = int(per_node.sum())
    name_list = decode_column(f"{name}: documents", document_names, total, max(len(names) - 1, 0)).tolist()
    if total and not names:
        raise FormatError(name, "documents without names")
    contents = _cut(f"{name}: documents", document_lengths, total, documents)
    layers = _layers_of_nodes(name, count, *rest)
    nodes: list[Node] = []
    at = 0
    for i, (raw_path, raw_kind, found) in enumerate(zip(path_list, kind_list, per_node.tolist(), strict=True)):
        kind = NodeKind(raw_kind)
        try:
            path = check_path(name, raw_path.decode(), kind)
        except UnicodeDecodeError:
            raise FormatError(name, "a path is not UTF-8") from None
        of_node: Documents = {names[name_list[j]]: contents[j] for j in range(at, at + found)}
        at += found
        if len(of_node) != found or (found and kind == NodeKind.FILE):
            raise FormatError(name, f"metadata documents of node {path[:80]!r} are twice there, or of a file")
        _check_dimensions(name, path, kind, layers[i])
        nodes.append(Node(ids[i * ID_BYTES : (i + 1) * ID_BYTES], path, kind, of_node, layers[i]))
    if len({node.key for node in nodes}) != count:
        raise FormatError(name, "two nodes have the same path")
    return tuple(nodes)


def _layers_of_nodes(name: str, count: int, per_node: Any, table: Any) -> list[tuple[Layer, ...]]:
    layers = decode_layers(name, table)
    ends = np.cumsum(decode_column(f"{name}: layers", per_node, count, len(layers))).tolist()
    if (ends[-1] if count else 0) != len(layers):
        raise FormatError(name, "nodes do not have as many layers as there are")
    return [tuple(layers[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)] if count else []


def _check_dimensions(name: str, path: str, kind: NodeKind, layers: tuple[Layer, ...]) -> None:
    dimensions = {len(layer.box.low) for layer in layers}
    if len(dimensions) > 1 or (layers and kind == NodeKind.GROUP) or (dimensions > {0} and kind == NodeKind.FILE):
        raise FormatError(name, f"layers of node {path[:80]!r} do not fit it, or each other")


def encode_checkpoint(key: str, checkpoint: Checkpoint) -> bytes:
    """Return the object of a key for a checkpoint."""
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
    """Read a checkpoint; raises `FormatError`."""
    body = read_object(name, Kind.CHECKPOINT, data, name)
    branch, sequence, snapshot, parent, time, note, nodes, pages, life, digest = read_tuple(
        name, body, str, int, bytes, (bytes, type(None)), int, bytes, tuple, tuple, tuple, (bytes, type(None))
    )
    if digest is not None and len(digest) != DIGEST_BYTES:
        raise FormatError(name, f"a digest of {len(digest)} bytes")
    if sequence < 0:
        raise FormatError(name, "a negative number of a record")
    return Checkpoint(
        branch,
        sequence,
        read_id(name, snapshot),
        None if parent is None else read_id(name, parent),
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
        raise FormatError(name, "a history page of an impossible place")
    return PageRef(level, index, read_id(name, lowest), read_id(name, highest))
