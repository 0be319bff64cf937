"""Forks: taking the uncommitted state of a session to other processes, and bringing their changes home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arraystore.commit.changes import ChangeSet
from arraystore.commit.prepare import final_references
from arraystore.commit.reader import ChunkReader
from arraystore.commit.state import State, StateBuilder
from arraystore.errors import FormatError, MergeConflictError
from arraystore.format.changes import ArrayPayload, ChangePayload, decode_changes
from arraystore.format.envelope import pack_body, unpack_body
from arraystore.format.layer import Layer
from arraystore.format.manifest import encode_manifest
from arraystore.format.node import Node, NodeKind, node_key
from arraystore.format.record import Transaction
from arraystore.format.references import VIRTUAL, References, to_manifests
from arraystore.format.transaction import ChunkChange, NodeChange, Operation, Presence, TransactionLog, read_log
from arraystore.format.zarr_metadata import array_info

__all__ = ["MergedChunks", "apply_payloads", "collect", "provisional_log", "with_log"]

Int64s = npt.NDArray[np.int64]
_PAYLOAD = "change payload of a fork"


async def provisional_log(changes: ChangeSet, reader: ChunkReader) -> bytes:
    """Return the uncommitted changes of a session as a log that needs nothing but packs, which are made durable."""
    await changes.packs.flush()
    await changes.packs.storage.sync()
    new_id = changes.packs.environment.new_id
    chunks: list[ChunkChange] = []
    for node in list(changes.all_nodes()):
        if node.id in changes.arrays:
            for manifest in to_manifests(await final_references(changes, reader, node)):
                layer = Layer(new_id(), manifest.box, manifest.count, manifest.has_deletions, encode_manifest(manifest))
                found = Presence.of(manifest.box, manifest.index, manifest.count)
                chunks.append(ChunkChange(node.id, layer, None if layer.dense else (found.kind, found.data)))
    return pack_body(TransactionLog(tuple(changes.node_changes()), tuple(chunks)).to_wire())


def with_log(state: State, log: bytes) -> State:
    """Return a state with provisional changes applied; raises `FormatError`."""
    decoded = read_log("provisional change log", unpack_body("provisional change log", log))
    builder = StateBuilder(state)
    pretended = Transaction(state.snapshot, state.parent or state.snapshot, state.time, 0, state.note, decoded)
    builder.commit(state.sequence, [(pretended, decoded, state.note)])
    return builder.build()


async def collect(
    changes: ChangeSet, reader: ChunkReader, session: bytes, fork: bytes, epoch: int
) -> ChangePayload:
    """Make the packs of a fork durable and return what it changed."""
    await changes.packs.flush()
    await changes.packs.storage.sync()
    arrays: list[ArrayPayload] = []
    for node in list(changes.all_nodes()):
        if node.id in changes.arrays:
            manifests = to_manifests(await final_references(changes, reader, node))
            arrays.append(ArrayPayload(node.id, changes.arrays[node.id].visible, tuple(manifests)))
    return ChangePayload(session, fork, epoch, tuple(changes.node_changes()), tuple(arrays))


@dataclass
class MergedChunks:
    """Which chunks came from forks already, per array: sorted by coordinates."""

    coords: dict[bytes, Int64s]


def apply_payloads(changes: ChangeSet, payloads: Sequence[ChangePayload], merged: MergedChunks) -> None:
    """Bring the changes of forks into a session: all of them, or none.

    Raises
    ------
    MergeConflictError
        If two forks, or a fork and the session, changed the same thing.
    """
    with changes.lock:
        nodes = _check_nodes(changes, payloads)
        chunks = _check_chunks(changes, payloads, merged, nodes)
        for payload in payloads:
            for change in payload.nodes:
                _apply_node(changes, change)
        for node_id, (node, parts, claimed) in chunks.items():
            for part in parts:
                _put_references(changes, node, part)
            merged.coords[node_id] = claimed


def _check_nodes(changes: ChangeSet, payloads: Sequence[ChangePayload]) -> dict[bytes, Node]:
    """Check that nodes fit; returns the nodes that forks create, by id."""
    touched: dict[str, NodeChange] = {}
    created: dict[bytes, Node] = {}
    for payload in payloads:
        mine: dict[str, NodeChange] = {}
        for change in payload.nodes:
            key = node_key(change.path, change.kind)
            other = touched.get(key)
            if other is not None and (other.operation, other.documents) != (change.operation, change.documents):
                raise MergeConflictError(f"two forks changed the node {change.path!r}", change.path)
            now = changes.node(key)
            if change.operation == Operation.CREATED:
                if other is not None or (now is not None and mine.get(key) is None):
                    raise MergeConflictError(f"a fork creates {change.path!r}, which exists by now", change.path)
                documents = {name: document for name, document in change.documents.items() if document is not None}
                created[change.id] = Node(change.id, change.path, change.kind, documents)
            elif now is None or now.id != change.id:
                raise MergeConflictError(f"a fork changed {change.path!r}, which the session deleted", change.path)
            elif changes.node_epochs.get(key, 0) >= payload.epoch and other is None:
                raise MergeConflictError(f"a fork and its session both changed the node {change.path!r}", change.path)
            mine[key] = change
        touched.update(mine)
    return created


def _check_chunks(
    changes: ChangeSet, payloads: Sequence[ChangePayload], merged: MergedChunks, created: dict[bytes, Node]
) -> dict[bytes, tuple[Node, list[References], Int64s]]:
    known = {node.id: node for node in changes.all_nodes()}
    known.update(created)
    gathered: dict[bytes, list[References]] = {}
    oldest: dict[bytes, int] = {}
    for payload in payloads:
        for item in payload.arrays:
            oldest[item.node] = min(payload.epoch, oldest.get(item.node, payload.epoch))
            if item.node not in known:
                raise MergeConflictError("a fork wrote chunks of an array that the session does not have")
            node = known[item.node]
            ndim = 0 if node.kind == NodeKind.FILE else len(array_info(node.documents).grid)
            for manifest in item.manifests:
                if len(manifest.box.low) != ndim:
                    raise FormatError(_PAYLOAD, f"chunks of {len(manifest.box.low)} dimensions for {node.path!r}")
                gathered.setdefault(item.node, []).append(References.from_manifest(manifest))
    return {
        node_id: _claim(changes, known[node_id], parts, merged, oldest[node_id]) for node_id, parts in gathered.items()
    }


def _claim(
    changes: ChangeSet, node: Node, parts: list[References], merged: MergedChunks, oldest: int
) -> tuple[Node, list[References], Int64s]:
    """Check that no chunk comes twice: from two forks, or from a fork and the session since the fork was taken."""
    before = merged.coords.get(node.id)
    coords = np.concatenate([part.coords for part in parts] + ([] if before is None else [before]))
    claimed = _in_order(coords)
    shared = claimed[1:][(claimed[1:] == claimed[:-1]).all(axis=1)]
    own = changes.touched.get(node.id)
    if own is not None:
        touched, epochs = own.columns()
        both = _in_order(np.concatenate([np.unique(coords, axis=0), touched[epochs[:, 0] >= oldest]]))
        shared = np.concatenate([shared, both[1:][(both[1:] == both[:-1]).all(axis=1)]])
    if len(shared):
        shared = np.unique(shared, axis=0)
        shown = tuple(tuple(row) for row in shared[:100].tolist())
        raise MergeConflictError(
            f"{len(shared)} chunks of {node.path!r} were written by more than one fork, or by a fork and the session, "
            f"the first at {shown[0]}: give every fork whole chunks of its own",
            node.path,
            shown,
        )
    return node, parts, claimed


def _in_order(coords: Int64s) -> Int64s:
    return coords[np.lexsort(coords.T[::-1])] if coords.shape[1] else coords


def _apply_node(changes: ChangeSet, change: NodeChange) -> None:
    key = node_key(change.path, change.kind)
    node = changes.node(key)
    if change.operation == Operation.CREATED:
        documents = {name: document for name, document in change.documents.items() if document is not None}
        changes.put_node(Node(change.id, change.path, change.kind, documents))
    elif node is not None and change.operation == Operation.DELETED:
        changes.remove_node(node)
    elif node is not None:
        merged = {**node.documents, **change.documents}
        documents = {name: document for name, document in merged.items() if document is not None}
        changes.put_node(Node(node.id, node.path, change.kind, documents, node.layers))


def _put_references(changes: ChangeSet, node: Node, part: References) -> None:
    """Write references of a fork into the session's table; packs, locations and inlined bytes come along."""
    first_pack = len(changes.packs.packs)
    changes.packs.packs.extend(part.packs)
    source = part.source.copy()
    native = (source >= 0) & (source < VIRTUAL)
    source[native] += first_pack
    offset = part.offset
    if len(part.locations):
        source[part.source >= VIRTUAL] += changes.put_locations(part.locations) - VIRTUAL
    if part.inline:
        _, start, _ = changes.put_inline(memoryview(part.inline))
        offset = np.where(part.source == -1, offset + start, offset)
    changes.array(node).table.put_many(part.coords, source, offset, part.length)


def decode_payload(data: bytes, session: bytes) -> ChangePayload:
    """Read a payload and check that it belongs to a session; raises `FormatError` or `MergeConflictError`."""
    payload = decode_changes(_PAYLOAD, data)
    if payload.session != session:
        raise MergeConflictError("these changes come from a fork of another session; merge them into that one")
    return payload
