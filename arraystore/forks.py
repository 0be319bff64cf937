"""Forks: taking the uncommitted state of a session to other processes, and bringing their changes home."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

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
from arraystore.format.node import Documents, Node, NodeKind, node_key
from arraystore.format.record import Transaction
from arraystore.format.references import DELETED, INLINE, VIRTUAL, References, to_manifests
from arraystore.format.transaction import ChunkChange, NodeChange, Operation, Presence, TransactionLog, read_log
from arraystore.format.zarr_metadata import array_info

__all__ = ["Home", "Merged", "apply_payloads", "collect", "provisional_log", "with_log"]

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
    pretended = Transaction(state.snapshot, state.snapshot, state.time, 0, state.note, decoded)
    builder.commit(state.sequence, [(pretended, decoded, state.note)])
    return builder.build()


async def collect(changes: ChangeSet, reader: ChunkReader, home: Home) -> ChangePayload:
    """Make the packs of a fork durable and return what it changed."""
    await changes.packs.flush()
    await changes.packs.storage.sync()
    arrays: list[ArrayPayload] = []
    for node in list(changes.all_nodes()):
        if node.id in changes.arrays:
            manifests = to_manifests(await final_references(changes, reader, node))
            arrays.append(ArrayPayload(node.id, changes.arrays[node.id].visible, tuple(manifests)))
    nodes = tuple(changes.node_changes())
    return ChangePayload(home.session, home.fork, home.epoch, home.number, nodes, tuple(arrays))


@dataclass(frozen=True)
class Home:
    """Where a payload comes from; see `ChangePayload`."""

    session: bytes
    fork: bytes
    epoch: int
    number: int


@dataclass
class Merged:
    """What a session has got from forks: chunks by array and fork, nodes by key."""

    coords: dict[bytes, dict[bytes, Int64s]] = field(default_factory=dict)
    nodes: dict[str, bytes] = field(default_factory=dict)
    numbers: dict[bytes, int] = field(default_factory=dict)


def apply_payloads(changes: ChangeSet, payloads: Sequence[ChangePayload], merged: Merged) -> None:
    """Bring the changes of forks into a session: all of them, or none.

    Of several payloads of one fork the newest counts, since it holds what the others do.

    Raises
    ------
    MergeConflictError
        If two forks, or a fork and the session, changed the same thing.
    """
    newest: dict[bytes, ChangePayload] = {}
    for payload in payloads:
        if payload.number <= merged.numbers.get(payload.fork, 0):
            raise MergeConflictError("these changes of a fork have been merged already, or newer ones of the same fork")
        if payload.fork not in newest or newest[payload.fork].number < payload.number:
            newest[payload.fork] = payload
    with changes.lock:
        changes.check_open()
        known = _check_nodes(changes, list(newest.values()), merged)
        arrays = _gathered(newest.values(), known)
        for node_id, by_fork in arrays.items():
            _check_chunks(changes, known[node_id], by_fork, merged, newest)
        for payload in newest.values():
            for change in payload.nodes:
                _apply_node(changes, change)
                merged.nodes[node_key(change.path, change.kind)] = payload.fork
            merged.numbers[payload.fork] = payload.number
        for node_id, by_fork in arrays.items():
            for fork, parts in by_fork.items():
                _replace_chunks(changes, known[node_id], parts, merged.coords.setdefault(node_id, {}), fork)


def _check_nodes(changes: ChangeSet, payloads: Sequence[ChangePayload], merged: Merged) -> dict[bytes, Node]:
    """Check that changes of nodes fit each other and the session; returns all nodes as they will be, by id."""
    final = {node.key: node for node in changes.all_nodes()}
    touched: dict[str, NodeChange] = {}
    gone: set[str] = set()
    for payload in payloads:
        mine: dict[str, NodeChange] = {}
        for change in payload.nodes:
            key = node_key(change.path, change.kind)
            _check_other(change, touched.get(key))
            again = merged.nodes.get(key) == payload.fork
            now = final.get(key)
            if change.operation == Operation.CREATED:
                if now is not None and now.id != change.id:
                    raise MergeConflictError(f"a fork creates {change.path!r}, which exists by now", change.path)
                final[key] = Node(change.id, change.path, change.kind, _documents(change, {}))
            elif now is None or now.id != change.id:
                if change.operation != Operation.DELETED or not (again or key in touched):
                    raise MergeConflictError(f"a fork changed {change.path!r}, which is deleted by now", change.path)
            elif changes.node_epochs.get(key, 0) >= payload.epoch and key not in touched and not again:
                raise MergeConflictError(f"a fork and its session both changed the node {change.path!r}", change.path)
            elif change.operation == Operation.DELETED:
                _check_unwritten(changes, now, payload, payloads, merged)
                del final[key]
                gone.add(now.path)
            else:
                final[key] = replace(now, kind=change.kind, documents=_documents(change, now.documents))
            mine[key] = change
        touched.update(mine)
    _check_hierarchy(final, gone, [change.path for change in touched.values()])
    return {node.id: node for node in final.values()}


def _check_other(change: NodeChange, other: NodeChange | None) -> None:
    if other is not None and (other.operation, other.documents) != (change.operation, change.documents):
        raise MergeConflictError(f"two forks changed the node {change.path!r}", change.path)
    if other is not None and change.operation == Operation.CREATED:
        raise MergeConflictError(f"two forks created {change.path!r}: create it before the forks", change.path)


def _check_unwritten(
    changes: ChangeSet, node: Node, payload: ChangePayload, payloads: Sequence[ChangePayload], merged: Merged
) -> None:
    """Check that nobody else wrote chunks of an array that a fork deletes."""
    writers = {p.fork for p in payloads for item in p.arrays if item.node == node.id}
    writers |= merged.coords.get(node.id, {}).keys()
    own = changes.touched.get(node.id)
    late = own is not None and bool((own.columns()[1][:, 0] >= payload.epoch).any())
    if late or writers - {payload.fork}:
        raise MergeConflictError(f"a fork deleted {node.path!r}, of which others wrote chunks meanwhile", node.path)


def _check_hierarchy(final: dict[str, Node], gone: set[str], paths: Sequence[str]) -> None:
    """Check that no node ends up below an array, or below a group that is deleted."""
    suspects = {node.path for node in final.values() if node.kind != NodeKind.FILE} if gone else set(paths)
    arrays = {path for path in paths if (node := final.get(path)) is not None and node.kind == NodeKind.ARRAY}
    if arrays:
        suspects = {node.path for node in final.values() if node.kind != NodeKind.FILE}
    for path in suspects:
        above = path
        while above and path in final:
            above = above.rpartition("/")[0]
            parent = final.get(above)
            if parent is None and above in gone:
                raise MergeConflictError(f"{path!r} would be left below {above!r}, which a fork deleted", path)
            if parent is not None and parent.kind == NodeKind.ARRAY:
                raise MergeConflictError(f"{path!r} would be below {above!r}, which is an array", path)


def _documents(change: NodeChange, before: Documents) -> Documents:
    after = {**before, **change.documents}
    return {name: document for name, document in after.items() if document is not None}


def _gathered(
    payloads: Iterable[ChangePayload], known: dict[bytes, Node]
) -> dict[bytes, dict[bytes, list[References]]]:
    """Return the references of all payloads, by array and fork."""
    found: dict[bytes, dict[bytes, list[References]]] = {}
    for payload in payloads:
        for item in payload.arrays:
            if not item.manifests:
                continue  # a resize that cut nothing off
            node = known.get(item.node)
            if node is None:
                raise MergeConflictError("a fork wrote chunks of an array that is deleted by now")
            grid = () if node.kind == NodeKind.FILE else array_info(node.documents).grid
            parts = found.setdefault(item.node, {}).setdefault(payload.fork, [])
            for manifest in item.manifests:
                if len(manifest.box.low) != len(grid):
                    raise FormatError(_PAYLOAD, f"chunks of {len(manifest.box.low)} dimensions for {node.path!r}")
                part = References.from_manifest(manifest)
                outside = (part.coords >= np.array(grid, dtype=np.int64)).any(axis=1)
                if bool((outside & (part.source != DELETED)).any()):
                    raise MergeConflictError(
                        f"a fork wrote chunks of {node.path!r} outside of its grid, which is {grid} by now", node.path
                    )
                parts.append(part)
    return found


def _check_chunks(
    changes: ChangeSet,
    node: Node,
    by_fork: dict[bytes, list[References]],
    merged: Merged,
    payloads: dict[bytes, ChangePayload],
) -> None:
    """Check that no chunk comes twice: from two forks, or from a fork and the session since the fork was taken."""
    others = [coords for fork, coords in merged.coords.get(node.id, {}).items() if fork not in by_fork]
    coords = np.concatenate([part.coords for parts in by_fork.values() for part in parts])
    shared = _twice(np.concatenate([coords, *others]))
    own = changes.touched.get(node.id)
    if own is not None:
        touched, epochs = own.columns()
        oldest = min(payloads[fork].epoch for fork in by_fork)
        late = touched[epochs[:, 0] >= oldest]
        shared = np.concatenate([shared, _twice(np.concatenate([np.unique(coords, axis=0), late]))])
    if len(shared):
        shared = np.unique(shared, axis=0)
        shown = tuple(tuple(row) for row in shared[:100].tolist())
        raise MergeConflictError(
            f"{len(shared)} chunks of {node.path!r} were written by more than one fork, or by a fork and the session, "
            f"the first at {shown[0]}: give every fork whole chunks of its own",
            node.path,
            shown,
        )


def _twice(coords: Int64s) -> Int64s:
    """Return the rows that come more than once."""
    ordered = coords[np.lexsort(coords.T[::-1])] if coords.shape[1] else coords
    repeated: Int64s = ordered[1:][(ordered[1:] == ordered[:-1]).all(axis=1)]
    return repeated


def _replace_chunks(
    changes: ChangeSet, node: Node, parts: list[References], before: dict[bytes, Int64s], fork: bytes
) -> None:
    """Put the chunks of a fork into the session's table, in place of those of its payload before."""
    if fork in before:
        table = changes.array(node).table
        coords, _ = table.columns()
        table.drop(~np.isin(table.numbers(coords), table.numbers(before[fork])))
    for part in parts:
        _put_references(changes, node, part)
    before[fork] = np.concatenate([part.coords for part in parts])


def _apply_node(changes: ChangeSet, change: NodeChange) -> None:
    node = changes.node(node_key(change.path, change.kind))
    if change.operation == Operation.CREATED:
        if node is None or node.id != change.id:
            node = Node(change.id, change.path, change.kind, {})
        changes.put_node(replace(node, documents=_documents(change, {})))
    elif node is not None and node.id == change.id:
        if change.operation == Operation.DELETED:
            changes.remove_node(node)
        else:
            changes.put_node(replace(node, kind=change.kind, documents=_documents(change, node.documents)))


def _put_references(changes: ChangeSet, node: Node, part: References) -> None:
    """Write references of a fork into the session's table; packs, locations and inlined bytes come along."""
    first_pack = changes.packs.adopt(part.packs)
    source = part.source.copy()
    native = (source >= 0) & (source < VIRTUAL)
    source[native] += first_pack
    offset = part.offset
    if len(part.locations):
        source[part.source >= VIRTUAL] += changes.put_locations(part.locations) - VIRTUAL
    if part.inline:
        _, start, _ = changes.put_inline(memoryview(part.inline))
        offset = np.where(part.source == INLINE, offset + start, offset)
    changes.array(node).table.put_many(part.coords, source, offset, part.length)


def decode_payload(data: bytes, session: bytes) -> ChangePayload:
    """Read a payload and check that it belongs to a session; raises `FormatError` or `MergeConflictError`."""
    payload = decode_changes(_PAYLOAD, data)
    if payload.session != session:
        raise MergeConflictError("these changes come from a fork of another session; merge them into that one")
    return payload
