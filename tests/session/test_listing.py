"""Listing names: the same from an index of a snapshot as node by node, in a session that changes nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import zarr
from zarr.core.sync import sync

from arraystore import CountingStorage, Repository, Session, in_memory_storage
from tests.history.worlds import both, created, grouped, put, set_file, world

PREFIXES = ("", "g", "g/", "g/a", "g/a/c", "g/a/c/0", "deep", "deep/er", "notes", "notes/x", "nowhere", "g/nowhere")


def names(session: Session, prefix: str) -> list[str]:
    async def listed() -> list[str]:
        return [name async for name in session.store.list_dir(prefix)]

    found: list[str] = sync(listed())
    return sorted(found)


def everything(session: Session) -> dict[str, list[str]]:
    return {prefix: names(session, prefix) for prefix in PREFIXES}


def test_names_below_a_path_are_the_same_before_and_after_the_commit() -> None:
    repository = world()
    session = repository.writable_session("main")
    both(created("deep/er/array"), grouped("g/h"), set_file("notes/x/y", b"1"), put("g/b", 0, 1))(session)
    before = everything(session)
    assert before[""] == ["deep", "g", "notes", "zarr.json"]
    assert before["g"] == ["a", "b", "h", "zarr.json"]
    assert before["g/a"] == ["c", "zarr.json"]
    assert before["notes"] == ["x"]
    assert before["nowhere"] == before["g/nowhere"] == []
    session.commit("more")
    assert everything(session) == before
    assert everything(repository.readonly_session("main")) == before


def test_a_session_lists_what_it_creates_and_deletes_after_it_has_listed() -> None:
    session = world().writable_session("main")
    assert names(session, "g") == ["a", "b", "zarr.json"]
    created("g/c")(session)
    assert names(session, "g") == ["a", "b", "c", "zarr.json"]
    del zarr.open_group(session.store, path="g", mode="r+")["a"]
    assert names(session, "g") == ["b", "c", "zarr.json"]
    session.discard_changes()
    assert names(session, "g") == ["a", "b", "zarr.json"]


def test_a_group_that_has_no_node_of_its_own_is_listed_by_what_is_below() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    created("x/y/z")(session)
    session.commit("an array deep below")
    reader = repository.readonly_session("main")
    found: dict[str, Any] = {prefix: names(reader, prefix) for prefix in ("", "x", "x/y", "x/y/z")}
    assert found["x"] == names(session, "x")
    assert [name for name in found["x/y"] if name != "zarr.json"] == ["z"]
    assert found["x/y/z"] == ["c", "zarr.json"]


def test_the_arrays_of_an_open_snapshot_are_listed_without_a_request_and_with_one_look_at_each() -> None:
    storage = CountingStorage(in_memory_storage())
    session = Repository.create(storage).writable_session("main")
    group = zarr.create_group(session.store)
    for number in range(20):
        group.create_array(f"a{number}", shape=4, chunks=2, dtype="i4")
    session.commit("twenty arrays")
    store = Repository.open(storage).readonly_session("main").store
    before, looks = storage.counts.total, 0
    get = store.get

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        return await get(*arguments, **options)

    store.get = counted  # type: ignore[method-assign]
    assert len(list(zarr.open_group(store, mode="r", zarr_format=3).arrays())) == 20
    assert (storage.counts.total - before, looks) == (0, 21)


def test_a_listing_that_nobody_ends_is_closed_quietly_with_its_event_loop() -> None:
    session = world().writable_session("main")
    told: list[dict[str, Any]] = []

    async def begin(listed: Any) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        await anext(listed)

    for listed in (session.store.list(), session.store.list_prefix("g"), session.store.list_dir("")):
        asyncio.run(begin(listed))
    assert not told
