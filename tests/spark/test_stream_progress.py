"""How far streams are travels in every snapshot, and nobody sees it who does not ask."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import cpu
from zarr.core.sync import _collect_aiterator, sync

from arraystore import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    CountingStorage,
    FormatError,
    InvalidInputError,
    RebaseFailedError,
    Repository,
    Session,
    SessionStateError,
    StreamRestartedError,
    VersionSelection,
    in_memory_storage,
    local_filesystem_storage,
)
from arraystore._session.node_views import nodes_below
from arraystore.copying.zarr_export import export_zarr
from arraystore.spark.streams.progress import (
    StreamProgress,
    is_written,
    last_batch,
    note_batch,
    progress_of,
    stream_key,
)
from tests.spark.support import streams


@pytest.fixture
def repo() -> Repository:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(1,), dtype="i4")
    session.commit("an array")
    return repo


def commit_batch(repo: Repository, batch: int, stream: str = "s", branch: str = "main", run: str | None = None) -> str:
    session = repo.writable_session(branch)
    note_batch(session, stream, batch, run=run)
    return session.commit(f"batch {batch}")


def put(session: Session, key: str, value: bytes) -> None:
    session.store.set_sync(key, cpu.Buffer.from_bytes(value))


# -- what is told -----------------------------------------------------------------------------------------------


def test_a_stream_is_where_its_last_committed_batch_is(repo: Repository) -> None:
    assert last_batch(repo.readonly_session("main"), "s") is None
    for batch in (0, 1, 5):
        commit_batch(repo, batch)
        assert last_batch(repo.readonly_session("main"), "s") == batch
    assert last_batch(repo.readonly_session("main"), "another") is None


def test_what_is_noted_is_seen_in_the_session_and_nowhere_else_before_the_commit(repo: Repository) -> None:
    session = repo.writable_session("main")
    note_batch(session, "s", 3)
    assert last_batch(session, "s") == 3
    assert last_batch(repo.readonly_session("main"), "s") is None


def test_streams_do_not_touch_each_other_and_are_listed_together(repo: Repository) -> None:
    session = repo.writable_session("main")
    for number, name in enumerate(("s", "t/u", "grün", "x" * 1024)):
        note_batch(session, name, number, run=f"run {number}")
    session.commit("all")
    found = streams(repo.readonly_session("main"))
    assert found == {
        name: StreamProgress(name, number, f"run {number}")
        for number, name in enumerate(("s", "t/u", "grün", "x" * 1024))
    }


def test_branches_resets_and_tags_have_their_own_progress(repo: Repository) -> None:
    first, second = commit_batch(repo, 1), commit_batch(repo, 2)
    repo.create_branch("other", first)
    repo.create_tag("then", first)
    commit_batch(repo, 7, branch="other")
    assert last_batch(repo.readonly_session("main"), "s") == 2
    assert last_batch(repo.readonly_session("other"), "s") == 7
    assert last_batch(repo.readonly_session(tag="then"), "s") == 1
    repo.reset_branch("main", first, from_snapshot_id=second)
    assert last_batch(repo.readonly_session("main"), "s") == 1
    commit_batch(repo, 2)


def test_undoing_a_batch_or_repeating_it_elsewhere_is_about_its_data_alone(repo: Repository) -> None:
    """A stream never repeats an older batch, so that it was undone must not make it one that is still to come."""

    def values(branch: str) -> list[int]:
        store = repo.readonly_session(branch).store
        return np.asarray(zarr.open_array(store, path="a", mode="r")[:3]).tolist()  # type: ignore[no-any-return]

    snapshots: list[str] = []
    repo.create_branch("other", repo.lookup_branch("main"))
    for batch in range(3):
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="a")[batch] = 5
        note_batch(session, "s", batch)
        snapshots.append(session.commit(f"batch {batch}"))
    repo.revert(snapshots[1], branch="main")
    assert (values("main"), last_batch(repo.readonly_session("main"), "s")) == ([5, 0, 5], 2)
    repo.revert(snapshots[2], branch="main")
    assert (values("main"), last_batch(repo.readonly_session("main"), "s")) == ([5, 0, 0], 2)
    repo.cherry_pick(snapshots[2], branch="other")
    assert (values("other"), last_batch(repo.readonly_session("other"), "s")) == ([0, 0, 5], None)


def test_any_other_commit_and_folding_leave_it_alone(repo: Repository) -> None:
    for batch in range(150):
        commit_batch(repo, batch)
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    session.commit("something else")
    repo.wait_for_maintenance()
    assert last_batch(repo.readonly_session("main"), "s") == 149


def test_finding_it_takes_a_request_at_most_whatever_else_there_is() -> None:
    def requests(arrays: int, others: int, batches: int) -> int:
        storage = CountingStorage(in_memory_storage())
        repo = Repository.create(storage)
        session = repo.writable_session("main")
        for number in range(arrays):
            zarr.create_array(session.store, name=f"a{number}", shape=(4,), chunks=(1,), dtype="i4")[:] = 1
        for number in range(others):
            note_batch(session, f"other {number}", 0)
        session.commit("the rest")
        for batch in range(batches):
            commit_batch(repo, batch)
        repo.wait_for_maintenance()
        session = Repository.open(storage).writable_session("main")
        before = storage.counts
        assert last_batch(session, "s") == batches - 1
        return (storage.counts - before).total

    assert max(requests(1, 0, 1), requests(30, 40, 3), requests(1, 0, 100)) <= 1


# -- once and not twice -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 4, 5])
def test_a_batch_that_is_written_is_refused(repo: Repository, batch: int) -> None:
    commit_batch(repo, 5, run="q")
    session = repo.writable_session("main")
    assert is_written(session, "s", batch, run="q")
    with pytest.raises(InvalidInputError, match="written already"):
        note_batch(session, "s", batch, run="q")
    assert not session.has_uncommitted_changes


SOLVERS: list[ConflictSolver] = [
    ConflictDetector(),
    BasicConflictSolver(),
    BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs),
]


class UseOurs(ConflictSolver):
    """Believes that it knows better, always."""

    def solve(self, conflict: object, versions: object) -> VersionSelection:
        return VersionSelection.UseOurs


@pytest.mark.parametrize("solver", [*SOLVERS, UseOurs()], ids=["detector", "ours", "theirs", "own"])
@pytest.mark.parametrize("known", [False, True])
def test_two_that_write_one_batch_collide_whatever_the_solver_says(
    repo: Repository, solver: ConflictSolver, known: bool
) -> None:
    if known:
        commit_batch(repo, 0)
    sessions = [repo.writable_session("main") for _ in range(2)]
    for number, session in enumerate(sessions):
        zarr.open_array(session.store, path="a")[number] = 7
        note_batch(session, "s", 1)
    sessions[0].commit("first", rebase_with=solver)
    with pytest.raises(RebaseFailedError) as caught:
        sessions[1].commit("second", rebase_with=solver)
    assert "/" + stream_key("s") in {conflict.path for conflict in caught.value.conflicts}
    found = repo.readonly_session("main")
    assert zarr.open_array(found.store, path="a", mode="r")[:2].tolist() == [7, 0]


def test_two_streams_of_one_branch_do_not_collide(repo: Repository) -> None:
    sessions = [repo.writable_session("main") for _ in range(2)]
    for number, session in enumerate(sessions):
        zarr.open_array(session.store, path="a")[number] = 7
        note_batch(session, f"stream {number}", 0)
    for session in sessions:
        session.commit("batch", rebase_with=ConflictDetector())
    assert set(streams(repo.readonly_session("main"))) == {"stream 0", "stream 1"}


def test_a_stream_that_begins_anew_under_its_old_id_is_an_error_and_not_a_loss(repo: Repository) -> None:
    commit_batch(repo, 5, run="q")
    session = repo.writable_session("main")
    for batch in (0, 5, 6):
        with pytest.raises(StreamRestartedError, match="restarted=True"):
            is_written(session, "s", batch, run="another")
        with pytest.raises(SessionStateError):
            note_batch(session, "s", batch, run="another")
    assert not session.has_uncommitted_changes
    note_batch(session, "s", 0, run="another", restarted=True)
    session.commit("anew")
    session = repo.writable_session("main")
    assert progress_of(session, "s") == StreamProgress("s", 0, "another")
    assert is_written(session, "s", 0, run="another", restarted=True)
    with pytest.raises(StreamRestartedError):  # the old one, which somebody has left running
        is_written(session, "s", 6, run="q")


def test_where_nobody_knows_who_numbers_only_the_last_batch_may_come_again(repo: Repository) -> None:
    commit_batch(repo, 5)
    session = repo.writable_session("main")
    assert is_written(session, "s", 5)
    assert not is_written(session, "s", 6)
    with pytest.raises(StreamRestartedError):
        is_written(session, "s", 4)


@pytest.mark.parametrize(("noted", "asked"), [("q", None), (None, "q")])
def test_a_number_of_a_known_run_and_one_of_an_unknown_run_never_pass_for_the_same_batch(
    repo: Repository, noted: str | None, asked: str | None
) -> None:
    commit_batch(repo, 5, run=noted)
    session = repo.writable_session("main")
    for batch in (4, 5):
        with pytest.raises(StreamRestartedError, match="restarted=True"):
            is_written(session, "s", batch, run=asked)
    assert not is_written(session, "s", 6, run=asked)


@pytest.mark.parametrize("batch", [0, 5, 6])
def test_the_first_batch_of_a_restarted_stream_is_written_whatever_its_number(repo: Repository, batch: int) -> None:
    commit_batch(repo, 5)
    session = repo.writable_session("main")
    note_batch(session, "s", batch, run="q", restarted=True)
    assert is_written(session, "s", batch, run="q", restarted=True)


# -- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["", "x" * 1025, "\ud800", None, 7, b"s"])
def test_what_is_no_id_is_refused(repo: Repository, stream: object) -> None:
    session = repo.writable_session("main")
    with pytest.raises(InvalidInputError, match="stream_id"):
        note_batch(session, stream, 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="run"):
        note_batch(session, "s", 0, run=stream or "")  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [-1, 1 << 63, 1.0, "1", None, True])
def test_what_is_no_number_of_a_batch_is_refused(repo: Repository, batch: object) -> None:
    with pytest.raises(InvalidInputError, match="number of a batch"):
        note_batch(repo.writable_session("main"), "s", batch)  # type: ignore[arg-type]


GOOD = {"v": 1, "stream": "s", "batch": 1}


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 16_000, b"1" * 10_000, b" " * 20_000),
        *(json.dumps(GOOD | part).encode() for part in ({"v": 2}, {"batch": -1}, {"batch": 1.0}, {"batch": True})),
        *(json.dumps(GOOD | part).encode() for part in ({"stream": 7}, {"stream": "t"}, {"run": 7}, {"batch": "1"})),
    ],
    ids=lambda value: ascii(value[:40]),
)
def test_a_damaged_file_is_told_and_not_believed(repo: Repository, value: bytes) -> None:
    session = repo.writable_session("main")
    put(session, stream_key("s"), value)
    session.commit("damage")
    with pytest.raises(FormatError, match="streams"):
        last_batch(repo.readonly_session("main"), "s")
    session = repo.writable_session("main")
    with pytest.raises(FormatError):
        note_batch(session, "s", 7)


# -- hidden -----------------------------------------------------------------------------------------------------


def test_listings_do_not_show_it_unless_they_ask_for_it(repo: Repository) -> None:
    def listed(session: Session, prefix: str) -> list[str]:
        return sorted(sync(_collect_aiterator(session.store.list_prefix(prefix))))

    def named(session: Session, path: str) -> list[str]:
        return sorted(sync(_collect_aiterator(session.store.list_dir(path))))

    plain = repo.readonly_session("main")
    session = repo.writable_session("main")
    note_batch(session, "s", 0)
    put(session, ".arraystore.txt", b"somebody else's")
    uncommitted = [listed(session, ""), named(session, "")]
    session.commit("batch 0")
    session = repo.readonly_session("main")
    assert [listed(session, ""), named(session, "")] == uncommitted
    assert set(listed(session, "")) == {*listed(plain, ""), ".arraystore.txt"}
    assert set(named(session, "")) == {*named(plain, ""), ".arraystore.txt"}
    assert listed(session, ".a") == [".arraystore.txt"]
    assert listed(session, ".arraystore/") == listed(session, ".arraystore/streams/") == [stream_key("s")]
    assert named(session, ".arraystore") == ["streams"]
    assert named(session, ".arraystore/streams")
    assert sync(session.store.getsize_prefix("")) == sync(plain.store.getsize_prefix("")) + len(b"somebody else's")
    assert sync(session.store.getsize_prefix(".arraystore")) > 0
    assert {view.path for view in nodes_below(session, "/", count=True)} == {"/", "/a", "/.arraystore.txt"}


def test_zarr_and_xarray_do_not_see_it(repo: Repository) -> None:
    session = repo.writable_session("main")
    xr.Dataset({"t": ("x", np.arange(4))}).to_zarr(session.store, group="g", zarr_format=3, consolidated=False)
    note_batch(session, "s", 0)
    session.commit("batch 0")
    store = repo.readonly_session("main").store
    assert {name for name, _ in zarr.open_group(store, mode="r").members(max_depth=None)} == {"a", "g", "g/t"}
    assert list(xr.open_zarr(store, group="g", consolidated=False)) == ["t"]
    assert set(xr.open_datatree(store, engine="zarr", consolidated=False, group="g").children) == set()


def test_a_hierarchy_that_is_deleted_or_written_anew_leaves_it(repo: Repository) -> None:
    commit_batch(repo, 3)
    session = repo.writable_session("main")
    sync(session.store.clear())
    xr.Dataset({"t": ("x", np.arange(4))}).to_zarr(session.store, mode="w", zarr_format=3, consolidated=False)
    zarr.create_group(session.store, path="h", overwrite=True)
    session.commit("anew")
    assert last_batch(repo.readonly_session("main"), "s") == 3
    assert not [key for key in sync(_collect_aiterator(repo.readonly_session("main").store.list())) if key[0] == "a"]


def test_a_stream_does_not_keep_chunks_from_being_found_fast(repo: Repository) -> None:
    commit_batch(repo, 3)
    for session in (repo.writable_session("main"), repo.readonly_session("main")):
        assert not session.hierarchy.has_files
    session = repo.writable_session("main")
    note_batch(session, "s", 4)
    zarr.open_array(session.store, path="a")[3] = 9
    assert not session.hierarchy.has_files
    assert last_batch(session, "s") == 4
    put(session, "visible", b"a file")
    assert session.hierarchy.has_files
    assert last_batch(session, "s") == 4


def test_an_export_leaves_it_out(repo: Repository, tmp_path: Path) -> None:
    commit_batch(repo, 3)
    target = local_filesystem_storage(tmp_path / "target")
    report = export_zarr(repo, target, branch="main")
    assert report.files == 0
    assert not [path for path in tmp_path.rglob("*") if "arraystore" in path.name and path != tmp_path / "target"]
