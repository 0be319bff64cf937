"""A serializable session is refused where something that it read was changed, and nowhere else."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore._conflicts import Conflict, ConflictType
from arraystore.errors import InvalidInputError, RebaseFailedError
from arraystore.storage.counting import CountingStorage
from arraystore.storage.memory import MemoryStorage

Change = Callable[[Any], object]

DETECT = ars.ConflictDetector()


def a_grid() -> dict[str, Any]:
    return {"shape": (4, 4), "chunks": (1, 2), "dtype": "i4", "fill_value": 0, "compressors": None}


@pytest.fixture
def repo() -> ars.Repository:
    """A group with two arrays of 4 x 2 chunks, of which the first two rows are written."""
    repo = ars.Repository.create(ars.in_memory_storage())
    with repo.transaction("main", message="begin") as store:
        root = zarr.create_group(store)
        for name in ("a", "b"):
            root.create_array(name, **a_grid())[:2] = 1
        root.create_group("g").create_array("deep", **a_grid())[:] = 1
        root.create_array("scalar", shape=(), dtype="i4", fill_value=0)[...] = 1
    return repo


def open_array(store: Any, path: str = "a") -> zarr.Array[Any]:
    return zarr.open_array(store, path=path, mode="r+")


def others(repo: ars.Repository, change: Change) -> str:
    """Commit a change of somebody else's."""
    session = repo.writable_session("main")
    change(session.store)
    return session.commit("theirs", rebase_with=DETECT)


def serializable(repo: ars.Repository) -> ars.Session:
    return repo.writable_session("main", isolation="serializable")


def tell(session: ars.Session) -> None:
    """Write something that nobody else does."""
    zarr.create_group(session.store, path=f"told_{id(session)}")


def refused(session: ars.Session, **options: Any) -> list[Conflict]:
    """Commit, which must fail with nothing but read conflicts; returns them."""
    with pytest.raises(RebaseFailedError) as caught:
        session.commit("ours", rebase_with=DETECT, **options)
    assert {c.conflict_type for c in caught.value.conflicts} == {ConflictType.ReadConflict}
    return caught.value.conflicts


def noted(session: ars.Session) -> dict[str, Any]:
    reads = session.hierarchy.reads
    assert reads is not None
    return reads.summary(session.hierarchy.beneath.keys)


def rows(conflict: Conflict) -> list[tuple[int, ...]]:
    assert conflict.conflicted_chunks is not None
    return [tuple(row) for row in conflict.conflicted_chunks.tolist()]


def write(path: str, place: Any, value: int = 5) -> Change:
    def change(store: Any) -> None:
        open_array(store, path)[place] = value

    return change


# -- what serializability is about ------------------------------------------------------------------------------------


def test_an_update_is_not_lost(repo: ars.Repository) -> None:
    ours, theirs = serializable(repo), serializable(repo)
    for session in (ours, theirs):
        balance = open_array(session.store)
        balance[0, :2] = np.asarray(balance[0, :2]) + 10
    theirs.commit("theirs", rebase_with=DETECT)
    with pytest.raises(RebaseFailedError) as caught:
        ours.commit("ours", rebase_with=ars.BasicConflictSolver(on_chunk_conflict=ars.VersionSelection.UseOurs))
    assert [c.conflict_type for c in caught.value.conflicts] == [ConflictType.ReadConflict]
    assert rows(caught.value.conflicts[0]) == [(0, 0)]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_write_skew_passes_with_snapshot_isolation_only(repo: ars.Repository, isolation: Any) -> None:
    """Two accounts together must not fall below zero; each session looks at both and takes from one."""
    sessions = [repo.writable_session("main", isolation=isolation) for _ in range(2)]
    for session, row in zip(sessions, (0, 1), strict=True):
        array = open_array(session.store)
        assert int(np.asarray(array[0, 0])) + int(np.asarray(array[1, 0])) >= 2
        array[row, :2] = -1
    sessions[0].commit("first", rebase_with=DETECT)
    if isolation == "snapshot":
        sessions[1].commit("second", rebase_with=DETECT)
        return
    (conflict,) = refused(sessions[1])
    assert (conflict.path, rows(conflict)) == ("/a", [(0, 0)])
    assert conflict.snapshot == sessions[0].snapshot_id


def test_chunks_that_appear_where_none_were_are_seen(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert int(np.asarray(open_array(session.store)[2:, :2]).sum()) == 0
    tell(session)
    others(repo, write("a", (3, slice(0, 2))))
    (conflict,) = refused(session)
    assert rows(conflict) == [(3, 0)]


def test_what_was_not_read_may_change(repo: ars.Repository) -> None:
    session = serializable(repo)
    np.asarray(open_array(session.store)[0])
    tell(session)
    others(repo, write("a", (slice(1, 4), slice(None))))
    others(repo, write("b", 0))
    others(repo, lambda store: zarr.open_group(store, path="g", mode="r+").attrs.update(x=1))
    others(repo, lambda store: zarr.create_group(store, path="elsewhere"))
    session.commit("ours", rebase_with=DETECT)


def test_a_session_without_solver_fails_as_any_other_and_then_tells_what_it_collides_with(repo: ars.Repository) -> None:
    session = serializable(repo)
    np.asarray(open_array(session.store)[0])
    tell(session)
    others(repo, write("a", 0))
    with pytest.raises(ars.ConflictError) as caught:
        session.commit("ours")
    assert not isinstance(caught.value, RebaseFailedError)
    assert rows(refused(session)[0]) == [(0, 0), (0, 1)]


def test_a_failed_rebase_changes_nothing(repo: ars.Repository) -> None:
    session = serializable(repo)
    array = open_array(session.store)
    array[3] = np.asarray(array[0]) + 1
    base, tip = session.snapshot_id, others(repo, write("a", 0))
    for _ in range(2):
        with pytest.raises(RebaseFailedError) as caught:
            session.rebase(DETECT)
        assert "ReadConflict" in str(caught.value)
        assert (session.snapshot_id, caught.value.snapshot) == (base, tip)
        assert np.asarray(array[3]).tolist() == [2, 2, 2, 2]
        assert np.asarray(array[0]).tolist() == [1, 1, 1, 1]
    assert repo.lookup_branch("main") == tip


def test_what_was_read_before_a_rebase_counts_after_it(repo: ars.Repository) -> None:
    session = serializable(repo)
    np.asarray(open_array(session.store)[0])
    tell(session)
    others(repo, write("b", 0))
    session.rebase(DETECT)
    others(repo, write("a", 0))
    assert [c.path for c in refused(session)] == ["/a"]


def test_a_solver_cannot_wave_a_read_conflict_through(repo: ars.Repository) -> None:
    session = serializable(repo)
    np.asarray(open_array(session.store)[0])
    tell(session)
    others(repo, write("a", 0))
    with pytest.raises(RebaseFailedError):
        session.rebase(ars.BasicConflictSolver(on_chunk_conflict=ars.VersionSelection.UseOurs))


# -- metadata, absence, listings --------------------------------------------------------------------------------------


def test_metadata_that_was_read_must_not_have_changed(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert open_array(session.store).attrs.asdict() == {}
    tell(session)
    others(repo, lambda store: open_array(store).attrs.update(units="m"))
    (conflict,) = refused(session)
    assert (conflict.path, conflict.conflicted_chunks) == ("/a", None)


def test_an_array_that_was_looked_for_and_not_found_must_not_have_appeared(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert "new" not in zarr.open_group(session.store, mode="r+")
    tell(session)
    others(repo, lambda store: zarr.create_array(store, name="new", **a_grid()))
    assert {c.path for c in refused(session)} == {"/new"}


@pytest.mark.parametrize("change", ["deleted", "moved", "moved with its group"])
def test_a_node_that_vanished_or_moved_is_seen(repo: ars.Repository, change: str) -> None:
    session, theirs = serializable(repo), repo.writable_session("main")
    np.asarray(open_array(session.store, "g/deep")[0])
    tell(session)
    if change == "deleted":
        del zarr.open_group(theirs.store, path="g", mode="r+")["deep"]
    elif change == "moved":
        theirs.move("/g/deep", "/deep")
    else:
        theirs.move("/g", "/h")
    theirs.commit("theirs")
    assert "/g/deep" in {c.path for c in refused(session)}


def test_chunks_of_an_array_that_moved_are_seen_where_only_chunks_were_read(repo: ars.Repository) -> None:
    session, theirs = serializable(repo), repo.writable_session("main")
    assert session.store.get_sync("g/deep/c/0/0") is not None
    tell(session)
    theirs.move("/g", "/h")
    theirs.commit("theirs")
    assert [c.path for c in refused(session)] == ["/h/deep"]


async def names(session: ars.Session, path: str) -> set[str]:
    return {name async for name in session.store.list_dir(path)}


async def keys(session: ars.Session, prefix: str) -> set[str]:
    return {key async for key in session.store.list_prefix(prefix)}


async def test_names_that_were_listed_must_be_the_same(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert await names(session, "g") == {"zarr.json", "deep"}
    others(repo, lambda store: zarr.create_group(store, path="g/deeper"))
    others(repo, lambda store: zarr.create_group(store, path="gg"))
    tell(session)
    assert [c.path for c in refused(session)] == ["/g/deeper"]


async def test_names_that_were_listed_do_not_mind_what_is_further_below(repo: ars.Repository) -> None:
    session = serializable(repo)
    await names(session, "")
    others(repo, lambda store: zarr.create_group(store, path="g/more"))
    others(repo, write("a", 3))
    others(repo, lambda store: open_array(store).attrs.update(units="m"))
    tell(session)
    session.commit("ours", rebase_with=DETECT)


async def test_keys_that_were_listed_include_those_of_chunks(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert "g/deep/c/0/0" in await keys(session, "g")
    others(repo, write("a", 3))
    others(repo, write("g/deep", 3))
    tell(session)
    (conflict,) = refused(session)
    assert (conflict.path, rows(conflict)) == ("/g/deep", [(3, 0), (3, 1)])


async def test_a_listing_of_chunks_of_an_array_sees_new_ones(repo: ars.Repository) -> None:
    for look in (
        lambda session: session.store.list_dir("a/c"),
        lambda session: session.store.list_prefix("a/c/"),
    ):
        session = serializable(repo)
        assert [name async for name in look(session)]
        tell(session)
        others(repo, write("b", 2))
        others(repo, write("a", 2))
        assert [c.path for c in refused(session)] == ["/a"]


def test_members_of_a_group_and_chunks_of_an_array_are_listings(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert len(session.chunk_coordinates("/a")) == 4
    tell(session)
    others(repo, write("a", 3))
    assert rows(refused(session)[0]) == [(3, 0), (3, 1)]
    session = serializable(repo)
    assert sorted(name for name, _ in zarr.open_group(session.store, path="g", mode="r").members()) == ["deep"]
    tell(session)
    others(repo, lambda store: zarr.create_group(store, path="g/more"))
    assert [c.path for c in refused(session)] == ["/g/more"]


async def test_the_size_of_all_below_a_path_depends_on_all_below_it(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert await session.store.getsize_prefix("g") > 0
    tell(session)
    others(repo, write("a", 3))
    others(repo, lambda store: open_array(store, "g/deep").attrs.update(units="m"))
    assert {c.path for c in refused(session)} == {"/g/deep"}


async def test_deleting_all_below_a_path_relies_on_what_is_there(repo: ars.Repository) -> None:
    session = serializable(repo)
    await session.store.delete_dir("nothing/here")
    tell(session)
    others(repo, lambda store: zarr.create_group(store, path="nothing/here/now"))
    assert "/nothing/here/now" in {c.path for c in refused(session)}


async def test_a_key_that_was_not_there_must_not_have_become_a_file(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert not await session.store.exists("notes/today.txt")
    tell(session)
    buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"text")
    others(repo, lambda store: store.set_sync("notes/today.txt", buffer))
    assert [c.path for c in refused(session)] == ["/notes/today.txt"]


@pytest.mark.parametrize("key", ["below/array/c/0/0", "below/array/anything"])
def test_a_key_that_was_not_there_must_not_have_come_to_be_below_an_array(repo: ars.Repository, key: str) -> None:
    session = serializable(repo)
    assert session.store.get_sync(key) is None
    tell(session)
    others(repo, write("a", 3))
    others(repo, lambda store: zarr.create_array(store, name="below/array", **a_grid()))
    assert "/below/array" in {c.path for c in refused(session)}


async def test_setting_what_does_not_exist_relies_on_that(repo: ars.Repository) -> None:
    session = serializable(repo)
    buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"\1" * 8)
    await session.store.set_if_not_exists("a/c/0/0", buffer)
    assert not session.has_uncommitted_changes
    tell(session)
    others(repo, write("a", (0, slice(0, 2))))
    assert rows(refused(session)[0]) == [(0, 0)]


def test_an_array_without_dimensions_is_read_too(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert int(np.asarray(open_array(session.store, "scalar")[...])) == 1
    tell(session)
    others(repo, lambda store: open_array(store, "scalar").__setitem__(..., 2))
    assert rows(refused(session)[0]) == [()]


def test_a_chunk_outside_of_the_array_is_a_matter_of_its_metadata(repo: ars.Repository) -> None:
    session = serializable(repo)
    assert session.store.get_sync("a/c/9/9") is None
    assert session.reads["metadata"] == ["/a"]
    tell(session)
    others(repo, lambda store: open_array(store).resize((40, 40)))
    assert [c.path for c in refused(session)] == ["/a"]


# -- own changes ------------------------------------------------------------------------------------------------------


def test_a_part_of_a_chunk_that_is_written_is_read_first(repo: ars.Repository) -> None:
    session = serializable(repo)
    open_array(session.store)[0, 0] = 9
    assert noted(session)["chunks"] == {"/a": {"blocks": 1, "side": 1, "boxes": []}}


def test_a_whole_chunk_that_is_written_is_not_read(repo: ars.Repository) -> None:
    session = serializable(repo)
    open_array(session.store)[0] = 9
    assert session.reads["chunks"] == {}


def test_own_changes_are_not_reads(repo: ars.Repository) -> None:
    session = serializable(repo)
    created = zarr.create_array(session.store, name="own", **a_grid())
    created[0] = 3
    before = session.reads
    np.asarray(zarr.open_array(session.store, path="own", mode="r")[:])
    assert session.reads == before
    array = open_array(session.store)
    array[0] = 3
    before = session.reads
    np.asarray(array[0])
    assert session.reads == before
    session.store.delete_sync("a/c/1/0")
    assert session.store.get_sync("a/c/1/0") is None
    assert session.reads == before
    array.attrs["mine"] = 1
    before = session.reads
    open_array(session.store)
    assert session.reads == before


def test_what_an_append_looks_up_is_not_a_read(repo: ars.Repository) -> None:
    with repo.transaction("main", message="a series") as store:
        series = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["time"])
        series[:] = 1
    ours, theirs = serializable(repo), serializable(repo)
    for session in (ours, theirs):
        session.append({"t": np.array([7, 8], "i4")}, dim="time")
        assert session.reads["metadata"] == []
        session.commit("append", rebase_with=DETECT)
    after = zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")
    assert np.asarray(after[:]).tolist() == [1, 1, 1, 1, 7, 8, 7, 8]


def test_the_length_of_an_array_after_an_append_depends_on_the_length_before(repo: ars.Repository) -> None:
    with repo.transaction("main", message="a series") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["time"])
    ours, theirs = serializable(repo), serializable(repo)
    for session in (ours, theirs):
        session.append({"t": np.array([7, 8], "i4")}, dim="time")
    assert open_array(ours.store, "t").shape == (6,)
    theirs.commit("theirs", rebase_with=DETECT)
    assert [c.path for c in refused(ours)] == ["/t"]


def test_a_session_that_is_not_serializable_notes_nothing(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    np.asarray(open_array(session.store)[:])
    assert session.reads == {}


def test_what_was_read_counts_after_changes_were_discarded(repo: ars.Repository) -> None:
    session = serializable(repo)
    open_array(session.store)[1] = open_array(session.store)[0]
    noted = session.reads
    session.discard_changes()
    assert session.reads == noted
    other = repo.writable_session("main")
    open_array(other.store)[0] = 77
    other.commit("what was read")
    open_array(session.store)[2] = 5
    with pytest.raises(ars.RebaseFailedError):
        session.commit("decided by what was read", rebase_with=ars.ConflictDetector())


# -- threads, requests ------------------------------------------------------------------------------------------------


def test_reads_of_many_threads_all_count(repo: ars.Repository) -> None:
    session = serializable(repo)
    array = open_array(session.store)
    start = threading.Barrier(4)

    def read(row: int) -> None:
        start.wait()
        np.asarray(array[row])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))
    tell(session)
    others(repo, write("a", slice(None)))
    assert rows(refused(session)[0]) == [(row, column) for row in range(4) for column in range(2)]


def test_noting_and_comparing_reads_cost_no_request() -> None:
    requests: list[dict[str, int]] = []
    for isolation in ("snapshot", "serializable"):
        counting = CountingStorage(MemoryStorage())
        repo = ars.Repository.create(counting)
        with repo.transaction("main", message="begin") as store:
            zarr.create_group(store).create_array("a", **a_grid())[:] = 1
        session = repo.writable_session("main", isolation=isolation)  # type: ignore[arg-type]
        array = open_array(session.store)
        array[1] = np.asarray(array[0])
        others(repo, write("a", 3))
        counting.reset()
        session.commit("ours", rebase_with=DETECT)
        requests.append(counting.counts.requests)
    assert requests[0] == requests[1]


# -- declared reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "touched"),
    [
        ({"/a": np.s_[0:2]}, True),
        ({"/a": np.s_[3, :2]}, True),
        ({"/a": np.s_[-1]}, True),
        ({"/a": np.s_[..., 1]}, True),
        ({"/a": np.s_[::3, 0]}, True),
        ({"/a": np.s_[::-3, 0]}, True),
        ({"/a": ...}, True),
        ({"/": ...}, True),
        ({"a": np.s_[1:3]}, False),
        ({"/a": np.s_[:, 2:]}, False),
        ({"/a": np.s_[2:2]}, False),
        ({"/a": np.s_[1:3:9, :]}, False),
        ({"/a": None}, False),
        ({"/b": ..., "/g": ..., "/scalar": ()}, False),
        ({"/absent": None}, False),
        ({"/absent": ...}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_declared_reads_take_the_place_of_noted_ones(
    repo: ars.Repository, isolation: Any, declared: Mapping[str, Any], touched: bool
) -> None:
    session = repo.writable_session("main", isolation=isolation)
    np.asarray(open_array(session.store)[:])
    tell(session)

    def change(store: Any) -> None:
        open_array(store)[0, :2] = 4
        open_array(store)[3, :2] = 4

    others(repo, change)
    if touched:
        assert {c.path for c in refused(session, reads=declared)} == {"/a"}
    else:
        session.commit("ours", rebase_with=DETECT, reads=declared)


def test_declared_absence_and_metadata_are_held_against_what_happened(repo: ars.Repository) -> None:
    session = repo.writable_session("main")
    tell(session)
    others(repo, lambda store: zarr.create_array(store, name="new/array", **a_grid()))
    others(repo, lambda store: open_array(store, "g/deep").attrs.update(units="m"))
    buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"text")
    others(repo, lambda store: store.set_sync("notes", buffer))
    for declared, paths in (
        ({"/new": None}, {"/new"}),
        ({"/new": ...}, {"/new", "/new/array"}),
        ({"/notes": None}, {"/notes"}),
        ({"/g/deep": None}, {"/g/deep"}),
        ({"/g": ...}, {"/g/deep"}),
    ):
        assert {c.path for c in refused(session, reads=declared)} == paths
    session.commit("ours", rebase_with=DETECT, reads={"/g": None, "/new/array/below": None})


def test_regions_of_sharded_arrays_are_told_by_the_shard(repo: ars.Repository) -> None:
    with repo.transaction("main", message="shards") as store:
        zarr.create_array(store, name="s", shape=(16,), chunks=(2,), shards=(8,), dtype="i4")[:] = 1
    session = repo.writable_session("main")
    tell(session)
    others(repo, write("s", slice(0, 2)))
    assert rows(refused(session, reads={"/s": np.s_[6:8]})[0]) == [(0,)]
    session.commit("ours", rebase_with=DETECT, reads={"/s": np.s_[8:]})


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"/a/../b": None}, "must not have an empty part"),
        ({7: None}, "a path in reads must be a string"),
        ({"/a": 4}, "out of bounds: along dimension 0 it must be >= -4 and < 4"),
        ({"/a": np.s_[0, 0, 0]}, "must have at most"),
        ({"/a": np.s_[..., ...]}, "must have at most"),
        ({"/a": "all"}, "made of integers and slices"),
        ({"/a": 1.5}, "made of integers and slices"),
        ({"/a": True}, "made of integers and slices"),
        ({"/a": np.s_[::0]}, "slice step cannot be zero"),
        ({"/g": np.s_[0:1]}, "a group"),
        ({"/absent": np.s_[0:1]}, "nothing"),
        ([("/a", None)], "must be a mapping"),
    ],
)
def test_a_path_or_region_that_cannot_be_meant_is_refused_before_anything_happens(
    repo: ars.Repository, declared: Any, text: str
) -> None:
    session = serializable(repo)
    tell(session)
    for call in (lambda: session.commit("ours", reads=declared), lambda: session.rebase(DETECT, reads=declared)):
        with pytest.raises(InvalidInputError, match=text):
            call()
    session.commit("ours")


# -- forks ------------------------------------------------------------------------------------------------------------


def test_what_a_fork_read_counts_as_read_by_its_session(repo: ars.Repository) -> None:
    session = serializable(repo)
    fork = pickle.loads(pickle.dumps(session.fork()))
    array = open_array(fork.store)
    array[3] = np.asarray(array[0]) + 1
    assert session.reads["chunks"] == {}
    session.merge(fork.changes())
    others(repo, write("a", (0, slice(2, 4))))
    (conflict,) = refused(session)
    assert rows(conflict) == [(0, 1)]


def test_payloads_that_are_merged_among_themselves_keep_their_reads(repo: ars.Repository) -> None:
    session = serializable(repo)
    payloads = []
    for row in (0, 1):
        fork = session.fork()
        array = open_array(fork.store)
        array[row + 2] = np.asarray(array[row])
        payloads.append(fork.changes())
    session.merge(ars.merge_sessions(payloads))
    others(repo, write("a", slice(0, 2)))
    assert rows(refused(session)[0]) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_what_was_read_before_a_fork_was_pickled_counts_for_the_copy(repo: ars.Repository) -> None:
    session = serializable(repo)
    fork = session.fork()
    assert np.asarray(open_array(fork.store)[0]).shape == (4,)
    copy = pickle.loads(pickle.dumps(fork))
    open_array(copy.store)[3] = 1
    session.merge(copy.changes())
    others(repo, lambda store: open_array(store).__setitem__(0, 9))
    assert rows(refused(session)[0]) == [(0, 0), (0, 1)]


def test_changes_of_the_session_that_a_fork_reads_are_no_reads(repo: ars.Repository) -> None:
    session = serializable(repo)
    open_array(session.store)[2] = 5
    zarr.create_array(session.store, name="own", **a_grid())[0] = 1
    fork = pickle.loads(pickle.dumps(session.fork()))
    own = open_array(fork.store, "own")
    assert np.asarray(own[0]).tolist() == [1, 1, 1, 1]
    assert np.asarray(open_array(fork.store)[1:3])[1].tolist() == [5, 5, 5, 5]
    assert fork.reads["metadata"] == ["/a"]
    assert noted(fork)["chunks"] == {"/a": {"blocks": 2, "side": 1, "boxes": []}}


def test_damaged_reads_of_a_fork_are_refused_and_nothing_is_merged(repo: ars.Repository) -> None:
    session = serializable(repo)
    fork = session.fork()
    open_array(fork.store)[3] = 1
    fork.hierarchy.reads.node("x" * 10_000)  # type: ignore[union-attr]
    with pytest.raises(ars.FormatError):
        session.merge(fork.changes())
    assert not session.has_uncommitted_changes


def test_thousands_of_small_read_sets_are_merged_at_once() -> None:
    from arraystore._changes.read_set import ReadSet

    home = ReadSet()
    for number in range(2000):
        fork = ReadSet()
        fork.node("a")
        for column in range(10):
            fork.chunk(b"a" * 12, (number, column))
        home.update(ReadSet.decode("reads", fork.encode()))
    assert home.summary()["chunks"].popitem()[1] == {"blocks": 20_000, "side": 1, "boxes": []}
