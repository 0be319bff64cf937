"""The history as a picture: a dot for each snapshot, newest on top, with its names and message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arraystore._history.graph import AncestryGraph, GraphRow
from arraystore._history.plotting.figures import AS_IS, GREY, PALETTE, axes_for, name_text
from arraystore._runtime.formatting import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_graph"]

_INCHES_PER_ROW, _MOST_CAPTIONS = 0.3, 60
_BEFORE, _AFTER = 5.2, 27.0
"""Room for times and for messages, in columns."""
_MESSAGE, _NAMES = 64, 3


def draw_graph(graph: AncestryGraph, *, ax: Axes | None, what: str) -> Axes:
    """Draw a graph; of many snapshots, some have a caption, those with names first."""
    count = len(graph.rows)
    captions = min(count, _MOST_CAPTIONS)
    ax = axes_for(ax, what, 9.0, _INCHES_PER_ROW * (captions + 1) + 0.2)
    lanes = 1 + max((lane for row in graph.rows for lane in (row.lane, *row.through)), default=0)
    _draw_edges(ax, graph)
    _draw_dots(ax, graph.rows)
    for at in _captioned(graph.rows, -(-count // _MOST_CAPTIONS)):
        _draw_caption(ax, at, graph.rows[at], lanes)
    ax.set_xlim(-_BEFORE, max(lanes + _AFTER, 1.4 * lanes))
    ax.set_ylim(count - 0.4 + bool(graph.more), -0.6)
    ax.set_axis_off()
    return ax


def _draw_edges(ax: Axes, graph: AncestryGraph) -> None:
    from matplotlib.collections import LineCollection

    at = {row.id: (row.lane, number) for number, row in enumerate(graph.rows)}
    lines: list[list[tuple[float, float]]] = []
    colours: list[str] = []
    end = len(graph.rows)
    for number, row in enumerate(graph.rows):
        if row.parent_id is None:
            continue
        lane, parent = at.get(row.parent_id, (row.lane, end))
        turn = [(row.lane, parent - 0.5), (lane, parent)] if lane != row.lane else [(lane, parent)]
        lines.append([(row.lane, number), *turn])
        colours.append(_colour(row))
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=1.8, capstyle="round", joinstyle="round"))
    if graph.more:
        ax.text(graph.more[0] + 0.7, end, "older snapshots are not drawn", color=GREY, fontsize=8, va="center")


def _draw_dots(ax: Axes, rows: Sequence[GraphRow]) -> None:
    size = 42 if len(rows) <= _MOST_CAPTIONS else 12
    ax.scatter([row.lane for row in rows], range(len(rows)), c=[_colour(row) for row in rows], s=size, zorder=3)


def _colour(row: GraphRow) -> str:
    return PALETTE[row.lane % len(PALETTE)]


def _captioned(rows: Sequence[GraphRow], apart: int) -> list[int]:
    """Return the rows with a caption, which are so many rows apart; rows with names go first."""
    taken: set[int] = set()
    for at in sorted(range(len(rows)), key=lambda at: (not rows[at].labels, at)):
        if not any(near in taken for near in range(at - apart + 1, at + apart)):
            taken.add(at)
    return sorted(taken)


def _draw_caption(ax: Axes, at: int, row: GraphRow, lanes: int) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 8.5, "clip_on": True, "in_layout": False, **AS_IS}
    ax.text(-0.8, at, f"{row.written_at:%Y-%m-%d %H:%M}", ha="right", color=GREY, **style)
    place: dict[str, Any] = {"xy": (lanes - 0.2, at), "xytext": (4, 0)}
    for text, look in _words(row):
        shown = ax.annotate(text, textcoords="offset points", ha="left", **place, **style, **look)
        place = {"xy": (1, 0.5), "xycoords": shown, "xytext": (9, 0)}


def _words(row: GraphRow) -> list[tuple[str, dict[str, Any]]]:
    """Return names and message, and what they look like."""
    box = {"boxstyle": "round,pad=0.25", "facecolor": _colour(row), "edgecolor": "none", "alpha": 0.25}
    names = [name_text(label, 30) for label in row.labels[:_NAMES]]
    names += [f"+{len(row.labels) - _NAMES:,}"] if len(row.labels) > _NAMES else []
    return [*((name, {"bbox": box, "fontweight": "bold"}) for name in names), (one_line(row.message, _MESSAGE), {})]
