"""How the commands print: for people on a terminal, for files, and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "add_row",
    "answer",
    "bytes_text",
    "count_text",
    "literal",
    "make_console",
    "make_table",
    "note",
    "plain",
    "print_fields",
    "print_json",
    "stream_json",
    "time_text",
]

_WIDTH_WITHOUT_TERMINAL = 140
"""Into a file or a pipe tables are not squeezed to the eighty columns that are assumed otherwise."""


_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def make_console(*, stderr: bool = False) -> Console:
    """Console on one of the standard streams."""
    from rich.console import Console

    console = Console(highlight=False, stderr=stderr, soft_wrap=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, stderr=stderr, width=_WIDTH_WITHOUT_TERMINAL)


def make_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Table in the style of all commands; columns named in `right` are of numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold dim")
    numbers = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: object) -> None:
    """Add a row of which every text is shown as it is."""
    table.add_row(*(literal(cell) for cell in cells))


def literal(value: object, style: str = "") -> Text:
    """Return a text that is shown as it is: no markup, and nothing that a terminal would obey."""
    from rich.text import Text

    return Text(str(value).translate(_CONTROLS), style=style)


def answer(as_json: bool, text: str, **values: object) -> None:
    """Say what was done: in a sentence, or as JSON."""
    if as_json:
        print_json(values)
    else:
        print(text)


def print_fields(value: object) -> None:
    """Print what a report counts, a line for each field."""
    table = make_table("", "")
    table.show_header = False
    found = plain(value)
    assert isinstance(found, dict)
    for name, item in found.items():
        add_row(table, name.replace("_", " "), _field_text(name, item))
    make_console().print(table)


def _field_text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return bytes_text(value) if "bytes" in name.split("_") else f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        value = [f"{key}: {item}" for key, item in value.items()]
    if isinstance(value, list):
        return "\n".join(map(_item_text, value)) if value else "none"
    return str(value)


def _item_text(value: Any) -> str:
    return ", ".join(f"{key}: {item}" for key, item in value.items()) if isinstance(value, Mapping) else str(value)


def note(text: str) -> None:
    """Say something beside the answer: on the standard error stream."""
    print(f"note: {text}", file=sys.stderr)


def bytes_text(count: int) -> str:
    """Tell a number of bytes as a person would: ``1.7 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count_text(count: int, name: str) -> str:
    """Tell how many there are: ``1 chunk``, ``2 chunks``."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def time_text(time: datetime) -> str:
    """Tell a time, in UTC, to the second."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def plain(value: Any) -> Any:
    """Return a value as JSON can say it: dataclasses by field, sets sorted, times in ISO 8601, bytes in hexadecimal."""
    found: Any
    if value is None or isinstance(value, bool | int | float | str):
        found = value
    elif hasattr(value, "to_dict"):
        found = plain(value.to_dict())
    elif isinstance(value, Enum):
        found = value.name.lower()
    elif is_dataclass(value) and not isinstance(value, type):
        found = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    elif isinstance(value, Mapping):
        found = {str(key): plain(item) for key, item in value.items()}
    elif isinstance(value, datetime):
        found = value.isoformat()
    elif isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, bytes | bytearray | memoryview):
        found = bytes(value).hex()
    elif isinstance(value, set | frozenset):
        found = sorted((plain(item) for item in value), key=str)
    elif callable(to_list := getattr(value, "tolist", None)):  # numpy
        found = plain(to_list())
    elif isinstance(value, Iterable):
        found = [plain(item) for item in value]
    else:
        found = str(value)
    return found


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def stream_json(values: Iterable[Any]) -> None:
    """Print a JSON array, each item as soon as it is there."""
    opened = False
    for value in values:
        print(",\n " if opened else "[\n ", json.dumps(plain(value), ensure_ascii=False), sep="", end="", flush=True)
        opened = True
    print("\n]" if opened else "[]")
