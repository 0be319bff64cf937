"""Repositories that worker processes reach too, and every kind of dask scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arraystore import Repository, in_memory_storage, local_filesystem_storage

SCHEDULERS: dict[str, dict[str, Any]] = {
    "synchronous": {"scheduler": "synchronous"},
    "threads": {"scheduler": "threads", "num_workers": 4},
    "processes": {"scheduler": "processes", "num_workers": 2},
}


@pytest.fixture
def memory_repo() -> Repository:
    return Repository.create(in_memory_storage())


@pytest.fixture
def local_repo(tmp_path: Path) -> Repository:
    return Repository.create(local_filesystem_storage(tmp_path / "repo", fsync=False))


@pytest.fixture(params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Keyword arguments of `dask.compute`."""
    return SCHEDULERS[request.param]


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks of xarray's own tests."""
    for name in (
        "flaky",
        "mypy",
        "network",
        "skip_if_param(reason, condition, **params)",
        "skip_with_dask_array",
        "slow",
    ):
        config.addinivalue_line("markers", f"{name}: of xarray's tests")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what xarray's own tests mark as not meant for some parameters."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    for mark in item.iter_markers("skip_if_param"):
        wanted = {name: value for name, value in mark.kwargs.items() if name not in ("reason", "condition")}
        if mark.kwargs.get("condition", True) and wanted.items() <= params.items():
            pytest.skip(mark.kwargs["reason"])
