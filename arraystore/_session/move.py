"""Moves of nodes, which change metadata only."""

from __future__ import annotations

from collections.abc import Iterable

from arraystore._changes.change_set import ChangeSet, file_key
from arraystore._format.node import NodeKind
from arraystore._format.transaction import NodeChange, Operation
from arraystore._log.repository_log import RepositoryLog
from arraystore._log.status import check_allowed
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import check_key, node_path
from arraystore.errors import InvalidInputError, NodeNotFoundError


async def check_moves(log: RepositoryLog, changes: Iterable[NodeChange]) -> None:
    """Check, with one request if changes include moves, that the repository allows them."""
    if any(change.operation == Operation.MOVED for change in changes):
        check_allowed(await log.table(), "move_node")


def move_node(hierarchy: Hierarchy, source: str, target: str) -> None:
    """Move a node to another path."""
    old, new = node_path(source), node_path(target)
    if not old:
        raise InvalidInputError("the root group cannot be moved")
    if not new:
        raise InvalidInputError("the root group cannot be replaced by a move: pass another target")
    check_key(new)
    changes = hierarchy.writable()
    with changes.lock:
        node = changes.node(old)
        if node is None:
            raise NodeNotFoundError(f"there is no array or group {source!r} to move")
        _check_target(changes, source, target)
        changes.move(node, new)
        hierarchy.forget()


def _check_target(changes: ChangeSet, source: str, target: str) -> None:
    """Check that a node can be moved to a path; raises `InvalidInputError`."""
    old, new = source.strip("/"), target.strip("/")
    if (new + "/").startswith(old + "/"):
        raise InvalidInputError(f"{source!r} cannot be moved into itself")
    refusal = f"{source!r} cannot be moved to {target!r}"
    if changes.node(new) is not None or changes.has_nodes_below(new) or _has_files(changes, new):
        raise InvalidInputError(f"{refusal}: the target exists already; delete it first")
    above = new.rpartition("/")[0]
    parent = changes.node(above)
    if parent is None:
        raise InvalidInputError(f"{refusal}: there is no group {'/' + above!r}; create it first")
    if parent.kind != NodeKind.GROUP:
        raise InvalidInputError(f"{refusal}: {'/' + above!r} is an array, not a group")


def _has_files(changes: ChangeSet, path: str) -> bool:
    """Tell whether there are files below a path, which would hide chunks or other files."""
    below = file_key(path) + "/"
    return changes.has_files and any(node.key.startswith(below) for node in changes.all_nodes())
