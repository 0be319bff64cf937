"""Drawings of the history with a colour for each column, as Icechunk prints them unless plain ones are asked for."""

from __future__ import annotations

from arraystore._history import graph as core

__all__ = ["AncestryGraph"]

_COLOURS = (32, 36, 33, 35, 34, 31)
"""Codes of the colours of a terminal, by column."""


class AncestryGraph(core.AncestryGraph):
    """Snapshots, each below those that started from it; `str` draws them, in colours unless `plain`."""

    @classmethod
    def of(cls, graph: core.AncestryGraph) -> AncestryGraph:
        """Return a drawing of arraystore as one of Icechunk."""
        return cls(graph.rows, graph.more, graph.plain)

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.plain else "\n".join(_coloured(line, 2 * self._width()) for line in text.split("\n"))

    __repr__ = __str__


def _coloured(line: str, end: int) -> str:
    """Return a line with what is drawn before a place in the colour of its column."""
    drawn = [
        sign if sign == " " else f"\x1b[{_COLOURS[at // 2 % len(_COLOURS)]}m{sign}\x1b[0m"
        for at, sign in enumerate(line[:end])
    ]
    return "".join(drawn) + line[end:]
