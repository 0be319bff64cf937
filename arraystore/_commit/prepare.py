"""Before the first attempt of a commit: everything durable but the record.

What is prepared here is used on every attempt as it is; a lost race writes nothing anew but the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.node_changes import AppendMark
from arraystore._chunks.reader import ChunkReader
from arraystore._environment import Environment
from arraystore._format.envelope import bind_object, pack_body
from arraystore._format.ids import ID_BYTES
from arraystore._format.layer import Attachment, Here, Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._format.node import Node
from arraystore._format.record import (
    MAX_ATTACHED,
    MAX_MANIFEST_IN_BODY,
    MAX_MESSAGE,
    MAX_METADATA,
    MAX_NOTE_IN_BODY,
    MOST_PACKS_IN_BODY,
    Transaction,
    encode_note,
    fits_body,
)
from arraystore._format.references import DELETED, References, overlay, to_manifests
from arraystore._format.transaction import (
    Append,
    ChunkChange,
    NodeChange,
    Presence,
    TransactionLog,
    encode_transaction,
)
from arraystore._log.branch_log import transaction_key
from arraystore.errors import InvalidInputError
from arraystore.storage.protocol import Storage

__all__ = [
    "Prepared",
    "check_note",
    "final_references",
    "prepare",
    "rewrite_in_memory",
    "rewrite_transaction",
    "upload",
]

_UNKNOWN_RECORD = Here("", 0)
_DEEPEST = 32


@dataclass(frozen=True)
class Prepared:
    """A transaction, ready to be put into a record.

    Parameters
    ----------
    id
        Of the snapshot that it makes.
    note
        Message and metadata, encoded; its place is in the body, or attachment 0 where it is long.
    log
        What it changes; attachments are those of an unknown record.
    log_place
        The log itself, the number of its attachment or the id of its object.
    attachments
        What the record carries besides its body.
    time
        Microseconds since 1970.
    isolation
        0 snapshot, 1 serializable.
    marks
        Where arrays ended that it appends to, by id, those included whose end is not that of a chunk.
    cuts
        Grids outside of which it deletes what there is, by id of the array: those that were smaller in between.
    swept
        Ids of what it deletes only since others have put it where everything goes; who takes it away from there again
        has saved it.
    oldest
        Smallest id of the objects that it brings in, and of the checkpoints that keep what it refers to besides; None
        for neither.
    packs
        Ids of the packs that its manifests refer to, as its record names them.
    amends
        Id of the snapshot whose place it takes.
    """

    id: bytes
    note: bytes
    log: TransactionLog
    log_place: TransactionLog | int | bytes
    attachments: tuple[bytes, ...]
    time: int
    isolation: int = 0
    marks: dict[bytes, AppendMark] = field(default_factory=dict)
    cuts: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    swept: frozenset[bytes] = frozenset()
    oldest: bytes | None = None
    packs: bytes | None = b""
    amends: bytes | None = None

    def transaction(self, parent: bytes, branch: str, sequence: int, first: int = 0) -> Transaction:
        """Return the transaction as it stands in the record of a number, with its attachments from `first` on."""
        log = self.log_place
        if isinstance(log, TransactionLog):
            log = self.located(branch, sequence, first)
        note: bytes | int = self.note if len(self.note) <= MAX_NOTE_IN_BODY else 0
        return Transaction(self.id, parent, self.time, self.isolation, note, log, first, self.amends, self.packs)

    def located(self, branch: str, sequence: int, first: int = 0) -> TransactionLog:
        """Return the log with its attachments placed in the record of a number."""

        def place(layer: Layer) -> Layer:
            at = layer.attachment
            return layer if at is None else replace(layer, attachment=Attachment(branch, sequence, first + at.index))

        return replace(self.log, chunks=tuple(replace(c, layer=place(c.layer)) for c in self.log.chunks))

    def manifest(self, change: ChunkChange) -> bytes | None:
        """Return the encoded manifest of a change of chunks; None where it is in an object of its own."""
        layer = change.layer
        if layer.attachment is not None:
            return self.attachments[layer.attachment.index]
        return layer.inline

    def with_note(self, note: bytes) -> Prepared | None:
        """Return the same with another message; None where that would number the attachments anew."""
        if max(len(note), len(self.note)) > MAX_NOTE_IN_BODY:
            return self if note == self.note else None
        return replace(self, note=note)


def check_note(message: Any, metadata: Any, defaults: dict[str, Any] | None = None) -> bytes:
    """Encode message and metadata of a commit; defaults yield to what the metadata says.

    Raises
    ------
    InvalidInputError
        If they cannot be stored: not text, not JSON, or too large.
    """
    if not isinstance(message, str):
        raise InvalidInputError(f"a commit message is text, not {type(message).__name__}")
    if metadata is None or isinstance(metadata, dict):
        metadata = {**(defaults or {}), **(metadata or {})}
    if not isinstance(metadata, dict) or not _is_json(metadata, _DEEPEST):
        raise InvalidInputError(
            f"commit metadata is a dict with string keys and JSON values, nested at most {_DEEPEST} deep"
        )
    if len(message.encode("utf-8", "surrogatepass")) > MAX_MESSAGE:
        raise InvalidInputError(f"the commit message is longer than {MAX_MESSAGE} bytes")
    try:
        note = encode_note(message, metadata)
    except (ValueError, OverflowError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"message or metadata cannot be stored: {error}") from None
    if len(note) > MAX_MESSAGE + MAX_METADATA:
        raise InvalidInputError(f"the commit metadata takes more than {MAX_METADATA} bytes")
    return note


def _is_json(value: Any, depth: int) -> bool:
    if depth < 0:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_json(item, depth - 1) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return -(1 << 63) <= value < 1 << 64
    return value is None or isinstance(value, str | bool | float)


class _Attachments:
    """What goes with the record, within its budget."""

    def __init__(self, note: bytes) -> None:
        self.note: list[bytes] = [note] if len(note) > MAX_NOTE_IN_BODY else []
        self.parts = list(self.note)

    def add(self, part: bytes) -> int | None:
        """Attach bytes and return their number; None if there is no room."""
        if sum(map(len, self.parts)) + len(part) > MAX_ATTACHED:
            return None
        self.parts.append(part)
        return len(self.parts) - 1


async def prepare(
    changes: ChangeSet, reader: ChunkReader, environment: Environment, note: bytes, isolation: int = 0
) -> Prepared:
    """Make the changes of a session durable: packs, manifests, and the change log where it is large.

    Parameters
    ----------
    changes
        What to commit.
    reader
        Reads the base snapshot's manifests.
    environment
        Time and ids.
    note
        Encoded message and metadata.
    isolation
        0 snapshot, 1 serializable.
    """
    await changes.packs.flush()
    nodes = changes.node_changes()
    placing = _Placing(note, environment, changes.packs.known)
    await _place_chunks(placing, changes, reader, nodes)
    prepared = await placing.finish(changes.packs.storage, nodes, isolation)
    cuts = {node: array.visible for node, array in changes.arrays.items() if array.visible is not None}
    ids = [*changes.borrowed, *([] if prepared.oldest is None else [prepared.oldest])]
    oldest = min(ids) if ids else None
    return replace(prepared, marks=dict(changes.appends), cuts=cuts, oldest=oldest)


async def _place_chunks(
    placing: _Placing, changes: ChangeSet, reader: ChunkReader, nodes: Sequence[NodeChange]
) -> None:
    appends = {change.id: change.append for change in nodes if change.append is not None}
    for node in sorted(_changed_arrays(changes), key=lambda node: node.key):
        references = await final_references(changes, reader, node)
        for part, appended in _split(references, appends.get(node.id)):
            for manifest in to_manifests(part):
                placing.add_manifest(node.id, manifest, appended=appended)
        del references  # a million of them take room that the next array needs


def _split(references: References, append: Append | None) -> Iterator[tuple[References, bool]]:
    """Part what belongs to an append from what stays where it is."""
    if append is None:
        yield references, False
        return
    new = references.coords[:, append.axis] >= append.start // append.chunk
    yield references.take(~new), False
    yield references.take(new), True


async def rewrite_transaction(
    prepared: Prepared,
    nodes: Sequence[NodeChange],
    chunks: Sequence[ChunkChange],
    added: Sequence[tuple[bytes, Manifest]],
    storage: Storage,
    environment: Environment,
) -> Prepared:
    """Write a transaction with other changes, as a rebase or the solution of a conflict asks for.

    Parameters
    ----------
    prepared
        The transaction so far.
    nodes
        All changes of nodes.
    chunks
        Those of its changes of chunks that stay as they are.
    added
        Manifests to put on top, with the ids of their arrays.
    storage
        Where manifests go that are too large for a record.
    environment
        Where ids come from.
    """
    placing = _Placing(prepared.note, environment)
    for change in chunks:
        placing.add_again(change, prepared.manifest(change))
    for node, manifest in added:
        placing.add_manifest(node, manifest, appended=False)
    return _same(prepared, await placing.finish(storage, nodes, prepared.isolation))


def rewrite_in_memory(prepared: Prepared, nodes: Sequence[NodeChange], environment: Environment) -> Prepared | None:
    """Return a transaction with other changes of nodes; None if that takes an object of its own."""
    placing = _Placing(prepared.note, environment)
    for change in prepared.log.chunks:
        placing.add_again(change, prepared.manifest(change))
    done = placing.assembled(nodes, prepared.isolation)
    if placing.uploads:
        return None
    return _same(prepared, done)


def _same(prepared: Prepared, done: Prepared) -> Prepared:
    """Return a transaction that was written anew as the one that it is."""
    older = [each for each in (prepared.oldest, done.oldest) if each is not None]
    packs = (
        prepared.packs
        if done.packs == b""
        else None
        if prepared.packs is None or done.packs is None
        else _together(prepared.packs, done.packs)
    )
    return replace(
        done,
        id=prepared.id,
        time=prepared.time,
        marks=prepared.marks,
        cuts=prepared.cuts,
        swept=prepared.swept,
        oldest=min(older, default=None),
        packs=packs,
        amends=prepared.amends,
    )


def _together(*packs: bytes) -> bytes | None:
    """Return ids of packs, one after the other; None if a body does not take as many."""
    ids = {part[at : at + ID_BYTES] for part in packs for at in range(0, len(part), ID_BYTES)}
    return b"".join(sorted(ids)) if len(ids) <= MOST_PACKS_IN_BODY else None


async def upload(storage: Storage, objects: list[tuple[str, bytes]]) -> None:
    """Write objects in parallel, then make everything that was written durable."""
    await asyncio.gather(*(storage.put(key, data) for key, data in objects))
    await storage.sync()


def _changed_arrays(changes: ChangeSet) -> list[Node]:
    return [node for node in changes.all_nodes() if node.id in changes.arrays]


async def final_references(changes: ChangeSet, reader: ChunkReader, node: Node) -> References:
    """Return what one array's layer has to say: chunks written, deleted, and cut off by a shrink."""
    written = changes.references(node.id)
    if not node.layers and node.id not in changes.base.keys:  # nobody else can have written what would be deleted
        kept = written.source != DELETED
        return written if kept.all() else written.take(kept)
    visible = changes.arrays[node.id].visible
    if visible is None:
        return written
    bound = np.array(visible, dtype=np.int64)
    base = await reader.present([layer for layer in node.layers if (np.array(layer.box.high) > bound).any()])
    if base is None:
        return written
    cut = base.take((base.coords >= bound).any(axis=1))
    if not len(cut):
        return written
    gone = np.full(len(cut), DELETED, dtype=np.int64)
    nothing = np.zeros(len(cut), dtype=np.int64)
    return overlay([References(cut.coords, gone, nothing, nothing), written], keep_deleted=True)


class _Placing:
    """Finds a place for everything that a transaction consists of: body, attachment, or an object of its own."""

    def __init__(self, note: bytes, environment: Environment, known: Collection[bytes] = ()) -> None:
        self.note = note
        self.known = known
        self.brought: set[bytes] = set()
        self.environment = environment
        self.attachments = _Attachments(note)
        self.uploads: list[tuple[str, bytes]] = []
        self.chunks: list[ChunkChange] = []

    def add_manifest(self, node: bytes, manifest: Manifest, *, appended: bool) -> None:
        """Add chunks that are new."""
        packs = manifest.packs
        self.brought.update(packs[at : at + ID_BYTES] for at in range(0, len(packs), ID_BYTES))
        layer = Layer(self.environment.new_id(), manifest.box, manifest.count, manifest.has_deletions)
        presence = None
        if not layer.dense:
            found = Presence.of(manifest.box, manifest.index, manifest.count)
            presence = (found.kind, found.data)
        self.add_again(ChunkChange(node, layer, presence, appended), encode_manifest(manifest))

    def add_again(self, change: ChunkChange, encoded: bytes | None) -> None:
        """Add a change of chunks; its manifest is None where it has an object already."""
        layer = change.layer
        if encoded is not None:
            layer = replace(layer, inline=None, attachment=None)
            if len(encoded) <= MAX_MANIFEST_IN_BODY:
                layer = replace(layer, inline=encoded)
                change = replace(change, presence=None)
            elif (number := self.attachments.add(encoded)) is not None:
                at = Attachment(_UNKNOWN_RECORD.branch, _UNKNOWN_RECORD.sequence, number)
                layer = replace(layer, attachment=at)
            else:
                self.uploads.append((layer.key, bind_object(layer.key, encoded)))
        self.chunks.append(replace(change, layer=layer))

    async def finish(self, storage: Storage, nodes: Sequence[NodeChange], isolation: int) -> Prepared:
        """Place the log, upload what has to be, and return the transaction."""
        prepared = self.assembled(nodes, isolation)
        await upload(storage, self.uploads)
        return prepared

    def assembled(self, nodes: Sequence[NodeChange], isolation: int) -> Prepared:
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
        identifier, now = self.environment.new_id(), self.environment.now_us()
        brought = self.brought.difference(self.known)
        objects = [change.layer.id for change in log.chunks if change.layer.is_object]
        ids = [*brought, *objects, *([place] if isinstance(place, bytes) else [])]
        oldest = min(ids) if ids else None
        packs = _together(*self.brought)  # known ones, too: the snapshot that knows them may expire before this one
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
    attachments.parts = list(attachments.note)
    return replace(log, chunks=tuple(chunks)), uploads
