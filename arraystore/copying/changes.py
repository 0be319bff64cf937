"""Bringing what changed between two snapshots of one repository to a session of another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import Comparison, compare
from arraystore._log.state import State, empty_state
from arraystore._session.session import Session
from arraystore.copying.chunks import carry, references_at
from arraystore.copying.report import Tally

__all__ = ["bring_changes"]


async def bring_changes(session: Session, before: State | None, wanted: Session, tally: Tally) -> None:
    """Make a session's hierarchy what a snapshot of another repository is.

    Parameters
    ----------
    session
        To write to; its hierarchy is that of `before`.
    before
        The snapshot that the session shows a copy of; None where it shows none, and everything in it has to go.
    wanted
        A session of the other repository that shows the snapshot wanted.
    tally
        Counts chunks.
    """
    changes = session.hierarchy.writable()
    after, reader = wanted.hierarchy.state, wanted.context.reader
    if before is None:
        before = empty_state(after.branch, 0, after.snapshot, None, 0, b"")
        for node in list(changes.all_nodes()):
            changes.remove_node(node)
    comparison = await compare(before, after, reader.manifests, wanted.context.log)
    twins = _bring_nodes(changes, before, after, comparison)
    session.hierarchy.forget()
    for node, coords in comparison.chunks:
        grid = () if node.kind == NodeKind.FILE else array_info(node.documents).grid
        inside = coords[(coords < np.array(grid, dtype=np.int64)).all(axis=1)]  # a shrink has cut off the others
        references = await references_at(reader, node.layers, inside)
        await carry(reader.storage, references, changes, twins[node.id], tally)
    session.hierarchy.forget()


def _bring_nodes(changes: ChangeSet, before: State, after: State, comparison: Comparison) -> dict[bytes, Node]:
    """Change nodes; returns those of the session by the ids that they have in the other repository."""
    new_id = changes.packs.environment.new_id
    twins: dict[bytes, Node] = {}
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
        twins[node.id] = Node(new_id(), node.path, node.kind, node.documents)
        changes.put_node(twins[node.id])
    return twins


def _present(changes: ChangeSet, key: str) -> Node:
    node = changes.node(key)
    assert node is not None  # the session shows a copy of `before`
    return node
