"""The groups and arrays of a snapshot, and all that is known of one of them without reading a chunk."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from arraystore._format.node import Node, NodeKind
from arraystore._format.reserved_keys import visible
from arraystore._format.zarr_metadata import array_info
from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError
from arraystore.ui.views.json_value import exact
from arraystore.ui.views.limits import MAX_DOCUMENTS, MAX_MESSAGE, MAX_NODES
from arraystore.ui.views.snapshots import load_session, node_at, state_of

__all__ = ["NodeView", "TreeRow", "TreeView", "document_of", "node", "tree"]


@dataclass(frozen=True)
class TreeRow:
    """Group, array or file in a tree."""

    path: str
    """Path without a leading slash; empty for the root group."""
    kind: str
    """``group``, ``array`` or ``file``."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    dimensions: tuple[str | None, ...] | None = None
    broken: str | None = None
    """Why the metadata cannot be used; None for sound metadata."""


@dataclass(frozen=True)
class TreeView:
    """Nodes of a snapshot, in order of paths."""

    snapshot: str
    rows: tuple[TreeRow, ...]
    more: int
    """Number of nodes that are left out."""


@dataclass(frozen=True)
class NodeView:
    """Group, array or file with its metadata."""

    snapshot: str
    path: str
    kind: str
    attributes: dict[str, Any]
    documents: dict[str, str]
    """Metadata documents as text, cut off."""
    shape: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    parts: tuple[int, ...] | None = None
    """Shape of the parts of a shard; None where chunks are none."""
    grid: tuple[int, ...] | None = None
    """Number of chunks along each dimension."""
    dtype: str | None = None
    dtype_details: Any = None
    """What the metadata says of a data type besides its name: unit, length, fields."""
    fill_value: Any = None
    dimensions: tuple[str | None, ...] | None = None
    codecs: tuple[Any, ...] = ()
    zarr_format: int | None = None
    nbytes: float | None = None
    """Bytes of all items, decoded; None where the data type has no fixed size."""
    layers: int = 0
    """Number of manifests that a reader may have to look at."""
    references: int = 0
    """Number of their references, hidden ones included."""
    broken: str | None = None


async def tree(repository: Repository, at: str) -> TreeView:
    """Return the nodes of a snapshot; no request beyond those for the snapshot."""
    session = await load_session(repository, at)
    nodes = sorted(visible(iter(state_of(session).nodes.values()), ""), key=lambda each: each.path.split("/"))
    return TreeView(session.snapshot_id, tuple(map(_row, nodes[:MAX_NODES])), max(0, len(nodes) - MAX_NODES))


def _row(node: Node) -> TreeRow:
    kind = node.kind.name.lower()
    if node.kind != NodeKind.ARRAY:
        return TreeRow(node.path, kind)
    try:
        info, document = array_info(node.documents), document_of(node)
        dimensions = dimension_names(node, document)
    except (InvalidInputError, ValueError, RecursionError) as error:
        return TreeRow(node.path, kind, broken=str(error))
    return TreeRow(node.path, kind, info.shape, data_type(document), dimensions)


async def node(repository: Repository, at: str, path: str) -> NodeView:
    """Return all that the metadata of a node says."""
    session = await load_session(repository, at)
    found = node_at(session, path)
    documents = {name: data[:MAX_MESSAGE].decode(errors="replace") for name, data in found.documents.items()}
    view = NodeView(session.snapshot_id, found.path, found.kind.name.lower(), {}, documents)
    size = sum(map(len, found.documents.values()))
    if size > MAX_DOCUMENTS:
        return _replaced(
            view, broken=f"{size:,} bytes of metadata are more than the {MAX_DOCUMENTS:,} that a page shows"
        )
    try:
        return _described(found, view)
    except (InvalidInputError, ValueError, RecursionError) as error:
        return _replaced(view, broken=str(error))


def _described(found: Node, view: NodeView) -> NodeView:
    view = _replaced(view, attributes=exact(attributes_of(found)))
    if found.kind != NodeKind.ARRAY:
        return view
    info, document = array_info(found.documents), document_of(found)
    return _replaced(
        view,
        shape=info.shape,
        grid=info.grid,
        chunks=chunk_shape(document),
        parts=None if inner_chunk_shape(document) == chunk_shape(document) else inner_chunk_shape(document),
        dtype=data_type(document),
        dtype_details=_details(document),
        fill_value=exact(document.get("fill_value")),
        dimensions=dimension_names(found),
        codecs=_codecs(document),
        zarr_format=document.get("zarr_format"),
        nbytes=_nbytes(info.shape, data_type(document)),
        layers=len(found.layers),
        references=sum(layer.count for layer in found.layers),
    )


def _replaced(view: NodeView, **values: Any) -> NodeView:
    return NodeView(**{**vars(view), **values})


def document_of(node: Node) -> dict[str, Any]:
    """Return the metadata document of an array or group; empty where there is none."""
    for name in ("zarr.json", ".zarray", ".zgroup"):
        if name in node.documents:
            value = json.loads(node.documents[name])
            return value if isinstance(value, dict) else {}
    return {}


def attributes_of(node: Node, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the attributes of a node of either version of Zarr; `document` spares a look at its metadata."""
    if ".zattrs" in node.documents:
        value = json.loads(node.documents[".zattrs"])
    else:
        value = (document_of(node) if document is None else document).get("attributes")
    return value if isinstance(value, dict) else {}


def chunk_shape(document: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of a chunk in items; None for chunks of varying shape."""
    chunks = document.get("chunks")
    if chunks is None:
        grid = document.get("chunk_grid")
        configuration = grid.get("configuration") if isinstance(grid, dict) else None
        chunks = configuration.get("chunk_shape") if isinstance(configuration, dict) else None
    return tuple(chunks) if isinstance(chunks, list) and all(type(size) is int for size in chunks) else None


def inner_chunk_shape(document: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of what is decoded at once: of a chunk, or of a part of a shard."""
    codecs = document.get("codecs")
    first = codecs[0] if isinstance(codecs, list) and codecs else None
    if isinstance(first, dict) and first.get("name") == "sharding_indexed":
        configuration = first.get("configuration")
        inner = configuration.get("chunk_shape") if isinstance(configuration, dict) else None
        if isinstance(inner, list) and all(type(size) is int for size in inner):
            return tuple(inner)
    return chunk_shape(document)


def data_type(document: dict[str, Any]) -> str:
    """Return the name of the data type."""
    dtype = document.get("data_type", document.get("dtype"))
    if isinstance(dtype, dict):
        dtype = dtype.get("name")
    return dtype[:200] if isinstance(dtype, str) else json.dumps(dtype)[:200]


def _details(document: dict[str, Any]) -> Any:
    dtype = document.get("data_type")
    return exact(dtype.get("configuration")) if isinstance(dtype, dict) else None


def dimension_names(node: Node, document: dict[str, Any] | None = None) -> tuple[str | None, ...] | None:
    """Return the names of the dimensions: of the metadata, or as xarray writes them for Zarr v2."""
    document = document_of(node) if document is None else document
    names, shape = document.get("dimension_names"), document.get("shape")
    if names is None:
        names = attributes_of(node, document).get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list) or not isinstance(shape, list) or len(names) != len(shape):
        return None
    return tuple(None if name is None else str(name) for name in names)


def _codecs(document: dict[str, Any]) -> tuple[Any, ...]:
    codecs = document.get("codecs")
    if isinstance(codecs, list):
        return tuple(codecs)
    filters = document.get("filters")
    found = [*(filters if isinstance(filters, list) else ()), document.get("compressor")]
    return tuple(each for each in found if each is not None)


def _nbytes(shape: tuple[int, ...], dtype: str) -> float | None:
    import numpy as np

    try:
        known = np.dtype(dtype)
        return None if known.hasobject or not known.itemsize else float(math.prod(shape)) * known.itemsize
    except (TypeError, ValueError, OverflowError):
        return None
