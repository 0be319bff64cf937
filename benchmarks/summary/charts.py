"""Two charts as SVG, each on a card of its own, so that they read the same on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.summary.groups import Comparison, Saving

__all__ = ["comparison_chart", "savings_chart"]

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 760, 262, 24, 26, 66
_INK, _FAINT, _GRID = "#1f2328", "#57606a", "#d0d7de"
_BLUE, _ORANGE = "#1a6faf", "#c8553d"
_FONT = "font-family='system-ui, sans-serif'"


def comparison_chart(groups: Sequence[Comparison]) -> str:
    """Return a row for each group: how many times as long Icechunk takes, and the fastest of all peers."""
    values = [value for each in groups for value in (each.icechunk, each.fastest)]
    scale = _Scale(min(*values, 1), max(values), "times as long as arraystore takes")
    shapes = []
    for number, each in enumerate(groups):
        y = _TOP + _ROW * number + _ROW / 2
        shapes.append(_text(_LEFT - 12, y + 4, each.title, "end"))
        shapes.append(_line(scale.x(each.fastest), y, scale.x(each.icechunk), y, _GRID, 2))
        shapes.append(_dot(scale.x(each.icechunk), y, _BLUE))
        shapes.append(_dot(scale.x(each.fastest), y, _ORANGE))
    legend = [(_BLUE, "Icechunk"), (_ORANGE, "the fastest of all peers at each work")]
    return _card(
        "Time of peers over that of arraystore: right of 1 arraystore is faster", scale, shapes, legend, len(groups)
    )


def savings_chart(found: Sequence[Saving]) -> str:
    """Return a bar for each saving, with the figures of both."""
    scale = _Scale(1, max(each.ratio for each in found), "times as much as arraystore needs", room=150)
    shapes = []
    for number, each in enumerate(found):
        y = _TOP + _ROW * number
        end = scale.x(each.ratio)
        shapes.append(_text(_LEFT - 12, y + _ROW / 2 + 4, each.title, "end"))
        shapes.append(
            f"<rect x='{_LEFT}' y='{y + 5}' width='{end - _LEFT:.1f}' height='{_ROW - 10}' fill='{_BLUE}' rx='2'/>"
        )
        shapes.append(_text(end + 6, y + _ROW / 2 + 4, f"{each.ours} : {each.peer}", "start", _FAINT))
    return _card("What Icechunk needs over what arraystore needs", scale, shapes, [], len(found))


class _Scale:
    """A logarithmic axis."""

    def __init__(self, least: float, most: float, title: str, room: int = 0) -> None:
        self.title = title
        self._low, self._high = math.log10(least) - 0.08, math.log10(most) + 0.08
        self._span = _WIDTH - _LEFT - _RIGHT - room

    def x(self, value: float) -> float:
        """Return the place of a value."""
        return _LEFT + (math.log10(value) - self._low) / (self._high - self._low) * self._span

    def ticks(self) -> Iterator[float]:
        """Yield the values that are marked."""
        for power in range(math.floor(self._low), math.ceil(self._high) + 1):
            for digit in (1, 2, 5) if self._high - self._low < 2.5 else (1,):
                value = digit * 10.0**power
                if self._low <= math.log10(value) <= self._high:
                    yield value


def _card(title: str, scale: _Scale, shapes: Sequence[str], legend: Sequence[tuple[str, str]], rows: int) -> str:
    bottom = _TOP + _ROW * rows
    height = bottom + 50
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect x='1' y='1' width='{_WIDTH - 2}' height='{height - 2}' rx='10' fill='#ffffff' stroke='{_GRID}'/>",
        _text(20, 28, title, "start", _INK, bold=True),
    ]
    x = _LEFT
    for color, name in legend:
        parts += [_dot(x, 48, color), _text(x + 10, 52, name, "start", _FAINT)]
        x += 30 + 7 * len(name)
    for value in scale.ticks():
        mark = _INK if value == 1 else _GRID
        parts.append(_line(scale.x(value), _TOP, scale.x(value), bottom, mark, 1))
        parts.append(_text(scale.x(value), bottom + 18, f"{value:,g}", "middle", _FAINT))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 38, scale.title, "middle", _FAINT))
    return "\n".join([*parts, *shapes, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str, color: str = _INK, *, bold: bool = False) -> str:
    weight = " font-weight='600'" if bold else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{color}' {_FONT} font-size='13'{weight}>"
        f"{escape(text)}</text>"
    )


def _line(x: float, y: float, to_x: float, to_y: float, color: str, width: int) -> str:
    return f"<line x1='{x:.1f}' y1='{y:.1f}' x2='{to_x:.1f}' y2='{to_y:.1f}' stroke='{color}' stroke-width='{width}'/>"


def _dot(x: float, y: float, color: str) -> str:
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='5' fill='{color}'/>"
