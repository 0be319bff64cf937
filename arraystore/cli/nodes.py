"""The nodes of a snapshot, as commands show them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from arraystore import Session
from arraystore._concurrency import bounded
from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime import run
from arraystore._session.listing import present_chunks, visible_nodes
from arraystore.errors import NodeNotFoundError

__all__ = ["NodeView", "children", "nodes_below"]

_AT_ONCE = 8
"""Arrays whose references are in memory at the same time."""


@dataclass(frozen=True)
class NodeView:
    """A group, array or file.

    Parameters
    ----------
    path
        With a slash in front.
    kind
        ``group``, ``array`` or ``file``.
    shape, chunks
        In items; chunks are None where they are not regular.
    dtype
        As the metadata has it.
    dimensions
        Names, where the metadata has them.
    grid_size
        Number of chunks that it could have.
    initialised
        Number of chunks that it has; None where that was not asked for.
    """

    path: str
    kind: str
    shape: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    dtype: str | None = None
    dimensions: tuple[str | None, ...] | None = None
    grid_size: int | None = None
    initialised: int | None = None


def nodes_below(session: Session, path: str, *, count: bool) -> list[NodeView]:
    """Return a node and all below it, in order of their paths.

    Parameters
    ----------
    session
        Where to look.
    path
        Of a group or array.
    count
        Whether to find out how many chunks there are.

    Raises
    ------
    NodeNotFoundError
        If there is no such node.
    """
    key = path.strip("/")
    below = f"{key}/" if key else ""
    nodes = visible_nodes(session.hierarchy, key)
    found = [node for node in nodes if node.path == key or node.path.startswith(below)]
    if not found or (key and all(node.path != key for node in found)):
        raise NodeNotFoundError(f"there is no group or array {path!r} in snapshot {session.snapshot_id}")
    found.sort(key=lambda node: node.path.split("/") if node.path else [])
    views = list(map(_view, found))
    if not views or views[0].path != f"/{key}":
        views.insert(0, NodeView("/", "group"))
    return run(_counted(session, found, views)) if count else views


async def _counted(session: Session, nodes: list[Node], views: list[NodeView]) -> list[NodeView]:
    async def counted(node: Node) -> int:
        if not node.layers or (len(node.layers) == 1 and not node.layers[0].deletions):
            return sum(layer.count for layer in node.layers)
        return len(await present_chunks(session.hierarchy, node))

    arrays = [node for node in nodes if node.kind == NodeKind.ARRAY]
    counts = await bounded(counted, arrays, _AT_ONCE)
    known = {f"/{node.path}": count for node, count in zip(arrays, counts, strict=True)}
    return [replace(view, initialised=known.get(view.path)) if view.kind == "array" else view for view in views]


def children(session: Session, path: str) -> list[NodeView]:
    """Return what is right below a node, in order of its name."""
    views = nodes_below(session, path, count=False)
    depth = views[0].path.rstrip("/").count("/") + 1
    return [view for view in views[1:] if view.path.count("/") == depth]


def _view(node: Node) -> NodeView:
    path = f"/{node.path}"
    if node.kind == NodeKind.GROUP:
        return NodeView(path, "group")
    if node.kind == NodeKind.FILE:
        return NodeView(path, "file")
    info = array_info(node.documents)
    document = _document(node)
    names = document.get("dimension_names")
    return NodeView(
        path,
        "array",
        info.shape,
        _chunks(document),
        _dtype(document),
        tuple(names) if isinstance(names, list) else None,
        math.prod(info.grid),
    )


def _document(node: Node) -> dict[str, Any]:
    name = "zarr.json" if "zarr.json" in node.documents else ".zarray"
    found: dict[str, Any] = json.loads(node.documents[name])
    return found


def _chunks(document: dict[str, Any]) -> tuple[int, ...] | None:
    given = document.get("chunks")
    if given is None:
        grid = document.get("chunk_grid")
        given = grid.get("configuration", {}).get("chunk_shape") if isinstance(grid, dict) else None
    return tuple(given) if isinstance(given, list) and all(isinstance(size, int) for size in given) else None


def _dtype(document: dict[str, Any]) -> str:
    given = document.get("data_type", document.get("dtype"))
    if isinstance(given, dict):
        given = given.get("name")
    return given if isinstance(given, str) else json.dumps(given)
