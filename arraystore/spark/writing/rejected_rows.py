"""Rows that cannot be written: counted by kind, with a few examples of each.

Tasks do not raise because of them: Spark would run the task again, with the same rows, and show the error of one task
only. They report them, and the driver raises once, with the totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from arraystore.errors import FormatError


class Cause(StrEnum):
    """Cause of the rejection of rows."""

    NO_PLACE = "no place"
    NO_INDEX = "no index"
    NO_LABEL = "no label"
    NO_VALUE = "no value"
    UNFIT = "unfit"
    CHANGED = "changed"
    RESERVED = "reserved"
    OUTSIDE = "outside"
    DUPLICATE = "duplicate"


_TEXTS = {
    Cause.NO_PLACE: "have no value in the dimension column {column!r}",
    Cause.NO_INDEX: "are outside the array by {column!r}",
    Cause.NO_LABEL: "have a {column!r} that is not in the coordinate",
    Cause.NO_VALUE: "have no value in {column!r} (on_null='fill' or 'skip' accepts them)",
    Cause.UNFIT: "have a {column!r} that does not fit the type of the array",
    Cause.CHANGED: "have a {column!r} that the type of the array does not hold exactly (lossy=True rounds it)",
    Cause.RESERVED: "have a {column!r} that means a missing value in the array (NewArrays(fill_values=...) chooses it)",
    Cause.OUTSIDE: "are outside of the region that replace_where names",
    Cause.DUPLICATE: "name a cell that another row names, too",
}
EXAMPLES = 3
"""Rows of each kind that are shown."""

_LONGEST = 200


class RejectedRows:
    """Counts and examples of rejected rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._found: dict[tuple[Cause, str], tuple[int, list[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, kind: Cause, column: str, count: int, examples: Iterable[str]) -> None:
        """Add rejected rows; only as many examples are taken as are shown."""
        before, shown = self._found.get((kind, column), (0, []))
        if len(shown) < EXAMPLES:
            shown += [text[:_LONGEST] for text, _ in zip(examples, range(EXAMPLES - len(shown)), strict=False)]
        self._found[kind, column] = before + count, shown

    def plain(self) -> list[list[Any]]:
        """Return the counts and examples as plain values, for the report of a task."""
        return [[kind, column, count, shown] for (kind, column), (count, shown) in self._found.items()]

    def take(self, plain: Any) -> None:
        """Add the report of a task; raise `FormatError` if it is malformed."""
        for entry in plain if isinstance(plain, list) else [None]:
            match entry:
                case [str() as kind, str() as column, int() as count, list() as shown] if kind in _TEXTS:
                    self.add(Cause(kind), column, count, (str(text) for text in shown))
                case _:
                    raise FormatError("report of a task", f"does not list rejected rows: {entry!r:.100}")

    def lacking(self) -> list[tuple[Cause, str]]:
        """Return the kinds and columns of rejected places without examples."""
        places = {Cause.NO_PLACE, Cause.NO_INDEX, Cause.NO_LABEL}
        return [which for which, (_, shown) in self._found.items() if which[0] in places and not shown]

    def text(self) -> str:
        """Return a clause for each kind and column."""
        lines: list[str] = []
        for (kind, column), (count, shown) in sorted(self._found.items(), key=lambda item: -item[1][0]):
            examples = f" (for instance {'; '.join(shown)})" if shown else ""
            lines.append(f"{count:,} {_TEXTS[kind].format(column=column)}{examples}")
        return "; ".join(lines)


def rejected_rows_in(reports: Sequence[Mapping[str, Any]]) -> RejectedRows:
    """Return the rejected rows in the reports of tasks; raise `FormatError`."""
    rejected = RejectedRows()
    for report in reports:
        rejected.rows += int(report.get("rows", 0))
        rejected.take(report.get("rejected", []))
    return rejected
