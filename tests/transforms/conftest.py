"""A repository in memory, and arrays in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, Session, in_memory_storage
from arraystore.transforms.rechunking import boxes, plan

Put = Callable[..., None]


@pytest.fixture
def repo() -> Repository:
    return Repository.create(in_memory_storage())


@pytest.fixture
def session(repo: Repository) -> Session:
    return repo.writable_session("main")


@pytest.fixture
def small_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small arrays be planned as large ones are, for which tasks and requests cost little beside bytes."""
    monkeypatch.setattr(plan, "_STAGE_BYTES", 0)
    monkeypatch.setattr(plan, "_SMALLEST_BOX", 1 << 20)
    monkeypatch.setattr(boxes, "_ACCESS_BYTES", 100)


def put(session: Session, path: str, values: Any, chunks: Any, dims: Any = None, **options: Any) -> None:
    """Create an array with values."""
    values = np.asarray(values)
    array = zarr.create_array(
        session.store, name=path, shape=values.shape, chunks=chunks, dtype=values.dtype, dimension_names=dims, **options
    )
    array[...] = values


def get(session: Any, path: str) -> Any:
    """Return the values of an array."""
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[...])
