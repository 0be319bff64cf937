"""Arrays that share a dimension, and appends to them that tell who made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    ConflictType,
    RebaseFailedError,
    Repository,
    Session,
    Storage,
    in_memory_storage,
)
from tests.commit.rivals import impatient, values

STEP = 8
"""Length of an append that is a multiple of every chunk length here."""


def dimension_repository(length: int = STEP, storage: Storage | None = None) -> tuple[Storage, Repository]:
    """Return a repository with three arrays that share ``time``, whose chunks along it are 8, 4 and 2 long."""
    storage = storage or in_memory_storage()
    repository = Repository.create(storage)
    with repository.transaction("main", message="create") as store:
        root = zarr.create_group(store)
        for name, shape, chunks, names in (
            ("time", (length,), (8,), ["time"]),
            ("t", (length, 6), (4, 3), ["time", "x"]),
            ("p", (6, length), (6, 2), ["x", "time"]),
        ):
            array = root.create_array(
                name, shape=shape, chunks=chunks, dtype="i4", fill_value=-1, dimension_names=names, compressors=None
            )
            array[...] = 0
        root.create_array("x", shape=(6,), chunks=(6,), dtype="i4", dimension_names=["x"])[:] = np.arange(6)
    return storage, repository


def data_of(value: int, items: int = STEP) -> dict[str, Any]:
    """Return what is appended: time tells value and place, the others the value."""
    return {
        "time": value * 100 + np.arange(items),
        "t": np.full((items, 6), value),
        "p": np.full((6, items), value),
    }


def append_value(session: Session, value: int, items: int = STEP, **options: Any) -> Session:
    session.append(data_of(value, items), "time", **options)
    return session


def appended(repository: Repository, value: int, items: int = STEP, **options: Any) -> Session:
    return append_value(repository.writable_session("main", **options), value, items)


def commit_append(session: Session, message: str = "append") -> str:
    return session.commit(message, rebase_with=ConflictDetector())


def check_order(session: Session, *order: int, items: int = STEP, base: int = STEP) -> None:
    """Check that the arrays hold what was there at first and then these appends, in this order."""
    times = [np.zeros(base, "i4")] + [value * 100 + np.arange(items) for value in order]
    per_item = np.repeat([0, *order], [base, *[items] * len(order)])
    np.testing.assert_array_equal(values(session, "time"), np.concatenate(times))
    np.testing.assert_array_equal(values(session, "t"), np.repeat(per_item[:, None], 6, axis=1))
    np.testing.assert_array_equal(values(session, "p"), np.repeat(per_item[None, :], 6, axis=0))


def conflicts_of(session: Session) -> set[tuple[str, ConflictType]]:
    with pytest.raises(RebaseFailedError) as caught:
        commit_append(session)
    return {(conflict.path, conflict.conflict_type) for conflict in caught.value.conflicts}


def by_others(storage: Storage, change: Callable[[Session], None]) -> str:
    session = impatient(storage).writable_session("main")
    change(session)
    return session.commit("theirs")
