"""The source distribution: whoever has it can run its tests and build its pages."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]
WORKING = {".git", ".gitignore", ".hypothesis", "__pycache__", "build", "demo", "dist", "pyproject.toml", "site"}
"""What is made by working with a checkout, or always there."""


def test_the_source_distribution_has_all_that_a_checkout_has(tmp_path: Path) -> None:
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    tops = {name.split("/")[0] for name in names}
    there = {path.name for path in ROOT.iterdir() if not path.name.startswith((".venv", ".java", ".cache"))}
    assert {each for each in there - tops - WORKING if not each.endswith(("_cache", ".egg-info"))} == set()
    for folder in ("arraystore", "benchmarks", "tests", "tools"):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")}
        assert files <= names, folder


def test_the_files_of_the_page_are_in_both_distributions(tmp_path: Path) -> None:
    (sdist,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    page = {f"arraystore/ui/static/{path.name}" for path in (ROOT / "arraystore" / "ui" / "static").iterdir()}
    with tarfile.open(sdist) as archive:
        assert page <= {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    with zipfile.ZipFile(wheel) as archive:
        assert page <= set(archive.namelist())
    assert {"arraystore/ui/static/app.js", "arraystore/ui/static/index.html"} <= page
