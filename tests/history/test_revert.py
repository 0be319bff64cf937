"""Reverting: a snapshot is undone, what came after it stays, and what overlaps is a conflict."""

from __future__ import annotations

from typing import Any

import pytest
import zarr

from arraystore import (
    ConflictDetector,
    InvalidInputError,
    RebaseFailedError,
    RefNotFoundError,
    Repository,
    SnapshotNotFoundError,
    in_memory_storage,
)
from arraystore._conflicts import ConflictType
from arraystore.storage import CountingStorage
from tests.history.worlds import (
    attributes,
    both,
    commit,
    contents,
    created,
    deleted,
    get_file,
    grouped,
    moved,
    put,
    resized,
    set_file,
    world,
)

CHANGES = {
    "a chunk": put("g/a", 2, 30),
    "a chunk that comes": put("g/b", 2, 30),
    "a chunk that goes": put("g/a", 2, 0),
    "attributes": attributes("g/a", units="K"),
    "attributes of a group": attributes("g", title="t"),
    "more room": both(resized("g/a", 9), put("g/a", 8, 90)),
    "less room": resized("g/a", 2),
    "a new array": created("g/c"),
    "a new group with an array": both(grouped("n"), created("n/c")),
    "an array that goes": deleted("g/a"),
    "a group that goes": deleted("g"),
    "a move": moved("g/a", "a"),
    "a group that moves": moved("g", "h"),
    "two that change places": both(moved("g/a", "g/x"), moved("g/b", "g/a"), moved("g/x", "g/b")),
    "a move and a change": both(moved("g", "h"), put("h/a", 1, 20), created("h/c"), deleted("h/b")),
    "another array in the same place": both(deleted("g/a"), created("g/a")),
    "an array in place of a group": both(deleted("g"), created("g")),
    "a shift": lambda session: session.shift_array("g/a", (2,)),
}


@pytest.mark.parametrize("inline", [0, 512], ids=["in packs", "inlined"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_one_snapshot_changed_is_undone_and_later_changes_elsewhere_stay(change: Any, inline: int) -> None:
    repository = world(inline=inline)
    before = contents(repository)
    snapshot = commit(repository, change, "the change")
    commit(repository, both(grouped("elsewhere"), created("elsewhere/d", 5)))
    reverted = repository.revert(snapshot)
    found = contents(repository)
    assert found.pop("elsewhere") == ({}, None)
    assert found.pop("elsewhere/d") == ({}, [5, 5])
    assert found == before
    (info, *_) = repository.ancestry(branch="main")
    assert (info.id, info.message, info.metadata) == (reverted, "Revert 'the change'", {"reverts": snapshot})


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_revert_of_a_revert_is_the_change_again(change: Any) -> None:
    repository = world()
    snapshot = commit(repository, change)
    after = contents(repository)
    repository.revert(repository.revert(snapshot), message="after all")
    assert contents(repository) == after
    assert next(repository.ancestry(branch="main")).message == "after all"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_is_undone_already_is_nothing_to_undo(change: Any) -> None:
    repository = world()
    snapshot = commit(repository, change)
    newest = repository.revert(snapshot)
    with pytest.raises(InvalidInputError, match="has nothing left that snapshot"):
        repository.revert(snapshot)
    assert repository.lookup_branch("main") == newest


def test_a_later_change_of_another_chunk_or_node_stays() -> None:
    repository = world()
    snapshot = commit(repository, both(put("g/a", 2, 30), put("g/b", 0, 1)))
    commit(repository, put("g/a", 3, 40))
    commit(repository, attributes("g/b", kept=True))
    repository.revert(snapshot)
    found = contents(repository)
    assert found["g/a"] == ({}, [1, 2, 3, 40, 5, 6])
    assert found["g/b"] == ({"kept": True}, [0] * 6)


def test_what_was_moved_since_is_undone_where_it_is_now() -> None:
    repository = world()
    snapshot = commit(repository, put("g/a", 2, 30))
    commit(repository, moved("g", "h"))
    repository.revert(snapshot)
    assert contents(repository)["h/a"] == ({}, [1, 2, 3, 4, 5, 6])


def test_files_are_undone_too() -> None:
    repository = world()
    first = commit(repository, set_file("notes.txt", b"one"))
    second = commit(repository, set_file("notes.txt", b"two"))
    with pytest.raises(RebaseFailedError):
        repository.revert(first)
    repository.revert(second)
    assert get_file(repository, "notes.txt") == b"one"
    repository.revert(first)
    assert get_file(repository, "notes.txt") is None


CONFLICTS: dict[str, tuple[Any, Any, ConflictType, str, list[list[int]] | None]] = {
    "a chunk": (put("g/a", 2, 30), put("g/a", 2, 31), ConflictType.ChunkDoubleUpdate, "/g/a", [[2]]),
    "one chunk of two": (
        both(put("g/a", 2, 30), put("g/a", 3, 40)),
        both(put("g/a", 3, 41), put("g/a", 4, 50)),
        ConflictType.ChunkDoubleUpdate,
        "/g/a",
        [[3]],
    ),
    "attributes": (
        attributes("g/a", units="K"),
        attributes("g/a", title="t"),
        ConflictType.ZarrMetadataDoubleUpdate,
        "/g/a",
        None,
    ),
    "metadata of a deleted array": (
        attributes("g/a", units="K"),
        deleted("g/a"),
        ConflictType.ZarrMetadataUpdateOfDeletedArray,
        "/g/a",
        None,
    ),
    "metadata of a deleted group": (
        attributes("g", title="t"),
        deleted("g"),
        ConflictType.ZarrMetadataUpdateOfDeletedGroup,
        "/g",
        None,
    ),
    "chunks of a deleted array": (
        put("g/a", 2, 30),
        deleted("g/a"),
        ConflictType.ChunksUpdatedInDeletedArray,
        "/g/a",
        [[2]],
    ),
    "chunks of an array that shrank": (
        put("g/a", 5, 60),
        resized("g/a", 2),
        ConflictType.ChunksUpdatedInUpdatedArray,
        "/g/a",
        [[5]],
    ),
    "room in use": (
        resized("g/a", 9),
        put("g/a", 8, 90),
        ConflictType.ZarrMetadataUpdateOfUpdatedChunks,
        "/g/a",
        [[8]],
    ),
    "an array in use": (
        created("g/c"),
        put("g/c", 1, 8),
        ConflictType.DeleteOfUpdatedArray,
        "/g/c",
        [[1]],
    ),
    "a group in use": (grouped("n"), created("n/c"), ConflictType.DeleteOfUpdatedGroup, "/n", None),
    "a group with a title": (
        grouped("n"),
        attributes("n", title="t"),
        ConflictType.DeleteOfUpdatedGroup,
        "/n",
        None,
    ),
    "a place that is taken": (
        deleted("g/a"),
        created("g/a"),
        ConflictType.NewNodeConflictsWithExistingNode,
        "/g/a",
        None,
    ),
    "a place below a group that is gone": (
        deleted("g/a"),
        deleted("g"),
        ConflictType.NewNodeInInvalidGroup,
        "/g/a",
        None,
    ),
    "a place below an array": (
        deleted("g/a"),
        both(deleted("g"), created("g")),
        ConflictType.NewNodeInInvalidGroup,
        "/g/a",
        None,
    ),
    "a place above something": (
        deleted("g/a"),
        both(grouped("g/a"), created("g/a/c")),
        ConflictType.NewNodeConflictsWithExistingNode,
        "/g/a",
        None,
    ),
    "a move of what was moved on": (
        moved("g/a", "a"),
        moved("a", "b"),
        ConflictType.MoveOperationCannotBeRebased,
        "/b",
        None,
    ),
    "a move of what is gone": (
        moved("g/a", "a"),
        deleted("a"),
        ConflictType.MoveOperationCannotBeRebased,
        "/a",
        None,
    ),
    "a move to where something is": (
        moved("g/a", "a"),
        created("g/a"),
        ConflictType.MoveOperationCannotBeRebased,
        "/a",
        None,
    ),
    "a move to a group that is gone": (
        moved("g/a", "a"),
        deleted("g"),
        ConflictType.MoveOperationCannotBeRebased,
        "/a",
        None,
    ),
    "a move of a group to where something is": (
        moved("g", "h"),
        created("g"),
        ConflictType.MoveOperationCannotBeRebased,
        "/h",
        None,
    ),
}


@pytest.mark.parametrize(("change", "later", "kind", "path", "chunks"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_what_the_branch_has_changed_again_is_a_conflict_and_nothing_is_committed(
    change: Any, later: Any, kind: ConflictType, path: str, chunks: list[list[int]] | None
) -> None:
    repository = world()
    snapshot = commit(repository, change)
    newest = commit(repository, later)
    before = contents(repository)
    with pytest.raises(RebaseFailedError) as caught:
        repository.revert(snapshot)
    conflicts = [c for c in caught.value.conflicts if (c.conflict_type, c.path) == (kind, path)]
    assert len(conflicts) == 1, caught.value
    cells = conflicts[0].conflicted_chunks
    assert (None if cells is None else cells.tolist()) == chunks
    assert repository.lookup_branch("main") == newest
    assert contents(repository) == before


def test_what_others_commit_meanwhile_is_rebased_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from arraystore._repository import revert

    repository = world()
    snapshot = commit(repository, put("g/a", 2, 30))
    original = revert.transplant

    async def interrupted(*arguments: Any) -> Any:
        session = await Repository.open_async(repository.storage)
        writing = await session.writable_session_async("main")
        writing.hierarchy.set_sync("elsewhere", memoryview(b"x"))
        await writing.commit_async("meanwhile")
        return await original(*arguments)

    monkeypatch.setattr(revert, "transplant", interrupted)
    repository.revert(snapshot)
    array = zarr.open_array(repository.readonly_session("main").store, path="g/a", mode="r")
    assert array[...].tolist() == [1, 2, 3, 4, 5, 6]
    assert [info.message for info in repository.ancestry(branch="main")][1] == "meanwhile"


def test_a_session_that_wrote_to_an_array_that_was_deleted_and_came_back_collides() -> None:
    repository = world()
    mine = repository.writable_session("main")
    zarr.open_array(mine.store, path="g/a", mode="r+")[0] = 100
    commit(repository, put("g/a", 0, 10))
    repository.revert(commit(repository, deleted("g/a")))
    with pytest.raises(RebaseFailedError):
        mine.commit("late", rebase_with=ConflictDetector())
    assert contents(repository)["g/a"] == ({}, [10, 2, 3, 4, 5, 6])


def test_the_first_snapshot_an_unknown_one_and_an_unknown_branch_are_refused() -> None:
    repository = world()
    first = [info.id for info in repository.ancestry(branch="main")][-1]
    with pytest.raises(InvalidInputError, match="cannot be reverted: it is the first one"):
        repository.revert(first)
    with pytest.raises(InvalidInputError):
        repository.revert("not an id")
    with pytest.raises(SnapshotNotFoundError):
        repository.revert("0" * 20)
    with pytest.raises(RefNotFoundError):
        repository.revert(repository.lookup_branch("main"), branch="nowhere")


def test_a_commit_of_nothing_has_nothing_to_undo() -> None:
    repository = world()
    session = repository.writable_session("main")
    empty = session.commit("empty", allow_empty=True)
    with pytest.raises(InvalidInputError, match="has nothing left"):
        repository.revert(empty)


def test_no_chunk_is_read_and_none_is_written() -> None:
    storage = CountingStorage(in_memory_storage())
    repository = world(storage)
    snapshot = commit(repository, both(deleted("g/a"), put("g/b", 0, 1)))
    repository.wait_for_maintenance()
    storage.reset()
    repository.revert(snapshot)
    assert not [key for _, key in storage.log if key.startswith("chunks/")]
    assert [key.partition("/")[0] for operation, key in storage.log if operation == "put"] == ["snapshots"]


def test_an_array_of_many_chunks_is_undone_by_columns() -> None:
    repository = Repository.create(in_memory_storage())
    side = 300
    with_virtual = [f"s3://bucket/{i}" for i in range(side * side)]

    def filled(session: Any) -> None:
        zarr.create_array(session.store, name="v", shape=(side, side), chunks=(1, 1), dtype="i1")
        ones = [1] * len(with_virtual)
        session.store.set_virtual_refs_arr(
            "v", (side, side), with_virtual, ones, ones, validate_containers=False, checksum=None
        )

    commit(repository, lambda session: zarr.create_group(session.store))
    snapshot = commit(repository, filled)
    again = repository.revert(repository.revert(snapshot))
    session = repository.readonly_session(snapshot_id=again)
    assert len(session.chunk_coordinates("v")) == side * side


def test_what_was_put_into_a_group_that_is_undone_with_the_move_of_the_one_above_it_is_a_conflict() -> None:
    repository = world()
    undone = commit(repository, both(moved("g", "h"), grouped("h/new")))
    newest = commit(repository, created("h/new/c"))
    with pytest.raises(RebaseFailedError) as caught:
        repository.revert(undone)
    conflicts = [(c.conflict_type, c.path) for c in caught.value.conflicts]
    assert conflicts == [(ConflictType.DeleteOfUpdatedGroup, "/h/new")]
    assert repository.lookup_branch("main") == newest
