"""Numbers, names and tables as strings for readers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

__all__ = ["bytes_text", "count_text", "one_line", "printable", "text_table", "time_text", "value_text"]

LINE_LIMIT = 160
"""Characters of a name or of the first line of a message that a view shows."""


def printable(text: str) -> str:
    """Replace the characters that are not printed, such as those that steer a terminal or turn the direction."""
    return text if text.isprintable() else "".join([each if each.isprintable() else "�" for each in text])


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Return the first line of a string, cut to so many characters, without what is not printed."""
    start = text[: 4 * limit + 4].lstrip()  # only as much of a huge message as can be shown
    line = next(iter(start.splitlines()), "")
    return printable(line if len(line) <= limit else line[: limit - 1] + "…")


def bytes_text(count: int) -> str:
    """Format a size in bytes, as in ``1.7 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count_text(count: int, name: str) -> str:
    """Format a count, as in ``1 chunk`` or ``2 chunks``."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def time_text(time: datetime) -> str:
    """Format a time, to the second."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def value_text(value: Any) -> str:
    """Return a JSON value as one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """Return the lines of a table, with the columns in `right` aligned to the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    places = list(zip(columns, widths, strict=True))

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, (column, width) in zip(cells, places, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    return [line(columns), *map(line, rows)]
