"""Applying the difference between two snapshots of one repository to a session of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.layer_lookup import references_at
from arraystore._format.ids import NodeId
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import References
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import Comparison, compare
from arraystore._log.state import SnapshotState, empty_state
from arraystore._runtime.engine import Engine
from arraystore._session.session import Session
from arraystore.copying.chunks import copy_chunks
from arraystore.copying.remote_chunks import copy_chunks_remotely
from arraystore.copying.report import CopyCounter

__all__ = ["apply_changes"]

_REQUESTS = 16
"""Manifests that are read at a time."""


async def apply_changes(
    session: Session, before: SnapshotState | None, wanted: Session, counter: CopyCounter, engine: Engine | None = None
) -> None:
    """Change a session's hierarchy into that of a snapshot of another repository."""
    changes = session.hierarchy.writable()
    after, reader = wanted.hierarchy.state, wanted.context.reader
    if before is None:
        before = empty_state(after.branch, 0, after.snapshot, None, 0, b"")
        for node in list(changes.all_nodes()):
            changes.remove_node(node)
    comparison = await compare(before, after, reader.manifests, wanted.context.log)
    gate = asyncio.Semaphore(_REQUESTS)
    twins = _apply_nodes(changes, before, after, comparison)
    session.hierarchy.forget()

    async def changed() -> AsyncIterator[tuple[Node, References]]:
        for node, coords in comparison.chunks:
            grid = () if node.kind == NodeKind.FILE else array_info(node.documents).grid
            inside = coords[(coords < np.array(grid, dtype=np.int64)).all(axis=1)]  # a shrink has cut off the others
            yield twins[node.id], await references_at(reader.manifests, node.layers, inside, gate)

    if engine is None:
        async for node, references in changed():
            await copy_chunks(reader.storage, references, changes, node, counter)
    else:
        await copy_chunks_remotely(engine, reader.storage, changed(), session, counter)
    session.hierarchy.forget()


def _apply_nodes(
    changes: ChangeSet, before: SnapshotState, after: SnapshotState, comparison: Comparison
) -> dict[NodeId, Node]:
    """Change nodes, and return those of the session by their ids in the other repository."""
    new_id = changes.packs.environment.new_id
    twins: dict[NodeId, Node] = {}
    moved: list[Node] = []
    for identifier, key in after.keys.items():
        if identifier in before.keys:
            twin = changes.node(before.keys[identifier])
            assert twin is not None  # the session shows a copy of `before`
            twins[identifier] = twin
            if before.keys[identifier] != key:
                moved.append(after.nodes[key])
    for node in comparison.deleted:
        changes.remove_node(_present(changes, node.key))
    for node in moved:
        changes.remove_node(twins[node.id])
    for node in moved:
        twins[node.id] = replace(twins[node.id], path=node.path)
        changes.put_node(twins[node.id])
    for node in comparison.updated:
        twins[node.id] = replace(twins[node.id], documents=node.documents)
        changes.put_node(twins[node.id])
    for node in comparison.created:
        twins[node.id] = Node(NodeId(new_id()), node.path, node.kind, node.documents)
        changes.put_node(twins[node.id])
    return twins


def _present(changes: ChangeSet, key: str) -> Node:
    node = changes.node(key)
    assert node is not None  # the session shows a copy of `before`
    return node
