"""Forks that are taken, and changes of forks that are collected, while other threads go on writing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arraystore as ars
from arraystore._chunks.pack_writer import PackWriter
from arraystore._forks import uncommitted
from tests.forks.support import chunked, counted, fill, values


def test_a_payload_has_nothing_that_is_written_while_it_is_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = ars.in_memory_storage()
    repo, _ = counted(storage)
    session = repo.writable_session("main")
    fork = session.fork()
    fill(fork, 9, 2)
    flush = PackWriter.flush

    async def flushing(packs: PackWriter) -> None:
        await flush(packs)
        await asyncio.to_thread(fill, fork, 10, 3)
        await asyncio.to_thread(chunked, fork.store, "new", 4)

    with monkeypatch.context() as patch:
        patch.setattr(PackWriter, "flush", flushing)
        payload = fork.changes()
    session.merge(payload)
    session.commit("what was there")
    committed = ars.Repository.open(storage)
    assert values(committed.readonly_session("main")) == [*[1] * 8, 0, 2, *[0] * 6]
    assert committed.verify(level="chunks").ok
    assert values(fork) == [*[1] * 8, 0, 2, 3, *[0] * 5]


def test_a_payload_has_all_that_was_read_for_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    repo, _ = counted(ars.in_memory_storage())
    session, other = repo.writable_session("main", isolation="serializable"), repo.writable_session("main")
    fork = session.fork()
    flush = PackWriter.flush

    async def flushing(packs: PackWriter) -> None:
        await asyncio.to_thread(fork.read, "a", slice(0, 1))
        await flush(packs)

    fill(fork, 9, 2)
    with monkeypatch.context() as patch:
        patch.setattr(PackWriter, "flush", flushing)
        session.merge(fork)
    fill(other, 0, 3)
    other.commit("what was read")
    with pytest.raises(ars.RebaseFailedError):
        session.commit("what depends on it", rebase_with=ars.ConflictDetector())


@pytest.mark.parametrize("what", ["delete", "write", "resize"])
def test_a_fork_sees_its_session_at_one_moment(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    repo, _ = counted(ars.in_memory_storage())
    session = repo.writable_session("main")
    arrays = {name: chunked(session.store, name, 4) for name in ("b", "c")}
    for name in arrays:
        fill(session, 0, 5, name)
    build = uncommitted._build_layers
    changed: list[bool] = []

    def change() -> None:
        for name, array in arrays.items():
            if what == "delete":
                session.store.delete_sync(f"{name}/zarr.json")
            elif what == "write":
                fill(session, 1, 6, name)
            else:
                array.resize((0,))

    async def building(*args: Any) -> Any:
        if not changed:
            changed.append(True)
            await asyncio.to_thread(change)
        return await build(*args)

    with monkeypatch.context() as patch:
        patch.setattr(uncommitted, "_build_layers", building)
        fork = session.fork()
    assert changed
    for name in arrays:
        assert values(fork, name) == [5, 0, 0, 0]
