"""Serializable sessions that read below a group that they have moved: what others do where it was counts, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import arraystore as ars
from arraystore import ConflictDetector, ConflictType, RebaseFailedError

BUFFER = default_buffer_prototype()
Reading = Callable[[Any], Awaitable[Any]]


@pytest.fixture
def repo() -> ars.Repository:
    repo = ars.Repository.create(ars.in_memory_storage())
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        before = root.create_group("before")
        before.create_group("leaves")
        before.create_array("array", shape=(8,), chunks=(1,), dtype="i4")[:4] = 7
        root.create_group("elsewhere")
    return repo


async def names(store: Any) -> Any:
    return [name async for name in store.list_dir("after")]


async def keys(store: Any) -> Any:
    return [key async for key in store.list_prefix("after/")]


async def size(store: Any) -> Any:
    return await store.getsize_prefix("after")


async def all_keys(store: Any) -> Any:
    return [key async for key in store.list_prefix("")]


async def absence(store: Any) -> Any:
    return await store.get("after/new/zarr.json", BUFFER)


async def deletion(store: Any) -> Any:
    await store.delete_dir("after")


def arrives(session: ars.Session) -> None:
    zarr.create_group(session.store, path="before/new")


def leaves(session: ars.Session) -> None:
    session.move("before/leaves", "elsewhere/leaves")


def chunk(session: ars.Session) -> None:
    zarr.open_array(session.store, path="before/array")[6] = 3


SEEN = [
    *((reading, change) for reading in (names, keys, all_keys, size, deletion) for change in (arrives, leaves)),
    (keys, chunk),
    (all_keys, chunk),
    (size, chunk),
    (absence, arrives),
]


@pytest.mark.parametrize(("reading", "theirs"), SEEN, ids=lambda each: each.__name__)
async def test_what_was_read_below_a_moved_group_must_be_the_same(
    repo: ars.Repository, reading: Reading, theirs: Callable[[ars.Session], None]
) -> None:
    session = repo.writable_session("main", isolation="serializable")
    session.move("before", "after")
    await reading(session.store)
    other = repo.writable_session("main")
    theirs(other)
    other.commit("theirs")
    with pytest.raises(RebaseFailedError) as caught:
        await session.commit_async("ours", rebase_with=ConflictDetector())
    assert ConflictType.ReadConflict in {conflict.conflict_type for conflict in caught.value.conflicts}


async def test_what_was_not_read_below_a_moved_group_may_change(repo: ars.Repository) -> None:
    session = repo.writable_session("main", isolation="serializable")
    session.move("before", "after")
    await names(session.store)
    other = repo.writable_session("main")
    chunk(other)
    other.commit("theirs")
    await session.commit_async("ours", rebase_with=ConflictDetector())
    assert zarr.open_array(session.store, path="after/array", mode="r")[6] == 3


async def test_what_was_moved_into_a_listed_group_is_listed_with_what_others_put_into_it(repo: ars.Repository) -> None:
    session = repo.writable_session("main", isolation="serializable")
    session.move("before", "elsewhere/after")
    assert "elsewhere/after/zarr.json" in [key async for key in session.store.list_prefix("elsewhere/")]
    other = repo.writable_session("main")
    arrives(other)
    other.commit("theirs")
    with pytest.raises(RebaseFailedError):
        await session.commit_async("ours", rebase_with=ConflictDetector())
