"""What the package offers under its own name, and that nothing heavy is imported before somebody asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import arraystore


def python(program: str) -> str:
    package = str(Path(arraystore.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": package},
    )  # fmt: skip
    return done.stdout.strip()


def test_everything_public_is_there_and_named() -> None:
    for name in arraystore.__all__:
        assert getattr(arraystore, name).__class__ is not type(arraystore), name
    assert set(arraystore.__all__) <= set(dir(arraystore))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'arraystore' has no attribute 'nonsense'"):
        arraystore.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_all_names_can_be_imported_at_once_and_modules_found() -> None:
    assert (
        python("from arraystore import *; print(Repository.__name__, s3_storage.__name__)") == "Repository s3_storage"
    )
    assert python("import arraystore; print(arraystore.storage.__name__)") == "arraystore.storage"


def test_the_package_alone_is_imported_without_zarr() -> None:
    heavy = "{*sys.modules} & {'zarr', 'numpy', 'obstore', 'pyspark', 'xarray', 'rich', 'typer'}"
    assert python(f"import sys, arraystore; print({heavy})") == "set()"


def test_the_help_of_the_command_line_does_not_wait_for_zarr() -> None:
    program = (
        "import sys; from arraystore.cli import main\n"
        "sys.stdout = sys.stderr; main(['--help']); main(['log', '--help'])\n"
        "print({*sys.modules} & {'zarr', 'obstore', 'pyspark', 'xarray'}, file=sys.__stdout__)"
    )
    assert python(program) == "set()"


MODULES = {
    "compat",
    "copying",
    "dask",
    "distributed",
    "errors",
    "ingest",
    "simulation",
    "spark",
    "storage",
    "transforms",
    "ui",
    "virtual",
    "xarray",
}
"""Modules that users import besides the package itself; `cli` is a program."""


def test_dir_shows_public_names_and_nothing_else() -> None:
    assert set(dir(arraystore)) == {*arraystore.__all__, *MODULES, "__version__"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_dir_of_a_module_shows_its_public_names_and_nothing_else_before_and_after_they_are_used(name: str) -> None:
    program = (
        f"import arraystore.{name} as module\n"
        "before = dir(module)\n"
        "values = [getattr(module, name) for name in module.__all__]\n"
        "print([{*names} ^ {*module.__all__} for names in (before, dir(module))])"
    )
    assert python(program) == "[set(), set()]"


def test_what_is_not_public_begins_with_an_underscore() -> None:
    names = {path.stem for path in Path(arraystore.__file__).parent.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in names if not name.startswith("_")} == MODULES | {"cli"}
