"""Chunk maps of sessions: kinds of chunks, and dimensions by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._format.node import Node
from arraystore._format.references import INLINE, VIRTUAL, References
from arraystore._format.types import Bools, Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._history.plotting.chunk_map import ChunkKind, draw_chunk_map
from arraystore._history.plotting.figures import BLUE, ORANGE, PURPLE, RED
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_chunks"]


def plot_chunks(
    node: Node, present: References, changes: ChangeSet | None, dims: Sequence[str | int] | None, ax: Axes | None
) -> Axes:
    """Draw the chunks that an array has."""
    grid = array_info(node.documents).grid
    names = _dimension_names(node, len(grid))
    axes = None if dims is None else [_axis(dim, names, node.path) for dim in dims]
    inside = present.take((present.coords < grid).all(axis=1))
    kinds = _kinds(inside, _uncommitted(inside, node, changes))
    return draw_chunk_map(f"/{node.path}", grid, kinds, dims=names, axes=axes, ax=ax, what="Session.plot_chunks")


def _kinds(present: References, uncommitted: Bools) -> list[ChunkKind]:
    source, rest = present.source, ~uncommitted
    inline, virtual = source == INLINE, source >= VIRTUAL
    kinds = (
        ("in packs", BLUE, rest & ~inline & ~virtual),
        ("in manifests", ORANGE, rest & inline),
        ("virtual", PURPLE, rest & virtual),
        ("uncommitted", RED, uncommitted),
    )
    return [ChunkKind(label, colour, present.coords[which]) for label, colour, which in kinds]


def _uncommitted(present: References, node: Node, changes: ChangeSet | None) -> Bools:
    """Return which chunks were written in the session."""
    written = None if changes is None else changes.arrays.get(node.id)
    if changes is None or written is None:
        return np.zeros(len(present), dtype=bool)
    with changes.lock:
        return _rows(present.coords, written.table.columns()[0])


def _rows(coords: Int64s, others: Int64s) -> Bools:
    """Return which rows are among others."""
    if not coords.shape[1]:
        return np.full(len(coords), len(others) > 0)
    kind = np.dtype((np.void, coords.dtype.itemsize * coords.shape[1]))
    mine, theirs = (np.ascontiguousarray(each).view(kind).ravel() for each in (coords, others))
    return np.isin(mine, theirs)


def _dimension_names(node: Node, count: int) -> list[str]:
    """Return the names of the dimensions, or their numbers."""
    names = _member(node, "zarr.json", "dimension_names") or _member(node, ".zattrs", "_ARRAY_DIMENSIONS")
    names = names if isinstance(names, list) and len(names) == count else [None] * count
    return [f"axis {axis}" if name is None else str(name) for axis, name in enumerate(names)]


def _member(node: Node, document: str, name: str) -> Any:
    loaded = json.loads(node.documents.get(document, b"{}"))
    return loaded.get(name) if isinstance(loaded, dict) else None


def _axis(dim: str | int, names: Sequence[str], path: str) -> int:
    """Return the position of a dimension."""
    if isinstance(dim, str) and names.count(dim) == 1:
        return names.index(dim)
    if type(dim) is int and -len(names) <= dim < len(names):
        return dim % len(names)
    raise InvalidInputError(f"{dim!r} is not a dimension of /{path}: these are {', '.join(names) or 'none'}")
