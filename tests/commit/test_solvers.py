"""What solvers may decide: sides, merged chunks, merged metadata; and what becomes of answers that cannot be used."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictError,
    ConflictType,
    InvalidInputError,
    RebaseFailedError,
    Repository,
    Session,
    Solution,
    Versions,
    VersionSelection,
)
from arraystore.storage import CountingStorage
from tests.commit.rivals import Outrun, impatient, latest, messages, rival_commits, values
from tests.commit.sides import FAIL, OURS, THEIRS, By, by_others, fill, sides_repository
from tests.commit.support import commit_number, keys, number, paths, put_bytes, put_number, requests

# -- choosing a side ----------------------------------------------------------------------------------------------


def _write_rows(session: Session, rows: range, size: int) -> None:
    for row in rows:
        put_bytes(session, row, row.to_bytes(4, "little") + random.Random(row).randbytes(size))


def _row(session: Session, row: int) -> bytes | None:
    found = session.store.get_sync(f"a/c/{row}")
    return None if found is None else found.to_bytes()


MANIFESTS = [
    pytest.param(range(8), 0, id="inlined"),
    pytest.param(range(0, 300, 2), 400, id="attached"),
    pytest.param(range(0, 60_000, 2), 8, id="object"),
    pytest.param(range(40), 2000, id="in-packs"),
]


@pytest.mark.parametrize(("rows", "size"), MANIFESTS)
@pytest.mark.parametrize("choice", [OURS, THEIRS])
def test_of_chunks_that_both_wrote_exactly_these_go_to_the_side_chosen(
    rows: range, size: int, choice: VersionSelection
) -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _write_rows(session, rows, size)
    both = [rows[1], rows[3], rows[-1]]
    others = rows[-1] + 1_000
    for row in (*both, others):
        commit_number(Repository.open(storage), row, -row)
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    reader = latest(storage)
    for row in [*rows[:50], *rows[-50:]]:
        ours = row.to_bytes(4, "little") + random.Random(row).randbytes(size)
        theirs = np.int32(-row).tobytes()
        assert _row(reader, row) == (theirs if row in both and choice is THEIRS else ours)
    assert number(reader, others) == -others
    assert len(reader.chunk_coordinates("a")) == len(rows) + 1


def test_without_a_choice_the_chunks_that_both_wrote_are_named_and_nothing_is_committed() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _write_rows(session, range(10), 0)
    snapshots = [commit_number(Repository.open(storage), row, -row) for row in (3, 7, 50)]
    for solver in (ConflictDetector(), BasicConflictSolver(on_chunk_conflict=FAIL)):
        with pytest.raises(RebaseFailedError) as caught:
            session.commit("ours", rebase_with=solver)
        (conflict,) = caught.value.conflicts
        assert conflict.conflict_type is ConflictType.ChunkDoubleUpdate
        assert conflict.path == "/a"
        assert conflict.conflicted_chunks is not None
        assert conflict.conflicted_chunks.tolist() == [[3], [7]]
        assert conflict.snapshot == snapshots[1]
    assert messages(storage)[-1] == "row 50"


@pytest.mark.parametrize("choice", [OURS, THEIRS])
@pytest.mark.parametrize("who_deletes", ["ours", "theirs"])
def test_a_deleted_chunk_is_a_version_like_any_other(choice: VersionSelection, who_deletes: str) -> None:
    storage, repository = sides_repository()
    commit_number(repository, 1, 1)
    session = repository.writable_session("main")

    def act(session: Session, *, deletes: bool, value: int) -> None:
        if deletes:
            session.store.delete_sync("a/c/1")
        else:
            put_number(session, 1, value)

    act(session, deletes=who_deletes == "ours", value=10)
    put_number(session, 2, 20)
    by_others(storage, lambda other: act(other, deletes=who_deletes == "theirs", value=30))
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=choice))
    deleted = (choice is OURS) == (who_deletes == "ours")
    assert number(latest(storage), 1) == (None if deleted else 10 if choice is OURS else 30)
    assert number(latest(storage), 2) == 20


def test_a_choice_holds_for_each_of_several_races() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _write_rows(session, range(10), 0)
    for row in (1, 2):
        commit_number(Repository.open(storage), row, -row)
        session.rebase(BasicConflictSolver(on_chunk_conflict=THEIRS))
    commit_number(Repository.open(storage), 3, -3)
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=OURS))
    assert [number(latest(storage), row) for row in range(10)] == [0, -1, -2, 3, 4, 5, 6, 7, 8, 9]


# -- deletions ----------------------------------------------------------------------------------------------------


def test_an_array_that_theirs_changed_is_deleted_unless_that_is_to_fail() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    del zarr.open_group(session.store)["v"]
    put_number(session, 1, 1)
    by_others(storage, fill(slice(0, 8), 1))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=BasicConflictSolver(fail_on_delete_of_updated_array=True))
    (conflict,) = caught.value.conflicts
    assert conflict.conflict_type is ConflictType.DeleteOfUpdatedArray
    assert conflict.conflicted_chunks is not None
    assert sorted(conflict.conflicted_chunks.tolist()) == [[0], [1]]
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert set(zarr.open_group(latest(storage).store, mode="r")) == {"a", "g"}
    assert number(latest(storage), 1) == 1


def _put_into_g(session: Session) -> None:
    group = zarr.open_group(session.store, path="g")
    group.create_group("deep").create_array("y", shape=(4,), chunks=(4,), dtype="i4")[:] = 5


def test_a_group_into_which_theirs_put_something_is_deleted_with_it_unless_that_is_to_fail() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    del zarr.open_group(session.store)["g"]
    by_others(storage, _put_into_g)
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=BasicConflictSolver(fail_on_delete_of_updated_group=True))
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.DeleteOfUpdatedGroup}
    session.commit("ours", rebase_with=BasicConflictSolver())
    reader = latest(storage)
    assert set(zarr.open_group(reader.store, mode="r")) == {"a", "v"}
    assert paths(reader) == ["a", "v"]


def test_what_leaves_a_deleted_group_along_with_a_group_that_is_moved_is_not_deleted_with_it() -> None:
    storage, repository = sides_repository()
    by_others(storage, _put_into_g)
    session = repository.writable_session("main")
    session.move("g/deep", "kept")
    del zarr.open_group(session.store)["g"]

    def change(other: Session) -> None:
        zarr.open_group(other.store, path="g").attrs["changed"] = True
        zarr.open_group(other.store, path="g/deep").create_array("z", shape=(4,), chunks=(4,), dtype="i4")[:] = 6
        zarr.open_group(other.store, path="g").create_group("w")

    by_others(storage, change)
    session.commit("ours", rebase_with=BasicConflictSolver())
    reader = latest(storage)
    assert set(zarr.open_group(reader.store, mode="r")) == {"a", "v", "kept"}
    assert values(reader, "kept/y").tolist() == [5] * 4
    assert values(reader, "kept/z").tolist() == [6] * 4


def test_what_theirs_changed_may_be_kept_and_the_rest_is_committed() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    del zarr.open_group(session.store)["g"]
    del zarr.open_group(session.store)["v"]
    by_others(storage, _put_into_g)
    session.commit("ours", rebase_with=By(lambda conflict, _: THEIRS))
    reader = latest(storage)
    assert set(zarr.open_group(reader.store, mode="r")) == {"a", "g"}
    assert values(reader, "g/deep/y").tolist() == [5] * 4


def test_what_both_deleted_is_deleted() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    del zarr.open_group(session.store)["g"]
    put_number(session, 1, 1)

    def delete(other: Session) -> None:
        del zarr.open_group(other.store)["g"]

    by_others(storage, delete)
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert paths(latest(storage)) == ["a", "v"]
    assert number(latest(storage), 1) == 1


# -- merged chunks ------------------------------------------------------------------------------------------------


def _sum(conflict: Conflict, versions: Versions[Session]) -> Solution:
    """Add what both sides added to what there was."""
    assert conflict.conflicted_chunks is not None
    sides = [
        zarr.open_array(v.store, path=conflict.path, mode="r") for v in (versions.base, versions.ours, versions.theirs)
    ]
    merged = {}
    for cell in map(tuple, conflict.conflicted_chunks.tolist()):
        base, ours, theirs = (np.asarray(side.blocks[cell]) for side in sides)
        merged[cell] = ours + theirs - base
    return Solution(OURS, merged)


def test_a_solver_may_merge_chunks_as_values() -> None:
    storage, repository = sides_repository()
    fill(slice(0, 16), 100)(session := repository.writable_session("main"))
    session.commit("base")
    session = repository.writable_session("main")
    fill(slice(0, 12), 110)(session)
    by_others(storage, fill(slice(4, 16), 103))
    solver = By(_sum)
    session.commit("ours", rebase_with=solver)
    assert len(solver.asked) == 1
    expected = np.repeat([110.0, 113.0, 113.0, 103.0], 4)
    np.testing.assert_array_equal(values(latest(storage), "v")[:16], expected)


def test_merged_values_are_encoded_as_the_metadata_says_in_several_dimensions_and_sharded() -> None:
    storage, repository = sides_repository()
    with repository.transaction("main", message="arrays") as store:
        root = zarr.open_group(store)
        root.create_array("two", shape=(8, 6), chunks=(4, 3), dtype=">i2", fill_value=7)
        root.create_array("sharded", shape=(16,), chunks=(2,), shards=(8,), dtype="i4", fill_value=0)
    session = repository.writable_session("main")
    fill(slice(0, 4), 20, "two")(session)
    fill(slice(0, 4), 1, "sharded")(session)

    def change(other: Session) -> None:
        zarr.open_array(other.store, path="two")[2:6, 0:2] = 30
        fill(slice(4, 12), 2, "sharded")(other)

    by_others(storage, change)
    session.commit("ours", rebase_with=By(_sum))
    two = np.full((8, 6), 7)
    two[0:4] = 20
    two[2:6, 0:2] = 30
    two[2:4, 0:2] = 20 + 30 - 7
    np.testing.assert_array_equal(values(latest(storage), "two"), two)
    assert values(latest(storage), "sharded").tolist() == [1] * 4 + [2] * 8 + [0] * 4


def test_merged_values_that_are_the_fill_value_take_the_place_of_what_was_there() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    fill(slice(0, 4), 1)(session)
    by_others(storage, fill(slice(0, 4), 2))
    session.commit("ours", rebase_with=By(lambda c, v: Solution(OURS, {(0,): np.zeros(4)})))
    assert values(latest(storage), "v")[:4].tolist() == [0] * 4


@pytest.mark.parametrize("size", [4, 600, 2_000_000])
@pytest.mark.parametrize("rest", [OURS, THEIRS])
def test_a_solver_may_merge_chunks_as_bytes_and_the_side_counts_for_the_others(
    size: int, rest: VersionSelection
) -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _write_rows(session, range(5), 4)
    for row in (1, 2, 3):
        commit_number(Repository.open(storage), row, -row)
    merged = b"m" * size
    session.commit("ours", rebase_with=By(lambda c, v: Solution(rest, {(2,): merged})))
    reader = latest(storage)
    assert _row(reader, 2) == merged
    ours = [row.to_bytes(4, "little") + random.Random(row).randbytes(4) for row in range(5)]
    theirs = [np.int32(-row).tobytes() for row in range(5)]
    expected = theirs if rest is THEIRS else ours
    assert [_row(reader, row) for row in (0, 1, 3, 4)] == [ours[0], expected[1], expected[3], ours[4]]


def test_a_merged_chunk_stands_when_another_one_is_given_up_in_a_later_race() -> None:
    storage, repository = sides_repository()
    session = impatient(Outrun(storage, rival_commits(repository, 2, first_row=0))).writable_session("main")
    _write_rows(session, range(3), 0)
    merged = b"merged"

    def solve(conflict: Conflict, _: Versions[Session]) -> Solution:
        assert conflict.conflicted_chunks is not None
        return Solution(THEIRS, {(0,): merged} if [0] in conflict.conflicted_chunks.tolist() else {})

    session.commit("ours", rebase_with=By(solve))
    reader = latest(storage)
    assert [_row(reader, row) for row in range(3)] == [merged, np.int32(1).tobytes(), (2).to_bytes(4, "little")]


def test_merging_writes_no_chunk_again_but_the_merged_ones() -> None:
    storage, _ = sides_repository()
    counting = CountingStorage(storage)
    session = impatient(counting).writable_session("main")
    _write_rows(session, range(20), 5000)
    commit_number(Repository.open(storage), 3, 33)
    counting.reset()
    session.commit("ours", rebase_with=By(lambda c, v: Solution(OURS, {(3,): b"m" * 700})))
    packs = [key for operation, key in counting.log if operation == "put" and key.startswith("chunks/")]
    assert len(packs) == 2
    assert _row(latest(storage), 3) == b"m" * 700


BAD = [
    pytest.param(Solution(OURS, {(9,): b"x"}), RebaseFailedError, r"chunk \(9,\)", id="chunk-not-in-conflict"),
    pytest.param(Solution(OURS, {(1,): np.zeros(3)}), InvalidInputError, r"shape \(4,\), not \(3,\)", id="wrong-shape"),
    pytest.param(
        Solution(OURS, {(1,): np.zeros((4, 4))}),
        InvalidInputError,
        "not",
        id="wrong-dimensions",
    ),
    pytest.param(Solution(OURS, {(1,): "text"}), TypeError, "bytes or arrays", id="chunk-of-text"),  # type: ignore[dict-item]
    pytest.param(Solution(OURS, {1: b"x"}), TypeError, "tuples", id="chunk-at-a-number"),  # type: ignore[dict-item]
    pytest.param(Solution(OURS, {}, {"zarr.json": {}}), RebaseFailedError, "merged metadata", id="metadata-for-chunks"),
    pytest.param("ours", TypeError, "not str", id="not-a-solution"),
    pytest.param(True, TypeError, "not bool", id="true"),
    pytest.param(ZeroDivisionError("broken"), ZeroDivisionError, "broken", id="raises"),
]


@pytest.mark.parametrize(("answer", "error", "text"), BAD)
def test_an_answer_that_cannot_be_used_commits_nothing_and_the_session_goes_on(
    answer: Any, error: type[Exception], text: str
) -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    fill(slice(0, 8), 1)(session)
    theirs = by_others(storage, fill(slice(4, 12), 2))

    def solve(conflict: Conflict, versions: Versions[Session]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    before = keys(storage, "refs/")
    with pytest.raises(error, match=text):
        session.commit("ours", rebase_with=By(solve))
    assert keys(storage, "refs/") == before
    assert Repository.open(storage).lookup_branch("main") == theirs
    assert values(session, "v")[:12].tolist() == [1] * 8 + [0] * 4
    fill(slice(12, 16), 3)(session)
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert values(latest(storage), "v")[:16].tolist() == [1] * 8 + [2] * 4 + [3] * 4


@pytest.mark.parametrize("solver", [BasicConflictSolver, "theirs", VersionSelection.UseOurs, lambda c, v: None])
def test_what_is_no_solver_is_refused_before_anything_happens(solver: Any) -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    with pytest.raises(InvalidInputError, match="ConflictDetector"):
        session.commit("ours", rebase_with=solver)
    session.commit("ours")
    assert number(latest(storage), 1) == 1


# -- merged metadata ----------------------------------------------------------------------------------------------


def _attributes(**attributes: Any) -> Callable[[Session], None]:
    def change(session: Session) -> None:
        zarr.open_array(session.store, path="v").attrs.update(attributes)

    return change


def _document(session: Session, path: str) -> dict[str, Any]:
    import json

    found = session.store.get_sync(f"{path}/zarr.json")
    assert found is not None
    return json.loads(found.to_bytes())  # type: ignore[no-any-return]


def _union(conflict: Conflict, versions: Versions[Session]) -> Solution:
    ours, theirs = (_document(v, conflict.path.strip("/")) for v in (versions.ours, versions.theirs))
    return Solution(OURS, {}, {"zarr.json": {**theirs, "attributes": theirs["attributes"] | ours["attributes"]}})


def test_a_solver_may_merge_attributes() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _attributes(ours=1, both="ours")(session)
    fill(slice(0, 4), 1)(session)
    by_others(storage, _attributes(theirs=2, both="theirs"))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=BasicConflictSolver())
    assert [c.conflict_type for c in caught.value.conflicts] == [ConflictType.ZarrMetadataDoubleUpdate]
    session.commit("ours", rebase_with=By(_union))
    merged = dict(zarr.open_array(latest(storage).store, path="v", mode="r").attrs)
    assert merged == {"theirs": 2, "both": "ours", "ours": 1}
    assert values(latest(storage), "v")[:5].tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(("choice", "expected"), [(OURS, "ours"), (THEIRS, "theirs")])
def test_of_attributes_that_both_changed_a_side_may_be_chosen(choice: VersionSelection, expected: str) -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _attributes(both="ours")(session)
    fill(slice(0, 4), 1)(session)
    by_others(storage, _attributes(both="theirs"))
    session.commit("ours", rebase_with=By(lambda c, v: choice))
    assert zarr.open_array(latest(storage).store, path="v", mode="r").attrs["both"] == expected
    assert values(latest(storage), "v")[:5].tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("change", [{"shape": [80]}, {"data_type": "float32"}, {"fill_value": 1.0}])
def test_merged_metadata_that_would_read_chunks_differently_is_refused(change: dict[str, Any]) -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    _attributes(both="ours")(session)
    by_others(storage, _attributes(both="theirs"))

    def solve(conflict: Conflict, versions: Versions[Session]) -> Solution:
        return Solution(OURS, {}, {"zarr.json": _document(versions.theirs, "v") | change})

    with pytest.raises(RebaseFailedError, match="the solver's answer cannot be used"):
        session.commit("ours", rebase_with=By(solve))
    assert zarr.open_array(latest(storage).store, path="v", mode="r").attrs["both"] == "theirs"


def test_attributes_of_groups_are_merged_too() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    zarr.open_group(session.store, path="g").attrs["ours"] = 1

    def change(other: Session) -> None:
        zarr.open_group(other.store, path="g").attrs["theirs"] = 2

    by_others(storage, change)
    session.commit("ours", rebase_with=By(_union))
    assert dict(zarr.open_group(latest(storage).store, path="g", mode="r").attrs) == {"ours": 1, "theirs": 2}


# -- what solvers see ---------------------------------------------------------------------------------------------


def test_a_solver_sees_all_three_versions_and_can_change_none_of_them() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    fill(slice(0, 4), 1)(session)
    by_others(storage, fill(slice(0, 4), 2))
    seen: list[Any] = []

    def solve(conflict: Conflict, versions: Versions[Session]) -> VersionSelection:
        sides = (versions.base, versions.ours, versions.theirs)
        seen.extend(float(values(side, "v")[0]) for side in sides)
        seen.extend(side.read_only for side in sides)
        for side in sides:
            with pytest.raises(Exception, match="read-only"):
                side.store.delete_sync("v/c/0")
        return OURS

    session.commit("ours", rebase_with=By(solve))
    assert seen == [0, 1, 2, True, True, True]


def test_nothing_is_read_unless_the_solver_does() -> None:
    storage, _ = sides_repository()
    by_others(storage, lambda s: put_bytes(s, 1, b"b" * 5000))
    counting = CountingStorage(storage)
    chunk_reads = []
    for look in (False, True):
        session = impatient(counting).writable_session("main")
        put_bytes(session, 1, b"o" * 5000)
        by_others(storage, lambda s: put_bytes(s, 1, b"t" * 5000))
        counting.reset()

        def solve(conflict: Conflict, versions: Versions[Session], look: bool = look) -> VersionSelection:
            if look:
                assert _row(versions.theirs, 1) == b"t" * 5000
            return OURS

        session.commit("ours", rebase_with=By(solve))
        chunk_reads.append(sum(key.startswith("chunks/") and op != "put" for op, key in counting.log))
    assert chunk_reads == [0, 1]


def test_a_built_in_choice_of_ours_costs_no_request_beyond_the_race() -> None:
    storage, _ = sides_repository()
    counting = CountingStorage(storage)
    costs = []
    for row in (1, 2):
        session = impatient(counting).writable_session("main")
        put_number(session, 1, 1)
        commit_number(Repository.open(storage), row, 5)
        counting.reset()
        session.commit("ours", rebase_with=BasicConflictSolver())
        costs.append(requests(counting))
    assert costs[0] == costs[1]


# -- what is left unsolved ----------------------------------------------------------------------------------------


def test_one_conflict_that_is_left_stops_the_commit_and_only_it_is_reported() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    fill(slice(0, 8), 1)(session)
    put_number(session, 5, 1)

    def change(other: Session) -> None:
        fill(slice(4, 12), 2)(other)
        put_number(other, 5, 2)

    by_others(storage, change)
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=By(lambda conflict, _: OURS if conflict.path == "/v" else None))
    assert [c.path for c in caught.value.conflicts] == ["/a"]
    assert messages(storage)[-1] == "theirs"
    solver = By(lambda conflict, _: OURS if conflict.path == "/v" else THEIRS)
    session.commit("ours", rebase_with=solver)
    assert {c.path for c in solver.asked} == {"/a", "/v"}
    assert (number(latest(storage), 5), values(latest(storage), "v")[4]) == (2, 1)


def test_the_error_reads_as_a_table_that_names_what_where_and_with_whom() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    base = session.snapshot_id
    _write_rows(session, range(20), 0)
    _attributes(ours=1)(session)

    def change(other: Session) -> None:
        _write_rows(other, range(5, 30), 1)
        _attributes(theirs=1)(other)

    theirs = by_others(storage, change)
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=ConflictDetector())
    error = caught.value
    text = str(error)
    assert "2 conflicts. Nothing was committed." in text
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "conflict",
        "-" * len("ZarrMetadataDoubleUpdate"),
        "ZarrMetadataDoubleUpdate",
        "ChunkDoubleUpdate",
    ]
    assert "/v" in lines[3]
    assert "both changed its metadata" in lines[3]
    assert "/a" in lines[4]
    assert "(5,), (6,)" in lines[4]
    assert "more" in lines[4]
    assert "both wrote these 15 chunks" in lines[4]
    assert all(theirs in line for line in lines[3:])
    assert (error.expected_parent, error.actual_parent, error.branch) == (base, theirs, "main")
    assert isinstance(error, ConflictError)


def test_errors_and_conflicts_survive_pickling() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    put_number(session, 5, 1)
    _attributes(ours=1)(session)
    commit_number(Repository.open(storage), 5, 2)
    by_others(storage, _attributes(theirs=1))
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=ConflictDetector())
    error = caught.value
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is RebaseFailedError
    assert str(copy) == str(error)
    assert copy.conflicts == error.conflicts
    assert len(copy.conflicts) == 2
    assert (copy.snapshot, copy.expected_parent, copy.branch) == (error.snapshot, error.expected_parent, "main")
    for conflict in error.conflicts:
        again = pickle.loads(pickle.dumps(conflict))
        assert again == conflict
        assert (again.detail, again.node) == (conflict.detail, conflict.node)


def test_a_session_that_failed_keeps_its_changes_and_base_and_can_be_written_rebased_and_discarded() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    base = session.snapshot_id
    put_number(session, 5, 1)
    commit_number(Repository.open(storage), 5, 2)
    for act in (
        lambda: session.commit("ours", rebase_with=ConflictDetector()),
        lambda: session.rebase(ConflictDetector()),
    ):
        with pytest.raises(RebaseFailedError):
            act()
        assert session.snapshot_id == base
        assert session.has_uncommitted_changes
        assert number(session, 5) == 1
        put_number(session, 6, 6)
    session.discard_changes()
    assert number(session, 5) is None
    put_number(session, 7, 7)
    session.commit("ours", rebase_with=ConflictDetector())
    assert [number(latest(storage), row) for row in (5, 6, 7)] == [2, None, 7]


def test_with_no_tries_left_somebody_elses_commit_is_an_error_even_where_nothing_collides() -> None:
    storage, repository = sides_repository()
    session = repository.writable_session("main")
    put_number(session, 5, 1)
    commit_number(Repository.open(storage), 6, 6)
    with pytest.raises(ConflictError) as caught:
        session.commit("ours", rebase_with=ConflictDetector(), rebase_tries=0)
    assert type(caught.value) is ConflictError
    session.commit("ours", rebase_with=ConflictDetector(), rebase_tries=1)
    assert [number(latest(storage), row) for row in (5, 6)] == [1, 6]


def test_merged_values_of_an_edge_are_those_within_the_array() -> None:
    storage, repository = sides_repository()
    with repository.transaction("main", message="edge") as store:
        zarr.open_group(store).create_array("e", shape=(6,), chunks=(4,), dtype="i4", fill_value=0)
    session = repository.writable_session("main")
    fill(slice(4, 6), 1, "e")(session)
    by_others(storage, fill(slice(4, 6), 2, "e"))
    session.commit("ours", rebase_with=By(_sum))
    assert values(latest(storage), "e").tolist() == [0, 0, 0, 0, 3, 3]
