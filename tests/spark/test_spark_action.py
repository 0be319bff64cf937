"""Actions of Spark that are watched, described and cancelled, and leave the caller's properties alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arraystore.errors import SessionStateError
from arraystore.spark import TaskFailedError
from arraystore.spark.errors import marked_text
from arraystore.spark.spark_action import map_in_arrow, run_action, task_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


@pytest.fixture
def properties(spark: SparkSession) -> Iterator[Callable[[], dict[str, str | None]]]:
    """What the local properties of this thread are; set back afterwards."""
    context = spark.sparkContext
    names = [GROUP, DESCRIPTION, "spark.scheduler.pool"]

    def told() -> dict[str, str | None]:
        return {name: context.getLocalProperty(name) for name in names}

    before = told()
    yield told
    for name, value in before.items():
        context.setLocalProperty(name, value)  # type: ignore[arg-type]


def told_in_a_job(spark: SparkSession) -> Callable[[], dict[str, str | None]]:
    """Return an action that tells the properties its jobs have."""

    def action() -> dict[str, str | None]:
        from pyspark import TaskContext

        def tell(_items: Any) -> Iterator[tuple[str | None, ...]]:
            context = TaskContext.get()
            assert context is not None
            yield context.getLocalProperty(GROUP), context.getLocalProperty(DESCRIPTION)

        ((group, description),) = spark.sparkContext.parallelize([0], 1).mapPartitions(tell).collect()
        return {GROUP: group, DESCRIPTION: description}

    return action


def test_jobs_get_a_description_and_a_group_and_the_caller_keeps_none(spark: SparkSession, properties: Any):
    before = properties()
    found = run_action(spark, told_in_a_job(spark), description="write regions of 'ä'", tasks=1)
    assert found[DESCRIPTION] == "write regions of 'ä'"
    assert str(found[GROUP]).startswith("arraystore-")
    assert properties() == before


def test_jobs_and_stages_are_named_by_what_they_do(spark: SparkSession, properties: Any):
    """Spark's pages list stages by name, which PySpark takes from a line of Python's library otherwise."""
    context = spark.sparkContext
    found: list[str] = []

    def action() -> None:
        frame = map_in_arrow(task_frame(spark, 2), lambda batches: batches, "id long")
        assert frame.repartition(2, "id").toArrow().num_rows == 2
        tracker, group = context.statusTracker(), context.getLocalProperty(GROUP)
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        found.extend(stage.name for stage in stages if stage is not None)

    run_action(spark, action, description="arraystore: rows to 'ä'", tasks=2)
    assert len(found) >= 2
    assert {*found} == {"arraystore: rows to 'ä'"}
    assert context.getLocalProperty("callSite.short") is None


def test_a_group_that_the_caller_has_stays(spark: SparkSession, properties: Any):
    """A streaming query stops its jobs by their group."""
    spark.sparkContext.setJobGroup("query-7", "the query")
    before = properties()
    found = run_action(spark, told_in_a_job(spark), description="write", tasks=1)
    assert found == {GROUP: "query-7", DESCRIPTION: "write"}
    assert properties() == before == {GROUP: "query-7", DESCRIPTION: "the query", "spark.scheduler.pool": None}


@pytest.mark.end_to_end
def test_jobs_that_nobody_waits_for_are_cancelled_when_somebody_interrupts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    from arraystore.spark import spark_action

    def interrupted(future: Any) -> bool:
        if (tmp_path / "began").exists():
            raise KeyboardInterrupt
        time.sleep(0.05)
        return False

    monkeypatch.setattr(spark_action, "_is_over", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_action(spark, endless(spark, tmp_path), description="endless", tasks=1)
    assert not (tmp_path / "ended").exists()


def test_what_progress_raises_cancels_the_jobs_and_is_no_failed_task(spark: SparkSession, tmp_path: Path):
    def progress(done: int, total: int) -> None:
        if done:
            raise ZeroDivisionError("bar of no length")

    with pytest.raises(ZeroDivisionError, match="bar of no length"):
        run_action(spark, endless(spark, tmp_path), description="endless", tasks=2, progress=progress)
    assert not (tmp_path / "ended").exists()


def endless(spark: SparkSession, root: Path) -> Callable[[], Any]:
    """Return an action of two tasks: one is done at once, which is told, and one ends long after the test."""

    def wait(batches: Any) -> Iterator[Any]:
        for batch in batches:
            if batch.column(0).to_pylist() == [1]:
                (root / "began").touch()
                time.sleep(30)
                (root / "ended").touch()
            yield batch

    return map_in_arrow(task_frame(spark, 2), wait, "id long").toArrow


def fails(error: BaseException) -> Callable[[], Any]:
    def action() -> Any:
        raise error

    return action


@pytest.mark.end_to_end
def test_an_error_of_this_package_is_raised_as_it_was(spark: SparkSession):
    with pytest.raises(SessionStateError, match=r"^closed$") as caught:
        run_action(
            spark,
            fails(RuntimeError("Job aborted: " + marked_text(SessionStateError("closed")))),
            description="x",
            tasks=1,
        )
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.end_to_end
def test_an_error_of_the_users_says_that_nothing_was_committed(spark: SparkSession):
    with pytest.raises(TaskFailedError, match=r"^ValueError: bad\. Nothing was committed; when the cause"):
        run_action(spark, fails(RuntimeError(marked_text(ValueError("bad")))), description="x", tasks=1)


def test_a_failure_without_words_tells_its_line_and_where_to_look(spark: SparkSession):
    text = "An error occurred\nLost task 1.3 in stage 2.0: ExecutorLostFailure (executor 1 exited)\nat org.apache"
    with pytest.raises(TaskFailedError, match=r"without a message \(Lost task 1\.3 .*exited\)\)\. Nothing .*; see "):
        run_action(spark, fails(RuntimeError(text)), description="x", tasks=1)


def test_a_time_limit_of_the_action_is_not_taken_for_waiting(spark: SparkSession):
    with pytest.raises(TaskFailedError, match="too long"):
        run_action(spark, fails(TimeoutError("too long")), description="x", tasks=1)


def test_progress_is_told_once_at_the_end_of_an_action_without_tasks(spark: SparkSession):
    told: list[tuple[int, int]] = []
    assert run_action(spark, lambda: 5, description="x", tasks=3, progress=lambda *pair: told.append(pair)) == 5
    assert told[-1] == (3, 3)
    assert told == sorted(set(told))


def test_actions_run_side_by_side_in_threads_of_the_callers(spark: SparkSession):
    found: dict[str, Any] = {}

    def act(name: str) -> None:
        found[name] = run_action(spark, told_in_a_job(spark), description=name, tasks=1)

    threads = [threading.Thread(target=act, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert {name: entry[DESCRIPTION] for name, entry in found.items()} == {"one": "one", "other": "other"}
    assert found["one"][GROUP] != found["other"][GROUP]
