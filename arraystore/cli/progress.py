"""Progress bar on standard error, if it is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arraystore._runtime.progress_bars import Update, rich_bar
from arraystore.cli.console import make_console


@contextmanager
def progress_bar(title: str) -> Iterator[Update]:
    """Show a progress bar during the block, updated by the yielded callback."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    with rich_bar(title, console, transient=True) as update:
        yield update
