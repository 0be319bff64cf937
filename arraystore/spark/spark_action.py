"""Running actions of Spark with progress, cancellation and a description in Spark's pages.

The action runs in a separate thread, which inherits the local properties of the caller (its pool, its streaming query)
without changing them. The jobs get a description, which also names their stages, and, unless the caller has set one, a
group. All of it also works with Spark Connect, where there is no context.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from arraystore._runtime.progress import Progress
from arraystore.spark.cluster import classic_context, keep_logs
from arraystore.spark.errors import TaskFailedError, marked_errors, translate_error

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_POLL_SECONDS = 0.1
_CONDITION = re.compile(
    r"\[(?!(?:INTERNAL_ERROR|UNKNOWN|FAILED_EXECUTE_UDF|PYTHON_EXCEPTION|PYTHON_WORKER)\w*)[A-Z][A-Z0-9_.]+\] [^\n]*"
)
"""Error of a query, with the condition that Spark gives it: ``[DIVIDE_BY_ZERO] Division by zero``."""
_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"
_CALL_SITE = "callSite.short"


class ActionStoppedError(Exception):
    """The caller of an action has stopped it."""


def map_in_arrow(frame: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: Any) -> DataFrame:
    """Return ``frame.mapInArrow(function, schema)``, without PySpark's warning about Pandas, which is not used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(function, schema)


def task_frame(spark: SparkSession, tasks: int) -> DataFrame:
    """Return a frame of one row and one partition for each task; column ``id`` is its number."""
    return spark.range(0, tasks, 1, tasks)


def map_tasks(spark: SparkSession, tasks: int, function: Callable[[int], Iterator[Any]], schema: Any) -> DataFrame:
    """Return the rows of the Arrow batches that a function yields on executors for the number of each task."""
    if not tasks:
        return spark.createDataFrame([], schema)
    return map_in_arrow(task_frame(spark, tasks), by_task(function), schema)


def by_task(function: Callable[[int], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function for ``mapInArrow`` over the frame of the tasks."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        with marked_errors():
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from function(task)

    return rows


def run_action(
    spark: SparkSession,
    action: Callable[[], T],
    *,
    description: str,
    tasks: int,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> T:
    """Run an action and return its result; raise the error of a task; cancel the jobs on interrupts, and on `stop`."""
    jobs = _ActionJobs(spark, description, tasks, progress)
    with ThreadPoolExecutor(1, thread_name_prefix="arraystore-spark") as pool:
        running = pool.submit(jobs.inheriting(action))
        try:
            with jobs.reporting():
                while not _is_over(running):
                    jobs.report()
                    if stop is not None and stop.is_set():
                        raise ActionStoppedError
        except BaseException:  # an interrupt, an error of `progress`, or `stop`
            jobs.cancel()
            raise
        try:
            result = running.result()
        except Exception as error:
            raise _translate(error) from error
    jobs.report_done(tasks)
    return result


def _is_over(running: Future[Any]) -> bool:
    return bool(wait([running], timeout=_POLL_SECONDS).done)


class _ActionJobs:
    """Jobs of one action."""

    def __init__(self, spark: SparkSession, description: str, tasks: int, progress: Progress | None) -> None:
        self._spark = spark
        self._context = classic_context(spark)
        self._description = description
        self._tasks = tasks
        self._progress = progress
        self._tag = f"arraystore-{uuid4().hex}"
        self._group: str | None = None
        self._earlier: set[int] = set()
        self._reported = -1

    def inheriting(self, action: Callable[[], T]) -> Callable[[], T]:
        """Wrap the action for another thread, with the local properties of this one."""
        from pyspark.util import inheritable_thread_target

        def job() -> T:
            self._spark.addTag(self._tag)
            if self._context is None:
                return action()
            self._context.addJobTag(self._tag)  # the session's tags do not reach all threads that start jobs
            self._describe(self._context)
            with _stages_named(self._context, self._description):
                return action()

        inheriting: Callable[[], T] = inheritable_thread_target(self._spark)(job)
        return inheriting

    def _describe(self, context: SparkContext) -> None:
        """Describe the jobs, and set a group if there is none: a streaming query stops its jobs by its own."""
        group = context.getLocalProperty(_GROUP)
        if group is None:
            context.setJobGroup(self._tag, self._description, interruptOnCancel=True)
        else:
            self._earlier = set(context.statusTracker().getJobIdsForGroup(group))
            context.setLocalProperty(_DESCRIPTION, self._description)
        self._group = group or self._tag

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Report progress of Spark Connect within the block."""
        if self._progress is None or self._context is not None:
            yield
            return
        remote: Any = self._spark

        def report(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            self.report_done(sum(stage.num_completed_tasks for stage in stages or ()))

        remote.registerProgressHandler(report)
        try:
            yield
        finally:
            remote.removeProgressHandler(report)

    def report(self) -> None:
        """Report how many tasks are done."""
        if self._progress is None or self._context is None or self._group is None:
            return
        tracker = self._context.statusTracker()
        ours = set(tracker.getJobIdsForGroup(self._group)) - self._earlier
        jobs = (tracker.getJobInfo(job) for job in ours)
        stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
        done = [stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == self._tasks]
        self.report_done(max(done, default=0))

    def report_done(self, done: int) -> None:
        """Report that so many tasks are done, unless it has been reported."""
        if self._progress is not None and min(done, self._tasks) > self._reported:
            self._reported = min(done, self._tasks)
            self._progress(self._reported, self._tasks)

    def cancel(self) -> None:
        """Cancel the jobs of the action."""
        self._spark.interruptTag(self._tag)
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)


@contextlib.contextmanager
def _stages_named(context: SparkContext, name: str) -> Iterator[None]:
    """Name jobs and stages within the block; PySpark names them after a line of the library that starts threads."""
    from pyspark.traceback_utils import SCCallSiteSync

    named: Any = SCCallSiteSync
    with named(context):  # those of PySpark within it set no name
        context.setLocalProperty(_CALL_SITE, name)
        yield


def _translate(error: Exception) -> BaseException:
    """Return the error of a task, from the message that Spark wraps around it."""
    translated = translate_error(error)
    if isinstance(translated, TaskFailedError):
        return TaskFailedError(f"{translated.message}. Nothing was committed; when the cause is removed, run it again")
    if translated is not error:
        return translated
    text = str(error)
    condition = _CONDITION.search(text)
    if condition is not None:
        return TaskFailedError(f"a Spark task failed: {condition[0].strip()}. Nothing was committed")
    reason = next((line.strip() for line in text.splitlines() if "ailure" in line or "Lost task" in line), text[:500])
    where = " and ".join(keep_logs()) or "the log of the executor"
    return TaskFailedError(f"a Spark task failed without a message ({reason}). Nothing was committed; see {where}")
