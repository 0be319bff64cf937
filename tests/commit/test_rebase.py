"""Session.rebase: uncommitted changes of every kind are rebased onto what others committed, and the session goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    InvalidInputError,
    ReadOnlyError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    Storage,
    VersionSelection,
    in_memory_storage,
    local_filesystem_storage,
)
from arraystore.errors import MergeConflictError, UnmergedForksWarning
from arraystore.storage import CountingStorage
from tests.commit.rivals import impatient, latest, messages, values
from tests.commit.support import (
    DistantStorage,
    commit_number,
    commit_rows,
    create_repository,
    number,
    paths,
    put_bytes,
    put_number,
    without_maintenance,
)
from tests.commit.works import Expected, Ours, Work
from tests.tiers import mostly_thorough

DETECT = ConflictDetector()


def _repository() -> tuple[Storage, Repository]:
    """Return a repository with arrays ``v`` and ``t``, the second along ``time``, and a group ``g`` with ``x``."""
    storage = in_memory_storage()
    repository = create_repository(storage)
    with repository.transaction("main", message="more") as store:
        root = zarr.open_group(store)
        root.create_array("v", shape=(16,), chunks=(4,), dtype="i4", fill_value=0)[:] = 0
        root.create_array("t", shape=(4, 2), chunks=(2, 2), dtype="i4", fill_value=-1, dimension_names=["time", "x"])[
            :
        ] = 0
        root.create_group("g").create_array("x", shape=(8,), chunks=(4,), dtype="i4", fill_value=0)[:] = 3
    return storage, repository


def _theirs(storage: Storage, change: Callable[[Session], object]) -> str:
    session = impatient(storage).writable_session("main")
    change(session)
    return session.commit("theirs")


def _rows(session: Session, *rows: int) -> list[int | None]:
    return [number(session, row) for row in rows]


def _array(session: Session, path: str) -> zarr.Array:
    return zarr.open_array(session.store, path=path)


def test_a_rebased_session_sees_theirs_and_its_own_changes_and_goes_on() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    newest = commit_number(Repository.open(storage), 2, 2)
    session.rebase(DETECT)
    assert session.snapshot_id == newest
    assert session.has_uncommitted_changes
    assert _rows(session, 1, 2, 3) == [1, 2, None]
    put_number(session, 3, 3)
    put_number(session, 1, 11)
    session.commit("ours")  # nobody was faster: no solver is needed
    assert _rows(latest(storage), 1, 2, 3) == [11, 2, 3]
    assert messages(storage)[2:] == ["row 2", "ours"]


def test_rebasing_again_and_again_with_writes_in_between_loses_nothing() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    other = Repository.open(storage)
    for turn in range(10):
        put_number(session, turn, turn)
        commit_number(other, 100 + turn, turn)
        session.rebase(DETECT)
        session.rebase(DETECT)
        assert _rows(session, *range(turn + 2)) == [*range(turn + 1), None]
    commit_number(other, 200, 200)
    session.commit("ours", rebase_with=DETECT)
    assert _rows(latest(storage), *range(10), *range(100, 110), 200) == [*range(10), *range(10), 200]


def test_with_nothing_new_on_the_branch_a_rebase_changes_nothing() -> None:
    _, repository = _repository()
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    base = session.snapshot_id
    session.rebase(DETECT)
    assert (session.snapshot_id, number(session, 1)) == (base, 1)


def test_a_clean_session_goes_to_the_newest_snapshot() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    newest = commit_number(Repository.open(storage), 1, 1)
    session.rebase(DETECT)
    assert (session.snapshot_id, number(session, 1), session.has_uncommitted_changes) == (newest, 1, False)
    with pytest.raises(SessionStateError, match="nothing to commit"):
        session.commit("empty")


def test_a_rebase_that_fails_leaves_the_session_as_it_was() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    put_number(session, 3, 3)
    base = session.snapshot_id
    commit_number(Repository.open(storage), 1, 100)
    with pytest.raises(RebaseFailedError):
        session.rebase(DETECT)
    assert (session.snapshot_id, _rows(session, 1, 3)) == (base, [1, 3])
    put_number(session, 4, 4)
    session.rebase(BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs))
    assert _rows(session, 1, 3, 4) == [100, 3, 4]
    session.commit("ours")
    assert _rows(latest(storage), 1, 3, 4) == [100, 3, 4]


def test_sessions_that_cannot_be_rebased_say_so() -> None:
    _, repository = _repository()
    with pytest.raises(ReadOnlyError):
        repository.readonly_session("main").rebase(DETECT)
    session = repository.writable_session("main")
    with pytest.raises(InvalidInputError, match=r"ConflictDetector\(\)"):
        session.rebase(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not a valid ConflictSolver"):
        session.rebase("theirs")  # type: ignore[arg-type]


async def test_the_asynchronous_twin_does_the_same() -> None:
    storage, repository = await asyncio.to_thread(_repository)
    session = await repository.writable_session_async("main")
    put_number(session, 1, 1)
    other = await (await Repository.open_async(storage)).writable_session_async("main")
    put_number(other, 2, 2)
    await other.commit_async("theirs")
    await session.rebase_async(DETECT)
    await session.commit_async("ours")
    reader = await (await Repository.open_async(storage)).readonly_session_async("main")
    assert _rows(reader, 1, 2) == [1, 2]


# -- every kind of change -----------------------------------------------------------------------------------------

SIZES = [
    pytest.param(4, 3, id="inlined"),
    pytest.param(500, 200, id="attached"),
    pytest.param(12, 30_000, id="manifests-of-their-own"),
    pytest.param(3_000, 50, id="packed"),
    pytest.param(1_200_000, 2, id="objects"),
]


@pytest.mark.parametrize(("size", "rows"), SIZES)
def test_uncommitted_chunks_of_any_size_are_readable_and_writable_after_a_rebase(size: int, rows: int) -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    noise = random.Random(0).randbytes(size)
    for row in range(rows):
        put_bytes(session, row, row.to_bytes(4, "little") + noise[4:])
    _theirs(storage, lambda other: put_number(other, 100_000, 5))
    session.rebase(DETECT)
    assert _chunk(session, rows - 1) == (rows - 1).to_bytes(4, "little") + noise[4:]
    put_bytes(session, 0, b"changed after the rebase")
    put_bytes(session, 1, noise)
    session.store.delete_sync("a/c/2")
    _theirs(storage, lambda other: put_number(other, 100_001, 6))
    session.commit("ours", rebase_with=DETECT)
    reader = latest(storage)
    assert _chunk(reader, 0) == b"changed after the rebase"
    assert _chunk(reader, 1) == noise
    assert _chunk(reader, 2) is None
    if rows > 3:
        assert _chunk(reader, rows - 1) == (rows - 1).to_bytes(4, "little") + noise[4:]
    assert _rows(reader, 100_000, 100_001) == [5, 6]
    assert len(reader.chunk_coordinates("a")) == 2 + rows - (1 if rows > 2 else 0)


def _chunk(session: Session, row: int) -> bytes | None:
    found = session.store.get_sync(f"a/c/{row}")
    return None if found is None else found.to_bytes()


def test_appends_stay_appends_across_rebases_and_may_go_on() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    session.append({"t": np.full((2, 2), 1)}, "time")
    _theirs(storage, lambda other: other.append({"t": np.full((4, 2), 10)}, "time"))
    session.rebase(DETECT)
    assert values(session, "t")[:, 1].tolist() == [0] * 4 + [10] * 4 + [1] * 2
    session.append({"t": np.full((2, 2), 2)}, "time")
    assert values(session, "t")[:, 1].tolist() == [0] * 4 + [10] * 4 + [1] * 2 + [2] * 2
    _theirs(storage, lambda other: other.append({"t": np.full((2, 2), 20)}, "time"))
    session.rebase(DETECT)
    session.append({"t": np.full((1, 2), 3)}, "time")
    _theirs(storage, lambda other: other.append({"t": np.full((2, 2), 30)}, "time"))
    session.commit("ours", rebase_with=DETECT)
    expected = [0] * 4 + [10] * 4 + [20] * 2 + [30] * 2 + [1] * 2 + [2] * 2 + [3]
    assert values(latest(storage), "t")[:, 0].tolist() == expected


def test_an_append_after_a_rebase_is_one_too() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    _theirs(storage, lambda other: other.append({"t": np.full((2, 2), 10)}, "time"))
    session.rebase(DETECT)
    session.append({"t": np.full((2, 2), 1)}, "time")
    _theirs(storage, lambda other: other.append({"t": np.full((2, 2), 20)}, "time"))
    session.commit("ours", rebase_with=DETECT)
    assert values(latest(storage), "t")[:, 0].tolist() == [0] * 4 + [10] * 2 + [20] * 2 + [1] * 2


def test_moves_are_carried_along_with_what_theirs_did_in_the_moved_group() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    session.move("g", "moved")
    _array(session, "moved/x")[0:4] = 7

    def theirs(other: Session) -> None:
        _array(other, "g/x")[4:8] = 8
        zarr.open_group(other.store, path="g").create_array("new", shape=(2,), chunks=(2,), dtype="i4")[:] = 9

    _theirs(storage, theirs)
    session.rebase(DETECT)
    assert set(zarr.open_group(session.store)) == {"a", "v", "t", "moved"}
    assert values(session, "moved/x").tolist() == [7] * 4 + [8] * 4
    assert values(session, "moved/new").tolist() == [9, 9]
    _array(session, "moved/new")[:] = 10
    session.move("moved", "again")
    _theirs(storage, lambda other: put_number(other, 1, 1))
    session.commit("ours", rebase_with=DETECT)
    reader = latest(storage)
    assert set(zarr.open_group(reader.store, mode="r")) == {"a", "v", "t", "again"}
    assert values(reader, "again/x").tolist() == [7] * 4 + [8] * 4
    assert values(reader, "again/new").tolist() == [10, 10]


def test_what_theirs_moved_is_found_where_it_is_now() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    _array(session, "g/x")[0:4] = 7
    _array(session, "g/x").attrs["ours"] = 1
    _theirs(storage, lambda other: other.move("g", "theirs"))
    session.rebase(DETECT)
    assert values(session, "theirs/x").tolist() == [7] * 4 + [3] * 4
    assert _array(session, "theirs/x").attrs["ours"] == 1
    _array(session, "theirs/x")[4:8] = 8
    session.commit("ours")
    assert values(latest(storage), "theirs/x").tolist() == [7] * 4 + [8] * 4


def test_deletions_and_creations_in_their_place_are_carried_along() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    root = zarr.open_group(session.store)
    del root["g"]
    del root["v"]
    root.create_array("v", shape=(2,), chunks=(1,), dtype="u1", fill_value=9)[0] = 1
    root.create_group("new").create_array("y", shape=(2,), chunks=(1,), dtype="u1", fill_value=0)[1] = 5
    _theirs(storage, lambda other: put_number(other, 1, 1))
    session.rebase(DETECT)
    assert set(zarr.open_group(session.store)) == {"a", "v", "t", "new"}
    assert values(session, "v").tolist() == [1, 9]
    _array(session, "new/y")[0] = 4
    del zarr.open_group(session.store)["t"]
    session.commit("ours")
    reader = latest(storage)
    assert paths(reader) == ["a", "new", "new/y", "v"]
    assert values(reader, "v").tolist() == [1, 9]
    assert values(reader, "new/y").tolist() == [4, 5]


def test_shrinking_and_growing_again_hides_what_was_cut_off_after_a_rebase_too() -> None:
    storage, repository = _repository()
    with repository.transaction("main", message="fill") as store:
        zarr.open_array(store, path="v")[:] = np.arange(1, 17)
    session = repository.writable_session("main")
    _array(session, "v").resize((6,))
    _theirs(storage, lambda other: put_number(other, 1, 1))
    session.rebase(DETECT)
    assert values(session, "v").tolist() == [1, 2, 3, 4, 5, 6]
    _array(session, "v").resize((16,))
    expected = [1, 2, 3, 4, 5, 6, 7, 8, *[0] * 8]
    assert values(session, "v")[8:].tolist() == expected[8:]
    _theirs(storage, lambda other: put_number(other, 2, 2))
    session.commit("ours", rebase_with=DETECT)
    assert values(latest(storage), "v")[8:].tolist() == expected[8:]
    assert values(latest(storage), "v")[:6].tolist() == expected[:6]


def test_chunks_left_to_theirs_in_a_rebase_stay_theirs_where_ours_had_cut_the_array_off() -> None:
    storage, repository = _repository()
    with repository.transaction("main", message="fill") as store:
        zarr.open_array(store, path="v")[:] = np.arange(1, 17)
    length = len(values(latest(storage), "v"))
    session = repository.writable_session("main")
    _array(session, "v").resize((4,))
    _array(session, "v").resize((length,))

    def write(other: Session) -> None:
        _array(other, "v")[length - 1] = 99

    _theirs(storage, write)
    theirs = values(latest(storage), "v")
    session.rebase(BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs))
    kept = values(session, "v")
    assert kept[-1] == 99
    put_number(session, 1, 1)
    session.commit("ours")
    found = values(latest(storage), "v")
    assert found.tolist() == kept.tolist()
    assert found[:4].tolist() == theirs[:4].tolist()


def test_deleted_chunks_stay_deleted() -> None:
    storage, repository = _repository()
    commit_rows(repository, 1, 3)
    session = repository.writable_session("main")
    session.store.delete_sync("a/c/1")
    put_number(session, 9, 9)
    session.store.delete_sync("a/c/9")
    _theirs(storage, lambda other: put_number(other, 2, 22))
    session.rebase(DETECT)
    assert _rows(session, 1, 2, 3, 9) == [None, 22, 3, None]
    session.commit("ours")
    assert _rows(latest(storage), 1, 2, 3, 9) == [None, 22, 3, None]


def test_files_that_are_no_arrays_are_carried_along() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    session.store.set_sync("readme.md", cpu.Buffer.from_bytes(b"ours" * 1000))
    _theirs(storage, lambda other: other.store.set_sync("theirs.md", cpu.Buffer.from_bytes(b"theirs")))
    session.rebase(DETECT)
    session.store.set_sync("g/more.md", cpu.Buffer.from_bytes(b"more"))
    session.commit("ours")
    for path, expected in (("readme.md", b"ours" * 1000), ("theirs.md", b"theirs"), ("g/more.md", b"more")):
        found = latest(storage).store.get_sync(path)
        assert found is not None
        assert found.to_bytes() == expected


def test_virtual_references_are_carried_along() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    locations = [f"s3://elsewhere/file{i % 3}" for i in range(20)]
    session.store.set_virtual_refs_arr(
        "a", (20,), locations, np.arange(20) * 4, np.full(20, 4), validate_containers=False, checksum=None
    )
    put_number(session, 3, 3)
    _theirs(storage, lambda other: put_number(other, 100, 100))
    session.rebase(DETECT)
    put_number(session, 4, 4)
    session.commit("ours")
    reader = latest(storage)
    assert _rows(reader, 3, 4, 100) == [3, 4, 100]
    assert len(reader.chunk_coordinates("a")) == 21


def test_attributes_are_carried_along_and_go_on_changing() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    _array(session, "t").attrs["title"] = "ours"
    _theirs(storage, lambda other: other.append({"t": np.full((2, 2), 1)}, "time"))
    session.rebase(DETECT)
    assert _array(session, "t").shape == (6, 2)
    _array(session, "t").attrs["more"] = 2
    session.commit("ours")
    found = zarr.open_array(latest(storage).store, path="t", mode="r")
    assert (found.shape, dict(found.attrs)) == ((6, 2), {"title": "ours", "more": 2})


# -- forks, reads, requests ---------------------------------------------------------------------------------------


def test_forks_taken_before_a_rebase_are_refused_and_those_taken_after_it_come_home() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    put_number(session, 1, 1)
    early = session.fork()
    put_number(early, 2, 2)
    _theirs(storage, lambda other: put_number(other, 100, 100))
    session.rebase(DETECT)
    with pytest.raises(MergeConflictError, match="rebase"):
        session.merge(early)
    assert _rows(session, 1, 2) == [1, None]
    late = session.fork()
    assert _rows(late, 1, 100) == [1, 100]
    put_number(late, 3, 3)
    session.merge(late)
    with pytest.warns(UnmergedForksWarning):
        session.commit("ours")
    assert _rows(latest(storage), 1, 2, 3, 100) == [1, None, 3, 100]


def test_what_was_prepared_for_a_rebase_is_not_written_again_by_the_commit() -> None:
    storage, _ = _repository()
    counting = CountingStorage(DistantStorage(storage))
    session = without_maintenance(impatient(counting)).writable_session("main")
    for row in range(0, 40_000, 2):
        put_bytes(session, row, row.to_bytes(4, "little") + random.Random(row).randbytes(16))
    for row in range(1, 200, 2):
        put_bytes(session, row, random.Random(row).randbytes(2000))
    for turn in range(3):
        _theirs(storage, lambda other, turn=turn: put_number(other, 100_000 + turn, turn))  # type: ignore[misc]
        session.rebase(DETECT)
    counting.reset()
    session.commit("ours")
    assert [operation for operation, _ in counting.log if operation != "sync"] == ["put_if_absent"]
    reader = latest(storage)
    assert len(reader.chunk_coordinates("a")) == 20_000 + 100 + 3
    assert _chunk(reader, 199) == random.Random(199).randbytes(2000)


def test_chunks_that_are_in_packs_by_the_rebase_are_not_sent_again_when_more_is_written() -> None:
    storage, _ = _repository()
    counting = CountingStorage(storage)
    session = impatient(counting).writable_session("main")
    for row in range(100):
        put_bytes(session, row, random.Random(row).randbytes(5000))
    _theirs(storage, lambda other: put_number(other, 100_000, 1))
    session.rebase(DETECT)
    put_number(session, 1000, 1000)
    counting.reset()
    session.commit("ours")
    assert counting.counts.bytes_written < 20_000
    assert _chunk(latest(storage), 99) == random.Random(99).randbytes(5000)


def test_a_serializable_session_depends_on_its_reads_before_and_after_a_rebase() -> None:
    storage, repository = _repository()
    commit_rows(repository, 1, 5)
    session = repository.writable_session("main", isolation="serializable")
    assert number(session, 1) == 1
    put_number(session, 9, 9)
    _theirs(storage, lambda other: put_number(other, 2, 22))
    session.rebase(DETECT)
    assert number(session, 2) == 22
    for row in (1, 2):
        _theirs(storage, lambda other, row=row: put_number(other, row, 100 + row))  # type: ignore[misc]
        with pytest.raises(RebaseFailedError) as caught:
            session.commit("ours", rebase_with=DETECT)
        chunks = [c.conflicted_chunks.tolist() for c in caught.value.conflicts if c.conflicted_chunks is not None]
        assert [row] in [cell for part in chunks for cell in part]


def test_a_session_with_large_chunks_is_rebased_on_a_local_directory_too(tmp_path: Path) -> None:
    storage = local_filesystem_storage(tmp_path / "repository")
    repository = create_repository(storage)
    session = repository.writable_session("main")
    put_bytes(session, 1, b"x" * 2_000_000)
    put_bytes(session, 2, b"y" * 2_000)
    commit_number(Repository.open(storage), 3, 3)
    session.rebase(DETECT)
    put_bytes(session, 2, b"z" * 2_000)
    session.commit("ours")
    assert _chunk(latest(storage), 1) == b"x" * 2_000_000
    assert _chunk(latest(storage), 2) == b"z" * 2_000
    assert number(latest(storage), 3) == 3


# -- solved while rebasing ----------------------------------------------------------------------------------------


def test_what_ours_created_takes_the_place_of_what_theirs_created_if_a_solver_says_so() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    group = zarr.create_group(session.store, path="new")
    group.create_array("ours", shape=(2,), chunks=(1,), dtype="i4")[:] = 1
    zarr.open_group(session.store).create_array("flat", shape=(2,), chunks=(1,), dtype="i4")[:] = 2

    def theirs(other: Session) -> None:
        group = zarr.create_group(other.store, path="new")
        group.create_group("theirs").create_array("deep", shape=(2,), chunks=(1,), dtype="i4")[:] = 3
        zarr.create_group(other.store, path="flat").create_array("inside", shape=(2,), chunks=(1,), dtype="i4")[:] = 4

    _theirs(storage, theirs)
    session.rebase(Ours())
    assert set(zarr.open_group(session.store, path="new")) == {"ours"}
    _array(session, "new/ours")[1] = 5
    _theirs(storage, lambda other: put_number(other, 1, 1))
    session.commit("ours", rebase_with=DETECT)
    reader = latest(storage)
    assert paths(reader) == ["a", "flat", "g", "g/x", "new", "new/ours", "t", "v"]
    assert values(reader, "new/ours").tolist() == [1, 5]
    assert values(reader, "flat").tolist() == [2, 2]


def test_a_deletion_that_was_solved_while_rebasing_is_committed_with_what_theirs_had_put_there() -> None:
    storage, repository = _repository()
    session = repository.writable_session("main")
    del zarr.open_group(session.store)["g"]

    def theirs(other: Session) -> None:
        _array(other, "g/x")[:] = 9
        zarr.open_group(other.store, path="g").create_group("sub").create_array(
            "y", shape=(2,), chunks=(1,), dtype="i4"
        )[:] = 4

    _theirs(storage, theirs)
    session.rebase(BasicConflictSolver())
    assert set(zarr.open_group(session.store)) == {"a", "v", "t"}
    zarr.create_group(session.store, path="g", attributes={"again": True})
    session.commit("ours")
    reader = latest(storage)
    assert paths(reader) == ["a", "g", "t", "v"]
    assert zarr.open_group(reader.store, path="g", mode="r").attrs["again"] is True


@pytest.mark.parametrize("seed", mostly_thorough(range(8), every=4))
def test_random_sessions_that_rebase_and_commit_in_any_order_are_as_if_each_had_come_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    storage, repository = _repository()
    repositories = [repository, impatient(storage)]
    expected = Expected()
    running = [Work(repositories[who % 2]) for who in range(3)]
    for turn in range(1, 90):
        at = chance.randrange(3)
        work = running[at]
        if chance.random() < 0.8 or not work.session.has_uncommitted_changes:
            work.act(chance, turn)
            continue
        work.session.commit(str(turn), rebase_with=Ours())
        expected.apply(work)
        expected.check(latest(storage))
        running[at] = Work(repositories[at % 2])
    expected.check(latest(storage))
