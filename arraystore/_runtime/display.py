"""Representations of objects: one description, from which come text for terminals and HTML for notebooks.

All that comes from a repository is text: it is escaped, freed of what is not printed, and cut. Colours are those of the
page, dark or light.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arraystore._runtime.formatting import one_line, text_table
from arraystore._runtime.redaction import redact

__all__ = ["LOOK_SECONDS", "Described", "Section", "View", "section", "view_or_reason"]

MANY_ROWS, _LINES = 50, 10
"""Rows of a table that a notebook shows, and those that a terminal shows."""

LOOK_SECONDS = 10.0
"""Time after which a view gives up requests."""


@dataclass(frozen=True)
class Section:
    """A table of a view."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    """Columns with numbers."""
    more: int | None = 0
    """Count of the rows that were left out; None if it is unknown."""
    folded: bool = False
    """Whether a notebook shows it only when it is asked for."""


@dataclass(frozen=True)
class View:
    """Description of an object: its title, some facts, tables."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    prose: str = ""
    """Text of several lines, which is shown as it is."""
    picture: str = ""
    """Drawing in SVG, for notebooks only; safe markup."""
    picture_title: str = ""
    picture_folded: bool = False

    def to_text(self) -> str:
        """Return the view as lines."""
        names = [name for name, _ in self.facts]
        width = max(map(len, names), default=0) + 2
        lines = [one_line(self.title), *(f"  {name:<{width}}{one_line(value)}" for name, value in self.facts)]
        lines += [f"  {one_line(line)}" for line in self.prose.splitlines()]
        for each in self.sections:
            lines += ["", *([f"{each.title}:"] if each.title else [])]
            rows = [tuple(map(one_line, row)) for row in each.rows[:_LINES]]
            lines += [f"  {line}" for line in text_table(each.columns, rows, each.right)]
            lines += [f"  {line}" for line in _rest(each, len(each.rows) - len(rows))]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return the view as HTML."""
        facts = "".join(f"<tr>{_cell('th', name)}{_cell('td', value)}</tr>" for name, value in self.facts)
        prose = "\n".join(map(one_line, self.prose.splitlines()))
        parts = [
            f'<div style="font-weight:600;margin-bottom:4px">{_escape(self.title)}</div>',
            f'<table style="{_TABLE}"><tbody>{facts}</tbody></table>' if facts else "",
            f'<pre style="margin:4px 0;white-space:pre-wrap">{html.escape(prose)}</pre>' if prose else "",
            *map(_section_html, self.sections),
            self._picture_html(),
        ]
        return f'<div class="arraystore" style="font-size:13px;line-height:1.4">{"".join(parts)}</div>'

    def _picture_html(self) -> str:
        drawing = f'<div style="overflow-x:auto">{self.picture}</div>' if self.picture else ""
        return _details(self.picture_title, drawing, folded=self.picture_folded) if drawing else ""


class Described:
    """Object whose representations are those of its view."""

    __slots__ = ()

    def _view(self) -> View:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._view().to_text()

    def _repr_html_(self) -> str:
        return self._view().to_html()


def section(
    title: str,
    columns: Sequence[str],
    items: Sequence[object],
    row: Callable[..., Sequence[str]],
    *,
    right: Sequence[str] = (),
    limit: int = MANY_ROWS,
    folded: bool = False,
) -> tuple[Section, ...]:
    """Return a table with a row for each of the first items, and a line for the others; nothing without items."""
    if not items:
        return ()
    rows = tuple([tuple(row(item)) for item in items[:limit]])
    return (Section(title, tuple(columns), rows, frozenset(right), len(items) - len(rows), folded),)


def view_or_reason(title: str, read: Callable[[], View]) -> View:
    """Return a view, or, if it cannot be made, the reason: a look at an object raises nothing."""
    try:
        return read()
    except TimeoutError:
        reason = f"no answer within {LOOK_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        reason = f"{type(error).__name__}: {redact(str(error))}"
    return View(title, prose=reason)


def _rest(each: Section, cut: int = 0) -> list[str]:
    """Return the line below a table for the rows that it leaves out, if it does."""
    if each.more is None:
        return ["… and more"]
    return [f"… and {each.more + cut:,} more"] if each.more + cut else []


# -- HTML ---------------------------------------------------------------------------------------------------

_TABLE = "border-collapse:collapse;margin:2px 0;font-size:inherit"
_SHORT = 26
"""Characters of a cell that is never broken into lines: the time of a snapshot, its id."""

_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.25)"


def _escape(text: str) -> str:
    return html.escape(one_line(text))


def _cell(tag: str, text: str, *, right: bool = False) -> str:
    align = "right;font-variant-numeric:tabular-nums" if right else "left"
    wrap = "white-space:nowrap" if len(text) <= _SHORT else "overflow-wrap:anywhere;min-width:12em"
    style = f"text-align:{align};vertical-align:top;padding:2px 12px 2px 0;{wrap};{_LINE}"
    if tag == "th":
        style += ";font-weight:500;opacity:.7"
    return f'<{tag} style="{style}">{_escape(text)}</{tag}>'


def _section_html(each: Section) -> str:
    head = "".join(_cell("th", column, right=column in each.right) for column in each.columns)
    rows = [
        "".join(_cell("td", cell, right=column in each.right) for cell, column in zip(row, each.columns, strict=True))
        for row in each.rows
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    rest = "".join(f'<div style="opacity:.7">{_escape(line)}</div>' for line in _rest(each))
    table = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}'
    return _details(each.title, table, folded=each.folded)


def _details(title: str, content: str, *, folded: bool) -> str:
    """Return content that can be folded, if it has a title."""
    opened = "" if folded else " open"
    summary = f'<summary style="margin-top:6px;cursor:pointer">{_escape(title)}</summary>'
    return f"<details{opened}>{summary}{content}</details>" if title else content
