"""The engine of maintenance on Spark: each task once and in order, typed errors, and the functions that take it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore import Repository, local_filesystem_storage
from arraystore._runtime import run, submit
from arraystore._runtime.engine import Engine, worker_engine
from arraystore.copying import clone_repository, copy_branch, export_zarr, import_zarr, materialize
from arraystore.errors import FormatError, InvalidInputError, ObjectNotFoundError
from arraystore.spark import TaskFailedError, engine
from arraystore.spark.spark_engine import _results
from tests.engines import many_tasks
from tests.spark.support import read_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Double:
    """Work that dies once, at some task."""

    place: str
    dies_at: int = -1

    async def __call__(self, number: int) -> Any:
        attempt = self._note(number)
        if number == self.dies_at and attempt == 1:
            os._exit(9)
        if number == 1000:
            raise ObjectNotFoundError("chunks/abc", "here")
        if number == 1001:
            raise ValueError("no such thing")
        return 2 * number

    def _note(self, number: int) -> int:
        """Return how often the task has begun, this time included."""
        with open(os.path.join(self.place, str(number)), "a") as file:
            file.write("x")
            file.flush()
            return os.path.getsize(file.name)


async def _numbers(count: int, drawn: list[int] | None = None, first: int = 0) -> AsyncIterator[int]:
    for number in range(first, first + count):
        if drawn is not None:
            drawn.append(number)
        yield number


async def _all(found: Engine, work: Double, tasks: AsyncIterator[int]) -> list[Any]:
    async with aclosing(found.run(work, tasks, "doubling")) as results:
        return [result async for result in results]


def test_each_task_has_one_result_in_order(spark: SparkSession, tmp_path: Path) -> None:
    assert run(_all(engine(spark), Double(str(tmp_path)), _numbers(15))) == [2 * number for number in range(15)]
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[union-attr]
    told = [jobs.apply(at).description().get() for at in range(jobs.size()) if jobs.apply(at).description().isDefined()]
    assert {"arraystore: doubling, tasks 1 to 6", "arraystore: doubling, tasks 13 to 15"} <= set(told)


def test_nothing_runs_for_no_task(spark: SparkSession, tmp_path: Path) -> None:
    assert run(_all(engine(spark), Double(str(tmp_path)), _numbers(0))) == []


def test_a_task_whose_worker_dies_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    assert run(_all(engine(spark), Double(str(tmp_path), dies_at=3), _numbers(6))) == [0, 2, 4, 6, 8, 10]
    assert (tmp_path / "3").read_text() == "xx"


def test_errors_of_tasks_are_typed(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="chunks/abc") as caught:
        run(_all(engine(spark), Double(str(tmp_path)), _numbers(2, first=999)))
    assert caught.value.key == "chunks/abc"
    with pytest.raises(TaskFailedError, match="ValueError: no such thing"):
        run(_all(engine(spark), Double(str(tmp_path)), _numbers(1, first=1001)))


def test_tasks_are_drawn_as_others_end(spark: SparkSession, tmp_path: Path) -> None:
    drawn: list[int] = []

    async def some() -> None:
        async with aclosing(engine(spark).run(Double(str(tmp_path)), _numbers(1000, drawn), "doubling")) as results:
            async for result in results:
                assert result == 0
                return

    run(some())
    assert len(drawn) <= 2 * 2 * 3


def test_a_cancelled_caller_cancels_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    running = submit(_all(engine(spark), Double(str(tmp_path)), _numbers(10_000)))
    while not list(tmp_path.iterdir()):
        time.sleep(0.02)
    running.cancel()
    with pytest.raises(CancelledError):
        running.result()
    assert len(list(tmp_path.iterdir())) < 100
    assert run(_all(engine(spark), Double(str(tmp_path)), _numbers(2))) == [0, 2]


@pytest.mark.parametrize("tasks", [[0], [0, 0], [0, 1, 2], [0, 2], [1, 0, 1]])
def test_results_that_are_lost_or_doubled_are_an_error(tasks: list[int]) -> None:
    with pytest.raises(FormatError, match="one for each task"):
        _results(2, tasks, [b"\x01"] * len(tasks))


def test_the_name_of_spark_is_the_active_session(spark: SparkSession) -> None:
    found = worker_engine("spark")
    assert found is not None
    assert found.workers == "workers of Spark"


# -- functions --------------------------------------------------------------------------------------------------


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Two arrays in packs, one of which is virtual in part; tasks have three chunks each."""
    many_tasks(monkeypatch)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.bin").write_bytes(np.arange(400, dtype="<i8").tobytes())
    prefix = f"file://{tmp_path}/source/"
    config = ars.RepositoryConfig(
        inline_chunk_threshold_bytes=8, own_object_threshold_bytes=300, pack_target_bytes=2000
    )
    repo = Repository.create(
        local_filesystem_storage(tmp_path / "repo", fsync=False),
        config,
        authorize_virtual_chunk_access={prefix: local_filesystem_storage(tmp_path / "source")},
    )
    with repo.transaction("main", message="arrays") as store:
        for name in ("a", "b"):
            array = zarr.create_array(store, name=name, shape=(400,), chunks=(20,), dtype="<i8", compressors=None)
            array[:] = np.arange(400)
        store.set_virtual_refs_arr("a", (20,), [prefix + "a.bin"] * 20, 160 * np.arange(20), [160] * 20)
    for start in range(0, 160, 20):
        with repo.transaction("main", message="more") as store:
            zarr.open_array(store, path="b")[start : start + 10] = start
    return repo


def test_verification_and_compaction_by_spark_are_those_of_threads(spark: SparkSession, repo: Repository) -> None:
    before = read_array(repo, "b")
    assert repo.verify("chunks", engine="spark").to_dict() == repo.verify("chunks").to_dict()
    summary = repo.compact(engine=engine(spark))
    assert summary.complete
    assert summary.chunks_copied
    assert repo.verify("chunks", engine="spark").ok
    np.testing.assert_array_equal(read_array(repo, "b"), before)


def test_copies_by_spark_are_those_of_threads(spark: SparkSession, repo: Repository, tmp_path: Path) -> None:
    here, there = (local_filesystem_storage(tmp_path / name, fsync=False) for name in ("here", "there"))
    one, other = clone_repository(repo.storage, here), clone_repository(repo.storage, there, engine="spark")
    assert (one.objects, one.bytes, one.snapshots) == (other.objects, other.bytes, other.snapshots)
    assert clone_repository(repo.storage, there, engine="spark").objects <= one.objects - 20

    copied = copy_branch(repo, local_filesystem_storage(tmp_path / "copy", fsync=False), branch="main", engine="spark")
    assert copied.chunks >= 20
    report = export_zarr(repo, str(tmp_path / "plain"), branch="main", engine="spark")
    assert report.chunks == 40
    target = Repository.create(local_filesystem_storage(tmp_path / "imported", fsync=False))
    assert import_zarr(str(tmp_path / "plain"), target, engine="spark").chunks == 40
    for name in "ab":
        np.testing.assert_array_equal(read_array(target, name), read_array(repo, name))

    assert materialize(repo, engine="spark").chunks == 20
    np.testing.assert_array_equal(read_array(Repository.open(repo.storage), "a"), np.arange(400))


def test_a_place_in_memory_is_refused(spark: SparkSession, repo: Repository) -> None:
    with pytest.raises(InvalidInputError, match="workers of Spark cannot access"):
        export_zarr(repo, zarr.storage.MemoryStore(), branch="main", engine="spark")
    with pytest.raises(InvalidInputError, match="workers of Spark cannot access"):
        clone_repository(repo.storage, ars.in_memory_storage(), engine="spark")
