"""Changes of nodes, worked out from the nodes before and after them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arraystore._format.ids import NodeId
from arraystore._format.node import Documents, Node, NodeKind
from arraystore._format.transaction import Append, AppendMark, NodeChange, Operation
from arraystore._format.zarr_changes import dimension_of, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._log.state import SnapshotState, taken_along
from arraystore.errors import InvalidInputError


def axis_of(documents: Documents, dimension: str) -> int | None:
    """Return which dimension of an array has a name, after its metadata; None if none has."""
    names = _names(documents)
    return names.index(dimension) if dimension in names else None


def dimension_name(documents: Documents, axis: int) -> str | None:
    """Return the name of a dimension of an array, after its metadata; None if it has none."""
    names = _names(documents)
    name = names[axis] if axis < len(names) else None
    return name if isinstance(name, str) else None


def _names(documents: Documents) -> list[Any]:
    for name in ("zarr.json", ".zattrs"):
        try:
            value = json.loads(documents[name]) if name in documents else {}
        except ValueError:
            continue
        if not isinstance(value, dict):
            continue
        attributes = value.get("attributes", {}) if name == "zarr.json" else value
        for names in (value.get("dimension_names"), attributes.get("_ARRAY_DIMENSIONS")):
            if isinstance(names, list):
                return names
    return []


def append_mark(before: Documents, after: Documents, dimension: str) -> AppendMark | None:
    """Return the mark of an append if an array has grown along a named dimension, and along no other."""
    axis = axis_of(before, dimension)
    if axis is None:
        return None
    old, new = array_info(before).shape, array_info(after).shape
    if len(old) != len(new) or new[axis] <= old[axis]:
        return None
    if any(a != b for i, (a, b) in enumerate(zip(old, new, strict=True)) if i != axis):
        return None
    dimension_before = dimension_of(before, axis)
    return AppendMark(axis, dimension_before.length, dimension_before.chunk)


def append_of(mark: AppendMark, before: Documents, after: Documents) -> Append | None:
    """Return the append that a mark has become; None where the array is not one that has only grown there."""
    try:
        new = dimension_of(after, mark.axis)
        old, shape = array_info(before).shape, array_info(after).shape
    except InvalidInputError:
        return None
    if mark.chunk is None or not mark.aligned or new.chunk != mark.chunk or new.length <= mark.start:
        return None
    if old[: mark.axis] + old[mark.axis + 1 :] != shape[: mark.axis] + shape[mark.axis + 1 :]:
        return None
    return Append(mark.axis, mark.start, new.length - mark.start, mark.chunk) if old[mark.axis] == mark.start else None


def node_changes(
    base: SnapshotState, nodes: Mapping[str, Node | None], marks: Mapping[NodeId, AppendMark]
) -> list[NodeChange]:
    """Return what changed, in an order in which it can be applied: deletions, moves, creations, updates, appends.

    `nodes` are those that differ from the base, by key, None where there is none any more; `marks` are the ends of
    arrays before appends, by id.
    """
    now = {node.id: node for node in nodes.values() if node is not None}
    deleted: list[NodeChange] = []
    created: list[NodeChange] = []
    updated: list[NodeChange] = []
    appended: list[NodeChange] = []
    for key, node in sorted(nodes.items()):
        before = base.nodes.get(key)
        if before is not None and (node is None or node.id != before.id) and before.id not in now:
            deleted.append(NodeChange(Operation.DELETED, before.id, before.path, before.kind, {}))
        if node is None:
            continue
        old = base.nodes.get(base.keys.get(node.id, "\0\0"))
        if old is None:
            documents: dict[str, bytes | None] = dict(node.documents)
            created.append(NodeChange(Operation.CREATED, node.id, node.path, node.kind, documents))
        elif node.documents != old.documents:
            update, append = _update(node, old, marks.get(node.id))
            updated += update
            appended += append
    return [*reversed(deleted), *_moves(base, now), *created, *updated, *appended]


def _moves(base: SnapshotState, now: Mapping[NodeId, Node]) -> list[NodeChange]:
    """Return the moves that bring nodes where they are now, without those that are brought along by another."""
    moves: list[NodeChange] = []
    groups: dict[str, str] = {}
    known = sorted((base.nodes[base.keys[i]].path, i) for i in now if i in base.keys)
    for path, identifier in known:
        node = now[identifier]
        if node.path == (taken_along(path, groups) or path):
            continue
        moves.append(NodeChange(Operation.MOVED, identifier, path, node.kind, {}, node.path))
        if node.kind == NodeKind.GROUP:
            groups[path] = node.path
    return moves


def _update(node: Node, old: Node, mark: AppendMark | None) -> tuple[list[NodeChange], list[NodeChange]]:
    """Return a change of documents as an update, an append, or both."""
    after = node.documents
    appended: list[NodeChange] = []
    append = None if mark is None else append_of(mark, old.documents, after)
    if append is not None:
        appended.append(NodeChange(Operation.APPENDED, node.id, node.path, node.kind, {}, None, append))
        after = _like(old.documents, with_length(after, append.axis, append.start))
    documents: dict[str, bytes | None] = {n: d for n, d in after.items() if old.documents.get(n) != d}
    documents.update(dict.fromkeys(old.documents.keys() - after.keys()))
    updated = [NodeChange(Operation.UPDATED, node.id, node.path, node.kind, documents)] if documents else []
    return updated, appended


def _like(old: Documents, new: Documents) -> Documents:
    """Return new documents with the old bytes where they say the same."""
    return {name: old[name] if name in old and _same(old[name], text) else text for name, text in new.items()}


def _same(first: bytes, second: bytes) -> bool:
    if first == second:
        return True
    try:
        return json.dumps(json.loads(first)) == json.dumps(json.loads(second))
    except ValueError:
        return False
