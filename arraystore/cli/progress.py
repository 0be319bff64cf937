"""Progress bar on standard error, if it is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from arraystore.cli.console import make_console

Progress = Callable[..., None]
"""Callback for progress: optional stage, completed count and optional total; or an object with ``stage`` and
``objects``."""


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show a progress bar during the block, updated by the yielded callback."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)

        def update(*report: Any) -> None:
            stage, done, total = _parse(report)
            bars.update(task, completed=done, total=total, description=f"{title}: {stage}" if stage else title)

        yield update


def _parse(report: tuple[Any, ...]) -> tuple[str, float, float | None]:
    stage = ""
    if isinstance(report[0], str):
        stage, report = report[0], report[1:]
    elif not isinstance(report[0], int | float):
        return report[0].stage, report[0].objects, None
    return stage, report[0], report[1] if len(report) > 1 else None
