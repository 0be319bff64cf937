"""Draw the diagrams of docs/commits.md as SVG, so that they need no browser script and no other site.

    python tools/draw_diagrams.py

They stand on a card of their own, so that they read the same on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH = 760
FONT = "font-family='system-ui, sans-serif'"
FILLS = {
    "record": ("#dbe4ff", "#3b5bdb"),
    "object": ("#d3f9d8", "#2b8a3e"),
    "process": ("#fff3bf", "#e67700"),
    "refused": ("#ffe3e3", "#c92a2a"),
    "group": ("#f8f9fa", "#adb5bd"),
}
INK, FAINT = "#1f2328", "#57606a"


@dataclass(frozen=True)
class Box:
    """A rectangle with lines of text."""

    x: int
    y: int
    width: int
    height: int
    text: str
    kind: str
    top: bool = False
    """Whether the text stands at the top, as the title of a group."""

    def draw(self) -> str:
        """Return it as SVG."""
        fill, edge = FILLS[self.kind]
        lines = self.text.split("\n")
        first = self.y + 18 if self.top else self.y + self.height / 2 - 8 * (len(lines) - 1) + 4
        rect = (
            f"<rect x='{self.x}' y='{self.y}' width='{self.width}' height='{self.height}' rx='6' "
            f"fill='{fill}' stroke='{edge}'/>"
        )
        return rect + "".join(
            label(self.x + self.width / 2, first + 16 * number, line) for number, line in enumerate(lines)
        )


@dataclass(frozen=True)
class Arrow:
    """A line with a head, and a text beside its middle."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str = ""
    offset: tuple[int, int] = (0, -6)

    def draw(self) -> str:
        """Return it as SVG."""
        (x, y), (to_x, to_y) = self.start, self.end
        line = f"<line x1='{x}' y1='{y}' x2='{to_x}' y2='{to_y}' stroke='{FAINT}' marker-end='url(#head)'/>"
        place = ((x + to_x) / 2 + self.offset[0], (y + to_y) / 2 + self.offset[1])
        return line + (label(*place, self.text, faint=True) if self.text else "")


@dataclass(frozen=True)
class Note:
    """A text without a frame."""

    x: int
    y: int
    text: str

    def draw(self) -> str:
        """Return it as SVG."""
        return label(self.x, self.y, self.text, faint=True)


Shape = Box | Arrow | Note


def label(x: float, y: float, text: str, *, faint: bool = False) -> str:
    """Return a line of text, centred."""
    color = FAINT if faint else INK
    return f"<text x='{x:g}' y='{y:g}' text-anchor='middle' fill='{color}' {FONT} font-size='13'>{escape(text)}</text>"


def drawing(height: int, title: str, shapes: Sequence[Shape]) -> str:
    """Return a whole picture."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'>"
        f"<title>{escape(title)}</title>"
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' orient='auto'>"
        f"<path d='M0 0 L8 4 L0 8 z' fill='{FAINT}'/></marker></defs>"
        f"<rect x='1' y='1' width='{WIDTH - 2}' height='{height - 2}' rx='10' fill='#ffffff' stroke='#d0d7de'/>"
    )
    return "\n".join([head, *(shape.draw() for shape in shapes), "</svg>"]) + "\n"


def objects() -> str:
    """Records, manifests and packs."""
    return drawing(
        250,
        "The objects of a repository",
        [
            Box(20, 20, 720, 80, "refs/branch/main: the log", "group", top=True),
            *(Box(40 + 120 * n, 50, 100, 36, f"record {n}", "record") for n in range(5)),
            *(Arrow((140 + 120 * n, 68), (158 + 120 * n, 68)) for n in range(4)),
            Note(690, 72, "tip"),
            Arrow((674, 68), (622, 68)),
            Box(60, 140, 190, 40, "manifest: chunk → range", "object"),
            Box(330, 140, 190, 40, "manifest: chunk → range", "object"),
            Arrow((210, 86), (160, 138), "adds", (-24, 4)),
            Arrow((450, 86), (425, 138), "adds", (-30, 4)),
            Box(40, 205, 130, 30, "pack (8 MiB)", "object"),
            Box(190, 205, 130, 30, "pack (8 MiB)", "object"),
            Box(400, 205, 130, 30, "chunk ≥ 1 MiB", "object"),
            Arrow((130, 180), (105, 203)),
            Arrow((180, 180), (255, 203)),
            Arrow((430, 180), (460, 203)),
            Note(645, 205, "a chunk that did not change"),
            Note(645, 223, "stays where it is"),
        ],
    )


def commit() -> str:
    """One commit over time."""
    return drawing(
        215,
        "One commit",
        [
            Box(20, 20, 110, 175, "session", "process", top=True),
            Box(640, 20, 100, 175, "bucket", "group", top=True),
            Arrow((130, 65), (655, 65), "PUT chunks/… while it writes: a pack is full"),
            Arrow((130, 95), (655, 95), "PUT chunks/… the last pack, when commit is called"),
            Box(655, 50, 70, 24, "pack", "object"),
            Box(655, 82, 70, 24, "pack", "object"),
            Note(390, 124, "nothing can be seen so far; a crash leaves unreferenced packs"),
            Arrow((130, 158), (650, 158), "PUT refs/branch/main/7 if there is none: the commit"),
            Box(652, 142, 76, 32, "record 7", "record"),
            Note(390, 184, "everybody sees all of it"),
        ],
    )


def race() -> str:
    """Two writers of one number."""
    return drawing(
        290,
        "Two commits at once",
        [
            Box(20, 20, 110, 250, "writer A", "process", top=True),
            Box(630, 20, 110, 250, "writer B", "process", top=True),
            Box(310, 20, 140, 250, "the log of main", "group", top=True),
            Box(330, 48, 100, 28, "record 6", "record"),
            Arrow((130, 100), (328, 100), "record 7, if absent"),
            Box(330, 86, 100, 28, "record 7 (A)", "record"),
            Arrow((630, 140), (432, 108), "record 7, if absent", (10, -8)),
            Box(478, 132, 90, 24, "refused", "refused"),
            Arrow((432, 175), (628, 175), "what did 7 change?"),
            Note(685, 205, "other chunks:"),
            Note(685, 221, "rebase"),
            Arrow((630, 245), (432, 245), "record 8, if absent"),
            Box(330, 231, 100, 28, "record 8 (B)", "record"),
        ],
    )


def reading() -> str:
    """A reader that knows nothing."""
    return drawing(
        200,
        "Opening a snapshot",
        [
            Box(20, 70, 110, 60, "reader", "process"),
            Box(250, 20, 490, 70, "refs/branch/main", "group", top=True),
            *(Box(265 + 96 * n, 46, 86, 32, f"record {64 + n}", "record") for n in range(3)),
            Note(580, 66, "…"),
            Box(640, 46, 86, 32, "record 93", "record"),
            Box(250, 110, 210, 40, "checkpoint 64: all nodes", "object"),
            Box(500, 110, 240, 40, "manifests and ranges of packs", "object"),
            Arrow((130, 85), (248, 60), "1 find the tip", (-12, -10)),
            Arrow((130, 100), (248, 125), "2 state", (0, -8)),
            Arrow((460, 130), (498, 130), "3", (0, -6)),
            Note(380, 178, "1 and 2: at most six requests, after a hundred commits or ten thousand; 3: what is read"),
        ],
    )


def main() -> None:
    """Write all pictures."""
    for make in (objects, commit, race, reading):
        (IMAGES / f"{make.__name__}.svg").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
