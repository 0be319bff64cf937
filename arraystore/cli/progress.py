"""Progress of long work: a bar on the standard error stream, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from arraystore.cli.console import make_console

__all__ = ["Progress", "progress_bar"]

Progress = Callable[..., None]
"""Takes what a piece of work tells: a stage, how much of it is done and, where that is known, of how much; or an object
with ``stage`` and ``objects``; or only the numbers."""


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

        def move(*told: Any) -> None:
            stage, done, total = _told(told)
            bars.update(task, completed=done, total=total, description=f"{what}: {stage}" if stage else what)

        yield move


def _told(told: tuple[Any, ...]) -> tuple[str, float, float | None]:
    stage = ""
    if isinstance(told[0], str):
        stage, told = told[0], told[1:]
    elif not isinstance(told[0], int | float):
        return told[0].stage, told[0].objects, None
    return stage, told[0], told[1] if len(told) > 1 else None
