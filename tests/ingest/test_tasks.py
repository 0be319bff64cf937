"""Tasks that die are run again and leave no trace; tasks that cannot succeed say where they failed."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zarr

import arraystore
from arraystore.ingest import ingest
from arraystore.ingest import run as ingest_run
from arraystore.spark import TaskFailedError
from arraystore.spark.fork_job import merge_outcomes, run_tasks
from arraystore.storage import Storage
from tests.ingest.conftest import Make, climate, history, ingested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(autouse=True, scope="module")
def _this_module_travels_by_value() -> Iterator[None]:
    """Executors cannot import tests; what is defined here goes along with the tasks."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class DiesOnce:
    """Does the work whole, makes its chunks durable, and then dies before it can answer; the first time only."""

    work: Callable[[Any, Any], Any]
    marks: str
    way: str

    def __call__(self, fork: Any, share: Any) -> Any:
        report = self.work(fork, share)
        mark = os.path.join(self.marks, f"{abs(hash(repr(share)))}-{len(share)}")
        if not os.path.exists(mark):
            with open(mark, "w"):
                pass
            fork.changes()
            if self.way == "killed":
                os._exit(1)
            raise OSError("the network is gone")
        return report


@pytest.mark.parametrize("way", ["killed", "raises"])
def test_tasks_that_die_after_writing_are_run_again_and_the_data_is_right(
    spark: SparkSession, storage: Storage, make_source: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def dying(spark: Any, session: Any, shares: Any, work: Any, **options: Any) -> Any:
        return run_tasks(spark, session, shares, DiesOnce(work, str(marks), way), **options)

    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setattr(ingest_run, "run_tasks", dying)
    report = ingest([make_source(length=48)], storage, spark=spark, tasks=2, chunks={"time": 12})
    assert report.retried == 2
    assert len(list(marks.iterdir())) == 2
    found, expected = ingested(storage), climate(length=48)
    for name in expected.variables:
        assert found[name].values.tobytes() == expected[name].values.tobytes(), name
    assert len(history(storage)) == 1


def test_a_task_that_cannot_read_names_source_variable_and_region(
    spark: SparkSession, storage: Storage, make_source: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_source("vanishing.nc")

    def vanish(*args: Any, **options: Any) -> Any:
        path.unlink()
        return run_tasks(*args, **options)

    monkeypatch.setattr(ingest_run, "run_tasks", vanish)
    with pytest.raises(
        TaskFailedError, match=r"vanishing\.nc', variable '\w+', region (time\[0:\d+\], )?y\[0:45\]"
    ) as caught:
        ingest([path], storage, spark=spark)
    assert "Nothing was committed" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert history(storage) == []


@dataclass(frozen=True)
class Dies:
    """Never gets to say anything."""

    def __call__(self, fork: Any, share: Any) -> None:
        os._exit(1)


def test_a_task_that_dies_each_time_says_where_to_look(
    spark: SparkSession, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arraystore.spark.cluster._logs", ["/logs/spark.log"])
    session = arraystore.Repository.create(storage).writable_session("main")
    with pytest.raises(
        TaskFailedError, match=r"without a message \(.*\)\. Nothing was committed; see /logs/spark\.log"
    ):
        run_tasks(spark, session, [1], Dies())


def test_progress_ends_with_all_tasks_done(spark: SparkSession, storage: Storage, make_source: Make) -> None:
    seen: list[tuple[int, int]] = []
    report = ingest(
        [make_source(length=48)], storage, spark=spark, tasks=4, chunks={"time": 12},
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    total = len(report.plan.tasks)
    assert seen[-1] == (total, total)
    assert all(a <= b for (a, _), (b, _) in itertools.pairwise(seen))


@dataclass(frozen=True)
class WritesSquares:
    """A work of a user's own."""

    def __call__(self, fork: Any, share: list[int]) -> dict[str, int]:
        array = zarr.open_array(fork.store, path="squares", mode="r+")
        for index in share:
            array[index] = index * index
        return {"written": len(share)}


def test_any_work_can_be_run_through_forks(spark: SparkSession, storage: Storage) -> None:
    session = arraystore.Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="squares", shape=(10,), chunks=(1,), dtype="i8")
    results = run_tasks(spark, session, [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9]], WritesSquares())
    assert [result.report["written"] for result in results] == [3, 2, 5]
    assert [result.attempt for result in results] == [0, 0, 0]
    merge_outcomes(session, results)
    session.commit("squares")
    store = arraystore.Repository.open(storage).readonly_session("main").store
    assert zarr.open_array(store, path="squares", mode="r")[:].tolist() == [i * i for i in range(10)]  # type: ignore[union-attr]


def test_two_tasks_that_write_the_same_chunk_are_found_out(spark: SparkSession, storage: Storage) -> None:
    session = arraystore.Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="squares", shape=(10,), chunks=(1,), dtype="i8")
    results = run_tasks(spark, session, [[1, 2], [2, 3]], WritesSquares())
    with pytest.raises(arraystore.ArrayStoreError, match="squares"):
        merge_outcomes(session, results)


def test_no_shares_are_no_job(spark: SparkSession, storage: Storage) -> None:
    session = arraystore.Repository.create(storage).writable_session("main")
    assert run_tasks(spark, session, [], WritesSquares()) == []
