"""Differences as a picture: a strip for each array, coloured where its chunks changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arraystore._format.types import Float64s, Int64s
from arraystore._history.plotting.chunk_map import rgba_of
from arraystore._history.plotting.chunk_picture import count_along
from arraystore._history.plotting.figures import AS_IS, BLUE, GREEN, GREY, ORANGE, RED, add_legend, axes_for, name_text
from arraystore._runtime.formatting import count_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ChangedNode", "changed_nodes", "draw_changes"]

_MOST_ROWS, _PARTS = 40, 480
_COLOURS = {"new": GREEN, "updated": ORANGE, "deleted": RED, "moved": BLUE}


Grid = tuple[int, ...]


@dataclass(frozen=True)
class ChangedNode:
    """A node of a difference."""

    path: str
    change: str
    """``"new"``, ``"updated"``, ``"deleted"`` or ``"moved"``."""
    kind: str
    note: str = ""


def changed_nodes(
    paths: Mapping[str, set[str]], moved: Mapping[str, str], chunks: Mapping[str, Int64s], grids: Mapping[str, Grid]
) -> list[ChangedNode]:
    """Return the nodes of a difference, each once: those with changed chunks first, then by path."""
    nodes = {new: ChangedNode(new, "moved", "node", f"from {name_text(old, 30)}") for old, new in moved.items()}
    for name, changed in paths.items():
        change, _, kinds = name.partition("_")
        nodes |= {path: ChangedNode(path, change, kinds.removesuffix("s")) for path in changed}
    for path, coords in chunks.items():
        change = nodes[path].change if path in nodes and nodes[path].change != "moved" else "updated"
        count = count_text(math.prod(grids[path]), "chunk")
        nodes[path] = ChangedNode(path, change, "array", f"{len(coords):,} of {count}")
    return sorted(nodes.values(), key=lambda node: (node.path not in chunks, node.path))


def draw_changes(
    nodes: Sequence[ChangedNode],
    chunks: Mapping[str, Int64s],
    grids: Mapping[str, Grid],
    *,
    ax: Axes | None,
    what: str,
) -> Axes:
    """Draw a row for each node; that of an array is its chunk grid in row-major order."""
    shown = nodes[:_MOST_ROWS]
    ax = axes_for(ax, what, 8.0, 0.34 * max(len(shown), 1) + 1.0)
    for row, node in enumerate(shown):
        image = _strip(node, chunks.get(node.path), grids.get(node.path, ()))
        ax.imshow(image, extent=(0, 1, row + 0.34, row - 0.34), aspect="auto", interpolation="nearest")
        note = node.note or f"{node.change} {node.kind}"
        ax.text(1.015, row, note, va="center", fontsize="small", color=GREY, **AS_IS)
    rest = len(nodes) - len(shown)
    title = f"{count_text(len(nodes), 'changed node')}" + (f", the first {len(shown)} of them" if rest else "")
    _frame(ax, shown, title if nodes else "no changes")
    return ax


def _strip(node: ChangedNode, coords: Int64s | None, grid: Grid) -> Float64s:
    """Return the colours of a row: of an array with changed chunks where they are, of any other node all over."""
    colour = _COLOURS[node.change]
    if coords is None:
        return np.array([[_rgba(colour, 1.0 if node.change == "deleted" else 0.3)]])
    counts, capacity = count_along(grid, coords, _PARTS)
    return rgba_of([counts[None]], [colour], capacity[None])


def _rgba(colour: str, opacity: float) -> tuple[float, ...]:
    from matplotlib.colors import to_rgba

    return to_rgba(colour, opacity)


def _frame(ax: Axes, nodes: Sequence[ChangedNode], title: str) -> None:
    ax.set_xlim(0, 1)
    ax.set_ylim(max(len(nodes), 1) - 0.5, -0.5)
    ax.set_yticks(range(len(nodes)), [name_text(node.path, 40) for node in nodes], fontsize="small", **AS_IS)
    ax.set_xticks([0, 1], ["first chunk", "last chunk"], fontsize="small")
    first, last = ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_title(title, loc="left", fontsize="medium")
    changes = {node.change for node in nodes}
    add_legend(ax, [(change, colour) for change, colour in _COLOURS.items() if change in changes], below=True)
