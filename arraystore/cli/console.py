"""Output of the commands: to terminals, files and programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from arraystore._runtime.formatting import bytes_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDTH_WITHOUT_TERMINAL = 140
"""Width of tables in files and pipes, where rich assumes 80 columns."""


_TURNING = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters that break a line or turn the direction of what follows."""

_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
_CONTROLS |= {code: f"\\u{code:04x}" for code in _TURNING}
_CONTROLS_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_TURNING)}
"""Those that JSON does not have to escape, and does not contain outside of strings."""


def safe(text: str) -> str:
    """Return text without characters that control a terminal: it may come from a repository."""
    return text.translate(_CONTROLS)


def make_console(*, stderr: bool = False) -> Console:
    """Create a console on standard output or standard error."""
    from rich.console import Console

    console = Console(highlight=False, stderr=stderr, soft_wrap=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, stderr=stderr, width=_WIDTH_WITHOUT_TERMINAL)


def make_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Create a table in the style of all commands, with the columns in `right` aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold dim")
    right_aligned = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in right_aligned else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: object) -> None:
    """Add a row of literal cells."""
    table.add_row(*(literal(cell) for cell in cells))


def literal(value: object, style: str = "") -> Text:
    """Return a value as text without markup and terminal control characters."""
    from rich.text import Text

    return Text(safe(str(value)), style=style)


def print_result(as_json: bool, text: str, **values: object) -> None:
    """Print the result of a command, as a sentence or as JSON."""
    if as_json:
        print_json(values)
    else:
        print(safe(text))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], right: Iterable[str] = ()) -> None:
    """Print a table of literal cells."""
    table = make_table(*columns, right=right)
    for row in rows:
        add_row(table, *row)
    make_console().print(table)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    table = make_table("", "")
    table.show_header = False
    for pair in pairs:
        add_row(table, *pair)
    make_console().print(table)


def print_report(as_json: bool, report: Any) -> None:
    """Print a report, its fields one per line or as JSON."""
    if as_json:
        print_json(report)
    else:
        print_pairs((name.replace("_", " "), _field_text(name, item)) for name, item in plain(report).items())


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


def print_note(text: str) -> None:
    """Print a note on standard error."""
    print(f"note: {safe(text)}", file=sys.stderr)


def plain(value: Any) -> Any:
    """Convert a value to JSON types: dataclasses by field, sets sorted, times in ISO 8601, bytes in hexadecimal."""
    result: Any
    if value is None or isinstance(value, bool | int | float | str):
        result = value
    elif hasattr(value, "to_dict"):
        result = plain(value.to_dict())
    elif isinstance(value, Enum):
        result = value.name.lower()
    elif is_dataclass(value) and not isinstance(value, type):
        result = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    elif isinstance(value, Mapping):
        result = {str(key): plain(item) for key, item in value.items()}
    elif isinstance(value, datetime):
        result = value.isoformat()
    elif isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, bytes | bytearray | memoryview):
        result = bytes(value).hex()
    elif isinstance(value, set | frozenset):
        result = sorted((plain(item) for item in value), key=str)
    elif callable(to_list := getattr(value, "tolist", None)):  # numpy
        result = plain(to_list())
    elif isinstance(value, Iterable):
        result = [plain(item) for item in value]
    else:
        result = str(value)
    return result


JSON_VERSION = 1
"""Version of the documents that commands print with ``--json``; it rises when a field is renamed or removed."""


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print the result of a command as a JSON document, with the version of its fields."""
    print(_json({"version": JSON_VERSION, "result": plain(value)}, indent=indent))


def stream_json(values: Iterable[Any]) -> None:
    """Print a JSON document whose result is an array, each item as soon as it is available."""
    print(f'{{"version": {JSON_VERSION}, "result": [', end="")
    for number, value in enumerate(values):
        print(",\n " if number else "\n ", _json(plain(value)), sep="", end="", flush=True)
    print("\n]}")


def _json(value: Any, indent: int | None = None) -> str:
    """Return JSON without characters that control a terminal."""
    return json.dumps(value, indent=indent, ensure_ascii=False).translate(_CONTROLS_IN_JSON)
