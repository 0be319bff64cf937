"""Renderings of diffs: Markdown, HTML, a table of rich."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arraystore._format.types import Int64s
from arraystore._runtime.display import Section, View
from arraystore._runtime.formatting import printable

if TYPE_CHECKING:
    from rich.table import Table


_MOST_LINES = 20
"""Lines of each kind of change that a view shows of its own accord."""

_MOST_CHUNKS = 4
"""Chunks of an array whose coordinates a line gives."""


@dataclass(frozen=True)
class Line:
    """Change of some paths, and a detail."""

    paths: tuple[str, ...]
    detail: str = ""


Sections = Mapping[str, list[Line]]
"""What changed, by kind of change; kinds of which nothing changed are left out."""


def sections_of(paths: Mapping[str, set[str]], moved: Mapping[str, str], chunks: Mapping[str, Int64s]) -> Sections:
    """Return the changes as lines: paths by kind of change, paths before and after a move, chunks by path."""
    sections = {name.replace("_", " "): [Line((path,)) for path in sorted(changed)] for name, changed in paths.items()}
    sections["moved nodes"] = [Line((old, new)) for old, new in sorted(moved.items())]
    sections["updated chunks"] = [Line((path,), _chunks(coords)) for path, coords in sorted(chunks.items())]
    return {name: lines for name, lines in sections.items() if lines}


def _chunks(coords: Int64s) -> str:
    """Return the count of chunks, and their coordinates where they are few."""
    count = f"{len(coords):,} chunk{'s' if len(coords) != 1 else ''}"
    if not len(coords) or not coords.shape[1]:
        return count
    if len(coords) <= _MOST_CHUNKS:
        return f"{count}: {', '.join(_cell(row) for row in coords.tolist())}"
    return f"{count} from {_cell(coords.min(axis=0).tolist())} to {_cell(coords.max(axis=0).tolist())}"


def _cell(coords: list[int]) -> str:
    return f"({', '.join(map(str, coords))})"


def _cut(lines: list[Line], limit: int | None) -> tuple[list[Line], str]:
    """Return the lines to show, and a line with the count of the others."""
    if limit is None or len(lines) <= limit:
        return lines, ""
    return lines[:limit], f"… and {len(lines) - limit:,} more"


def diff_to_markdown(sections: Sections, limit: int | None = _MOST_LINES) -> str:
    """Return a list for each kind of change."""
    blocks: list[str] = []
    for title, lines in sections.items():
        shown, rest = _cut(lines, limit)
        items = [" → ".join(map(_code, line.paths)) + (f": {line.detail}" if line.detail else "") for line in shown]
        blocks.append(
            "\n".join([f"**{title.capitalize()}** ({len(lines):,})", "", *(f"- {i}" for i in [*items, rest] if i)])
        )
    return "\n\n".join(blocks) + "\n" if blocks else "No changes.\n"


def _code(text: str) -> str:
    """Quote a string as code, with any backticks and line breaks."""
    text = printable(text.replace("\r", "␍").replace("\n", "␊"))
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def diff_to_html(sections: Sections) -> str:
    """Return a table for each kind of change, as a notebook shows it."""
    return View(
        "Changes" if sections else "no changes", sections=tuple(itertools.starmap(_table, sections.items()))
    ).to_html()


def _table(title: str, lines: list[Line]) -> Section:
    rows = tuple([line.paths + ((line.detail,) if line.detail else ()) for line in lines[:_MOST_LINES]])
    columns = _COLUMNS.get(title, ("path",))
    return Section(f"{title} ({len(lines):,})", columns, rows, more=len(lines) - len(rows))


_COLUMNS = {"moved nodes": ("from", "to"), "updated chunks": ("array", "chunks")}


_COLOURS = {"new": "green", "deleted": "red", "updated": "yellow", "moved": "cyan"}


def diff_to_rich(sections: Sections, limit: int | None = _MOST_LINES) -> Table:
    """Return a table of rich, which has to be installed."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    for title, lines in sections.items():
        shown, rest = _cut(lines, limit)
        colour = _COLOURS[title.split()[0]]
        for at, line in enumerate(shown):
            table.add_row(
                Text(f"{title} ({len(lines):,})" if not at else "", style="bold"),
                Text(" → ".join(map(printable, line.paths)), style=colour),
                Text(line.detail, style="dim"),
            )
        if rest:
            table.add_row(Text(""), Text(rest, style="dim"), Text(""))
    if not table.row_count:
        table.add_row(Text("no changes"))
    return table
