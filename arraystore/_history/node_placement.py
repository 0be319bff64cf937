"""Checks of where a three-way merge would place nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arraystore._conflicts import Conflict, ConflictType
from arraystore._format.ids import NodeId
from arraystore._format.node import Node, NodeKind, ancestors, node_key
from arraystore._format.transaction import NodeChange, Operation
from arraystore._log.state import SnapshotState, StateBuilder, moved_groups, taken_along

_COMES = {
    Operation.CREATED: ConflictType.NewNodeConflictsWithExistingNode,
    Operation.MOVED: ConflictType.MoveOperationCannotBeRebased,
}


def misplaced(nodes: Sequence[NodeChange], ours: SnapshotState, tip: SnapshotState) -> list[Conflict]:
    """Return the conflicts of node changes with the hierarchy of the tip that they are to be made to."""
    if all(change.operation == Operation.UPDATED for change in nodes):
        return []
    conflicts = [*_occupied(nodes, tip)]
    if conflicts:
        return conflicts
    builder = StateBuilder(tip)
    builder.change_nodes(tuple(nodes))
    final = builder.build()
    return [*_without_group(nodes, ours, final), *_above_others(nodes, final), *_orphans(nodes, ours, tip)]


def _places(nodes: Sequence[NodeChange]) -> Iterator[tuple[NodeChange, str]]:
    """Yield created and moved nodes, and their paths then."""
    for change in nodes:
        if change.operation in _COMES:
            yield change, change.path if change.target is None else change.target


def _conflict(kind: ConflictType, change: NodeChange, path: str, detail: str) -> Conflict:
    return Conflict(kind, "/" + path, None, "", detail, change.id)


def _occupied(nodes: Sequence[NodeChange], tip: SnapshotState) -> Iterator[Conflict]:
    """Yield conflicts of paths at which the tip has another node that stays there, or goes there with its group."""
    leaving, groups = _leaving(nodes), moved_groups(nodes, tip)
    targets = {change.target: change for change in nodes if change.target is not None and change.kind == NodeKind.GROUP}
    present = {_key(node, groups): node for node in tip.nodes.values() if node.id not in leaving}
    for change, place in _places(nodes):
        node = present.get(node_key(place, change.kind))
        if node is not None:
            detail = f"theirs has {_a(node)} at {'/' + node.path!r}"
            yield _conflict(_COMES[change.operation], change, change.path, detail)
            targets.pop(place, None)
    for node in present.values() if targets else ():
        above = next((path for path in ancestors(node.path) if path in targets), None)
        if above is not None and taken_along(node.path, groups) is None:
            change = targets.pop(above)
            detail = f"theirs has {_a(node)} at {'/' + node.path!r}"
            yield _conflict(_COMES[change.operation], change, change.path, detail)


def _without_group(nodes: Sequence[NodeChange], ours: SnapshotState, final: SnapshotState) -> Iterator[Conflict]:
    """Yield conflicts of paths in groups that do not exist, or that are arrays."""
    for change, place in _places(nodes):
        created = change.operation == Operation.CREATED
        kind = ConflictType.NewNodeInInvalidGroup if created else ConflictType.MoveOperationCannotBeRebased
        for above in ancestors(place):
            group = final.nodes.get(above)
            if group is not None and group.kind == NodeKind.ARRAY:
                yield _conflict(kind, change, change.path, f"{'/' + above!r} above {'/' + place!r} is an array by now")
                break
            if group is None and above in ours.nodes and change.kind != NodeKind.FILE:
                yield _conflict(kind, change, change.path, f"the group {'/' + above!r} of {'/' + place!r} is not there")
                break


def _above_others(nodes: Sequence[NodeChange], final: SnapshotState) -> Iterator[Conflict]:
    """Yield conflicts of arrays that would have nodes below them."""
    arrays = {place: change for change, place in _places(nodes) if change.kind == NodeKind.ARRAY}
    if not arrays:
        return
    for node in final.nodes.values():
        above = next((path for path in ancestors(node.path) if path in arrays), None)
        if above is not None:
            change = arrays.pop(above)
            yield _conflict(_COMES[change.operation], change, change.path, f"theirs has {_a(node)} below it")


def _orphans(nodes: Sequence[NodeChange], ours: SnapshotState, tip: SnapshotState) -> Iterator[Conflict]:
    """Yield conflicts of nodes that theirs has put into deleted groups."""
    going = {tip.keys[c.id]: c for c in nodes if c.operation == Operation.DELETED and c.kind == NodeKind.GROUP}
    if not going:
        return
    leaving, groups = _leaving(nodes), moved_groups(nodes, tip)
    for node in tip.nodes.values():
        above = next((path for path in ancestors(node.path) if path in going or path in groups), None)
        if above not in going or node.id in leaving or _key(node, groups) in ours.nodes:
            continue
        change = going.pop(above)
        detail = f"ours deletes it, theirs put {'/' + node.path!r} into it"
        yield _conflict(ConflictType.DeleteOfUpdatedGroup, change, change.path, detail)


def _leaving(nodes: Sequence[NodeChange]) -> set[NodeId]:
    return {change.id for change in nodes if change.operation in (Operation.DELETED, Operation.MOVED)}


def _key(node: Node, groups: dict[str, str]) -> str:
    """Return the key of a node of the tip that goes along with moved groups."""
    return node_key(taken_along(node.path, groups) or node.path, node.kind)


def _a(node: Node) -> str:
    return {NodeKind.GROUP: "a group", NodeKind.ARRAY: "an array", NodeKind.FILE: "a file"}[node.kind]
