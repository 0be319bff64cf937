"""Representations of sessions: their snapshot, its arrays, and their changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from arraystore._format.node import Node, NodeKind
from arraystore._history.diff import Diff, status_of
from arraystore._runtime.display import View, section, view_or_reason
from arraystore._runtime.formatting import count_text, value_text
from arraystore._runtime.redaction import redact
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.listing import visible_nodes

__all__ = ["session_view"]

_MOST_DIMENSIONS = 16
"""Dimensions of an array that are shown."""


def session_view(title: str, facts: Iterable[tuple[str, str]], hierarchy: Hierarchy) -> View:
    """Return the view of a session, from what is in memory, or why it cannot be made."""
    shown = redact(title)
    return view_or_reason(shown, lambda: _session_view(shown, facts, hierarchy))


def _session_view(title: str, facts: Iterable[tuple[str, str]], hierarchy: Hierarchy) -> View:
    nodes = sorted(visible_nodes(hierarchy, ""), key=lambda node: node.path)
    arrays = [node for node in nodes if node.kind == NodeKind.ARRAY]
    groups = sum(node.kind == NodeKind.GROUP for node in nodes)
    contents = f"{count_text(groups, 'group')}, {count_text(len(arrays), 'array')}"
    changes = [] if hierarchy.changes is None else [("changes", _changes_text(status_of(hierarchy.changes)))]
    columns = "array", "shape", "data type", "chunk shape", "dimensions"
    table = section("Arrays", columns, arrays, _array_row)
    return View(title, (*facts, ("contents", contents), *changes), table)


def _changes_text(diff: Diff) -> str:
    """Return how many of each kind of change there are."""
    counts = [
        (name.replace("_", " ").removesuffix("s"), len(changed)) for name, changed in vars(diff).items() if changed
    ]
    chunks = sum(map(len, diff.updated_chunks.values()))
    shown = [count_text(count, name) for name, count in counts if "chunk" not in name]
    shown += [count_text(chunks, "written or deleted chunk")] if chunks else []
    return ", ".join(shown) or "none"


def _array_row(node: Node) -> tuple[str, ...]:
    """Return what the metadata says of an array, whatever it is: it comes from the repository."""
    metadata = _loaded(node, "zarr.json") or _loaded(node, ".zarray")
    chunks = _member(metadata, "chunk_grid", "configuration", "chunk_shape") or metadata.get("chunks")
    dtype = metadata.get("data_type", metadata.get("dtype", ""))
    name = _member(dtype, "name") if isinstance(dtype, dict) else dtype
    return (
        f"/{node.path}",
        _shape_text(metadata.get("shape")),
        value_text(name),
        _shape_text(chunks),
        _names_text(metadata.get("dimension_names") or _loaded(node, ".zattrs").get("_ARRAY_DIMENSIONS")),
    )


def _loaded(node: Node, name: str) -> dict[str, Any]:
    """Return a document; empty where there is none, or it is not what it should be."""
    try:
        loaded: Any = json.loads(node.documents.get(name) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _names_text(names: Any) -> str:
    """Return the names of dimensions; those of Zarr v2 are an attribute that xarray writes."""
    shown = names[:_MOST_DIMENSIONS] if isinstance(names, list) else []
    return ", ".join(["" if name is None else str(name) for name in shown])


def _member(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _shape_text(shape: Any) -> str:
    sizes = shape[:_MOST_DIMENSIONS] if isinstance(shape, list) else []
    return " × ".join([f"{size:,}" if isinstance(size, int) else "?" for size in sizes]) or _empty_shape(shape)


def _empty_shape(shape: Any) -> str:
    return "scalar" if shape == [] else ""
