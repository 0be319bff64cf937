"""Checks that node changes of forks fit each other and their session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from arraystore._changes.change_set import ChangeSet
from arraystore._forks.merged import Merged, MergedNode
from arraystore._forks.written_arrays import DECODING_MEMBERS, decodes_alike
from arraystore._format.fork_payload import ForkChanges
from arraystore._format.ids import ForkId, NodeId
from arraystore._format.node import Node, NodeKind, ancestors, node_key
from arraystore._format.reserved_keys import is_hidden
from arraystore._format.transaction import NodeChange, Operation
from arraystore._format.zarr_metadata import array_info
from arraystore.errors import FormatError, MergeConflictError

_ALLOWED = (Operation.CREATED, Operation.UPDATED, Operation.DELETED)


def check_siblings(forks: Iterable[ForkChanges]) -> None:
    """Check that no two forks created the same node, or changed one in different ways."""
    touched: dict[str, NodeChange] = {}
    for fork in forks:
        mine: dict[str, NodeChange] = {}
        for change in fork.nodes:
            key = node_key(change.path, change.kind)
            _check_other(change, touched.get(key))
            mine[key] = change
        touched.update(mine)


def _check_other(change: NodeChange, other: NodeChange | None) -> None:
    if other is not None and (other.operation, other.documents) != (change.operation, change.documents):
        raise MergeConflictError(f"two forks changed the node {change.path!r}", change.path)
    if other is not None and change.operation == Operation.CREATED:
        raise MergeConflictError(f"two forks created {change.path!r}: create it before the forks", change.path)


def check_nodes(
    changes: ChangeSet,
    forks: Sequence[ForkChanges],
    merged: Mapping[str, MergedNode],
    writers: Mapping[NodeId, AbstractSet[ForkId]],
    wrote_since: Callable[[Node, ForkChanges], bool],
) -> dict[NodeId, Node]:
    """Check that node changes of forks fit each other and the session, and return the nodes after them, by id.

    `writers` are the forks that wrote chunks of an array; `wrote_since` tells whether others wrote chunks that a fork
    has not seen and that were merged before.
    """
    check_siblings(forks)
    final = {node.key: node for node in changes.all_nodes()}
    touched: set[str] = set()
    gone: set[str] = set()
    paths: list[str] = []
    for fork in forks:
        for change in fork.nodes:
            key = node_key(change.path, change.kind)
            last, current = merged.get(key), final.get(key)
            again = last is not None and last.fork == fork.fork
            untouched = last is not None and last.is_as_left(changes.node(key))
            paths.append(change.path)
            if change.operation not in _ALLOWED:
                raise FormatError(
                    "change payload of a fork",
                    f"a change of a node must be one of CREATED, UPDATED and DELETED, not {change.operation.name}",
                )
            if change.operation == Operation.CREATED:
                if current is not None and current.id != change.id:
                    raise MergeConflictError(f"a fork creates {change.path!r}, which exists by now", change.path)
                if not (again and untouched):
                    _check_created(change, current, last)
                _check_group(changes, change, fork, merged, final)
                final[key] = Node(change.id, change.path, change.kind, change.applied_to({}))
            elif current is None or current.id != change.id:
                gone_as_well = change.operation == Operation.DELETED and (again or key in touched)
                if not gone_as_well or any(node.id == change.id for node in final.values()):
                    raise MergeConflictError(
                        f"a fork changed {change.path!r}, which is deleted or moved by now", change.path
                    )
            elif changes.node_epochs.get(key, -1) >= fork.epoch and key not in touched and not (again and untouched):
                raise MergeConflictError(f"a fork and its session both changed the node {change.path!r}", change.path)
            elif change.operation == Operation.DELETED:
                if wrote_since(current, fork) or writers.get(current.id, set()) - {fork.fork}:
                    raise MergeConflictError(
                        f"a fork deleted {current.path!r}, whose chunks others wrote meanwhile", current.path
                    )
                del final[key]
                gone.add(current.path)
            else:
                final[key] = replace(current, kind=change.kind, documents=change.applied_to(current.documents))
            if key in final:
                _check_redefinition(changes.node(key), final[key], fork, wrote_since)
        touched.update(node_key(change.path, change.kind) for change in fork.nodes)
    _check_hierarchy(final, gone, paths)
    _check_files(final, {change.id for fork in forks for change in fork.nodes if change.operation == Operation.CREATED})
    return {node.id: node for node in final.values()}


def _check_created(change: NodeChange, current: Node | None, last: MergedNode | None) -> None:
    """Check that a node that a fork has created may be merged though it came with another fork, or before."""
    before = None if last is None else last.node
    if current is None and before is not None and before.id == change.id:
        raise MergeConflictError(f"a fork created {change.path!r}, which is deleted or moved by now", change.path)
    if current is not None and current.documents != change.applied_to({}):
        raise MergeConflictError(
            f"a fork created {change.path!r}, and another one or the session has changed it since", change.path
        )


def _check_redefinition(
    before: Node | None, after: Node, fork: ForkChanges, wrote_since: Callable[[Node, ForkChanges], bool]
) -> None:
    """Check that a fork keeps how an array is decoded of which others wrote chunks since the fork was issued."""
    if before is None or before.id != after.id or decodes_alike(before, after):
        return
    if wrote_since(before, fork):
        raise MergeConflictError(
            f"a fork changed how chunks of {after.path!r} are decoded ({DECODING_MEMBERS}), and others wrote chunks of "
            "it meanwhile: make such changes in the session, before forks are taken or after they are merged",
            after.path,
        )


def _check_group(
    changes: ChangeSet,
    change: NodeChange,
    fork: ForkChanges,
    merged: Mapping[str, MergedNode],
    final: Mapping[str, Node],
) -> None:
    """Check that nobody else has deleted or moved a group since a fork was issued that has created a node in it."""
    if change.kind == NodeKind.FILE:
        return
    for above in ancestors(change.path):
        last = merged.get(above)
        own = last is not None and last.fork == fork.fork
        if above not in final and not own and changes.node_epochs.get(above, -1) >= fork.epoch:
            raise MergeConflictError(
                f"a fork created {change.path!r} in {above!r}, which is deleted or moved by now", change.path
            )


def _check_hierarchy(final: dict[str, Node], gone: set[str], paths: Sequence[str]) -> None:
    """Check that no node ends up below an array or a deleted group."""
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


def _check_files(final: Mapping[str, Node], created: set[NodeId]) -> None:
    """Check that no key that was set as a file is one of a chunk of an array that was made without knowing of it."""
    for file in final.values():
        if file.kind != NodeKind.FILE or is_hidden(file.path):
            continue
        array = next((n for above in ancestors(file.path) if (n := final.get(above)) is not None), None)
        if array is None or array.kind != NodeKind.ARRAY or not {file.id, array.id} & created:
            continue
        info = array_info(array.documents)
        coords = info.parse(file.path[len(array.path) + 1 if array.path else 0 :])
        if coords is not None and info.inside(coords):
            raise MergeConflictError(
                f"{file.path!r} was set before the array {array.path!r} was there, by another fork or the session, "
                "and is the key of a chunk of it: make arrays in the session, before forks are taken",
                array.path,
                (coords,),
            )


def with_taken_back(fork: ForkChanges, merged: Merged) -> ForkChanges:
    """Return the changes of a fork with those that undo what an earlier state of it brought and this one has not."""
    if fork.fork not in merged.numbers:
        return fork
    kept = {change.id for change in fork.nodes}
    mine = [(each.node, each.before) for each in merged.nodes.values() if each.fork == fork.fork]
    left = [(node, before) for node, before in mine if node is not None and node.id not in kept]
    undone = [change for node, before in left if (change := _undone(node, before)) is not None]
    undone.sort(key=lambda change: change.path, reverse=True)
    return replace(fork, nodes=(*undone, *fork.nodes))


def _undone(node: Node, before: Node | None) -> NodeChange | None:
    if before is None or before.id != node.id:
        return NodeChange(Operation.DELETED, node.id, node.path, node.kind, {})
    if before.documents == node.documents:
        return None
    documents = {**dict.fromkeys(node.documents), **before.documents}
    return NodeChange(Operation.UPDATED, node.id, node.path, node.kind, documents)


def apply_node(changes: ChangeSet, change: NodeChange) -> None:
    """Apply the node change of a fork to its session's change set."""
    node = changes.node(node_key(change.path, change.kind))
    if change.operation == Operation.CREATED:
        if node is None or node.id != change.id:
            node = Node(change.id, change.path, change.kind, {})
        changes.put_node(replace(node, documents=change.applied_to({})))
    elif node is not None and node.id == change.id:
        if change.operation == Operation.DELETED:
            changes.remove_node(node)
        else:
            changes.put_node(replace(node, kind=change.kind, documents=change.applied_to(node.documents)))
