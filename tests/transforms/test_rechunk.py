"""Rechunking: the same values in other chunks, and everything else as it was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import ConflictDetector, Repository, RepositoryConfig, VirtualChunkSpec, in_memory_storage
from arraystore._runtime import run as run_async
from arraystore._session.measured_chunks import measured_chunks
from arraystore.errors import ConflictError, InvalidInputError, NodeNotFoundError, RebaseFailedError, RefNotFoundError
from arraystore.transforms import ThreadsEngine, plan_rechunk, rechunk
from arraystore.transforms.rechunking import run
from arraystore.transforms.rechunking.plan import plan_copies
from tests.transforms.conftest import get, put

SHAPE = (23, 14, 9)
DIMS = ("t", "y", "x")


def values(seed: int = 0, dtype: str = "f4") -> Any:
    return np.random.default_rng(seed).integers(0, 100, SHAPE).astype(dtype)


def opened(repo: Repository, path: str) -> Any:
    return zarr.open_array(repo.readonly_session("main").store, path=path, mode="r")


def stored(repo: Repository) -> int:
    """Return the bytes of all packs."""

    async def measure() -> int:
        return sum([info.size async for page in repo.context.storage.list("chunks/") for info in page])

    return run_async(measure())


@pytest.fixture
def maps(repo: Repository) -> Repository:
    session = repo.writable_session("main")
    put(session, "g/maps", values(), (1, 14, 9), DIMS, attributes={"units": "K"}, fill_value=-1)
    session.commit("maps")
    return repo


@pytest.mark.usefixtures("small_costs")
@pytest.mark.parametrize("seed", range(8))
def test_any_chunks_of_any_type_hold_the_same_values(repo: Repository, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    shape, source, target = (tuple(map(int, rng.integers(1, high, ndim))) for high in (25, 12, 12))
    dtype = str(rng.choice(["u1", "i4", "f8", "c8", "bool", "U3", "M8[s]"]))
    expected = rng.integers(0, 90, shape).astype(dtype)
    session = repo.writable_session("main")
    put(session, "a", expected, source)
    session.commit("a")
    least = expected.itemsize * (2 * int(np.prod(source)) + 3 * int(np.prod(target)))
    report = rechunk(repo, "a", target, memory=least * int(rng.integers(1, 4)), batch_bytes=1, engine=ThreadsEngine(1))
    array = opened(repo, "a")
    assert np.array_equal(array[...], expected)
    assert (array.chunks, array.dtype) == (target, expected.dtype)
    assert report.plan.memory >= max(stage.memory for stage in report.plan.stages)


@pytest.mark.usefixtures("small_costs")
def test_maps_become_series_in_one_commit_that_keeps_everything_else(maps: Repository) -> None:
    told: list[tuple[int, int]] = []
    report = rechunk(
        maps, "g/maps", {"t": -1, "y": 2, "x": 3}, memory=8000, batch_bytes=1, message="to series",
        engine=ThreadsEngine(2), progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    array = opened(maps, "g/maps")
    assert report.plan.intermediate is not None
    assert np.array_equal(array[...], values())
    assert (array.chunks, array.shards, dict(array.attrs), array.fill_value) == ((23, 2, 3), None, {"units": "K"}, -1)
    assert array.metadata.dimension_names == DIMS
    infos = list(maps.ancestry(branch="main"))
    assert [info.message for info in infos] == ["to series", "maps", "Repository initialized"]
    assert infos[0].id == report.snapshot_id
    assert maps.list_branches() == {"main"}
    assert {path for path, _ in zarr.open_group(maps.readonly_session("main").store, mode="r").members(None)} == {
        "g",
        "g/maps",
    }
    assert told[-1] == (report.boxes, report.boxes)
    assert told == sorted(told)
    assert report.nbytes == 2 * values().nbytes


@pytest.mark.usefixtures("small_costs")
@pytest.mark.parametrize("target", ["maps", "series"])
def test_the_result_has_the_statistics_of_its_chunks_where_the_repository_keeps_them(target: str) -> None:
    config = RepositoryConfig(inline_chunk_threshold_bytes=0, chunk_statistics=True)
    repo = Repository.create(in_memory_storage(), config)
    session = repo.writable_session("main")
    put(session, "maps", values(), (1, 14, 9), DIMS)
    session.commit("maps")
    arguments: dict[str, Any] = {"memory": 8000, "batch_bytes": 1, "engine": ThreadsEngine(2)}
    report = rechunk(repo, "maps", (23, 2, 3), target=target, **arguments)
    _, references, known = measured_chunks(repo.readonly_session("main"), target)
    assert report.plan.intermediate is not None
    assert known is not None
    rows = known.rows_of(references)
    assert len(rows) == 21
    corners = [values()[:, 2 * y : 2 * y + 2, 3 * x : 3 * x + 3] for _, y, x in references.coords.tolist()]
    assert known.greatest[rows].tolist() == [each.max() for each in corners]


@pytest.mark.usefixtures("small_costs")
def test_what_the_result_does_not_need_is_garbage() -> None:
    repo = Repository.create(in_memory_storage(), RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    numbers = np.random.default_rng(0).integers(0, 2**62, (40, 30, 20))
    put(session, "maps", numbers, (1, 30, 20), DIMS, compressors=None)
    session.commit("maps")
    report = rechunk(repo, "maps", {"t": -1, "y": 5, "x": 5}, memory=120_000, target="series", overwrite=True)
    assert report.plan.intermediate is not None
    before = stored(repo)
    repo.garbage_collect(datetime.now(UTC))
    assert before > 2.8 * numbers.nbytes  # maps, intermediate and series
    assert stored(repo) < 2.2 * numbers.nbytes
    session = repo.readonly_session("main")
    assert np.array_equal(get(session, "maps"), get(session, "series"))
    assert repo.verify(level="chunks").ok


def test_a_target_of_its_own_leaves_the_source(maps: Repository) -> None:
    rechunk(maps, "/g/maps/", 5, target="series")
    assert np.array_equal(opened(maps, "series")[...], values())
    assert (opened(maps, "series").chunks, opened(maps, "g/maps").chunks) == ((5, 5, 5), (1, 14, 9))
    with pytest.raises(InvalidInputError, match="there is a node 'series' already"):
        rechunk(maps, "g/maps", 6, target="series")
    rechunk(maps, "g/maps", 6, target="series", overwrite=True)
    assert opened(maps, "series").chunks == (6, 6, 6)
    for target, message in (
        ("g", "replace the group 'g'"),
        ("/", "replace the group ''"),
        ("series/g", "below the array"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            rechunk(maps, "g/maps", 6, target=target, overwrite=True)


def test_chunks_that_were_never_written_are_not_written(repo: Repository) -> None:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(40, 40), chunks=(4, 4), dtype="f8", fill_value=np.nan)
    array[8:12, 20:24] = 1
    session.commit("a")
    report = rechunk(repo, "a", (8, 8))
    session = repo.readonly_session("main")
    assert session.chunk_coordinates("a").tolist() == [[1, 2]]
    assert report.boxes == 1
    found = get(session, "a")
    assert np.array_equal(found[8:12, 20:24], np.ones((4, 4)))
    assert np.isnan(found).sum() == 1600 - 16


def test_shards_are_read_and_written_whole(repo: Repository) -> None:
    expected = np.arange(30 * 20).reshape(30, 20)
    session = repo.writable_session("main")
    put(session, "a", expected, (2, 5), shards=(10, 10))
    session.commit("a")
    rechunk(repo, "a", (5, 4), shards=(15, -1))
    array = opened(repo, "a")
    assert (array.chunks, array.shards) == ((5, 4), (15, 20))
    assert np.array_equal(array[...], expected)
    rechunk(repo, "a", (6, 20))
    assert (opened(repo, "a").chunks, opened(repo, "a").shards) == ((6, 20), None)
    assert np.array_equal(opened(repo, "a")[...], expected)
    with pytest.raises(InvalidInputError, match="do not hold whole chunks"):
        rechunk(repo, "a", (5, 4), shards=(12, 20))


def test_codecs_and_format_2_are_kept(repo: Repository) -> None:
    from numcodecs import Zlib
    from zarr.codecs import GzipCodec, TransposeCodec

    session = repo.writable_session("main")
    put(
        session,
        "three",
        values(),
        (4, 4, 4),
        DIMS,
        compressors=GzipCodec(level=3),
        filters=[TransposeCodec(order=(2, 0, 1))],
    )
    put(
        session,
        "two",
        values(),
        (4, 4, 4),
        zarr_format=2,
        compressors=Zlib(level=2),
        order="F",
        attributes={"_ARRAY_DIMENSIONS": list(DIMS)},
    )
    session.commit("a")
    for path in ("three", "two"):
        before = opened(repo, path).metadata
        rechunk(repo, path, {"t": 20, "x": -1})
        after = opened(repo, path)
        assert np.array_equal(after[...], values())
        assert after.chunks == (20, 4, 9)
        assert after.metadata.to_dict() == {**before.to_dict(), **_grid(before, (20, 4, 9))}


def _grid(metadata: Any, chunks: tuple[int, ...]) -> dict[str, Any]:
    if metadata.zarr_format == 2:
        return {"chunks": chunks}
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}}}


def test_virtual_and_inline_chunks_are_copied(tmp_path: Any) -> None:
    expected = np.arange(24, dtype="<i4").reshape(6, 4)
    (tmp_path / "raw").write_bytes(expected[:3].tobytes())
    url = f"file://{tmp_path}/"
    repo = Repository.create(in_memory_storage(), authorize_virtual_chunk_access={url: None})
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(6, 4), chunks=(3, 4), dtype="<i4", compressors=None, filters=None
    )
    array[3:] = expected[3:]  # small enough to be inlined
    session.store.set_virtual_refs("a", [VirtualChunkSpec([0, 0], f"{url}raw", 0, 48)])
    session.commit("a")
    rechunk(repo, "a", (6, 1))
    assert np.array_equal(opened(repo, "a")[...], expected)


def test_arrays_without_items_or_dimensions(repo: Repository) -> None:
    session = repo.writable_session("main")
    put(session, "scalar", np.float64(3), ())
    zarr.create_array(session.store, name="empty", shape=(0, 4), chunks=(1, 4), dtype="f4")
    session.commit("a")
    assert rechunk(repo, "scalar", ()).snapshot_id is None
    rechunk(repo, "scalar", (), target="copy")
    assert opened(repo, "copy")[()] == 3
    rechunk(repo, "empty", {"dim_1": 2})
    assert (opened(repo, "empty").shape, opened(repo, "empty").chunks) == ((0, 4), (1, 2))


def test_chunks_that_are_there_already_take_no_commit(maps: Repository) -> None:
    tip = maps.lookup_branch("main")
    report = rechunk(maps, "g/maps", {"t": 1})
    assert (report.snapshot_id, report.boxes, maps.lookup_branch("main")) == (None, 0, tip)


def test_the_same_call_again_needs_no_memory_for_what_is_done(maps: Repository) -> None:
    sides = {"t": -1, "y": 2, "x": 3}
    assert rechunk(maps, "g/maps", sides, memory=8000).snapshot_id is not None
    again = rechunk(maps, "g/maps", sides, memory=1)
    assert (again.snapshot_id, again.plan.stages) == (None, ())


def test_a_plan_changes_nothing_and_is_the_one_that_is_carried_out(maps: Repository) -> None:
    tip = maps.lookup_branch("main")
    plan = plan_rechunk(maps, "g/maps", {"t": -1, "y": 2, "x": 3}, memory=8000)
    assert (maps.lookup_branch("main"), maps.list_branches()) == (tip, {"main"})
    assert rechunk(maps, "g/maps", {"t": -1, "y": 2, "x": 3}, memory=8000).plan == plan


@pytest.mark.parametrize(
    ("chunks", "options", "message"),
    [
        ({"z": 1}, {}, "no dimension 'z'"),
        ((1, 2), {}, "2 sides"),
        (0, {}, "integers >= 1"),
        ((1, 2, 2.5), {}, "integers >= 1"),
        (5, {"memory": 10}, "memory=10 does not hold"),
        (5, {"memory": 0}, "memory=0 must be"),
        (5, {"batch_bytes": -1}, "batch_bytes=-1 must be"),
        (5, {"engine": "dask"}, "engine='dask' must be"),
    ],
)
def test_what_is_not_possible_is_refused_and_changes_nothing(
    maps: Repository, chunks: Any, options: Any, message: str
) -> None:
    tip = maps.lookup_branch("main")
    with pytest.raises(InvalidInputError, match=message):
        rechunk(maps, "g/maps", chunks, **options)
    assert (maps.lookup_branch("main"), maps.list_branches()) == (tip, {"main"})
    with pytest.raises(NodeNotFoundError):
        rechunk(maps, "nothing", 5)


# -- meanwhile --------------------------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Have something happen between the copies and the commit."""
    finish = run._Run.finish

    def late(self: Any, message: str) -> str:
        monkeypatch.setattr(run._Run, "finish", finish)
        change()
        return finish(self, message)

    monkeypatch.setattr(run._Run, "finish", late)


def test_other_commits_meanwhile_are_kept(maps: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> None:
        session = maps.writable_session("main")
        put(session, "other", np.arange(4), (2,))
        session.commit("other")

    meanwhile(monkeypatch, other)
    rechunk(maps, "g/maps", 6)
    assert [info.message for info in maps.ancestry(branch="main")][1:3] == ["other", "maps"]
    assert np.array_equal(opened(maps, "g/maps")[...], values())
    assert np.array_equal(opened(maps, "other")[...], np.arange(4))


def test_changes_of_the_replaced_array_meanwhile_are_a_conflict_and_nothing_is_left(
    maps: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other() -> None:
        session = maps.writable_session("main")
        session.write("g/maps", np.s_[3], 7)
        session.commit("other")

    meanwhile(monkeypatch, other)
    with pytest.raises(RebaseFailedError) as caught:
        rechunk(maps, "g/maps", 6)
    assert [conflict.path for conflict in caught.value.conflicts] == ["/g/maps"]
    assert maps.list_branches() == {"main"}
    assert opened(maps, "g/maps").chunks == (1, 14, 9)
    rechunk(maps, "g/maps", 6)  # of the newest snapshot
    assert (opened(maps, "g/maps")[3] == 7).all()


def test_with_a_target_of_its_own_the_result_is_that_of_the_start(
    maps: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other() -> None:
        session = maps.writable_session("main")
        session.write("g/maps", np.s_[3], 7)
        session.commit("other", rebase_with=ConflictDetector())

    meanwhile(monkeypatch, other)
    rechunk(maps, "g/maps", 6, target="series")
    assert np.array_equal(opened(maps, "series")[...], values())
    assert (opened(maps, "g/maps")[3] == 7).all()


# -- resumed ----------------------------------------------------------------------------------------------------------


class StopsError(BaseException):
    """The process ends here."""


class Stops(ThreadsEngine):
    """An engine that ends the process, so to speak, at its n-th job, before or after the work of that."""

    def __init__(self, jobs: int, *, after: bool) -> None:
        super().__init__(1)
        self.jobs, self.after = jobs, after

    def run_forks(self, session: Any, work: Any, shares: Any, **options: Any) -> Any:
        self.jobs -= 1
        if not self.jobs and not self.after:
            raise StopsError
        results = super().run_forks(session, work, shares, **options)
        if not self.jobs:
            raise StopsError
        return results


@pytest.mark.usefixtures("small_costs")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_an_interrupted_rechunking_is_resumed_by_the_same_call(
    maps: Repository, jobs: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_ROUNDS", 2)
    arguments: dict[str, Any] = {"memory": 6000, "batch_bytes": 1}
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", {"t": -1, "y": 2, "x": 3}, engine=Stops(jobs, after=after), **arguments)
    assert opened(maps, "g/maps").chunks == (1, 14, 9)
    report = rechunk(maps, "g/maps", {"t": -1, "y": 2, "x": 3}, engine=ThreadsEngine(1), **arguments)
    every = sum(stage.cost.boxes for stage in report.plan.stages)
    assert (report.resumed, report.boxes) == (True, every - 2 * (jobs - 1))
    assert report.plan.intermediate is not None
    assert np.array_equal(opened(maps, "g/maps")[...], values())
    assert maps.list_branches() == {"main"}
    assert [info.message for info in maps.ancestry(branch="main")][1:] == ["maps", "Repository initialized"]


def test_it_is_resumed_with_the_plan_and_the_snapshot_that_it_began_with(
    maps: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_ROUNDS", 1)
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", (23, 2, 3), target="series", engine=Stops(2, after=False), memory=9000, batch_bytes=1)
    session = maps.writable_session("main")
    session.write("g/maps", ..., 7)
    session.commit("other")
    report = rechunk(maps, "g/maps", (23, 2, 3), target="series", memory=1 << 20)
    assert (report.resumed, report.plan.memory) == (True, 9000)
    assert np.array_equal(opened(maps, "series")[...], values())


@pytest.mark.usefixtures("small_costs")
def test_it_is_resumed_only_with_the_memory_that_its_boxes_need(maps: Repository) -> None:
    job: dict[str, Any] = {"target": "series", "batch_bytes": 1}
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", (23, 2, 3), engine=Stops(1, after=False), **job)
    before = {branch: maps.lookup_branch(branch) for branch in maps.list_branches()}
    plan = plan_rechunk(maps, "g/maps", (23, 2, 3), engine=Stops(1, after=False))
    needed = max(stage.memory for stage in plan.stages)
    text = rf"memory={needed - 1} .*{needed} bytes.*memory={needed} .*restart=True"
    with pytest.raises(InvalidInputError, match=text):
        rechunk(maps, "g/maps", (23, 2, 3), memory=needed - 1, **job)
    assert {branch: maps.lookup_branch(branch) for branch in maps.list_branches()} == before
    assert rechunk(maps, "g/maps", (23, 2, 3), memory=needed, **job).resumed
    assert np.array_equal(opened(maps, "series")[...], values())


def test_a_restart_begins_anew(maps: Repository) -> None:
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", 5, engine=Stops(1, after=False))
    session = maps.writable_session("main")
    session.write("g/maps", ..., 7)
    session.commit("other")
    report = rechunk(maps, "g/maps", 5, restart=True)
    assert not report.resumed
    assert (opened(maps, "g/maps")[...] == 7).all()


def test_a_process_that_ends_after_the_commit_does_not_commit_twice(
    maps: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Repository.delete_branch

    def stops(*_: Any, **__: Any) -> None:
        raise StopsError

    monkeypatch.setattr(Repository, "delete_branch", stops)
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", 5)
    monkeypatch.setattr(Repository, "delete_branch", delete)
    tip = maps.lookup_branch("main")
    report = rechunk(maps, "g/maps", 5)
    assert (report.snapshot_id, maps.lookup_branch("main"), maps.list_branches()) == (tip, tip, {"main"})


@pytest.mark.parametrize("changed", ["g/maps", "series", "other", None])
def test_what_ended_after_the_commit_is_done_again_only_if_that_is_out_of_date(
    maps: Repository, monkeypatch: pytest.MonkeyPatch, changed: str | None
) -> None:
    arguments: dict[str, Any] = {"target": "series", "overwrite": True}
    with monkeypatch.context() as patched:
        patched.setattr(Repository, "delete_branch", lambda *_, **__: (_ for _ in ()).throw(StopsError))
        with pytest.raises(StopsError):
            rechunk(maps, "g/maps", 5, **arguments)
    session = maps.writable_session("main")
    if changed in ("g/maps", "series"):
        session.write(changed, np.s_[0], 7)
    elif changed is not None:
        zarr.create_array(session.store, name=changed, shape=(1,), dtype="i4")
    if changed is not None:
        session.commit("later")
    report = rechunk(maps, "g/maps", 5, **arguments)
    assert report.resumed == (changed in ("other", None))
    assert np.array_equal(opened(maps, "series")[...], opened(maps, "g/maps")[...])
    assert maps.list_branches() == {"main"}


@pytest.mark.usefixtures("small_costs")
def test_what_another_release_has_planned_is_done_anew(maps: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_ROUNDS", 2)
    arguments: dict[str, Any] = {"memory": 6000, "batch_bytes": 1}
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", {"t": -1, "y": 2, "x": 3}, engine=Stops(2, after=False), **arguments)

    def plans_otherwise(shape: Any, size: int, read: Any, write: Any, memory: int, parallel: int) -> Any:
        return plan_copies(shape, size, read, write, memory + 3000, parallel)

    monkeypatch.setattr(run, "plan_copies", plans_otherwise)
    assert not rechunk(maps, "g/maps", {"t": -1, "y": 2, "x": 3}, **arguments).resumed
    assert np.array_equal(opened(maps, "g/maps")[...], values())


def test_a_process_that_ends_before_its_first_commit_leaves_nothing_to_resume(
    maps: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "save_progress", lambda *_: (_ for _ in ()).throw(StopsError))
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", 5)
    monkeypatch.undo()
    session = maps.writable_session("main")
    session.write("g/maps", ..., 7)
    session.commit("other")
    assert not rechunk(maps, "g/maps", 5).resumed
    assert (opened(maps, "g/maps")[...] == 7).all()


def test_arrays_that_cannot_be_created_leave_no_branch(maps: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("no such codec")

    monkeypatch.setattr(run, "create_rechunked", fails)
    with pytest.raises(ValueError, match="no such codec"):
        rechunk(maps, "g/maps", 5)
    assert maps.list_branches() == {"main"}


def test_of_two_processes_that_do_the_same_one_says_so(maps: Repository) -> None:
    class Meets(ThreadsEngine):
        def run_forks(self, session: Any, work: Any, shares: Any, **options: Any) -> Any:
            results = super().run_forks(session, work, shares, **options)
            if not done:
                done.append(rechunk(maps, "g/maps", 5).snapshot_id)
            return results

    done: list[Any] = []
    with pytest.raises((ConflictError, RefNotFoundError)) as caught:
        rechunk(maps, "g/maps", 5, engine=Meets(1))
    assert "another process seems to run" in caught.value.__notes__[0]
    assert np.array_equal(opened(maps, "g/maps")[...], values())


def test_metadata_that_somebody_else_put_on_the_branch_are_not_believed(maps: Repository) -> None:
    with pytest.raises(StopsError):
        rechunk(maps, "g/maps", 5, engine=Stops(1, after=False))
    (branch,) = maps.list_branches() - {"main"}
    session = maps.writable_session(branch)
    session.amend(
        "x", metadata={"rechunk": {"version": 1, "job": branch[8:], "stage": "1", "done": -5}}, allow_empty=True
    )
    report = rechunk(maps, "g/maps", 5)
    assert not report.resumed
    assert np.array_equal(opened(maps, "g/maps")[...], values())
