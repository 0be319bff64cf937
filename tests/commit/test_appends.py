"""Appends along a dimension: both sides succeed, in the order in which they commit, and nothing is written twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    InvalidInputError,
    NodeNotFoundError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    VersionSelection,
    in_memory_storage,
)
from arraystore.storage import CountingStorage
from tests.commit.dimension import (
    STEP,
    append_value,
    appended,
    by_others,
    check_order,
    commit_append,
    conflicts_of,
    data_of,
    dimension_repository,
)
from tests.commit.rivals import impatient, latest, messages, values
from tests.commit.support import layer_counts, rewrites_in, tip_of, without_maintenance

# -- both succeed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writers", [1, 2, 3, 20])
def test_appends_of_one_base_all_succeed_in_the_order_of_their_commits_in_all_arrays(writers: int) -> None:
    storage, repository = dimension_repository()
    sessions = [appended(repository, value) for value in range(1, writers + 1)]
    order = [*range(0, writers, 2), *range(1, writers, 2)]
    for i in order:
        commit_append(sessions[i], f"append {i + 1}")
    check_order(latest(storage), *(i + 1 for i in order))
    assert messages(storage)[1:] == [f"append {i + 1}" for i in order]


def test_appends_of_different_lengths_and_of_several_in_one_session_follow_one_another() -> None:
    storage, repository = dimension_repository()
    sessions = [repository.writable_session("main") for _ in range(3)]
    append_value(append_value(sessions[0], 1, 8), 2, 16)
    append_value(sessions[1], 3, 24)
    append_value(append_value(append_value(sessions[2], 4, 8), 5, 8), 6, 8)
    for session in sessions:
        commit_append(session)
    expected = np.repeat([0, 1, 2, 3, 4, 5, 6], [8, 8, 16, 24, 8, 8, 8])
    np.testing.assert_array_equal(values(latest(storage), "t")[:, 0], expected)
    np.testing.assert_array_equal(values(latest(storage), "p")[5], expected)


def test_an_append_may_end_within_a_chunk_if_nobody_appends_behind_it_meanwhile() -> None:
    storage, repository = dimension_repository()
    session = appended(repository, 1)
    last = appended(repository, 2, 3)
    commit_append(session)
    commit_append(last)
    expected = np.repeat([0, 1, 2], [8, 8, 3])
    np.testing.assert_array_equal(values(latest(storage), "t")[:, 0], expected)
    alone = appended(repository, 3, 7)
    alone.commit("nobody else appended")
    np.testing.assert_array_equal(values(latest(storage), "t")[:, 5], np.repeat([0, 1, 2, 3], [8, 8, 3, 7]))


@pytest.mark.parametrize("chunks", [1, 20_000])
def test_an_append_behind_others_writes_nothing_but_its_record(chunks: int) -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    with repository.transaction("main", message="create") as store:
        zarr.create_group(store).create_array(
            "v", shape=(2,), chunks=(2,), dtype="i8", dimension_names=["n"], compressors=None
        )
    counting = CountingStorage(storage)
    session = without_maintenance(impatient(counting)).writable_session("main")
    with session.appending("n") as store:
        zarr.open_array(store, path="v").resize((2 + 2 * chunks,))
        noise = np.random.default_rng(0).integers(0, 1 << 60, 2 * chunks)
        for i in range(chunks):
            session.hierarchy.set_sync(f"v/c/{i + 1}", memoryview(noise[2 * i : 2 * i + 2].tobytes()))
    for value in (5, 6):
        by_others(storage, lambda other, value=value: other.append({"v": np.full(2, value)}, "n"))  # type: ignore[misc]
    counting.reset()
    commit_append(session)
    operations = [operation for operation, _ in counting.log if operation != "sync"]
    assert operations.count("put_if_absent") == 2
    assert "put" not in operations[operations.index("put_if_absent") :]
    reader = latest(storage)
    assert zarr.open_array(reader.store, path="v", mode="r").shape == (6 + 2 * chunks,)
    assert len(reader.chunk_coordinates("v")) == 2 + chunks
    for chunk, expected in ((1, [5, 5]), (2, [6, 6]), (3, noise[:2]), (2 + chunks, noise[-2:])):
        found = reader.store.get_sync(f"v/c/{chunk}")
        assert found is not None
        assert np.frombuffer(found.to_bytes(), "i8").tolist() == list(expected)


def test_zarr_resizing_and_writing_within_the_block_is_an_append_too() -> None:
    storage, repository = dimension_repository()
    sessions = [repository.writable_session("main") for _ in range(2)]
    for value, session in enumerate(sessions, 1):
        with session.appending("time") as store:
            for path, data in data_of(value).items():
                array = zarr.open_array(store, path=path)
                array.append(data, axis=array.metadata.dimension_names.index("time"))  # type: ignore[union-attr]
        commit_append(session)
    check_order(latest(storage), 1, 2)


def test_growing_outside_of_the_block_is_no_append() -> None:
    storage, repository = dimension_repository()
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="time").append(np.arange(8))
    by_others(storage, lambda other: append_value(other, 1) and None)
    assert conflicts_of(session) == {
        ("/time", ConflictType.ZarrMetadataDoubleUpdate),
        ("/time", ConflictType.ChunkDoubleUpdate),
    }


# -- ends that are not those of chunks ----------------------------------------------------------------------------


def test_an_end_within_a_chunk_is_a_conflict_that_tells_how_to_choose_chunks() -> None:
    storage, repository = dimension_repository()
    session = appended(repository, 2)
    theirs = by_others(storage, lambda other: append_value(other, 1, 4) and None)
    with pytest.raises(RebaseFailedError) as caught:
        commit_append(session)
    (conflict,) = caught.value.conflicts  # the chunks of the others end at 12
    assert (conflict.conflict_type, conflict.path) == (ConflictType.UnalignedAppend, "/time")
    assert conflict.snapshot == theirs
    assert "its end at 12 is not a multiple of its chunks' length 8" in conflict.detail
    assert "for instance 4" in conflict.detail
    assert conflict.detail in str(caught.value)


@pytest.mark.parametrize("solver", [BasicConflictSolver(), ConflictDetector()])
def test_a_base_that_ends_within_a_chunk_can_be_appended_to_but_not_by_two_at_once(solver: Any) -> None:
    storage, repository = dimension_repository(length=9)
    first, second = appended(repository, 1), appended(repository, 2)
    first.commit("first", rebase_with=solver)
    with pytest.raises(RebaseFailedError) as caught:
        second.commit("second", rebase_with=solver)
    unaligned = [c for c in caught.value.conflicts if c.conflict_type is ConflictType.UnalignedAppend]
    assert {c.path for c in unaligned} == {"/time", "/t", "/p"}
    assert all("its end at 9 is not a multiple" in c.detail for c in unaligned)
    assert all("choose chunks whose length divides every append" in c.detail for c in unaligned)
    check_order(latest(storage), 1, base=9)
    again = appended(repository, 2)
    again.commit("second, again")
    check_order(latest(storage), 1, 2, base=9)


def test_arrays_of_one_dimension_that_are_not_the_same_length_any_more_are_a_conflict() -> None:
    storage, repository = dimension_repository()
    session = appended(repository, 2)

    def grow_one(other: Session) -> None:
        with other.appending("time") as store:
            zarr.open_array(store, path="t").append(np.ones((8, 6)))

    by_others(storage, grow_one)
    assert {kind for _, kind in conflicts_of(session)} == {ConflictType.UnalignedAppend}


# -- with other changes -------------------------------------------------------------------------------------------


def _set(path: str, **attributes: Any) -> Callable[[Session], None]:
    def change(session: Session) -> None:
        zarr.open_array(session.store, path=path).attrs.update(attributes)

    return change


@pytest.mark.parametrize("ours_appends", [True, False])
@pytest.mark.parametrize("theirs_appends", [True, False])
@pytest.mark.parametrize("ours_sets", [True, False])
@pytest.mark.parametrize("theirs_sets", [True, False])
def test_appends_and_attributes_go_together_and_only_attributes_of_both_collide(
    ours_appends: bool, theirs_appends: bool, ours_sets: bool, theirs_sets: bool
) -> None:
    storage, repository = dimension_repository()
    session = repository.writable_session("main")

    def change(session: Session, value: int, *, appends: bool, sets: bool) -> None:
        if sets:
            _set("t", **{f"by{value}": value})(session)
        if appends:
            append_value(session, value)

    change(session, 1, appends=ours_appends, sets=ours_sets)
    if theirs_appends or theirs_sets:
        by_others(storage, lambda other: change(other, 2, appends=theirs_appends, sets=theirs_sets))
    if ours_sets and theirs_sets:
        assert conflicts_of(session) == {("/t", ConflictType.ZarrMetadataDoubleUpdate)}
        return
    if not (ours_appends or ours_sets):
        return
    commit_append(session)
    reader = latest(storage)
    check_order(reader, *([2] if theirs_appends else []), *([1] if ours_appends else []))
    expected = ({"by1": 1} if ours_sets else {}) | ({"by2": 2} if theirs_sets else {})
    assert dict(zarr.open_array(reader.store, path="t", mode="r").attrs) == expected


def test_attributes_set_after_the_append_in_the_same_session_are_kept_too() -> None:
    storage, repository = dimension_repository()
    session = appended(repository, 1)
    _set("t", title="late")(session)
    by_others(storage, lambda other: append_value(other, 2) and None)
    commit_append(session)
    check_order(latest(storage), 2, 1)
    assert zarr.open_array(latest(storage).store, path="t", mode="r").attrs["title"] == "late"


@pytest.mark.parametrize("same_chunk", [False, True])
def test_chunks_written_to_the_old_part_stay_where_they_are_and_collide_as_ever(same_chunk: bool) -> None:
    storage, repository = dimension_repository()
    session = appended(repository, 1)
    zarr.open_array(session.store, path="t")[0:4] = 7

    def theirs(other: Session) -> None:
        append_value(other, 2)
        zarr.open_array(other.store, path="t")[(slice(0, 4) if same_chunk else slice(4, 8))] = 8

    by_others(storage, theirs)
    if same_chunk:
        with pytest.raises(RebaseFailedError) as caught:
            commit_append(session)
        (conflict,) = caught.value.conflicts
        assert conflict.conflict_type is ConflictType.ChunkDoubleUpdate
        assert conflict.conflicted_chunks is not None
        assert conflict.conflicted_chunks.tolist() == [[0, 0], [0, 1]]
        session.commit("ours", rebase_with=BasicConflictSolver())
    else:
        commit_append(session)
    found = values(latest(storage), "t")[:, 0]
    assert found.tolist() == [7] * 4 + [0 if same_chunk else 8] * 4 + [2] * 8 + [1] * 8


@pytest.mark.parametrize("rebases", [False, True])
@pytest.mark.parametrize("solver", [ConflictDetector(), BasicConflictSolver()])
def test_taking_back_a_part_of_an_append_takes_nothing_from_what_others_append(
    solver: ConflictSolver, rebases: bool
) -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    with repository.transaction("main", message="series") as store:
        zarr.create_array(store, name="s", shape=(4,), chunks=(2,), dtype="i1", dimension_names=["t"])[:] = 1
    session = repository.writable_session("main")
    session.append({"s": [2, 2, 2, 2]}, "t")
    zarr.open_array(session.store, path="s").resize((6,))
    by_others(storage, lambda other: other.append({"s": [3, 3, 3, 3]}, "t"))
    if rebases:
        session.rebase(solver)
        assert values(session, "s").tolist() == [1] * 4 + [3] * 4 + [2] * 2
    session.commit("ours", rebase_with=solver)
    assert values(latest(storage), "s").tolist() == [1] * 4 + [3] * 4 + [2] * 2


def test_chunks_that_one_overwrites_and_the_other_appends_never_collide() -> None:
    """What ours wrote behind the end that it knew does not go where theirs appended."""
    storage, repository = dimension_repository()
    session = appended(repository, 1)
    by_others(storage, lambda other: append_value(other, 2) and None)
    by_others(storage, lambda other: zarr.open_array(other.store, path="t").__setitem__(slice(8, 16), 9))
    commit_append(session)
    assert values(latest(storage), "t")[:, 0].tolist() == [0] * 8 + [9] * 8 + [1] * 8


@pytest.mark.parametrize("shape", [(16, 6), (8, 9), (4, 6)])
@pytest.mark.parametrize("ours", ["append", "resize"])
def test_an_append_and_another_change_of_the_shape_collide(shape: tuple[int, int], ours: str) -> None:
    storage, repository = dimension_repository()
    session = repository.writable_session("main")

    def resize(each: Session) -> None:
        zarr.open_array(each.store, path="t").resize(shape)

    def append(each: Session) -> None:
        append_value(each, 1)

    (append if ours == "append" else resize)(session)
    by_others(storage, resize if ours == "append" else append)
    found = conflicts_of(session)
    assert {path for path, _ in found} == {"/t"}
    assert ("/t", ConflictType.ZarrMetadataDoubleUpdate) in found


def test_what_theirs_deleted_cannot_be_appended_to_and_what_theirs_moved_can() -> None:
    storage, repository = dimension_repository()
    session, other = appended(repository, 1), repository.writable_session("main")
    zarr.create_group(other.store, path="elsewhere")
    for path in ("time", "t", "p"):
        other.move(path, f"elsewhere/{path}")
    other.commit("moved")
    commit_append(session)
    np.testing.assert_array_equal(values(latest(storage), "elsewhere/t")[:, 0], np.repeat([0, 1], 8))
    session = repository.writable_session("main")
    session.append({f"elsewhere/{path}": data for path, data in data_of(2).items()}, "time")

    def delete(other: Session) -> None:
        del zarr.open_group(other.store, path="elsewhere")["t"]

    by_others(storage, delete)
    assert conflicts_of(session) == {
        ("/elsewhere/t", ConflictType.ZarrMetadataUpdateOfDeletedArray),
        ("/elsewhere/t", ConflictType.ChunksUpdatedInDeletedArray),
    }


# -- many appends -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_two_hundred_appends_by_two_are_all_there_their_layers_folded_and_every_snapshot_readable() -> None:
    storage, repository = dimension_repository()
    repositories = [repository, impatient(storage)]
    snapshots = []
    for value in range(1, 201, 2):
        sessions = [appended(each, value + i) for i, each in enumerate(repositories)]
        snapshots += [commit_append(session, f"append {value + i}") for i, session in enumerate(sessions)]
        for each in repositories:
            each.wait_for_maintenance()
    check_order(latest(storage), *range(1, 201))
    assert rewrites_in(storage)
    state = tip_of(Repository.open(storage))
    assert len(layer_counts(state, "t")) < 100
    reader = Repository.open(storage)
    for count in (1, 63, 64, 65):
        check_order(reader.readonly_session(snapshot_id=snapshots[count - 1]), *range(1, count + 1))
    tag = snapshots[99]
    reader.create_tag("half", tag)
    reader.create_branch("other", tag)
    check_order(Repository.open(storage).readonly_session(tag="half"), *range(1, 101))
    session = append_value(reader.writable_session("other"), 999)
    session.commit("on another branch")
    check_order(Repository.open(storage).readonly_session("other"), *range(1, 101), 999)


def test_appends_before_and_after_a_checkpoint_replay_to_the_same() -> None:
    storage, repository = dimension_repository()
    for value in range(1, 71):
        first, second = appended(repository, value), None
        if value % 10 == 0:
            second = appended(repository, 1000 + value)
        commit_append(first)
        if second is not None:
            commit_append(second)
    repository.wait_for_maintenance()
    order = [v for value in range(1, 71) for v in ([value, 1000 + value] if value % 10 == 0 else [value])]
    with_checkpoint = latest(storage)
    assert with_checkpoint.base_tip.state.checkpoint is not None
    check_order(with_checkpoint, *order)
    asyncio.run(storage.delete(["hints/main"]))
    check_order(latest(storage), *order)


# -- formats ------------------------------------------------------------------------------------------------------


def test_arrays_of_zarr_2_that_name_their_dimensions_as_xarray_does_are_appended_to() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    with repository.transaction("main", message="create") as store:
        root = zarr.create_group(store, zarr_format=2)
        array = root.create_array("v", shape=(4, 3), chunks=(2, 3), dtype="i4", fill_value=0)
        array.attrs["_ARRAY_DIMENSIONS"] = ["time", "x"]
        array[:] = 0
    sessions = [repository.writable_session("main") for _ in range(3)]
    for value, session in enumerate(sessions, 1):
        session.append({"v": np.full((2 * value, 3), value)}, "time")
    for session in sessions:
        commit_append(session)
    assert values(latest(storage), "v")[:, 2].tolist() == [0] * 4 + [1] * 2 + [2] * 4 + [3] * 6


def test_sharded_arrays_are_appended_to_in_whole_shards() -> None:
    storage = in_memory_storage()
    repository = Repository.create(storage)
    with repository.transaction("main", message="create") as store:
        array = zarr.create_group(store).create_array(
            "v", shape=(8,), chunks=(2,), shards=(8,), dtype="i4", dimension_names=["n"]
        )
        array[:] = 0
    sessions = [repository.writable_session("main") for _ in range(3)]
    for value, session in enumerate(sessions, 1):
        session.append({"v": np.full(8 if value < 3 else 4, value)}, "n")
        commit_append(session)
    assert values(latest(storage), "v").tolist() == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 4
    late, early = repository.writable_session("main"), repository.writable_session("main")
    late.append({"v": np.full(4, 5)}, "n")
    early.append({"v": np.full(4, 4)}, "n")
    commit_append(early)
    assert ("/v", ConflictType.UnalignedAppend) in conflicts_of(late)


# -- at once ------------------------------------------------------------------------------------------------------


def test_appends_that_are_committed_at_once_follow_one_another() -> None:
    storage, repository = dimension_repository()

    async def run() -> None:
        sessions = [appended(repository, value) for value in range(1, 13)]
        await asyncio.gather(
            *(s.commit_async(f"{i}", rebase_with=ConflictDetector()) for i, s in enumerate(sessions, 1))
        )

    asyncio.run(run())
    order = [int(text) for text in messages(storage)[1:]]
    assert sorted(order) == list(range(1, 13))
    check_order(latest(storage), *order)


def test_of_appends_of_the_same_time_that_are_committed_at_once_one_succeeds() -> None:
    storage, repository = dimension_repository()

    async def run() -> list[Any]:
        sessions = [append_value(repository.writable_session("main"), 1 + i // 3, unique="time") for i in range(9)]
        return await asyncio.gather(
            *(s.commit_async("append", rebase_with=ConflictDetector()) for s in sessions), return_exceptions=True
        )

    results = asyncio.run(run())
    known = {info.id for info in repository.ancestry(branch="main")}
    for group in range(3):
        won = [r for r in results[3 * group : 3 * group + 3] if isinstance(r, str)]
        lost = [r for r in results[3 * group : 3 * group + 3] if isinstance(r, RebaseFailedError)]
        assert (len(won), len(lost)) == (1, 2)
        for error in lost:
            assert [c.conflict_type for c in error.conflicts] == [ConflictType.DuplicateAppend]
            assert error.conflicts[0].snapshot in known
    assert len(values(latest(storage), "time")) == 8 + 3 * 8


# -- values that must not repeat ----------------------------------------------------------------------------------


def test_a_time_that_somebody_else_has_just_appended_is_a_conflict_and_another_one_is_not() -> None:
    storage, repository = dimension_repository()
    sessions = [append_value(repository.writable_session("main"), value, unique="time") for value in (1, 2, 1)]
    first = commit_append(sessions[0])
    commit_append(sessions[1])
    with pytest.raises(RebaseFailedError) as caught:
        commit_append(sessions[2])
    (conflict,) = caught.value.conflicts
    assert (conflict.conflict_type, conflict.path) == (ConflictType.DuplicateAppend, "/time")
    assert "theirs has appended 100, 101, 102 and 5 more already" in conflict.detail
    assert conflict.snapshot in {first, sessions[1].snapshot_id}
    check_order(latest(storage), 1, 2)


def test_a_unique_append_is_told_of_a_duplicate_that_came_any_number_of_races_ago() -> None:
    storage, repository = dimension_repository()
    session = append_value(repository.writable_session("main"), 9, unique="time")
    for value in (1, 2):
        by_others(storage, lambda other, value=value: append_value(other, value) and None)  # type: ignore[misc]
        session.rebase(ConflictDetector())
    by_others(storage, lambda other: append_value(other, 9) and None)
    by_others(storage, lambda other: append_value(other, 3) and None)
    assert conflicts_of(session) == {("/time", ConflictType.DuplicateAppend)}


def test_unique_values_are_checked_against_what_is_there_and_against_each_other() -> None:
    _, repository = dimension_repository()
    session = repository.writable_session("main")
    append_value(session, 1, unique="/time")
    for data, text in (
        (data_of(1), "100, 101, 102"),
        (data_of(2) | {"time": np.full(8, 7)}, "twice"),
        (data_of(2) | {"time": np.arange(8)}, "must not repeat"),
    ):
        with pytest.raises(InvalidInputError, match=text):
            session.append(data, "time", unique="time")
    append_value(session, 2, unique="time")
    commit_append(session)
    check_order(latest(repository.storage), 1, 2)


# -- what is refused ----------------------------------------------------------------------------------------------

BAD: list[Any] = [
    ({}, "time", None, InvalidInputError, "must not be empty"),
    ({"missing": np.zeros(8)}, "time", None, NodeNotFoundError, "missing"),
    (data_of(1), "day", None, InvalidInputError, "no dimension 'day'"),
    (data_of(1) | {"t": np.zeros((8, 5))}, "time", None, InvalidInputError, r"shape \(8, 5\)"),
    (data_of(1) | {"t": np.zeros(8)}, "time", None, InvalidInputError, r"shape \(8,\)"),
    (data_of(1, 0), "time", None, InvalidInputError, "must have items"),
    (data_of(1) | {"t": np.zeros((4, 6))}, "time", None, InvalidInputError, "grow together"),
    ({"time": np.zeros(8)}, "time", None, InvalidInputError, "append to it, too"),
    (data_of(1), "time", "x", InvalidInputError, "must be among"),
    (data_of(1), "time", "t", InvalidInputError, "must have one dimension"),
]


@pytest.mark.parametrize(("data", "dim", "unique", "error", "text"), BAD)
def test_what_cannot_be_appended_is_refused_before_anything_changes(
    data: Any, dim: str, unique: str | None, error: type[Exception], text: str
) -> None:
    _, repository = dimension_repository()
    session = repository.writable_session("main")
    with pytest.raises(error, match=text):
        session.append(data, dim, unique=unique)
    assert not session.has_uncommitted_changes
    append_value(session, 1)
    commit_append(session)
    check_order(latest(repository.storage), 1)


def test_a_block_within_a_block_is_refused_and_the_outer_one_goes_on() -> None:
    _, repository = dimension_repository()
    session = repository.writable_session("main")
    with (
        session.appending("time"),
        pytest.raises(SessionStateError, match="appending along 'time' already"),
        session.appending("x"),
    ):
        pass
    append_value(session, 1)
    commit_append(session)
    check_order(latest(repository.storage), 1)


def test_after_discarding_nothing_of_an_append_is_left() -> None:
    storage, repository = dimension_repository()
    session = append_value(repository.writable_session("main"), 1, unique="time")
    session.discard_changes()
    assert not session.has_uncommitted_changes
    by_others(storage, lambda other: append_value(other, 1) and None)
    append_value(session, 2, unique="time")
    commit_append(session)
    check_order(latest(storage), 1, 2)


def test_an_append_does_not_depend_on_what_it_looked_up_itself() -> None:
    storage, repository = dimension_repository()
    sessions = [append_value(repository.writable_session("main", isolation="serializable"), v) for v in (1, 2, 3)]
    for session in sessions:
        commit_append(session)
    check_order(latest(storage), 1, 2, 3)


def test_an_append_of_a_serializable_session_depends_on_what_its_user_read() -> None:
    storage, repository = dimension_repository()
    session = repository.writable_session("main", isolation="serializable")
    assert values(session, "x").tolist() == list(range(6))
    append_value(session, 1)
    by_others(storage, lambda other: zarr.open_array(other.store, path="x").__setitem__(slice(None), 5))
    assert conflicts_of(session) == {("/x", ConflictType.ReadConflict)}


@pytest.mark.parametrize("rebased", [False, True])
@pytest.mark.parametrize("appends", [False, True])
def test_attributes_fit_what_theirs_appended_after_a_conflict_was_solved_too(*, appends: bool, rebased: bool) -> None:
    storage, repository = dimension_repository()
    session = repository.writable_session("main")
    if appends:
        append_value(session, 1)
    _set("t", title="ours")(session)
    zarr.open_array(session.store, path="t")[0:4] = 7

    def theirs(other: Session) -> None:
        append_value(other, 2)
        zarr.open_array(other.store, path="t")[0:4] = 8

    by_others(storage, theirs)
    if rebased:
        session.rebase(BasicConflictSolver())
    session.commit("ours", rebase_with=BasicConflictSolver())
    found = zarr.open_array(latest(storage).store, path="t", mode="r")
    assert found.attrs["title"] == "ours"
    assert np.asarray(found[:, 0]).tolist() == [7] * 4 + [0] * 4 + [2] * 8 + ([1] * 8 if appends else [])


@pytest.mark.parametrize("rebased", [False, True])
def test_attributes_fit_what_theirs_appended_where_values_must_not_repeat_too(rebased: bool) -> None:
    storage, repository = dimension_repository()
    session = append_value(repository.writable_session("main"), 1, unique="time")
    for path in ("time", "t"):
        _set(path, title="ours")(session)
    by_others(storage, lambda other: append_value(other, 2) and None)
    if rebased:
        session.rebase(ConflictDetector())
    by_others(storage, lambda other: append_value(other, 3) and None)
    commit_append(session)
    check_order(latest(storage), 2, 3, 1)
    assert zarr.open_array(latest(storage).store, path="t", mode="r").attrs["title"] == "ours"


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize(("choice", "title"), [("UseOurs", "ours"), ("UseTheirs", "theirs")])
def test_of_attributes_that_both_changed_beside_appends_a_side_may_be_chosen(
    choice: str, title: str, appends: bool
) -> None:
    class Choose(ConflictSolver):
        def solve(self, conflict: Any, versions: Any) -> VersionSelection:
            assert conflict.conflict_type is ConflictType.ZarrMetadataDoubleUpdate
            return VersionSelection[choice]

    storage, repository = dimension_repository()
    session = repository.writable_session("main")
    if appends:
        append_value(session, 1)
    _set("t", title="ours")(session)

    def theirs(other: Session) -> None:
        append_value(other, 2)
        _set("t", title="theirs")(other)

    by_others(storage, theirs)
    session.commit("ours", rebase_with=Choose())
    check_order(latest(storage), *([2, 1] if appends else [2]))
    assert zarr.open_array(latest(storage).store, path="t", mode="r").attrs["title"] == title


def test_the_asynchronous_twin_appends_the_same_and_refuses_the_same() -> None:
    storage, repository = dimension_repository()
    ours, theirs = repository.writable_session("main"), repository.writable_session("main")

    async def append_both() -> None:
        for session in (ours, theirs):
            await session.append_async(data_of(1), "time", unique="time")
        with pytest.raises(InvalidInputError, match="must not repeat"):
            await ours.append_async(data_of(1), "time", unique="time")
        with pytest.raises(InvalidInputError, match="must not be empty"):
            await ours.append_async({}, "time")

    asyncio.run(append_both())
    commit_append(ours)
    with pytest.raises(RebaseFailedError, match="DuplicateAppend"):
        commit_append(theirs)
    check_order(latest(storage), 1)


def test_appends_of_one_session_at_once_follow_one_another() -> None:
    _, repository = dimension_repository()
    session = repository.writable_session("main")
    lengths = {1: 3 * STEP, 2: STEP, 3: 2 * STEP}

    async def gather() -> None:
        await asyncio.gather(*(session.append_async(data_of(v, n), "time", unique="time") for v, n in lengths.items()))

    asyncio.run(gather())
    wanted = [0] * STEP + [value * 100 + item for value, items in lengths.items() for item in range(items)]
    assert sorted(values(session, "time").tolist()) == sorted(wanted)
    assert sorted(values(session, "t")[:, 0].tolist()) == sorted(each // 100 for each in wanted)
    assert sorted(session.uniques[0].values.tolist()) == sorted(wanted[STEP:])


class _One(ConflictSolver):
    def __init__(self, side: VersionSelection) -> None:
        self.side = side

    def solve(self, conflict: Any, versions: Any) -> VersionSelection:
        return self.side


@pytest.mark.parametrize("side", [VersionSelection.UseOurs, VersionSelection.UseTheirs])
@pytest.mark.parametrize("shape", [(4,), (3,)], ids=["shorter", "not the end of a chunk"])
def test_no_answer_puts_an_append_beyond_the_end_of_an_array_that_theirs_made_shorter(
    side: VersionSelection, shape: tuple[int, ...]
) -> None:
    repository = Repository.create(in_memory_storage())
    with repository.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(2,), dtype="i4", dimension_names=["t"])[:] = 1
    session = repository.writable_session("main")
    session.append({"a": np.full(2, 7, "i4")}, "t")
    zarr.open_array(session.store, path="a").attrs["units"] = "K"
    with repository.transaction("main", message="shorter") as store:
        zarr.open_array(store, path="a").resize(shape)
    with pytest.raises(RebaseFailedError, match="the solver's answer cannot be used: ours appends to it"):
        session.commit("ours", rebase_with=_One(side))
    assert zarr.open_array(repository.readonly_session("main").store, path="a").shape == shape
