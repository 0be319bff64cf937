"""Regions that executors write: the array equals numpy's, or nothing has changed."""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from arraystore import Repository, Session, in_memory_storage, local_filesystem_storage, s3_storage
from arraystore.errors import InvalidInputError, NodeNotFoundError, ReadOnlyError, SessionStateError, StorageError
from arraystore.spark import TaskFailedError, WriteReport, chunk_regions, write_regions
from arraystore.spark.regions.boxes import as_bounds, assign_to_tasks, cut_regions, pack_bounds, unpack_bounds
from arraystore.spark.regions.write_regions import RegionWriteError, _RegionWork, _targets
from tests.spark.support import messages, read_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SHAPE = (13, 9)
CHUNKS = (4, 3)
BLOCKS = 4 * 3
"""Chunks of such an array; those at the edges are cut."""
WANTED = np.arange(117, dtype="i4").reshape(SHAPE) + 1


def wanted(region: tuple[slice, ...]) -> np.ndarray:
    return WANTED[region]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """An array ``a`` with a first column of its own."""
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    with repo.transaction("main", message="begin") as store:
        array = zarr.create_array(
            store, name="a", shape=SHAPE, chunks=CHUNKS, dtype="i4", fill_value=-1, dimension_names=["y", "x"]
        )
        array[:, 0] = 1000
    return repo


def begun() -> np.ndarray:
    found = np.full(SHAPE, -1, dtype="i4")
    found[:, 0] = 1000
    return found


def in_session(session: Session, path: str = "a") -> Any:
    return zarr.open_array(session.store, path=path, mode="r")[...]


@pytest.mark.end_to_end
def test_an_array_is_written_along_its_chunks_in_one_commit(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    report = write_regions(session, "a", None, wanted)
    assert np.array_equal(read_array(repo), begun())  # nothing is committed yet
    assert np.array_equal(in_session(session), WANTED)
    session.commit("all")

    assert np.array_equal(read_array(repo), WANTED)
    assert messages(repo) == ["all", "begin"]
    assert (report.arrays, report.rows, report.chunks, report.nbytes) == (("a",), 0, BLOCKS, WANTED.nbytes)
    assert (report.attempts_wasted, report.spilled) == (0, 0)
    assert report.tasks == min(BLOCKS, 6)  # three for each slot
    assert report.seconds > 0
    assert str(report).startswith(f"a: {BLOCKS} chunks, {WANTED.nbytes} bytes in ")


@pytest.mark.parametrize(
    ("blocks", "shape"),
    [("chunk", (4, 3)), (1, (4, 3)), (4 * 4 * 3, (4, 3)), (2 * 4 * 4 * 3, (4, 6)), (1 << 20, SHAPE)],
)
def test_blocks_are_chunks_or_as_many_bytes_as_are_wanted(
    spark: SparkSession, repo: Repository, tmp_path: Path, blocks: Any, shape: tuple[int, int]
):
    def noted(region: tuple[slice, ...]) -> np.ndarray:
        (tmp_path / f"{region[0].start}-{region[0].stop}-{region[1].start}-{region[1].stop}.region").touch()
        return WANTED[region]

    session = repo.writable_session("main")
    write_regions(session, "a", None, noted, blocks=blocks)
    assert np.array_equal(in_session(session), WANTED)
    seen = [tuple(map(int, path.stem.split("-"))) for path in tmp_path.glob("*.region")]
    assert sorted(seen) == [
        (y, min(y + shape[0], SHAPE[0]), x, min(x + shape[1], SHAPE[1]))
        for y in range(0, SHAPE[0], shape[0])
        for x in range(0, SHAPE[1], shape[1])
    ]


@pytest.mark.parametrize(
    ("regions", "blocks", "text"),
    [
        (None, "shard", "blocks='shard' must be 'chunk', or a size in bytes >= 1"),
        (None, 0, "blocks=0"),
        (None, True, "blocks=True"),
        ([np.s_[0:4, 0:3]], "chunk", "needs regions=None"),
    ],
)
def test_blocks_that_cannot_be_are_refused(spark: SparkSession, repo: Repository, regions: Any, blocks: Any, text: str):
    with pytest.raises(InvalidInputError, match=text):
        write_regions(repo.writable_session("main"), "a", regions, wanted, blocks=blocks)


def test_regions_of_one_chunk_each_go_to_as_many_tasks_as_are_wanted(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    regions = chunk_regions(zarr.open_array(session.store, path="a"), max_bytes=1)
    assert len(regions) == BLOCKS
    report = write_regions(session, "/a/", regions, wanted, spark=spark, tasks=5, align="error")
    session.commit("all")
    assert np.array_equal(read_array(repo), WANTED)
    assert (report.tasks, report.chunks, report.arrays) == (5, BLOCKS, ("a",))


def test_by_default_there_are_three_tasks_for_each_slot_and_none_without_regions(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    regions = chunk_regions(zarr.open_array(session.store, path="a"), max_bytes=1)
    assert write_regions(session, "a", regions, wanted).tasks == 6
    assert write_regions(session, "a", regions[:2], wanted).tasks == 2


@pytest.mark.end_to_end
def test_regions_that_share_chunks_are_written_by_one_task_after_another(spark: SparkSession, repo: Repository):
    """Rows, while chunks are four rows high: each of them reads what those before it wrote."""
    session = repo.writable_session("main")
    rows: list[Any] = [{"y": row} for row in reversed(range(13))]
    report = write_regions(session, "a", rows, wanted, tasks=13)
    session.commit("rows")
    assert np.array_equal(read_array(repo), WANTED)
    assert report.tasks == 4
    assert report.chunks == BLOCKS


def test_what_regions_leave_out_stays(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[12, 8] = 5  # uncommitted, in a chunk that is written to
    write_regions(session, "a", [np.s_[1:3, 2:8], np.s_[3:7, 2:4], np.s_[11:13, 6:8]], wanted)
    session.commit("some")
    expected = begun()
    for region in (np.s_[1:3, 2:8], np.s_[3:7, 2:4], np.s_[11:13, 6:8]):
        expected[region] = WANTED[region]
    expected[12, 8] = 5
    assert np.array_equal(read_array(repo), expected)


def test_bounds_in_an_array_of_numpy_are_regions_too(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    write_regions(session, "a", np.array([[[0, 4], [0, 9]], [[4, 13], [0, 9]]], dtype="u2"), wanted)
    assert np.array_equal(in_session(session), WANTED)


def test_a_scalar_fills_a_region(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    write_regions(session, "a", None, lambda region: 7)
    assert (in_session(session) == 7).all()


def test_fill_values_take_away_what_was_there(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    write_regions(session, "a", [np.s_[0:4, :]], lambda region: -1)
    session.commit("empty")
    expected = begun()
    expected[0:4] = -1
    assert np.array_equal(read_array(repo), expected)
    session = repo.readonly_session("main")
    keys = [key for key in ("a/c/0/0", "a/c/1/0") if key in set(_keys(session))]
    assert keys == ["a/c/1/0"]


def _keys(session: Session) -> list[str]:
    from arraystore._runtime import run

    async def listed() -> list[str]:
        return [key async for key in session.store.list()]

    return run(listed())


def test_arrays_that_are_not_committed_yet_are_written(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="g/new", shape=(6, 4), chunks=(2, 2), dtype="f8")
    write_regions(session, "g/new", None, lambda region: WANTED[:6, :4][region] / 2)
    session.commit("new")
    assert np.array_equal(read_array(repo, "g/new"), WANTED[:6, :4] / 2)
    assert messages(repo) == ["new", "begin"]


@pytest.mark.end_to_end
def test_several_arrays_are_written_in_one_pass(spark: SparkSession, repo: Repository):
    """Their chunks differ: regions that share a chunk of any of them belong to one task."""
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="b", shape=SHAPE, chunks=(13, 2), dtype="f4")
    regions = [np.s_[0:4, 0:6], np.s_[4:13, 0:6], np.s_[:, 6:9]]
    by_path = write_regions(
        session, ["a", "/b"], regions, lambda region: {"b/": WANTED[region] / 4, "a": WANTED[region]}, tasks=3
    )
    assert (by_path.arrays, by_path.tasks) == (("a", "b"), 2)
    assert by_path.chunks == BLOCKS + 5
    assert by_path.nbytes == WANTED.nbytes * 2
    assert np.array_equal(in_session(session), WANTED)
    assert np.array_equal(in_session(session, "b"), WANTED.astype("f4") / 4)

    write_regions(session, ["a", "b"], None, lambda region: (0, WANTED[region]))  # over what has been merged
    session.commit("both")
    assert not read_array(repo).any()
    assert np.array_equal(read_array(repo, "b"), WANTED.astype("f4"))


@pytest.mark.end_to_end
def test_shards_are_what_is_written_as_a_whole(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="s", shape=SHAPE, chunks=(2, 3), shards=(8, 6), dtype="i4")
    regions = [np.s_[0:2, 0:3], np.s_[2:13, 0:3], np.s_[:, 3:6], np.s_[:, 6:9]]
    with pytest.raises(InvalidInputError, match=r"3 of 4 regions do not cover whole chunks of \(8, 6\)"):
        write_regions(session, "s", regions, wanted, align="error")
    report = write_regions(session, "s", regions, wanted, tasks=4)
    session.commit("shards")
    assert np.array_equal(read_array(repo, "s"), WANTED)
    assert (report.tasks, report.chunks) == (2, 4)


def test_arrays_of_version_2_of_the_format_are_written(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="v2", shape=SHAPE, chunks=CHUNKS, dtype="i4", zarr_format=2)
    write_regions(session, "v2", chunk_regions(zarr.open_array(session.store, path="v2"), max_bytes=48), wanted)
    session.commit("v2")
    assert np.array_equal(read_array(repo, "v2"), WANTED)


def test_an_array_without_dimensions_is_one_region(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="zero", shape=(), dtype="f8")
    assert chunk_regions(zarr.open_array(session.store, path="zero")) == [()]
    for value, regions in ((1.5, None), (2.5, [()]), (3.5, [...])):
        report = write_regions(session, "zero", regions, lambda region, value=value: np.float64(value))
        assert in_session(session, "zero") == value
        assert (report.chunks, report.nbytes, report.tasks) == (1, 8, 1)


def test_nothing_is_written_to_an_array_of_no_cells(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="none", shape=(0, 4), chunks=(2, 2), dtype="f8")
    session.commit("none")
    session = repo.writable_session("main")
    assert chunk_regions(zarr.open_array(session.store, path="none")) == []
    for report in (write_regions(session, "none", None, wanted), write_regions(session, "a", [], wanted)):
        assert (report.chunks, report.nbytes, report.tasks) == (0, 0, 0)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("dtype", ["bool", "c16", "M8[s]", "S5", str])
def test_values_of_all_kinds_arrive(spark: SparkSession, repo: Repository, dtype: Any):
    session = repo.writable_session("main")
    expected = np.arange(6).astype("U4").astype(dtype) if dtype in ("S5", str) else np.arange(6).astype(dtype)
    zarr.create_array(
        session.store, name="k", shape=(6,), chunks=(2,), dtype=expected.dtype if dtype is not str else str
    )
    write_regions(session, "k", [slice(0, 2), slice(2, 6)], lambda region: expected[region])
    session.commit("kinds")
    assert np.array_equal(read_array(repo, "k"), expected)


def broken(kind: str) -> Callable[[tuple[slice, ...]], Any]:
    """Return a function that fails at the region that begins in row 8, after others were written."""

    def function(region: tuple[slice, ...]) -> Any:
        if region[0].start < 8:
            return WANTED[region]
        match kind:
            case "raises":
                raise ZeroDivisionError("no such scenario")
            case "shape":
                return WANTED[region][:, :2]
            case "turned":
                return WANTED[region].reshape(-1)
            case "text":
                return np.full(WANTED[region].shape, "x")
            case "masked":
                return np.ma.masked_less(WANTED[region], WANTED[region].max())
            case "objects":
                return np.full(WANTED[region].shape, None)
            case _:
                return None

    return function


FAILURES = [
    ("raises", "ZeroDivisionError: no such scenario"),
    ("shape", r"values for 'a' have the shape \(4, 2\), not \(4, 9\)"),
    ("turned", r"values for 'a' have the shape \(36,\), not \(4, 9\)"),
    ("text", "values of type <U1 do not fit into 'a'"),
    ("masked", "values for 'a' are masked in 35 places: fill them"),
    ("objects", "values of type object do not fit into 'a'"),
    ("none", "the function returned None where values for 'a' are expected"),
]


@pytest.mark.end_to_end
@pytest.mark.thorough
def test_what_fails_is_named_and_nothing_is_merged(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[0, 0] = 5
    regions = [np.s_[0:4, :], np.s_[4:8, :], np.s_[8:12, :]]

    said = r"writing y\[8:12\], x\[0:9\] of a failed: ZeroDivisionError: no such scenario"
    with pytest.raises(TaskFailedError, match=said) as caught:
        write_regions(session, "a", regions, broken("raises"), tasks=3)

    assert caught.value.message.endswith("Nothing was committed; when the cause is removed, run it again")
    expected = begun()
    expected[0, 0] = 5
    assert np.array_equal(in_session(session), expected)
    write_regions(session, "a", regions[:2], wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of the forks of the first job, nothing is missing
        session.commit("the rest")
    expected[0:8] = WANTED[0:8]
    assert np.array_equal(read_array(repo), expected)
    assert messages(repo) == ["the rest", "begin"]


def by_one_task(session: Session, paths: list[str], region: Any, function: Callable[..., Any], single: bool) -> int:
    """Do what a task does, in this process, and return how many bytes it says it has written."""
    bounds = as_bounds([region], SHAPE)
    report = _RegionWork(tuple(_targets(session, paths)), function, single)(session.fork(), pack_bounds(bounds))
    return int(report["nbytes"])


@pytest.mark.parametrize(("kind", "said"), FAILURES)
def test_values_that_do_not_fit_are_named_with_their_region(repo: Repository, kind: str, said: str):
    session = repo.writable_session("main")
    assert by_one_task(session, ["a"], np.s_[0:4], broken(kind), single=True) == 4 * 9 * 4
    with pytest.raises(RegionWriteError, match=r"writing y\[8:12\], x\[0:9\] of a failed: " + said):
        by_one_task(session, ["a"], np.s_[8:12], broken(kind), single=True)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ({"a": 1}, "the function returned no values for 'b'"),
        ({"a": 1, "b": 2, "c": 3}, "nothing is written to 'c', for which there are values"),
        ([1], "the function returned 1 arrays for 2 paths"),
        ((1, 2, 3), "the function returned 3 arrays for 2 paths"),
        (5, "TypeError"),
    ],
)
def test_a_function_returns_values_for_each_array(repo: Repository, returned: Any, said: str):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="b", shape=SHAPE, chunks=CHUNKS, dtype="f4")
    with pytest.raises(RegionWriteError, match=r"writing y\[0:13\], x\[0:9\] of a, b failed: .*" + said):
        by_one_task(session, ["a", "b"], ..., lambda region: returned, single=False)


def test_errors_of_the_store_are_not_taken_for_errors_of_the_function(repo: Repository):
    def function(region: tuple[slice, ...]) -> Any:
        raise SessionStateError("no more")

    with pytest.raises(SessionStateError, match=r"^no more$"):
        by_one_task(repo.writable_session("main"), ["a"], ..., function, single=True)


def test_a_function_that_returns_nothing_does_not_fill_an_array_of_floats_with_nan(
    spark: SparkSession, repo: Repository
):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="floats", shape=(4,), chunks=(2,), dtype="f4")
    with pytest.raises(TaskFailedError, match="returned None where values for 'floats' are expected"):
        write_regions(session, "floats", None, lambda _: None)


def test_a_mask_that_hides_nothing_is_no_obstacle(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    write_regions(session, "a", None, lambda region: np.ma.masked_array(WANTED[region]))
    assert np.array_equal(in_session(session), WANTED)


def ran(marks: Path) -> Callable[[tuple[slice, ...]], Any]:
    def function(region: tuple[slice, ...]) -> Any:
        (marks / "ran").touch()
        return 1

    return function


@pytest.mark.parametrize(
    ("path", "regions", "options", "kind", "said"),
    [
        ("nothing", None, {}, NodeNotFoundError, "there is no array 'nothing' in this session: create it first"),
        ("", None, {}, NodeNotFoundError, "there is no array ''"),
        ([], None, {}, InvalidInputError, "give the path of an array"),
        (["a", "/a"], None, {}, InvalidInputError, "given twice"),
        (["a", "c"], None, {}, InvalidInputError, r"'a' has \(13, 9\), and 'c' \(4,\)"),
        (
            "a",
            [np.s_[0:5, 0:2], np.s_[4:6, 1:3]],
            {},
            InvalidInputError,
            r"y\[0:5\], x\[0:2\] \(number 0\) and .*overlap",
        ),
        ("a", [np.s_[0:14]], {}, InvalidInputError, "not within the array"),
        ("a", [np.s_[0:5]], {"align": "error"}, InvalidInputError, "do not cover whole chunks"),
        ("a", None, {"align": "rmw"}, InvalidInputError, "align='rmw'"),
        ("a", None, {"tasks": 0}, InvalidInputError, "tasks=0 must be an integer >= 1"),
        ("a", None, {"tasks": 2.5}, InvalidInputError, "tasks=2.5"),
        ("a", None, {"tasks": True}, InvalidInputError, "tasks=True"),
    ],
)
def test_bad_arguments_are_refused_before_any_task(
    spark: SparkSession, repo: Repository, tmp_path: Path, path: Any, regions: Any, options: Any, kind: Any, said: str
):
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="c", shape=(4,), chunks=(2,), dtype="f4")
    with pytest.raises(kind, match=said):
        write_regions(session, path, regions, ran(tmp_path), **options)
    assert not (tmp_path / "ran").exists()


def test_a_session_that_only_reads_is_refused_before_any_task(spark: SparkSession, repo: Repository, tmp_path: Path):
    with pytest.raises(ReadOnlyError, match="read-only"):
        write_regions(repo.readonly_session("main"), "a", None, ran(tmp_path))
    closed = repo.writable_session("main")
    zarr.open_array(closed.store, path="a")[0, 0] = 5
    closed.commit("closed")
    with pytest.raises(ReadOnlyError):
        write_regions(closed, "a", None, ran(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_a_storage_in_memory_is_refused_with_the_remedy(spark: SparkSession, tmp_path: Path):
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="f4")
    with pytest.raises(InvalidInputError, match=r"memory of this process.*: use local_filesystem_storage"):
        write_regions(session, "a", None, ran(tmp_path))
    assert not (tmp_path / "ran").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("no fork is missing")


def test_functions_that_do_not_pickle_are_refused_before_any_task(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    lock = threading.Lock()
    with pytest.raises(Exception, match="pickle"):
        write_regions(session, "a", None, lambda region: lock)
    assert np.array_equal(in_session(session), begun())


def test_attempts_that_fail_are_repeated_counted_and_collected(spark: SparkSession, repo: Repository, tmp_path: Path):
    """The first attempts at two of three tasks write a chunk and then fail, one by an error, one by its end."""

    def flaky(region: tuple[slice, ...]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and region[1].start == 3:
            if region[0].start == 0:
                raise OSError("the disk is on fire")
            if region[0].start == 8:
                os._exit(3)
        return noise[region]

    noise = np.random.default_rng(3).integers(0, 1 << 62, (12, 6)).repeat(1, axis=0)
    with repo.transaction("main", message="noise") as store:
        zarr.create_array(store, name="n", shape=(12, 6), chunks=(4, 3), dtype="i8")
    session = repo.writable_session("main")
    regions = chunk_regions(zarr.open_array(session.store, path="n"), max_bytes=1)
    report = write_regions(session, "n", regions, flaky, tasks=3)
    assert (report.tasks, report.attempts_wasted, report.chunks) == (3, 2, 6)
    session.commit("flaky")

    assert np.array_equal(read_array(repo, "n"), noise)
    assert messages(repo) == ["flaky", "noise", "begin"]
    repo.garbage_collect(datetime.now(UTC), full=True)
    assert np.array_equal(read_array(repo, "n"), noise)
    again = repo.garbage_collect(datetime.now(UTC), full=True, dry_run=True)
    assert (again.chunks_deleted, again.transaction_logs_deleted) == (0, 0)


def test_what_a_failed_job_wrote_is_collected(spark: SparkSession, tmp_path: Path):
    repo = Repository.create(local_filesystem_storage(tmp_path, fsync=False))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="n", shape=(1 << 19, 2), chunks=(1 << 17, 1), dtype="i8", compressors=None)
    before = _objects(tmp_path)

    def half(region: tuple[slice, ...]) -> Any:
        if region[1].start:
            raise OSError("full")
        return np.arange(1 << 17)[:, None]

    session = repo.writable_session("main")
    regions = [np.s_[row << 17 : (row + 1) << 17, column : column + 1] for row in range(4) for column in range(2)]
    with pytest.raises(TaskFailedError, match="OSError: full"):
        write_regions(session, "n", regions, half, tasks=1)  # with two, one goes on while the job ends
    assert len(_objects(tmp_path)) > len(before)  # chunks of a megabyte are written at once
    repo.garbage_collect(datetime.now(UTC), full=True)
    kept = {name for name in _objects(tmp_path) if name.startswith(("chunks/", "packs/"))}
    assert kept <= before
    assert messages(repo) == ["begin"]


def _objects(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_progress_never_goes_back_and_ends_at_the_end(spark: SparkSession, repo: Repository):
    told: list[tuple[int, int]] = []

    def slow(region: tuple[slice, ...]) -> Any:
        import time

        time.sleep(0.15)
        return WANTED[region]

    session = repo.writable_session("main")
    regions = chunk_regions(zarr.open_array(session.store, path="a"), max_bytes=1)
    write_regions(session, "a", regions, slow, tasks=8, progress=lambda done, total: told.append((done, total)))
    assert np.array_equal(in_session(session), WANTED)
    assert told == sorted(set(told))  # monotone, and nothing is told twice
    assert {total for _done, total in told} == {8}
    assert told[-1] == (8, 8)
    assert len(told) > 2  # meanwhile, too


def test_progress_true_shows_a_bar_of_tasks(spark: SparkSession, repo: Repository, monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[Any, ...]] = []

    @contextmanager
    def bar(title: str) -> Iterator[Callable[..., None]]:
        told.append((title,))
        yield lambda *report: told.append(report)

    monkeypatch.setattr("arraystore._runtime.progress_bars.open_bar", bar)
    session = repo.writable_session("main")
    regions = chunk_regions(zarr.open_array(session.store, path="a"), max_bytes=1)
    write_regions(session, "a", regions, lambda region: WANTED[region], tasks=2, progress=True)
    assert (told[0], told[-1]) == (("Writing",), (2, 2))


def test_spark_must_run(repo: Repository, monkeypatch: pytest.MonkeyPatch):
    from arraystore.spark import SparkUnavailableError

    monkeypatch.setattr("arraystore.spark.cluster.active_session", lambda: None)
    session = repo.writable_session("main")
    with pytest.raises(SparkUnavailableError, match="pass spark=, or start one"):
        write_regions(session, "a", None, wanted)
    assert not session.has_uncommitted_changes


def test_credentials_that_must_not_be_pickled_are_refused_before_any_task(spark: SparkSession, tmp_path: Path):
    from tests import s3server

    server = s3server.shared_server(s3server.SEAWEEDFS)
    secret = server.secret_access_key
    options: Any = {
        "bucket": server.new_bucket(), "prefix": "r", "endpoint_url": server.endpoint_url, "region": server.region,
        "allow_http": True, "force_path_style": True,
        "access_key_id": server.access_key_id, "secret_access_key": secret,
    }  # fmt: skip
    repo = Repository.create(s3_storage(**options))
    with repo.transaction("main", message="begin") as store:
        zarr.create_array(store, name="a", shape=SHAPE, chunks=CHUNKS, dtype="i4")
    session = repo.writable_session("main")
    with pytest.raises(StorageError, match=r"pickle_credentials=True .*from_env=True") as caught:
        write_regions(session, "a", None, ran(tmp_path))
    assert secret not in str(caught.value)
    assert not (tmp_path / "ran").exists()

    opened = Repository.open(s3_storage(**options, pickle_credentials=True))
    session = opened.writable_session("main")
    write_regions(session, "a", None, wanted)
    session.commit("allowed")
    assert np.array_equal(read_array(opened), WANTED)


def test_a_session_is_written_twice_and_forks_of_the_second_see_the_first(spark: SparkSession, repo: Repository):
    session = repo.writable_session("main")
    write_regions(session, "a", [np.s_[0:3]], wanted)
    write_regions(session, "a", [np.s_[3:13]], wanted)  # a row of chunks is read, and written again
    session.commit("twice")
    assert np.array_equal(read_array(repo), WANTED)
    assert messages(repo) == ["twice", "begin"]


def test_a_report_of_many_attempts_says_so():
    report = WriteReport(("a", "b"), 1_000_000, 40, 64_000_000, 6, 2, 0, 1.234)
    assert str(report) == (
        "a, b: 1,000,000 rows, 40 chunks, 64,000,000 bytes in 6 tasks, 1.23 s, 2 attempts of tasks failed"
    )


def test_regions_travel_as_few_bytes():
    """A hundred thousand regions are 3.2 MB of bounds, which each executor would get for each job."""
    bounds = cut_regions((4000, 5000), (10, 20), 1, 1)
    hands = assign_to_tasks(np.arange(len(bounds)), np.ones(len(bounds)), 12)
    packed = tuple(pack_bounds(bounds[hand]) for hand in hands)
    assert len(bounds) == 100_000
    assert len(pickle.dumps(packed)) < 30_000
    assert np.array_equal(np.concatenate([unpack_bounds(data, 2) for data in packed]), bounds)
    scattered = as_bounds(np.random.default_rng(2).permutation(bounds), (4000, 5000))
    assert np.array_equal(unpack_bounds(pack_bounds(scattered), 2), scattered)
    assert len(pack_bounds(scattered)) < 500_000


@pytest.mark.parametrize("made", [1.5, 300, 1 + 2j])
def test_values_that_would_become_others_are_refused(spark: SparkSession, tmp_path: Path, made: Any):
    repo = Repository.create(local_filesystem_storage(str(tmp_path / "small")))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="bytes", shape=(1, 1), dtype="u1")
    with pytest.raises(TaskFailedError, match="do not fit into 'bytes', which holds uint8"):
        write_regions(session, "bytes", None, lambda region: made)
    write_regions(session, "bytes", None, lambda region: np.int64(200))
    assert in_session(session, "bytes").tolist() == [[200]]
