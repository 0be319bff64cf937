"""The tables of docs/conflicts.md, made from real runs.

    python -m tests.commit.matrix_page

writes them anew; the tests fail where the page shows something else than what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.commit.bench import Bench
from tests.commit.expected import CODES
from tests.commit.operations import (
    Operation,
    array_operations,
    hierarchy_operations,
    reading_operations,
)

PAGE = Path(__file__).parents[2] / "docs" / "conflicts.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
COMMITS = "✓"

ARRAY = array_operations("g/a")
HIERARCHY = hierarchy_operations()
READING = reading_operations("g/a")

MEANINGS = {
    "N": "both made something at this path, or ours would stand above or below what theirs made",
    "I": "the group that ours creates it in is deleted, moved away, or an array by now",
    "M": "both changed the metadata of one node",
    "MA": "ours changes the metadata of an array that is deleted by now",
    "MG": "ours changes the metadata of a group that is deleted by now",
    "C": "both wrote or deleted a chunk",
    "CD": "ours wrote chunks of an array that is deleted by now",
    "CM": "ours wrote chunks, and theirs changed how chunks are read",
    "DA": "ours deletes an array (or file) that theirs changed or moved",
    "DG": "ours deletes a group that theirs changed or moved, or put something into",
    "MV": "ours moves what theirs moved or deleted, or to a place that is taken or gone",
    "MC": "ours changes how chunks are read, and theirs wrote or deleted chunks",
    "DD": "both deleted it",
    "U": "both appended, and an end is not that of a whole chunk",
    "R": "a serializable session read what theirs changed",
}


@dataclass(frozen=True)
class Table:
    """One table: what we do, by row, after what they did, by column."""

    title: str
    ours: Sequence[Operation]
    theirs: Sequence[Operation]


TABLES = (
    Table("Both change one array, `/g/a`", ARRAY, ARRAY),
    Table("Both change groups, files, or what is at a path", HIERARCHY, HIERARCHY),
    Table("Ours changes the array, theirs changed the hierarchy", ARRAY, HIERARCHY),
    Table("Ours changes the hierarchy, theirs changed the array", HIERARCHY, ARRAY),
    Table("Ours is serializable, and reads what theirs changed", READING, [*ARRAY, *HIERARCHY]),
)

Outcome = Callable[[Operation, Operation], str]


def rendered(outcome: Outcome) -> str:
    """Return the part of the page between the marks."""
    parts = [_legend(), *[_table(table, outcome) for table in TABLES], _operations()]
    return "\n\n".join([BEGIN, *parts, END])


def _legend() -> str:
    lines = ["| code | conflict type | what it means |", "| --- | --- | --- |", f"| {COMMITS} | | ours commits |"]
    lines += [f"| {code} | `{kind.name}` | {MEANINGS[code]} |" for code, kind in CODES.items()]
    return "\n".join(lines)


def _operations() -> str:
    lines = ["### What the operations do", "", "| operation | what it does |", "| --- | --- |"]
    lines += [f"| {operation.name} | {operation.says} |" for operation in [*ARRAY, *HIERARCHY, *READING]]
    return "\n".join(lines)


def _table(table: Table, outcome: Outcome) -> str:
    """Return one table; rows that are the same are one, and so are columns."""
    cells = {(o.name, t.name): outcome(o, t) for o in table.ours for t in table.theirs}
    ours, theirs = [o.name for o in table.ours], [t.name for t in table.theirs]
    rows = _alike(ours, lambda name: tuple(cells[name, other] for other in theirs))
    columns = _alike(theirs, lambda name: tuple(cells[other, name] for other in ours))
    lines = [f"### {table.title}", "", _line(["ours ↓ theirs →", *map(", ".join, columns)])]
    lines.append(_line(["---"] * (len(columns) + 1)))
    lines += [_line([", ".join(row), *[cells[row[0], column[0]] or COMMITS for column in columns]]) for row in rows]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _alike(names: Sequence[str], key: Callable[[str], tuple[str, ...]]) -> list[list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return list(found.values())


@cache
def _shown() -> dict[tuple[str, str], str]:
    """Return the cells of the page."""
    found: dict[tuple[str, str], str] = {}
    columns: list[list[str]] = []
    for line in part_of(PAGE.read_text(encoding="utf-8")).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("ours"):
            columns = [cell.split(", ") for cell in cells[1:]]
        elif not line.startswith("|"):
            columns = []
        elif columns and cells[0] != "---":
            for row in cells[0].split(", "):
                for names, cell in zip(columns, cells[1:], strict=True):
                    found.update({(row, name): "" if cell == COMMITS else cell for name in names})
    return found


def part_of(text: str) -> str:
    """Return what stands between the marks, these included."""
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def documented(ours: str, theirs: str) -> str | None:
    """Return the codes that the page shows for a pair; None if it does not show the pair."""
    return _shown().get((ours, theirs))


def main() -> None:
    """Write the tables of the page anew."""
    bench = Bench()
    text = PAGE.read_text(encoding="utf-8")
    tables = rendered(lambda ours, theirs: bench.pair(ours, theirs).codes)
    PAGE.write_text(text.replace(part_of(text), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
