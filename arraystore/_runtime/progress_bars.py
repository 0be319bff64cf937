"""Progress bars of tqdm, where it is installed, else of rich; in notebooks those for notebooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from arraystore._runtime.extras import how_to_install
from arraystore._runtime.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Update", "open_bar", "rich_bar"]

Update = Callable[..., None]
"""Shows a report: an optional stage, the count done, optionally the total; or an object with `stage` and `objects`."""


def open_bar(title: str) -> AbstractContextManager[Update]:
    """Show a bar during the block, updated by the yielded callback; raises `ModuleNotFoundError` naming the extra."""
    if find_spec("tqdm") is not None:
        return _tqdm_bar(title)
    if find_spec("rich") is not None:
        return rich_bar(title)
    raise ModuleNotFoundError(how_to_install("progress=True", "progress", "tqdm"), name="tqdm")


@contextmanager
def _tqdm_bar(title: str) -> Iterator[Update]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a notebook without ipywidgets gets a bar of text
        from tqdm.auto import tqdm
    with tqdm(desc=title, unit="") as bar:
        shown: tuple[str, float | None] = "", None

        def update(*report: Any) -> None:
            nonlocal shown
            stage, done, total = _read(report)
            if (stage, total) != shown:
                shown = stage, total
                bar.total = total
                bar.n = done
                bar.set_description_str(f"{title}: {stage}" if stage else title)
            else:
                bar.update(done - bar.n)  # draws at most ten times a second

        yield update
        bar.set_description_str(title)  # what stays below a cell is no stage of the work


@contextmanager
def rich_bar(title: str, console: Console | None = None, *, transient: bool = False) -> Iterator[Update]:
    """Show a bar of rich during the block, updated by the yielded callback."""
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=transient) as bars:
        task = bars.add_task(escape(title), total=None)

        def update(*report: Any) -> None:
            stage, done, total = _read(report)
            text = escape(f"{title}: {stage}" if stage else title)
            bars.update(task, completed=done, total=total, description=text)

        yield update


def _read(report: tuple[Any, ...]) -> tuple[str, float, float | None]:
    """Return stage, which may be a name from a repository, count done and total (None if unknown) of a report."""
    stage = ""
    if isinstance(report[0], str):
        stage, report = printable(report[0]), report[1:]
    elif not isinstance(report[0], int | float):
        return printable(report[0].stage), report[0].objects, None
    return stage, report[0], report[1] if len(report) > 1 else None
