"""Progress of long work: a bar on the standard error stream, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from arraystore.cli.console import make_console

__all__ = ["Progress", "progress_bar"]

Progress = Callable[..., None]
"""Takes how much is done and, where that is known, of how much."""


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Show a bar while the block lasts; what it yields moves it on."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(what, total=None)

        def move(done: Any, total: int | None = None, *_: object) -> None:
            if isinstance(done, int | float):
                bars.update(task, completed=done, total=total)
            else:  # a report on how far it is
                stage = getattr(done, "stage", "")
                bars.update(task, completed=done.objects, description=f"{what}: {stage}" if stage else what)

        yield move
