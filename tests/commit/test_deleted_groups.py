"""Deleting a group that others move and fill, one after the other, while the deletion loses races."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import zarr

import arraystore as ars
from arraystore import BasicConflictSolver, Session
from tests.commit.rivals import Outrun, impatient


def _one_after_the_other(storage: ars.Storage, *changes: Callable[[Session], None]) -> Callable[[], Awaitable[None]]:
    """Return a rival that commits these, one before each record of the other."""
    waiting = list(changes)

    async def rival() -> None:
        if waiting:
            session = await (await ars.Repository.open_async(storage)).writable_session_async("main")
            waiting.pop(0)(session)
            await session.commit_async("theirs")

    return rival


def test_what_came_into_a_group_after_it_was_moved_is_deleted_with_it() -> None:
    storage = ars.in_memory_storage()
    repo = ars.Repository.create(storage)
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        root.create_group("before").create_array("array", shape=(2,), chunks=(1,), dtype="i4")

    def move(session: Session) -> None:
        session.move("before", "after")

    def fill(session: Session) -> None:
        session.hierarchy.set_sync("after/new/zarr.json", memoryview(b'{"zarr_format": 3, "node_type": "group"}'))

    session = impatient(Outrun(storage, _one_after_the_other(storage, move, fill))).writable_session("main")
    session.hierarchy.delete_prefix("before")
    session.commit("ours", rebase_with=BasicConflictSolver())
    left = [node.path for node in repo.readonly_session("main").hierarchy.state.nodes.values()]
    assert left == [""]


def test_what_others_move_into_a_group_that_is_deleted_and_out_again_stays() -> None:
    storage = ars.in_memory_storage()
    repo = ars.Repository.create(storage)
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        root.create_group("group").create_group("inner")
        root.create_array("array", shape=(2,), chunks=(1,), dtype="i4")[:] = 7

    def there(session: Session) -> None:
        session.move("array", "group/inner/array")

    def back(session: Session) -> None:
        session.move("group/inner/array", "saved")

    session = impatient(Outrun(storage, _one_after_the_other(storage, there, back))).writable_session("main")
    session.hierarchy.delete_prefix("group")
    session.commit("ours", rebase_with=BasicConflictSolver())
    found = repo.readonly_session("main")
    assert sorted(node.path for node in found.hierarchy.state.nodes.values()) == ["", "saved"]
    assert zarr.open_array(found.store, path="saved", mode="r")[:].tolist() == [7, 7]
