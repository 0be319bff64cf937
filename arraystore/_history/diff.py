"""Diffs for readers: changed nodes and chunks by path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._format.node import Node, NodeKind
from arraystore._format.transaction import Operation
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import Comparison
from arraystore._history.diff_rendering import Sections, diff_to_html, diff_to_markdown, diff_to_rich, sections_of
from arraystore._history.plotting.figures import GREEN, ORANGE
from arraystore._runtime import lazy_module
from arraystore._runtime.formatting import printable
from arraystore.errors import NodeNotFoundError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

    from arraystore._history.plotting import chunk_map, difference
else:
    chunk_map = lazy_module("arraystore._history.plotting.chunk_map")
    difference = lazy_module("arraystore._history.plotting.difference")


@dataclass(frozen=True, eq=False)
class Diff:
    """Changes of a session, or between two snapshots.

    Parameters
    ----------
    new_groups, new_arrays, deleted_groups, deleted_arrays, updated_groups, updated_arrays
        Paths, with a slash in front; updated are those of which a metadata document changed.
    updated_chunks
        Per path of an array, the grid coordinates of chunks that were written or deleted, shape (n, d); of an array
        that is new, of all of its chunks.
    updated_files
        Other keys that were written or deleted.
    moved_nodes
        Path before, path after; what went along with a group is not listed.  Where a group moved and something below
        it did not, that is listed with one path twice.
    chunk_grids
        Per path in `updated_chunks`, the shape of the chunk grid, which is not compared by ``==``.
    """

    new_groups: set[str] = field(default_factory=set)
    new_arrays: set[str] = field(default_factory=set)
    deleted_groups: set[str] = field(default_factory=set)
    deleted_arrays: set[str] = field(default_factory=set)
    updated_groups: set[str] = field(default_factory=set)
    updated_arrays: set[str] = field(default_factory=set)
    updated_chunks: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    updated_files: set[str] = field(default_factory=set)
    moved_nodes: dict[str, str] = field(default_factory=dict)
    chunk_grids: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """Tell whether nothing changed."""
        return not any(value for name, value in vars(self).items() if name != "chunk_grids")

    def _paths(self) -> dict[str, set[str]]:
        return {name: value for name, value in vars(self).items() if isinstance(value, set)}

    def _sections(self) -> Sections:
        return sections_of(self._paths(), self.moved_nodes, self.updated_chunks)

    def _rows(self) -> list[tuple[str, list[str]]]:
        rows = [(name.replace("_", " "), sorted(value)) for name, value in self._paths().items()]
        chunks = [f"{path}: {len(coords)}" for path, coords in sorted(self.updated_chunks.items())]
        moved = [f"{old} -> {new}" for old, new in sorted(self.moved_nodes.items())]
        return [(name, items) for name, items in [*rows, ("updated chunks", chunks), ("moved nodes", moved)] if items]

    def __repr__(self) -> str:
        if self.is_empty():
            return "no changes"
        return "\n".join(
            f"{name}:\n" + "\n".join(f"    {printable(item)}" for item in items) for name, items in self._rows()
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Diff):
            return NotImplemented
        mine, theirs = dict(vars(self)), dict(vars(other))
        chunks, others = mine.pop("updated_chunks"), theirs.pop("updated_chunks")
        for compared in (mine, theirs):
            compared.pop("chunk_grids", None)
        same = chunks.keys() == others.keys() and all(np.array_equal(chunks[k], others[k]) for k in chunks)
        return bool(mine == theirs and same)

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, which JSON can hold."""
        return {
            **{name: sorted(changed) for name, changed in self._paths().items()},
            "updated_chunks": {path: coords.tolist() for path, coords in sorted(self.updated_chunks.items())},
            "moved_nodes": dict(sorted(self.moved_nodes.items())),
        }

    def to_markdown(self, limit: int | None = 20) -> str:
        """Return a list in Markdown.

        Parameters
        ----------
        limit
            Most lines of each kind of change; the rest is counted.  None for all.
        """
        return diff_to_markdown(self._sections(), limit)

    def plot(self, path: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the changes, by matplotlib (extra ``plot``).

        Parameters
        ----------
        path
            Path of an array of which to draw the map of changed chunks; by default all nodes are drawn, a row for
            each, with the chunk grid of an array in row-major order.
        ax
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            What was drawn on.

        Raises
        ------
        NodeNotFoundError
            If no chunk of that array changed.
        ModuleNotFoundError
            If matplotlib is not installed.
        """
        if path is None:
            nodes = difference.changed_nodes(self._paths(), self.moved_nodes, self.updated_chunks, self._grids())
            return difference.draw_changes(nodes, self.updated_chunks, self._grids(), ax=ax, what="Diff.plot")
        place = "/" + path.strip("/")
        if place not in self.updated_chunks:
            raise NodeNotFoundError(f"no chunk of an array {path!r} changed")
        colour, label = (GREEN, "new") if place in self.new_arrays else (ORANGE, "changed")
        kind = chunk_map.ChunkKind(label, colour, self.updated_chunks[place])
        return chunk_map.draw_chunk_map(place, self._grids()[place], [kind], empty="unchanged", ax=ax, what="Diff.plot")

    def _grids(self) -> dict[str, tuple[int, ...]]:
        """Return the chunk grids, which include all changed chunks, those that a shrunken array had, too."""
        return {path: _grid_of(self.chunk_grids.get(path, ()), each) for path, each in self.updated_chunks.items()}

    def _repr_html_(self) -> str:
        return diff_to_html(self._sections())

    def __rich__(self) -> Table:
        return diff_to_rich(self._sections())


def _grid_of(grid: tuple[int, ...], coords: Int64s) -> tuple[int, ...]:
    high = tuple((coords.max(axis=0) + 1).tolist()) if len(coords) else ()
    return tuple(map(max, grid, high)) if len(grid) == len(high) else high


_NAMES = {
    Operation.CREATED: "new",
    Operation.DELETED: "deleted",
    Operation.UPDATED: "updated",
    Operation.APPENDED: "updated",
}


def status_of(changes: ChangeSet) -> Diff:
    """Return the changes in a change set."""
    diff = Diff()
    with changes.lock:
        for change in changes.node_changes():
            if change.target is not None:
                diff.moved_nodes["/" + change.path] = "/" + change.target
            else:
                _add(diff, _NAMES[change.operation], change.kind, change.path)
        for node in changes.all_nodes():
            if node.id in changes.arrays:
                _add_chunks(diff, node, changes.arrays[node.id].table.columns()[0])
    return diff


def diff_of(comparison: Comparison) -> Diff:
    """Return the differences of two snapshots."""
    diff = Diff()
    for name, nodes in (("new", comparison.created), ("deleted", comparison.deleted), ("updated", comparison.updated)):
        for node in nodes:
            _add(diff, name, node.kind, node.path)
    for move in comparison.moved:
        diff.moved_nodes["/" + move.before] = "/" + move.after
    for node, coords in comparison.chunks:
        _add_chunks(diff, node, coords)
    return diff


def _add(diff: Diff, change: str, kind: NodeKind, path: str) -> None:
    name = f"{change}_{'arrays' if kind == NodeKind.ARRAY else 'groups'}" if kind != NodeKind.FILE else "updated_files"
    getattr(diff, name).add("/" + path)


def _add_chunks(diff: Diff, node: Node, coords: Int64s) -> None:
    if node.kind == NodeKind.FILE:
        diff.updated_files.add("/" + node.path)
    elif len(coords):
        diff.updated_chunks["/" + node.path] = coords
        diff.chunk_grids["/" + node.path] = array_info(node.documents).grid
