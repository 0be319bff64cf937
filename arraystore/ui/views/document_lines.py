"""Differences in the metadata documents of a node, line by line."""

from __future__ import annotations

import difflib
import itertools
import json
import operator
import re

from arraystore._format.node import Node
from arraystore.ui.views.limits import MAX_DOCUMENTS, MAX_LINES

__all__ = ["document_lines"]

_LONGEST_DOCUMENT = 2_000
"""Lines of a document that are compared; the time grows with their square."""

_AROUND = 3
"""Equal lines that are shown before and after those that differ."""

_PIECES = re.compile(r".{0,200}?\\n|.{1,200}")
"""Pieces of a long line, which end where a line of the text in it does: what was appended to a text is found."""


def document_lines(was: Node | None, now: Node | None) -> list[str]:
    """Compare the metadata documents of a node, as indented JSON."""
    names = sorted({*(was.documents if was else ()), *(now.documents if now else ())})
    found: list[str] = []
    for name in names:
        old, new = (b"" if node is None else node.documents.get(name, b"") for node in (was, now))
        if old != new:
            found += [f"--- before/{name}", f"+++ after/{name}", *_compared(_pretty(old), _pretty(new))]
    rest = len(found) - MAX_LINES
    return found if rest <= 0 else [*found[:MAX_LINES], f"@@ {rest:,} lines more are not shown @@"]


def _compared(old: list[str], new: list[str]) -> list[str]:
    """Return hunks of a unified diff of two documents that differ, however long they are."""
    start = max(0, _count_equal(old, new) - _AROUND)
    ours, theirs = old[start:], new[start:]
    end = max(0, _count_equal(ours[::-1], theirs[::-1]) - _AROUND)
    ours, theirs = ours[: len(ours) - end], theirs[: len(theirs) - end]
    rest = max(len(ours), len(theirs)) - _LONGEST_DOCUMENT
    hunks = [*difflib.unified_diff(ours[:_LONGEST_DOCUMENT], theirs[:_LONGEST_DOCUMENT], lineterm="", n=_AROUND)][2:]
    lines = [_moved(line, start) if line.startswith("@@") else line for line in hunks]
    if rest > 0:
        return [*lines, f"@@ {rest:,} lines more are not compared @@"]
    return lines or ["@@ the bytes differ, the values do not @@"]


def _count_equal(old: list[str], new: list[str]) -> int:
    """Count the lines in front that are equal."""
    return sum(1 for _ in itertools.takewhile(bool, map(operator.eq, old, new)))


def _moved(line: str, by: int) -> str:
    """Return the head of a hunk with line numbers that count from the start of the document."""
    return re.sub(r"(?<=[-+])\d+", lambda found: str(int(found[0]) + by), line)


def _pretty(document: bytes) -> list[str]:
    try:
        text = json.dumps(json.loads(document[:MAX_DOCUMENTS]), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = document[:MAX_DOCUMENTS].decode(errors="replace")
    return [piece for line in text.splitlines() for piece in _PIECES.findall(line)]
