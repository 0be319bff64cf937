"""Nodes of a snapshot as plain values, as commands print them and the data source of Spark lists them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from arraystore._format.node import Node, NodeKind
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore._session.base import SessionBase
from arraystore._session.keys import node_path
from arraystore._session.listing import present_chunks, visible_nodes
from arraystore.errors import NodeNotFoundError

_AT_ONCE = 8
"""Number of arrays whose references are in memory at a time."""


@dataclass(frozen=True)
class NodeView:
    """Group, array or file."""

    path: str
    """Path with a leading slash."""
    kind: str
    """Kind: ``group``, ``array`` or ``file``."""
    shape: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    """Shape and chunk shape in items; None for chunks of varying shape."""
    dtype: str | None = None
    """Data type in the metadata."""
    dimensions: tuple[str | None, ...] | None = None
    """Names of the dimensions, None if the metadata has none."""
    grid_size: int | None = None
    """Number of chunks in the grid."""
    initialised: int | None = None
    """Number of initialised chunks; None if not counted."""
    stored_bytes: int | None = None
    """Bytes of these chunks as they are stored, virtual ones included; None if not measured."""


def nodes_below(session: SessionBase, path: str, *, count: bool) -> list[NodeView]:
    """Return a node and all nodes below it by path, with counts of initialised chunks if `count`."""
    key = node_path(path)
    below = f"{key}/" if key else ""
    nodes = visible_nodes(session.hierarchy, key)
    selected = [node for node in nodes if node.path == key or node.path.startswith(below)]
    if key and all(node.path != key for node in selected):
        raise NodeNotFoundError(f"there is no group or array {path!r} in snapshot {session.snapshot_id}")
    selected.sort(key=lambda node: node.path.split("/") if node.path else [])
    views = list(map(_view, selected))
    if not views or views[0].path != f"/{key}":
        views.insert(0, NodeView("/", "group"))
    return run(_count_chunks(session, selected, views)) if count else views


async def _count_chunks(session: SessionBase, nodes: list[Node], views: list[NodeView]) -> list[NodeView]:
    async def count(node: Node) -> int:
        if not node.layers or (len(node.layers) == 1 and not node.layers[0].deletions):
            return sum(layer.count for layer in node.layers)
        return len(await present_chunks(session.hierarchy, node))

    arrays = [node for node in nodes if node.kind == NodeKind.ARRAY]
    counts = await bounded(count, arrays, _AT_ONCE)
    counts_by_path = {f"/{node.path}": count for node, count in zip(arrays, counts, strict=True)}
    return [
        replace(view, initialised=counts_by_path.get(view.path)) if view.kind == "array" else view for view in views
    ]


def measured_nodes(session: SessionBase, path: str) -> list[NodeView]:
    """Return a node and all nodes below it by path, with counts and sizes of chunks, for which manifests are read."""
    views = nodes_below(session, path, count=False)
    return run(_measure(session, views))


async def _measure(session: SessionBase, views: list[NodeView]) -> list[NodeView]:
    nodes = {f"/{node.path}": node for node in visible_nodes(session.hierarchy, "") if node.kind == NodeKind.ARRAY}

    async def measured(view: NodeView) -> NodeView:
        if view.kind != "array":
            return view
        present = await present_chunks(session.hierarchy, nodes[view.path])
        return replace(view, initialised=len(present), stored_bytes=int(present.length.sum()))

    return await bounded(measured, views, _AT_ONCE)


def children(session: SessionBase, path: str) -> list[NodeView]:
    """Return the nodes directly below a node, by name."""
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
    document: dict[str, Any] = json.loads(node.documents[name])
    return document


def _chunks(document: dict[str, Any]) -> tuple[int, ...] | None:
    chunks = document.get("chunks")
    if chunks is None:
        grid = document.get("chunk_grid")
        chunks = grid.get("configuration", {}).get("chunk_shape") if isinstance(grid, dict) else None
    return tuple(chunks) if isinstance(chunks, list) and all(isinstance(size, int) for size in chunks) else None


def _dtype(document: dict[str, Any]) -> str:
    dtype = document.get("data_type", document.get("dtype"))
    if isinstance(dtype, dict):
        dtype = dtype.get("name")
    return dtype if isinstance(dtype, str) else json.dumps(dtype)
