"""Bars of ``progress=True``: which package draws them, what they show, and that callables are called as before."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import pytest
import zarr

import arraystore
from arraystore import Repository, in_memory_storage
from arraystore._runtime import progress_bars
from arraystore._runtime.progress import shows_progress
from arraystore.copying import CopyProgress, clone_repository, copy_branch, export_zarr, import_zarr
from arraystore.errors import InvalidInputError
from arraystore.transforms import rechunk, reduce_array, transform_chunks


class Bar:
    """What the program uses of a bar of tqdm, remembering all that it is told."""

    made: list[Bar]

    def __init__(self, *, desc: str, unit: str) -> None:
        self.n: float = 0
        self.total: float | None = None
        self.shown = [desc]
        self.closed = False
        self.made.append(self)

    def set_description_str(self, text: str) -> None:
        self.shown.append(text)

    def update(self, step: float) -> None:
        self.n += step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    Bar.made = []
    auto: Any = ModuleType("tqdm.auto")
    auto.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    monkeypatch.setattr(progress_bars, "find_spec", {"tqdm": "found"}.get)
    return Bar.made


def repository() -> Repository:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=8, chunks=4, dtype="i4", dimension_names="x")[:] = np.arange(8)
    session.commit("two chunks")
    return repo


def test_true_shows_a_bar_that_ends_with_the_call(bars: list[Bar]) -> None:
    repo = repository()
    repo.verify(progress=True)
    repo.garbage_collect(datetime.now(UTC), full=True, progress=True)
    repo.compact(progress=True)
    assert [bar.shown[0] for bar in bars] == ["Verifying", "Collecting", "Compacting"]
    assert all(bar.closed for bar in bars)
    assert "Verifying: branch main" in bars[0].shown
    assert (bars[0].n, bars[0].total) == (1, 1)


def test_copies_show_stages_and_counts(bars: list[Bar], tmp_path: Path) -> None:
    report = clone_repository(repository().storage, arraystore.local_filesystem_storage(str(tmp_path)), progress=True)
    (bar,) = bars
    assert bar.n == report.objects
    assert {"Cloning: chunks", "Cloning: refs"} & set(bar.shown)


def test_imports_exports_and_transforms_show_a_bar_each(bars: list[Bar], tmp_path: Path) -> None:
    repo = repository()
    export_zarr(repo, str(tmp_path / "plain.zarr"), branch="main", progress=True)
    import_zarr(str(tmp_path / "plain.zarr"), repo, group="again", progress=True)
    copy_branch(repo, in_memory_storage(), branch="main", progress=True)
    session = repo.writable_session("main")
    reduce_array(session, "a", "total", "sum", progress=True)
    transform_chunks(session, "a", "a", np.negative, progress=True)
    rechunk(repo, "a", {"x": 2}, progress=True)
    titles = [bar.shown[0] for bar in bars]
    assert titles == ["Exporting", "Importing", "Copying", "Reducing", "Transforming", "Rechunking"]
    assert all(bar.closed and bar.n > 0 for bar in bars)


VIRTUAL = ("virtual",) if sys.version_info >= (3, 12) else ()
"""What VirtualiZarr is needed for, which needs Python 3.12."""


def public_functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions, and methods of repositories, that report progress."""
    functions: dict[str, Callable[..., Any]] = {}
    for place in ("copying", "ingest", "spark", "transforms", *VIRTUAL):
        module = import_module(f"arraystore.{place}")
        functions |= {f"{place}.{name}": getattr(module, name) for name in module.__all__}
    functions |= {name: getattr(Repository, name) for name in dir(Repository) if not name.startswith("_")}
    found = {name: each for name, each in functions.items() if inspect.isroutine(each)}
    return {name: each for name, each in found.items() if "progress" in inspect.signature(each).parameters}


CALLBACKS = {"CopyProgressCallback", "Progress", "StageProgress"}
"""Kinds of callbacks: of copies, of tasks that are counted, and of maintenance, which has stages."""


def test_all_that_reports_progress_can_show_a_bar() -> None:
    functions = public_functions()
    expected = {
        "copying.import_icechunk",
        "ingest.ingest",
        "spark.write_regions",
        *(f"{place}.virtualize" for place in VIRTUAL),
        "compact_async",
    }
    assert {*expected, "spark.write_dataframe", "transforms.build_pyramid"} <= set(functions)
    for name, function in functions.items():
        parameter = inspect.signature(function).parameters["progress"]
        callback, _, bar = parameter.annotation.removesuffix(" | None").partition(" | ")
        assert (callback in CALLBACKS, bar, not parameter.default) == (True, "bool", True), name
        assert parameter.kind == parameter.KEYWORD_ONLY, name
        assert getattr(function, "__wrapped__", None) is not None, name


def test_names_of_a_repository_do_not_steer_the_terminal(bars: list[Bar]) -> None:
    with progress_bars.open_bar("Copying") as update:
        update("branch \x1b[31m\r\u202e", 0, 4)
    assert bars[0].shown[1:] == ["Copying: branch \ufffd[31m\ufffd\ufffd", "Copying"]


async def test_the_asynchronous_twin_shows_one_bar(bars: list[Bar]) -> None:
    await repository().verify_async(progress=True)
    assert [bar.closed for bar in bars] == [True]


def test_a_bar_is_closed_when_the_call_fails(bars: list[Bar]) -> None:
    with pytest.raises(InvalidInputError):
        repository().verify("nonsense", progress=True)  # type: ignore[arg-type]
    assert [bar.closed for bar in bars] == [True]


def test_callables_are_called_and_no_bar_is_made(bars: list[Bar], tmp_path: Path) -> None:
    seen: list[Any] = []
    repo = repository()
    repo.verify(progress=lambda *report: seen.append(report))
    assert seen[-1] == ("done", 1, 1)
    clone_repository(repo.storage, arraystore.local_filesystem_storage(str(tmp_path)), progress=seen.append)
    assert isinstance(seen[-1], CopyProgress)
    assert bars == []


@pytest.mark.parametrize("progress", [None, False])
def test_without_progress_nothing_is_shown(bars: list[Bar], progress: bool | None) -> None:
    repository().verify(progress=progress)
    assert bars == []


@pytest.mark.parametrize("progress", [1, "yes", []])
def test_what_cannot_be_called_is_refused_before_anything_is_done(tmp_path: Path, progress: Any) -> None:
    with pytest.raises(InvalidInputError, match="progress must be True for a bar, a callable, or None"):
        clone_repository(repository().storage, arraystore.local_filesystem_storage(str(tmp_path)), progress=progress)
    assert list(tmp_path.iterdir()) == []


def test_without_a_package_for_bars_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bars, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'arraystore\[progress\]'") as caught:
        repository().verify(progress=True)
    assert caught.value.name == "tqdm"


def test_rich_draws_the_bar_where_there_is_no_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    out = io.StringIO()
    monkeypatch.setattr(progress_bars, "find_spec", {"rich": "found"}.get)
    monkeypatch.setattr("rich.progress.get_console", lambda: Console(file=out, force_terminal=True, width=80))
    with progress_bars.open_bar("[red]Copying") as update:
        update("[bold]stage", 3, 4)
        update(4, 4)
    assert "[red]Copying" in out.getvalue()
    assert "4/4" in out.getvalue()


def test_tqdm_itself_draws_stage_count_and_total(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    with progress_bars.open_bar("Copying") as update:
        update("chunks", 0, 4)
        update("chunks", 4, 4)
    assert "Copying: 100%" in capsys.readouterr().err


def test_decorated_functions_keep_names_signatures_and_kinds() -> None:
    @shows_progress("Working")
    async def work(*, progress: Any = None) -> None:
        """Work."""

    assert inspect.iscoroutinefunction(work)
    assert (work.__name__, work.__doc__, list(inspect.signature(work).parameters)) == ("work", "Work.", ["progress"])
