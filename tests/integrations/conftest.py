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
