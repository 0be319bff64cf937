"""Drawing of the history of several branches and tags."""

from __future__ import annotations

import heapq
import html
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from arraystore._format.history import SnapshotRow
from arraystore._format.ids import SnapshotId, id_to_text
from arraystore._format.record import decode_note
from arraystore._runtime.formatting import one_line, printable


@dataclass(frozen=True)
class GraphRow:
    """A snapshot in a drawing."""

    id: str
    parent_id: str | None
    written_at: datetime
    """Time of the commit, in UTC."""
    message: str
    labels: tuple[str, ...]
    """Names of branches and, as ``"tag: …"``, of tags that are at it."""
    lane: int
    """Column that it is drawn in, from 0."""
    joined: tuple[int, ...]
    """Columns that end here, because what they hold started from this snapshot."""
    through: tuple[int, ...]
    """Columns that pass by."""

    @property
    def caption(self) -> str:
        """Return what is written beside the dot."""
        labels = f" ({printable(', '.join(self.labels))})" if self.labels else ""
        return f"{self.id} {self.written_at:%Y-%m-%d %H:%M}{labels} {self.subject}".rstrip()

    @property
    def subject(self) -> str:
        """First line of the message, without what would steer a terminal."""
        first_line = next(iter(self.message.splitlines()), "")
        return printable(first_line)


@dataclass(frozen=True)
class _Style:
    """Characters of a drawing."""

    dot: str
    down: str
    fork: str
    corner: str
    meet: str
    cross: str
    across: str
    on: str


_UNICODE = _Style("●", "│", "├", "╯", "┴", "┼", "─", "⋮")
_PLAIN = _Style("*", "|", "+", "'", "+", "|", "-", ":")


@dataclass(frozen=True)
class AncestryGraph:
    """Snapshots, each below those that started from it; `str` draws them, and notebooks show a picture.

    Parameters
    ----------
    rows
        The snapshots.
    more
        Columns that go on beyond what is drawn.
    plain
        Whether `str` keeps to ASCII.
    """

    rows: tuple[GraphRow, ...]
    more: tuple[int, ...] = ()
    plain: bool = False

    def __str__(self) -> str:
        style = _PLAIN if self.plain else _UNICODE
        width = self._width()
        lines: list[str] = []
        for row in self.rows:
            if row.joined:
                lines.append(_join_line(row, style).rstrip())
            cells = dict.fromkeys(row.through, style.down) | {row.lane: style.dot}
            caption = row.caption if not self.plain else row.caption.encode("ascii", "backslashreplace").decode()
            lines.append(f"{_line(cells, width)}{caption}")
        if self.more:
            lines.append(f"{_line(dict.fromkeys(self.more, style.on), width)}older snapshots are not drawn")
        return "\n".join(lines)

    __repr__ = __str__

    def _width(self) -> int:
        return 1 + max((lane for row in self.rows for lane in (row.lane, *row.through)), default=0)

    def _repr_svg_(self) -> str:
        return _svg(self.rows, self.more, self._width())


def _line(cells: dict[int, str], width: int) -> str:
    return "".join(cells.get(lane, " ") + " " for lane in range(width))


def _join_line(row: GraphRow, style: _Style) -> str:
    """Draw the columns that end at a row, on the line above it."""
    last = max(row.joined)
    through = set(row.through)
    text = ""
    for lane in range(max(last, *through, row.lane) + 1 if through else last + 1):
        between = row.lane <= lane < last
        if lane == row.lane:
            character = style.fork
        elif lane == last:
            character = style.corner
        elif lane in row.joined:
            character = style.meet
        elif lane in through:
            character = style.cross if between else style.down
        else:
            character = style.across if between else " "
        text += character + (style.across if between else " ")
    return text


# -- gathering ----------------------------------------------------------------------------------------------


History = tuple[SnapshotId, AsyncIterator[Sequence[SnapshotRow]]]
"""A snapshot, and it and those before it, newest first."""


async def gather_rows(histories: Iterable[History], limit: int) -> dict[SnapshotId, SnapshotRow]:
    """Read histories, the longest first, each until it joins one that was read, or is longer than `limit`.

    Those that start with a snapshot that was read, or before all that will be drawn, are not read at all.
    """
    read: dict[SnapshotId, SnapshotRow] = {}
    for start, history in histories:
        if start in read or (len(read) > limit and start < heapq.nlargest(limit, read)[-1]):
            continue
        count = 0
        async for rows in history:
            new = rows[: limit + 1 - count]
            joined = next((i for i, row in enumerate(new) if row.id in read), None)
            read.update((row.id, row) for row in new[:joined])
            count += len(new)
            if joined is not None or count > limit:
                break
    return read


def draw_history(
    snapshots: dict[SnapshotId, SnapshotRow],
    labels: Mapping[SnapshotId, Sequence[str]],
    limit: int,
    *,
    plain: bool = False,
) -> AncestryGraph:
    """Arrange snapshots in columns, newest first, with their labels."""
    lanes: list[SnapshotId | None] = []
    ended: set[int] = set()  # columns where a history starts; a dot right beneath would look like its parent
    rows: list[GraphRow] = []
    for row in _ordered(snapshots)[:limit]:
        waiting = [lane for lane, wanted in enumerate(lanes) if wanted == row.id]
        if waiting:
            lane = waiting[0]
        else:
            lane = next((i for i, wanted in enumerate(lanes) if wanted is None and i not in ended), len(lanes))
            lanes[lane:] = lanes[lane:] or [None]
        for other in waiting[1:]:
            lanes[other] = None
        through = tuple(i for i, wanted in enumerate(lanes) if wanted is not None and i != lane)
        rows.append(_graph_row(row, labels.get(row.id, ()), lane, tuple(waiting[1:]), through))
        lanes[lane] = row.parent
        if row.parent is None:
            ended.add(lane)
    return AncestryGraph(tuple(rows), tuple(i for i, wanted in enumerate(lanes) if wanted is not None), plain)


def _ordered(snapshots: dict[SnapshotId, SnapshotRow]) -> list[SnapshotRow]:
    """Sort snapshots newest first, but none above its descendants, whatever the clocks of the writers."""
    children = dict.fromkeys(snapshots, 0)
    for row in snapshots.values():
        if row.parent is not None and row.parent in children:
            children[row.parent] += 1
    ready = [(-row.time, at, row) for at, row in enumerate(snapshots.values()) if not children[row.id]]
    heapq.heapify(ready)
    number = len(snapshots)
    ordered: list[SnapshotRow] = []
    while ready:
        _, _, row = heapq.heappop(ready)
        ordered.append(row)
        parent = snapshots.get(row.parent) if row.parent is not None else None
        if parent is not None:
            children[parent.id] -= 1
            if not children[parent.id]:
                heapq.heappush(ready, (-parent.time, number, parent))
                number += 1
    return ordered


def _graph_row(
    row: SnapshotRow, labels: Sequence[str], lane: int, joined: tuple[int, ...], through: tuple[int, ...]
) -> GraphRow:
    message, _ = decode_note(f"note of snapshot {id_to_text(row.id)}", row.note)
    written = datetime.fromtimestamp(row.time / 1_000_000, UTC)
    parent = None if row.parent is None else id_to_text(row.parent)
    return GraphRow(id_to_text(row.id), parent, written, message, tuple(labels), lane, joined, through)


# -- a picture ----------------------------------------------------------------------------------------------

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
_STEP, _LANE, _MARGIN = 24, 18, 14

_SUBJECT, _MOST_LABELS = 80, 6
"""Characters of a message, and labels of a snapshot, that a picture shows."""


def _svg(rows: Sequence[GraphRow], more: Sequence[int], width: int) -> str:
    """Draw dots, the lines between them, and a caption for each."""
    places = {row.id: (_MARGIN + _LANE * row.lane, _MARGIN + _STEP * at) for at, row in enumerate(rows)}
    bottom = _MARGIN + _STEP * len(rows)
    lines: list[str] = []
    dots: list[str] = []
    left = _MARGIN + _LANE * width
    for row in rows:
        x, y = places[row.id]
        colour = _COLOURS[row.lane % len(_COLOURS)]
        if row.parent_id is not None:
            to_x, to_y = places.get(row.parent_id, (x, bottom))
            dash = "" if row.parent_id in places else ' stroke-dasharray="2 3"'
            turn = "" if to_x == x else f" L{x} {to_y - _STEP / 2} Q{x} {to_y}"
            lines.append(f'<path d="M{x} {y}{turn or " L"} {to_x} {to_y}" stroke="{colour}"{dash}/>')
        dots.append(
            f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"><title>{html.escape(_subject(row))}</title></circle>'
        )
        dots.append(f'<text x="{left}" y="{y + 4}">{_caption(row)}</text>')
    size = max((_length(row) for row in rows), default=0)
    across, down = left + 8 * size + _MARGIN, bottom + (_MARGIN if more else 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down}" viewBox="0 0 {across} {down}">'
        f'<g fill="none" stroke-width="2">{"".join(lines)}</g>'
        f'<g font-family="monospace" font-size="12" fill="currentColor">{"".join(dots)}</g></svg>'
    )


def _caption(row: GraphRow) -> str:
    labels = "".join([f'<tspan font-weight="bold"> {html.escape(label)}</tspan>' for label in _labels(row)])
    return f"{row.id} {row.written_at:%Y-%m-%d %H:%M}{labels} {html.escape(_subject(row))}".rstrip()


def _length(row: GraphRow) -> int:
    return len(row.id) + 18 + sum(1 + len(label) for label in _labels(row)) + len(_subject(row))


def _subject(row: GraphRow) -> str:
    return one_line(row.message, _SUBJECT)


def _labels(row: GraphRow) -> list[str]:
    """Return the labels that are drawn, and the count of the others."""
    labels = [one_line(label, _SUBJECT) for label in row.labels[:_MOST_LABELS]]
    rest = len(row.labels) - len(labels)
    return [*labels, f"+{rest:,}"] if rest else labels
