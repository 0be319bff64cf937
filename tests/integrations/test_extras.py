"""Who lacks an extra is told which one."""

from __future__ import annotations

import sys

import pytest

from arraystore import InvalidInputError, in_memory_storage
from arraystore._runtime.extras import how_to_install
from arraystore.cli.icechunk import icechunk_storage
from arraystore.copying import import_icechunk
from tests.integrations.test_imports import output_of

MISSING = [
    ("arraystore.xarray", "xarray", "arraystore[xarray]"),
    ("arraystore.dask", "dask", "arraystore[dask]"),
    ("arraystore.ingest", "xarray", "arraystore[xarray,spark]"),
    ("arraystore.ingest", "pyspark", "arraystore[xarray,spark]"),
    ("arraystore.virtual", "virtualizarr", "arraystore[virtual]"),
    ("arraystore.spark", "pyspark", "arraystore[spark]"),
]


@pytest.mark.parametrize(("module", "package", "extra"), MISSING)
def test_a_module_without_its_extra_says_which(module: str, package: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "try:\n"
        f"    import {module}\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name, error)"
    )
    said = output_of(code).strip().removesuffix(", with Python 3.12 or newer")
    assert said == f"{package} {module} needs the package {package!r}, which is not installed: pip install '{extra}'"


def test_a_package_that_needs_a_newer_python_is_told_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, packages in (((3, 11), ["icechunk", "virtualizarr"]), ((3, 12), list[str]())):
        monkeypatch.setattr(sys, "version_info", version)
        told = [each for each in ("dask", "icechunk", "virtualizarr") if "3.12" in how_to_install("it", "extra", each)]
        assert told == packages


@pytest.mark.parametrize(("module", "package"), [("dask", "dask"), ("xarray", "xarray")])
def test_a_module_of_the_compatibility_layer_without_its_extra_says_which(module: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "try:\n"
        f"    from arraystore.compat.icechunk import {module}\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)"
    )
    assert f"pip install 'arraystore[{package}]'" in output_of(code)


def test_importing_from_icechunk_without_it_says_which_extra_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icechunk", None)
    for use in (lambda: import_icechunk(None, in_memory_storage()), lambda: icechunk_storage("a/path")):
        with pytest.raises(InvalidInputError, match=r"which is not installed: pip install 'arraystore\[icechunk\]'"):
            use()


@pytest.mark.parametrize(
    "module",
    [
        "arraystore.xarray",
        "arraystore.dask",
        "arraystore.ingest",
        pytest.param("arraystore.virtual", marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="needs 3.12")),
    ],
)
def test_importing_a_module_of_an_extra_loads_nothing_of_it_yet(module: str) -> None:
    code = f"import sys, {module}; print({{'dask', 'xarray', 'zarr', 'pyspark'}} & sys.modules.keys())"
    assert output_of(code).strip() == "set()"
