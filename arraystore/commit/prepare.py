"""Before the first attempt of a commit: everything durable but the record.

What is prepared here is used on every attempt as it is; a lost race writes nothing anew but the record.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arraystore.commit.changes import ChangeSet
from arraystore.commit.environment import Environment
from arraystore.commit.log import transaction_key
from arraystore.commit.reader import ChunkReader
from arraystore.errors import InvalidInputError
from arraystore.format.envelope import pack_body
from arraystore.format.layer import Attachment, Here, Layer
from arraystore.format.manifest import Manifest, encode_manifest
from arraystore.format.node import Node
from arraystore.format.record import (
    MAX_ATTACHED,
    MAX_MANIFEST_IN_BODY,
    MAX_MESSAGE,
    MAX_METADATA,
    MAX_NOTE_IN_BODY,
    Transaction,
    encode_note,
    fits_body,
)
from arraystore.format.references import DELETED, References, overlay, to_manifests
from arraystore.format.transaction import ChunkChange, Presence, TransactionLog, encode_transaction
from arraystore.storage.protocol import Storage

__all__ = ["Prepared", "check_note", "prepare"]

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
    """

    id: bytes
    note: bytes
    log: TransactionLog
    log_place: TransactionLog | int | bytes
    attachments: tuple[bytes, ...]
    time: int
    isolation: int = 0

    def transaction(self, parent: bytes, branch: str, sequence: int) -> Transaction:
        """Return the transaction as it stands in the record of a number."""
        log = self.log_place
        if isinstance(log, TransactionLog):
            log = self.located(branch, sequence)
        note: bytes | int = self.note if len(self.note) <= MAX_NOTE_IN_BODY else 0
        return Transaction(self.id, parent, self.time, self.isolation, note, log)

    def located(self, branch: str, sequence: int) -> TransactionLog:
        """Return the log with its attachments placed in the record of a number."""
        chunks = tuple(
            replace(c, layer=replace(c.layer, attachment=Attachment(branch, sequence, c.layer.attachment.index)))
            if c.layer.attachment is not None
            else c
            for c in self.log.chunks
        )
        return replace(self.log, chunks=chunks)


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
    storage = changes.packs.storage
    await changes.packs.flush()
    attachments = _Attachments(note)
    uploads: list[tuple[str, bytes]] = []
    chunks: list[ChunkChange] = []
    for node in sorted(_changed_arrays(changes), key=lambda node: node.key):
        references = await final_references(changes, reader, node)
        chunks += [
            _placed(node.id, environment.new_id(), manifest, attachments, uploads)
            for manifest in to_manifests(references)
        ]
        del references  # a million of them take room that the next array needs
    log = TransactionLog(tuple(changes.node_changes()), tuple(chunks))
    place: TransactionLog | int | bytes = log
    encoded = pack_body(log.to_wire(_UNKNOWN_RECORD))
    if not fits_body(encoded):
        number = attachments.add(encoded)
        if number is None:
            # its attachments would be named relative to a record that the object does not know
            log, moved = _detached(log, attachments)
            uploads += moved
            place = environment.new_id()
            uploads.append((transaction_key(place), encode_transaction(log)))
        else:
            place = number
    await upload(storage, uploads)
    return Prepared(environment.new_id(), note, log, place, tuple(attachments.parts), environment.now_us(), isolation)


async def upload(storage: Storage, objects: list[tuple[str, bytes]]) -> None:
    """Write objects in parallel, then make everything that was written durable."""
    await asyncio.gather(*(storage.put(key, data) for key, data in objects))
    await storage.sync()


def _changed_arrays(changes: ChangeSet) -> list[Node]:
    return [node for node in changes.all_nodes() if node.id in changes.arrays]


async def final_references(changes: ChangeSet, reader: ChunkReader, node: Node) -> References:
    """Return what one array's layer has to say: chunks written, deleted, and cut off by a shrink."""
    written = changes.references(node.id)
    if not node.layers:
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


def _placed(
    node: bytes, identifier: bytes, manifest: Manifest, attachments: _Attachments, uploads: list[tuple[str, bytes]]
) -> ChunkChange:
    """Find a place for a manifest: in the body, among the attachments, or in an object of its own."""
    encoded = encode_manifest(manifest)
    layer = Layer(identifier, manifest.box, manifest.count, manifest.has_deletions)
    if len(encoded) <= MAX_MANIFEST_IN_BODY:
        return ChunkChange(node, replace(layer, inline=encoded))
    number = attachments.add(encoded)
    if number is None:
        uploads.append((layer.key, encoded))
    else:
        layer = replace(layer, attachment=Attachment(_UNKNOWN_RECORD.branch, _UNKNOWN_RECORD.sequence, number))
    presence = None
    if not layer.dense:
        found = Presence.of(manifest.box, manifest.index, manifest.count)
        presence = (found.kind, found.data)
    return ChunkChange(node, layer, presence)


def _detached(log: TransactionLog, attachments: _Attachments) -> tuple[TransactionLog, list[tuple[str, bytes]]]:
    """Give every attached manifest an object of its own."""
    uploads: list[tuple[str, bytes]] = []
    chunks: list[ChunkChange] = []
    for chunk in log.chunks:
        at = chunk.layer.attachment
        if at is None:
            chunks.append(chunk)
            continue
        uploads.append((chunk.layer.key, attachments.parts[at.index]))
        chunks.append(replace(chunk, layer=replace(chunk.layer, attachment=None)))
    attachments.parts = list(attachments.note)
    return replace(log, chunks=tuple(chunks)), uploads
