"""Records as Icechunk shows them: executable by `repr`, readable by `str`, collapsible in notebooks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from html import escape
from typing import Any, ClassVar


def shown(value: Any) -> str:
    """Return a value as one line of a readable record."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def lines_of(title: str, rows: Mapping[str, Any]) -> str:
    """Return a record for readers: its title, and a line for each value, those of nested records indented."""
    lines = [f"<{title}>"]
    for name, value in rows.items():
        text = shown(value)
        if "\n" in text.rstrip("\n"):
            lines += [f"{name}:", *("    " + line for line in text.rstrip("\n").split("\n"))]
        else:
            lines.append(f"{name}: {text.rstrip()}")
    return "\n".join(lines) + "\n"


def html_of(title: str, rows: Mapping[str, Any]) -> str:
    """Return a record for notebooks: nested ones can be folded away."""
    cells = "".join(_html_row(name, value) for name, value in rows.items())
    return f'<div class="icechunk-repr"><strong>{escape(title)}</strong><table>{cells}</table></div>'


def _html_row(name: str, value: Any) -> str:
    render = getattr(value, "_repr_html_", None)
    if render is None:
        return f"<tr><td>{escape(name)}</td><td>{escape(shown(value))}</td></tr>"
    return f"<tr><td colspan=2><details><summary>{escape(name)}</summary>{render()}</details></td></tr>"


class Numbered(enum.IntEnum):
    """Members that are numbers, and are printed by class and name."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__


class Shown:
    """A value that is shown by its names and values, or those of `_rows`, under the title of its class."""

    _title: ClassVar[str] = ""

    def _rows(self) -> Mapping[str, Any]:
        return vars(self)

    def __str__(self) -> str:
        return lines_of(self._title, self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_of(self._title, self._rows())


class Record(Shown):
    """A dataclass whose `repr` makes an equal one, and whose `str` tells the defaults of what is None."""

    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]  # subclasses are dataclasses
        if name not in names and not hasattr(type(self), name):
            raise AttributeError(f"{self._title} has no attribute {name!r}; it has {', '.join(names)}")
        super().__setattr__(name, value)

    def _rows(self) -> Mapping[str, Any]:
        rows: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            default = self._defaults.get(field.name)
            if value is None and isinstance(default, Record):
                value = default
            elif value is None and default is not None:
                value = f"{shown(default)} (default)"
            rows[field.name] = value
        return rows

    def __repr__(self) -> str:
        values = ", ".join(
            f"{field.name.lstrip('_')}={source(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]
        )
        return f"{self._title}({values})"


def source(value: Any) -> str:
    """Return the source of a value: strings in double quotes, as Icechunk has them."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source(k)}: {source(v)}" for k, v in value.items()) + "}"
    return repr(value)
