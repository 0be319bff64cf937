"""docs/compatibility.md names the versions that the package asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
OF_USERS = {"s3fs", "gcsfs", "dask", "icechunk", "spark", "virtual", "xarray"}
SHOWN = {
    "zarr", "numpy", "numcodecs", "obstore", "fsspec", "s3fs", "gcsfs", "xarray", "dask", "pyspark", "pyarrow",
    "icechunk", "virtualizarr",
}  # fmt: skip


def least_versions() -> dict[str, str]:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for extra in sorted(OF_USERS) for each in extras[extra])]
    found = {}
    for requirement in wanted:
        if match := re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement):
            found[match[1].lower()] = match[2]
    return found


@pytest.mark.parametrize("package", sorted(SHOWN))
def test_the_page_names_the_least_version_that_pip_enforces(package: str) -> None:
    version = re.escape(least_versions()[package])
    assert re.search(rf"(?i)(\| {package} \| {version} \||\b{package}`? {version}\b)", PAGE), version


def test_the_page_names_the_versions_of_python() -> None:
    versions = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert f"| Python | {versions[0]} | {versions[0]} to {versions[-1]}; CPython |" in PAGE
