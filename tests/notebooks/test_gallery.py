"""The gallery: it runs, what it shows is stored in it, and its runner does what a kernel does."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "examples" / "gallery.ipynb"
LARGEST = 100_000


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "tools" / "run_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = _load()


def gallery() -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(GALLERY.read_text(encoding="utf-8"))
    return notebook


def kinds(outputs: list[dict[str, Any]]) -> list[set[str]]:
    """Return the formats of what a cell displays."""
    return [set(output["data"]) for output in outputs if "data" in output]


@pytest.mark.thorough
def test_the_gallery_runs_and_shows_what_is_stored_in_it() -> None:
    notebook = gallery()
    shown = list(runner.run_cells(notebook, GALLERY.name))
    stored = [cell["outputs"] for cell in runner.code_cells(notebook)]
    assert [kinds(outputs) for outputs in shown] == [kinds(outputs) for outputs in stored]
    assert sum(each == {"image/png", "text/plain"} for outputs in shown for each in kinds(outputs)) == 4
    assert sum("text/html" in each for outputs in shown for each in kinds(outputs)) == 9
    assert "Verifying" in "".join(line for outputs in shown for each in outputs for line in each.get("text", ()))


def test_the_gallery_and_the_pictures_of_its_page_are_small_and_say_nothing_of_a_machine() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    pictures = sorted((ROOT / "docs" / "images").glob("notebook-*.png"))
    assert pictures
    for picture in pictures:
        assert f"images/{picture.name}" in page
        assert picture.stat().st_size <= LARGEST
    text = GALLERY.read_text(encoding="utf-8")
    assert len(text) <= LARGEST
    assert "file://" not in text
    assert "/tmp" not in text
    for cell in runner.code_cells(gallery()):
        assert cell["execution_count"] is not None
        assert not any(output["output_type"] == "error" for output in cell["outputs"])


def notebook(*sources: str) -> dict[str, Any]:
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True)} for source in sources]
    return {"cells": [{"cell_type": "markdown", "source": "text"}, *cells]}


def test_a_cell_displays_its_last_expression_unless_a_semicolon_ends_it() -> None:
    shown = list(runner.run_cells(notebook("a = 1\nprint('printed')\na + 1", "a + 2;", "b = 3", "None"), "page"))
    assert shown[0][0] == {"output_type": "stream", "name": "stdout", "text": ["printed\n"]}
    assert shown[0][1]["data"] == {"text/plain": ["2"]}
    assert shown[1:] == [[], [], []]


def test_html_drawings_and_open_figures_are_displayed_once() -> None:
    source = """
class Shown:
    def _repr_html_(self): return "<b>"
    def _repr_svg_(self): return "<svg/>"
Shown()
"""
    plot = "from matplotlib import pyplot as plt\nplt.plot([1, 2]);"
    first, second, third = runner.run_cells(notebook(source, plot, "1"), "page")
    assert first[0]["data"]["text/html"] == ["<b>"]
    assert first[0]["data"]["image/svg+xml"] == ["<svg/>"]
    assert kinds(second) == [{"image/png", "text/plain"}]
    assert kinds(third) == [{"text/plain"}]


def test_a_cell_that_raises_ends_the_run_and_is_named_in_the_traceback() -> None:
    cells = runner.run_cells(notebook("1", "1 / 0", "2"), "page.ipynb")
    next(cells)
    with pytest.raises(ZeroDivisionError) as caught:
        next(cells)
    assert str(caught.traceback[-1].path).endswith("page.ipynb[2]")
