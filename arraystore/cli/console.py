"""How the commands print."""

from __future__ import annotations

from rich.console import Console

__all__ = ["bytes_text", "make_console"]

_WIDTH_WITHOUT_TERMINAL = 140
"""Into a file or a pipe tables are not squeezed to the eighty columns that are assumed otherwise."""


def make_console() -> Console:
    """Console on the standard output stream."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


def bytes_text(count: int) -> str:
    """Tell a number of bytes as a person would: ``1.7 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
