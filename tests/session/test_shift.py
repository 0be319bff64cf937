"""Shifting chunks: what moves, what is dropped, what becomes empty, and what that collides with."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    Session,
    SessionStateError,
    in_memory_storage,
)
from arraystore._conflicts import ConflictType
from arraystore.storage import CountingStorage
from tests.commit.support import DistantStorage

SIZE = 6


def repository_with(values: np.ndarray, chunks: tuple[int, ...], **config: Any) -> Repository:
    """Create a repository with an array ``a``; chunks of zeros do not exist."""
    repository = Repository.create(in_memory_storage(), RepositoryConfig(**config))
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=values.shape, chunks=chunks, dtype=values.dtype)
    array[...] = values
    session.commit("values")
    return repository


def read(session: Session, path: str = "a") -> np.ndarray:
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[...])


def numbers(count: int = SIZE) -> np.ndarray:
    return np.arange(1, count + 1)


@pytest.fixture(params=[512, 0], ids=["inlined", "in packs"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return repository_with(numbers(), (1,), inline_chunk_threshold_bytes=request.param)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [1, 2, 3, 4, 5, 6]),
        (2, [0, 0, 1, 2, 3, 4]),
        (-2, [3, 4, 5, 6, 0, 0]),
        (6, [0] * 6),
        (-6, [0] * 6),
        (1 << 80, [0] * 6),
        (-(1 << 80), [0] * 6),
    ],
)
def test_chunks_move_and_vacated_places_are_empty(repository: Repository, offset: int, expected: list[int]) -> None:
    session = repository.writable_session("main")
    session.shift_array("/a", (offset,))
    assert read(session).tolist() == expected
    session.commit("shifted", allow_empty=True)
    assert read(repository.readonly_session("main")).tolist() == expected
    assert session.chunk_coordinates("a").ravel().tolist() == [i for i, value in enumerate(expected) if value]


def test_a_shift_of_nothing_is_no_change(repository: Repository) -> None:
    session = repository.writable_session("main")
    session.shift_array("a", (0,))
    assert not session.has_uncommitted_changes


def test_a_shift_reads_and_writes_no_data() -> None:
    storage = CountingStorage(DistantStorage(in_memory_storage()))
    repository = Repository.create(storage, RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(64, 64), chunks=(1, 64), dtype="i8")
    array[...] = 7
    session.commit("values")
    repository.wait_for_maintenance()
    session = repository.writable_session("main")
    storage.reset()
    session.shift_array("a", (3, 0))
    session.commit("shifted")
    assert storage.counts["put_if_absent"] == 1
    assert [key.partition("/")[0] for operation, key in storage.log if operation == "put"] == ["snapshots"]
    assert storage.counts.total <= 6
    assert not any(key.startswith("chunks/") for _, key in storage.log)


def test_a_shift_of_inlined_chunks_asks_for_nothing_but_its_commit() -> None:
    storage = CountingStorage(DistantStorage(in_memory_storage()))
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(64,), chunks=(1,), dtype="i8")[...] = 7
    session.commit("values")
    repository.wait_for_maintenance()
    session = repository.writable_session("main")
    storage.reset()
    session.shift_array("a", (3,))
    assert storage.counts.total == 0
    session.commit("shifted")
    assert (storage.counts.total, storage.counts["put_if_absent"]) == (1, 1)


def test_it_moves_what_is_not_committed_yet_over_what_is(repository: Repository) -> None:
    session = repository.writable_session("main")
    array = zarr.open_array(session.store, path="a", mode="r+")
    array[1] = 20
    array[4] = 0  # deletes the chunk
    session.shift_array("a", [1])
    assert read(session).tolist() == [0, 1, 20, 3, 4, 0]
    array[2] = 21  # in its new place
    array[0] = 9
    session.shift_array("a", [1])
    assert read(session).tolist() == [0, 9, 1, 21, 3, 4]
    session.commit("shifted twice")
    assert read(repository.readonly_session("main")).tolist() == [0, 9, 1, 21, 3, 4]


def test_there_and_back_again_is_what_is_left(repository: Repository) -> None:
    session = repository.writable_session("main")
    session.shift_array("a", (2,))
    session.shift_array("a", (-2,))
    session.commit("there and back again")
    assert read(repository.readonly_session("main")).tolist() == [1, 2, 3, 4, 0, 0]


def test_chunks_of_a_new_array_that_wait_for_upload_can_be_moved_and_read() -> None:
    repository = Repository.create(in_memory_storage(), RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(SIZE,), chunks=(1,), dtype="i8")
    array[...] = numbers()
    session.shift_array("a", (2,))
    assert read(session).tolist() == [0, 0, 1, 2, 3, 4]
    assert session.status().updated_chunks["/a"].ravel().tolist() == [2, 3, 4, 5]
    session.commit("new and shifted")
    assert read(repository.readonly_session("main")).tolist() == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("offset", [(0, 1), (1, 0), (1, -1), (-2, 2), (0, -3)])
def test_two_dimensions_shift_as_numpy_does(offset: tuple[int, int]) -> None:
    values = np.arange(1, 13).reshape(3, 4)
    repository = repository_with(values, (1, 1))
    session = repository.writable_session("main")
    session.shift_array("a", offset)
    expected = np.zeros_like(values)
    for (row, column), value in np.ndenumerate(values):
        target = row + offset[0], column + offset[1]
        if 0 <= target[0] < 3 and 0 <= target[1] < 4:
            expected[target] = value
    assert read(session).tolist() == expected.tolist()


def test_room_made_first_keeps_everything(repository: Repository) -> None:
    session = repository.writable_session("main")
    array = zarr.open_array(session.store, path="a", mode="r+")
    array.resize((SIZE + 2,))
    session.shift_array("a", (2,))
    assert read(session).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    session.commit("room made")
    assert read(repository.readonly_session("main")).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_what_a_shrink_has_cut_off_does_not_come_back(repository: Repository) -> None:
    session = repository.writable_session("main")
    array = zarr.open_array(session.store, path="a", mode="r+")
    array.resize((3,))
    array.resize((SIZE,))
    session.shift_array("a", (1,))
    assert read(session).tolist() == [0, 1, 2, 3, 0, 0]
    session.shift_array("a", (-2,))
    assert read(session).tolist() == [2, 3, 0, 0, 0, 0]
    session.commit("cut and shifted")
    assert read(repository.readonly_session("main")).tolist() == [2, 3, 0, 0, 0, 0]


def test_an_edge_chunk_is_as_large_as_any_other() -> None:
    repository = repository_with(np.array([1, 2, 3, 4, 5]), (2,))
    session = repository.writable_session("main")
    session.shift_array("a", (-1,))
    assert read(session).tolist() == [3, 4, 5, 0, 0]


def test_shards_move_as_a_whole() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(8,), chunks=(1,), shards=(2,), dtype="i8")
    array[...] = np.arange(1, 9)
    session.shift_array("a", (1,))
    assert read(session).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_zarr_v2_arrays_and_virtual_chunks_move_too() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i8", zarr_format=2)
    session.store.set_virtual_ref("a/1", "s3://bucket/x", offset=8, length=8, validate_container=False, checksum=None)
    session.commit("virtual")
    session = repository.writable_session("main")
    session.shift_array("a", (2,))
    assert session.chunk_coordinates("a").tolist() == [[3]]
    session.commit("shifted")
    assert repository.readonly_session("main").chunk_coordinates("a").tolist() == [[3]]


# -- what is refused ------------------------------------------------------------------------------------------------


def test_only_whole_numbers_of_the_right_count_are_an_offset(repository: Repository) -> None:
    session = repository.writable_session("main")
    for offset in ((1, 1), (), (1.5,), ("1",)):
        with pytest.raises(InvalidInputError, match="offset"):
            session.shift_array("a", offset)  # type: ignore[arg-type]
    assert not session.has_uncommitted_changes


def test_an_array_is_needed_and_a_writable_session(repository: Repository) -> None:
    session = repository.writable_session("main")
    for path in ("nowhere", "", "/"):
        with pytest.raises(NodeNotFoundError, match="there is no array"):
            session.shift_array(path, (1,))
    with pytest.raises(ReadOnlyError):
        repository.readonly_session("main").shift_array("a", (1,))


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="this zarr writes regular grids only")
def test_chunks_of_different_shapes_cannot_take_each_others_places() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        zarr.create_array(session.store, name="a", shape=(6,), chunks=[[2, 4]], dtype="i8")
    with pytest.raises(InvalidInputError, match="regular chunk grid"):
        session.shift_array("a", (1,))


# -- others ---------------------------------------------------------------------------------------------------------


def test_it_is_rebased_over_a_change_elsewhere_and_collides_with_one_of_its_chunks() -> None:
    repository = repository_with(np.array([0, 0, 3, 4, 0, 0]), (1,))
    mine, fine, bad = (repository.writable_session("main") for _ in range(3))
    mine.shift_array("a", (1,))  # vacates 2, fills 3 and 4
    zarr.open_array(fine.store, path="a", mode="r+")[0] = 1
    fine.commit("chunk 0")
    mine.rebase(ConflictDetector())
    assert read(mine).tolist() == [1, 0, 0, 3, 4, 0]
    zarr.open_array(bad.store, path="a", mode="r+")[4] = 50
    bad.commit("chunk 4", rebase_with=ConflictDetector())
    with pytest.raises(RebaseFailedError) as caught:
        mine.commit("shifted", rebase_with=ConflictDetector())
    (conflict,) = caught.value.conflicts
    assert conflict.conflict_type is ConflictType.ChunkDoubleUpdate
    assert conflict.conflicted_chunks is not None
    assert conflict.conflicted_chunks.tolist() == [[4]]


def test_the_chunk_that_it_vacates_is_its_own_too() -> None:
    repository = repository_with(np.array([0, 0, 3, 4, 0, 0]), (1,))
    mine, theirs = repository.writable_session("main"), repository.writable_session("main")
    mine.shift_array("a", (1,))
    zarr.open_array(theirs.store, path="a", mode="r+")[2] = 30
    theirs.commit("chunk 2")
    with pytest.raises(RebaseFailedError) as caught:
        mine.commit("shifted", rebase_with=ConflictDetector())
    assert [c.conflicted_chunks.tolist() for c in caught.value.conflicts] == [[[2]]]


def test_an_append_that_was_shifted_is_not_moved_behind_those_of_others() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i8", dimension_names=["t"])
    array[...] = numbers(4)
    session.commit("values")
    mine, theirs = repository.writable_session("main"), repository.writable_session("main")
    mine.append({"a": np.array([5])}, "t")
    mine.shift_array("a", (-1,))
    assert read(mine).tolist() == [2, 3, 4, 5, 0]
    theirs.append({"a": np.array([50])}, "t")
    theirs.commit("appended")
    with pytest.raises(RebaseFailedError) as caught:
        mine.commit("a window", rebase_with=ConflictDetector())
    assert ConflictType.ZarrMetadataDoubleUpdate in {c.conflict_type for c in caught.value.conflicts}


def test_a_serializable_session_depends_on_all_chunks_of_what_it_shifts() -> None:
    repository = repository_with(np.array([0, 0, 3, 4, 0, 0]), (1,))
    mine = repository.writable_session("main", isolation="serializable")
    theirs = repository.writable_session("main")
    mine.shift_array("a", (1,))
    zarr.open_array(theirs.store, path="a", mode="r+")[0] = 1
    theirs.commit("chunk 0")
    with pytest.raises(RebaseFailedError) as caught:
        mine.commit("shifted", rebase_with=ConflictDetector())
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.ReadConflict}


def test_a_fork_moves_what_it_has_written_and_leaves_the_rest_to_its_session() -> None:
    repository = repository_with(numbers(), (1,), inline_chunk_threshold_bytes=0)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="b", shape=(SIZE,), chunks=(1,), dtype="i8")
    fork = pickle.loads(pickle.dumps(session.fork()))
    with pytest.raises(SessionStateError, match="shift or reindex the array in the session"):
        fork.shift_array("a", (1,))
    zarr.open_array(fork.store, path="b", mode="r+")[...] = numbers()
    fork.shift_array("b", (1,))
    session.merge(fork)
    session.shift_array("a", (-1,))
    session.commit("shifted by both")
    reader = repository.readonly_session("main")
    assert read(reader, "a").tolist() == [2, 3, 4, 5, 6, 0]
    assert read(reader, "b").tolist() == [0, 1, 2, 3, 4, 5]


def test_a_shift_since_a_fork_was_taken_overlaps_with_what_the_fork_writes(repository: Repository) -> None:
    from arraystore import MergeConflictError

    session = repository.writable_session("main")
    fork = session.fork()
    zarr.open_array(fork.store, path="a", mode="r+")[3] = 30
    session.shift_array("a", (1,))
    with pytest.raises(MergeConflictError, match="written by more than one"):
        session.merge(fork)
