"""Before the first attempt of a commit: everything durable but the record.

What is prepared here is used on every attempt as it is; a lost race writes nothing anew but the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from arraystore._changes.change_set import ArrayChanges, ChangeSet
from arraystore._chunks.reader import ChunkReader
from arraystore._commit.prepared import Prepared
from arraystore._environment import Environment
from arraystore._format.envelope import bind_object, pack_body
from arraystore._format.ids import LayerId, NodeId, PackId, SnapshotId, split_ids
from arraystore._format.layer import Attachment, EnclosingRecord, Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._format.node import Node
from arraystore._format.record import (
    MAX_ATTACHED,
    MAX_MANIFEST_IN_BODY,
    MAX_NOTE_IN_BODY,
    MOST_PACKS_IN_BODY,
    fits_body,
)
from arraystore._format.references import DELETED, REFERENCES_PER_MANIFEST, References, overlay, stretches_to_manifests
from arraystore._format.transaction import (
    Append,
    ChunkChange,
    NodeChange,
    Presence,
    TransactionLog,
    encode_transaction,
)
from arraystore._log.branch_log import transaction_key
from arraystore._runtime import lazy_module
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    from arraystore._chunks import statistics_objects
    from arraystore._format.chunk_statistics import ChunkStatistics
else:
    statistics_objects = lazy_module("arraystore._chunks.statistics_objects")

Stretches: TypeAlias = Callable[[], Iterable[References]]
"""Yields references in row-major order, each time anew."""

_UNKNOWN_RECORD = EnclosingRecord("", 0)


class _Attachments:
    """Attachments of a record, within its budget."""

    def __init__(self, note: bytes) -> None:
        self.note: list[bytes] = [note] if len(note) > MAX_NOTE_IN_BODY else []
        self.parts: list[bytes] = []
        self.clear()

    def clear(self) -> None:
        """Drop all parts but the note."""
        self.parts = list(self.note)
        self._size = sum(map(len, self.parts))

    def add(self, part: bytes) -> int | None:
        """Attach bytes and return their number; None if there is no room."""
        if self._size + len(part) > MAX_ATTACHED:
            return None
        self._size += len(part)
        self.parts.append(part)
        return len(self.parts) - 1


async def prepare(
    changes: ChangeSet, reader: ChunkReader, environment: Environment, note: bytes, isolation: int = 0
) -> Prepared:
    """Make the changes of a session durable: packs, manifests, and the change log where it is large."""
    await changes.packs.flush()
    nodes = changes.node_changes()
    placing = Placing(note, environment, changes.packs.committed)
    await _place_chunks(placing, changes, reader, nodes)
    prepared = await placing.finish(changes.packs.storage, nodes, isolation)
    cuts = {node: array.visible for node, array in changes.arrays.items() if array.visible is not None}
    ids = [*changes.borrowed, *([] if prepared.oldest is None else [prepared.oldest])]
    oldest = min(ids) if ids else None
    return replace(prepared, marks=dict(changes.appends), cuts=cuts, oldest=oldest)


async def _place_chunks(placing: Placing, changes: ChangeSet, reader: ChunkReader, nodes: Sequence[NodeChange]) -> None:
    tables = changes.packs.statistics_tables()
    appends = {change.id: change.append for change in nodes if change.append is not None}
    for node in sorted(_changed_arrays(changes), key=lambda node: node.key):
        stretches = await _final_stretches(changes, reader, node)
        known = statistics_objects.known_of(tables, node) if tables else None
        for part, appended in _split(stretches, appends.get(node.id)):
            for manifest in stretches_to_manifests(part):
                placing.add_manifest(node.id, manifest, appended=appended, known=known)


async def _final_stretches(changes: ChangeSet, reader: ChunkReader, node: Node) -> Stretches:
    """Return what `final_references` does; a bounded number at a time where there are many and no shrink."""
    written = changes.arrays[node.id]
    if written.visible is not None or len(written.table) <= REFERENCES_PER_MANIFEST:
        references = await final_references(changes, reader, node, written)
        return lambda: [references]
    if node.layers or node.id in changes.base.keys:
        return lambda: changes.reference_stretches(node.id)
    return lambda: (part.take(part.source != DELETED) for part in changes.reference_stretches(node.id))


def _split(stretches: Stretches, append: Append | None) -> Iterator[tuple[Stretches, bool]]:
    """Part what belongs to an append from what stays where it is."""
    if append is None:
        yield stretches, False
        return
    axis, start = append.axis, append.start // append.chunk
    yield lambda: (part.take(part.coords[:, axis] < start) for part in stretches()), False
    yield lambda: (part.take(part.coords[:, axis] >= start) for part in stretches()), True


def join_packs(*packs: bytes) -> bytes | None:
    """Return ids of packs, one after the other; None if a body does not take as many."""
    ids = set(split_ids(b"".join(packs), PackId))
    return b"".join(sorted(ids)) if len(ids) <= MOST_PACKS_IN_BODY else None


async def upload(storage: Storage, objects: list[tuple[str, bytes]]) -> None:
    """Write objects in parallel, then make everything that was written durable."""
    await asyncio.gather(*(storage.put(key, data) for key, data in objects))
    await storage.sync()


def _changed_arrays(changes: ChangeSet) -> list[Node]:
    """Return the nodes with changed chunks, without looking at the others, of which there may be ten thousand."""
    changed = {node.id: node for node in changes.nodes.values() if node is not None}
    nodes: list[Node] = []
    for identifier in changes.arrays:
        node = changed.get(identifier)
        if node is None and changes.base.keys.get(identifier, "\0\0") not in changes.nodes:
            node = changes.base.by_id(identifier)
        if node is not None:
            nodes.append(node)
    return nodes


async def final_references(changes: ChangeSet, reader: ChunkReader, node: Node, changed: ArrayChanges) -> References:
    """Return what one array's layer has to say: chunks written, deleted, and cut off, with the change set's tables."""
    written, visible = changes.references(changed), changed.visible
    if not node.layers and node.id not in changes.base.keys:  # nobody else can have written what would be deleted
        kept = written.source != DELETED
        return written if kept.all() else written.take(kept)
    if visible is None:
        return written
    bound = np.array(visible, dtype=np.int64)
    base = await reader.present([layer for layer in node.layers if (np.array(layer.box.high) > bound).any()])
    if base is None:
        return written
    cut = base.take((base.coords >= bound).any(axis=1))
    if not len(cut):
        return written
    nothing = np.zeros(len(cut), dtype=np.int64)
    deleted = replace(written, coords=cut.coords, source=nothing + DELETED, offset=nothing, length=nothing)
    return overlay([deleted.followed_by(written)], keep_deleted=True)


class Placing:
    """Finds a place for everything that a transaction consists of: body, attachment, or an object of its own."""

    def __init__(self, note: bytes, environment: Environment, known: Collection[PackId] = ()) -> None:
        self.note = note
        self.known = known
        self.brought: set[PackId] = set()
        self.environment = environment
        self.attachments = _Attachments(note)
        self.uploads: list[tuple[str, bytes]] = []
        self.chunks: list[ChunkChange] = []

    def add_manifest(
        self, node: NodeId, manifest: Manifest, *, appended: bool, known: ChunkStatistics | None = None
    ) -> None:
        """Add chunks that are new, and what is known of them."""
        self.brought.update(split_ids(manifest.packs, PackId))
        layer = Layer(LayerId(self.environment.new_id()), manifest.box, manifest.count, manifest.has_deletions)
        presence = None
        if not layer.dense:
            cells = Presence.of(manifest.box, manifest.index, manifest.count)
            presence = (cells.kind, cells.data)
        if known is not None:
            self.uploads += statistics_objects.statistics_objects(known, manifest, layer.id)
        self.add_again(ChunkChange(node, layer, presence, appended), encode_manifest(manifest))

    def add_again(self, change: ChunkChange, encoded: bytes | None) -> None:
        """Add a change of chunks; its manifest is None where it has an object already."""
        layer = change.layer if encoded is None else self._placed(change.layer, encoded)
        presence = None if encoded is not None and layer.inline is not None else change.presence
        self.chunks.append(ChunkChange(change.node, layer, presence, change.appended))

    def _placed(self, layer: Layer, encoded: bytes) -> Layer:
        """Return a layer with the place that was found for its manifest."""
        if len(encoded) <= MAX_MANIFEST_IN_BODY:
            return replace(layer, inline=encoded, attachment=None)
        number = self.attachments.add(encoded)
        if number is None:
            self.uploads.append((layer.key, bind_object(layer.key, encoded)))
            return replace(layer, inline=None, attachment=None)
        at = Attachment(_UNKNOWN_RECORD.branch, _UNKNOWN_RECORD.sequence, number)
        return replace(layer, inline=None, attachment=at)

    async def finish(self, storage: Storage, nodes: Sequence[NodeChange], isolation: int) -> Prepared:
        """Place the log, upload what has to be, and return the transaction."""
        prepared = self.assemble(nodes, isolation)
        await upload(storage, self.uploads)
        return prepared

    def assemble(self, nodes: Sequence[NodeChange], isolation: int) -> Prepared:
        """Place the log and return the transaction; what is in `uploads` is still to be written."""
        log = TransactionLog(tuple(nodes), tuple(self.chunks))
        place: TransactionLog | int | bytes = log
        encoded = pack_body(log.to_wire(_UNKNOWN_RECORD))
        if not fits_body(encoded):
            number = self.attachments.add(encoded)
            if number is None:
                # its attachments would be named relative to a record that the object does not know
                log, moved = _detached(log, self.attachments)
                self.uploads += moved
                place = self.environment.new_id()
                key = transaction_key(place)
                self.uploads.append((key, encode_transaction(key, log)))
            else:
                place = number
        identifier, now = SnapshotId(self.environment.new_id()), self.environment.now_us()
        brought = self.brought.difference(self.known)
        objects = [change.layer.id for change in log.chunks if change.layer.is_object]
        ids = [*brought, *objects, *([place] if isinstance(place, bytes) else [])]
        oldest = min(ids) if ids else None
        packs = join_packs(*self.brought)  # known ones, too: the snapshot that knows them may expire before this one
        attachments = tuple(self.attachments.parts)
        return Prepared(identifier, self.note, log, place, attachments, now, isolation, oldest=oldest, packs=packs)


def _detached(log: TransactionLog, attachments: _Attachments) -> tuple[TransactionLog, list[tuple[str, bytes]]]:
    """Give every attached manifest an object of its own."""
    uploads: list[tuple[str, bytes]] = []
    chunks: list[ChunkChange] = []
    for chunk in log.chunks:
        at = chunk.layer.attachment
        if at is None:
            chunks.append(chunk)
            continue
        uploads.append((chunk.layer.key, bind_object(chunk.layer.key, attachments.parts[at.index])))
        chunks.append(replace(chunk, layer=replace(chunk.layer, attachment=None)))
    attachments.clear()
    return replace(log, chunks=tuple(chunks)), uploads
