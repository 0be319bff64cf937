"""Drawings of the history with a colour for each column, as Icechunk prints them unless plain ones are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from arraystore._history import graph as core

__all__ = ["AncestryGraph"]

_COLOURS = (32, 36, 33, 35, 34, 31)
"""Codes of the colours of a terminal, by column."""


class AncestryGraph(core.AncestryGraph):
    """Snapshots, each below those that started from it; `str` draws them, in colours unless `plain`."""

    @classmethod
    def of(cls, graph: core.AncestryGraph, shown: Mapping[str, str]) -> AncestryGraph:
        """Return a drawing of arraystore as one of Icechunk, with the ids that are shown in place of others."""
        rows = [replace(row, id=shown.get(row.id, row.id), parent_id=_parent(row, shown)) for row in graph.rows]
        return cls(tuple(rows), graph.more, graph.plain)

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.plain else "\n".join(_coloured(line, 2 * self._width()) for line in text.split("\n"))

    __repr__ = __str__


def _parent(row: core.GraphRow, shown: Mapping[str, str]) -> str | None:
    return None if row.parent_id is None else shown.get(row.parent_id, row.parent_id)


def _coloured(line: str, end: int) -> str:
    """Return a line with what is drawn before a place in the colour of its column."""
    drawn = [
        sign if sign == " " else f"\x1b[{_COLOURS[at // 2 % len(_COLOURS)]}m{sign}\x1b[0m"
        for at, sign in enumerate(line[:end])
    ]
    return "".join(drawn) + line[end:]
