"""A view of the uncommitted changes of a session, for forks and for copies of the session in other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._chunks.pack_writer import PackWriter
from arraystore._chunks.reader import ChunkReader
from arraystore._commit.prepare import final_references
from arraystore._format.box import Box
from arraystore._format.envelope import pack_body, unpack_body
from arraystore._format.ids import LayerId, NodeId
from arraystore._format.layer import Layer
from arraystore._format.manifest import MAX_REFERENCES, Manifest, encode_manifest
from arraystore._format.node import Node, NodeKind, check_path
from arraystore._format.references import DELETED, References, to_manifests
from arraystore._format.wire import enum_reader, read_id, read_tuple, tuple_of
from arraystore._format.zarr_metadata import DOCUMENT_NAMES
from arraystore._log.state import SnapshotState
from arraystore.errors import FormatError, SessionStateError

_NAME = "uncommitted changes"
_MOST_CUT = 1 << 22
"""Largest count of cells deleted by a shrink without looking up which of them have a chunk."""


@dataclass(eq=False)
class UncommittedView:
    """A view of the uncommitted changes of a session at one time."""

    state: SnapshotState
    """The base with the changes."""
    gone: tuple[str, ...]
    """Keys of the base whose nodes are deleted or moved."""
    changed: tuple[Node, ...]
    """Nodes that are new or different, with their layers."""
    base: SnapshotState
    """The snapshot that the session is based on."""
    packs: PackWriter
    """The writer of packs not uploaded yet."""
    unsent: dict[str, int]
    """Number of each pack not uploaded when the view was made, by key."""
    pid: int = field(default_factory=os.getpid)
    _encoded: bytes | None = None

    def reader(self, reader: ChunkReader) -> ChunkReader:
        """Return a reader that also finds chunks not uploaded yet."""
        return UnsentReader(reader, self.packs, self.unsent) if self.unsent else reader

    async def send(self) -> bytes:
        """Upload the chunks that the changes refer to, and return the changes encoded for `with_uncommitted`."""
        if self._encoded is None:
            if self.unsent:
                await self._upload()
            self._encoded = pack_body((self.gone, tuple(self._wire(node) for node in self.changed)))
        return self._encoded

    async def _upload(self) -> None:
        if os.getpid() != self.pid:
            raise SessionStateError(
                "chunks of the session wait for upload in the process that wrote them: pickle session or fork there, "
                "before this process is forked"
            )
        await self.packs.flush()
        await self.packs.storage.sync()

    def _wire(self, node: Node) -> tuple[Any, ...]:
        """Return a node encoded without the parts that it shares with its base."""
        key = self.base.keys.get(node.id)
        base = None if key is None else self.base.nodes[key]
        same = base is not None and base.documents == node.documents
        kept = len(base.layers) if base is not None and node.layers[: len(base.layers)] == base.layers else 0
        layers = tuple(layer.to_wire() for layer in node.layers[kept:])
        return (node.id, node.path, int(node.kind), None if same else node.documents, kept, layers)


class UnsentReader(ChunkReader):
    """A reader of chunks of other sessions' packs, uploaded or not, that shares the caches of `reader`."""

    def __init__(self, reader: ChunkReader, packs: PackWriter, unsent: dict[str, int]) -> None:
        super().__init__(reader.storage, reader.manifests, reader._virtual, reader.verify)
        self.blocks = reader.blocks
        self._unsent: dict[str, tuple[PackWriter, int]] = {key: (packs, number) for key, number in unsent.items()}
        if isinstance(reader, UnsentReader):
            self._unsent |= reader._unsent

    def _unsent_bytes(self, key: str, start: int, stop: int) -> bytes | None:
        found = self._unsent.get(key)
        return None if found is None else found[0].read(found[1], start, stop)


async def build_uncommitted_view(changes: ChangeSet, reader: ChunkReader) -> UncommittedView:
    """Return a view of a session's uncommitted changes, without a request unless a shrink requires one."""
    with changes.lock:
        unsent = changes.packs.settle()
        overlay, arrays = dict(changes.nodes), changes.copied_arrays()
    base = changes.base
    nodes, keys = dict(base.nodes), dict(base.keys)
    for key in overlay:
        before = nodes.pop(key, None)
        if before is not None:
            del keys[before.id]
    touched: dict[str, Node] = {key: node for key, node in overlay.items() if node is not None}
    for identifier, written in arrays.items():
        node = _find(identifier, touched, base, overlay)
        if node is not None:
            layers = await _build_layers(changes, reader, node, written)
            touched[node.key] = replace(node, layers=(*node.layers, *layers))
    nodes.update(touched)
    keys.update({node.id: key for key, node in touched.items()})
    gone = tuple(key for key, node in overlay.items() if node is None and key in base.nodes)
    state = replace(base, nodes=nodes, keys=keys, recorded=False)
    return UncommittedView(state, gone, tuple(touched.values()), base, changes.packs, unsent)


def _find(
    identifier: NodeId, touched: dict[str, Node], base: SnapshotState, overlay: dict[str, Node | None]
) -> Node | None:
    """Return a node by its id; None if it was deleted."""
    key = base.keys.get(identifier)
    if key is not None and key not in overlay:
        return touched.get(key, base.nodes[key])
    return next((node for node in touched.values() if node.id == identifier), None)


async def _build_layers(changes: ChangeSet, reader: ChunkReader, node: Node, changed: ArrayChanges) -> list[Layer]:
    """Return layers for the chunks written to an array, and for those that a shrink cut off."""
    new_id = changes.packs.environment.new_id
    cuts = _cuts(node, changed.visible)
    if cuts is None:
        written = await final_references(changes, reader, node, changed)
        cuts = []
    else:
        written = changes.references(changed)
        if not node.layers:
            written = written.take(written.source != DELETED)
    manifests = [_deleted(box) for box in cuts] + _manifests(written)
    return [Layer(LayerId(new_id()), m.box, m.count, m.has_deletions, encode_manifest(m)) for m in manifests]


def _manifests(written: References) -> list[Manifest]:
    return list(to_manifests(written))


def _cuts(node: Node, visible: tuple[int, ...] | None) -> list[Box] | None:
    """Return boxes around all chunks of the base that a shrink cut off; None if they are too large to enumerate."""
    if visible is None or not node.layers:
        return []
    boxes: list[Box] = []
    for layer in node.layers:
        rest = layer.box
        for axis, bound in enumerate(visible):
            if rest.high[axis] > bound:
                low = max(bound, rest.low[axis])
                boxes.append(Box((*rest.low[:axis], low, *rest.low[axis + 1 :]), rest.high))
                if rest.low[axis] >= bound:
                    break
                rest = Box(rest.low, (*rest.high[:axis], bound, *rest.high[axis + 1 :]))
    boxes = list(dict.fromkeys(boxes))
    if sum(box.volume for box in boxes) > _MOST_CUT:
        return None
    return [part for box in boxes for part in _halved(box)]


def _halved(box: Box) -> Iterator[Box]:
    """Halve a box until each part fits one manifest."""
    if box.volume <= MAX_REFERENCES:
        yield box
        return
    axis = int(np.argmax(box.shape))
    middle = (box.low[axis] + box.high[axis]) // 2
    yield from _halved(Box(box.low, (*box.high[:axis], middle, *box.high[axis + 1 :])))
    yield from _halved(Box((*box.low[:axis], middle, *box.low[axis + 1 :]), box.high))


def _deleted(box: Box) -> Manifest:
    """Return a manifest with a deletion for every cell of a box."""
    zeros = np.zeros(box.volume, dtype=np.uint8)
    return Manifest(box, None, zeros + np.uint8(1), zeros, zeros)


def with_uncommitted(base: SnapshotState, data: bytes) -> SnapshotState:
    """Return a state with the changes that `UncommittedView.send` returned; raises `FormatError`."""
    gone, changed = read_tuple(_NAME, unpack_body(_NAME, data, stored=len(data)), tuple, tuple)
    if not all(type(key) is str for key in gone):
        raise FormatError(_NAME, "the keys of deleted nodes must be strings")
    nodes, keys = dict(base.nodes), dict(base.keys)
    fresh = [_read_node(base, value) for value in changed]
    for key in (*gone, *(node.key for node in fresh)):
        before = nodes.pop(key, None)
        if before is not None:
            del keys[before.id]
    for node in fresh:
        nodes[node.key] = node
        keys[node.id] = node.key
    if len(nodes) != len(keys) or any(nodes[node.key] is not node or keys[node.id] != node.key for node in fresh):
        raise FormatError(_NAME, "two nodes have the same id or path")
    return replace(base, nodes=nodes, keys=keys, recorded=False)


def _read_node(base: SnapshotState, value: Any) -> Node:
    identifier, path, kind, documents, kept, layers = read_tuple(
        _NAME, value, read_id, str, enum_reader(NodeKind), (dict, type(None)), int, tuple_of(Layer.from_wire)
    )
    key = base.keys.get(identifier)
    before = None if key is None else base.nodes[key]
    if before is None and (kept or documents is None):
        raise FormatError(_NAME, "a node refers to a node that is not in the base")
    base_layers = () if before is None else before.layers
    if not 0 <= kept <= len(base_layers):
        raise FormatError(_NAME, f"the count of layers that a node keeps must be in 0..{len(base_layers)}, not {kept}")
    if documents is None:
        documents = {} if before is None else before.documents
    node = Node(identifier, check_path(_NAME, path, kind), kind, documents, (*base_layers[:kept], *layers))
    return _checked(node)


def _checked(node: Node) -> Node:
    """Check that documents and layers fit their node."""
    names = () if node.kind == NodeKind.FILE else DOCUMENT_NAMES
    if not all(name in names and type(document) is bytes for name, document in node.documents.items()):
        raise FormatError(_NAME, "metadata documents must be bytes with known names, and a file has none")
    dimensions = {len(layer.box.low) for layer in node.layers}
    if node.kind == NodeKind.FILE:
        dimensions.add(0)
    if len(dimensions) > 1 or (dimensions and node.kind == NodeKind.GROUP):
        raise FormatError(_NAME, f"layers of node {node.path[:80]!r} must have its dimensions, and a group has none")
    return node
