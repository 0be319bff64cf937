"""Running an action of Spark where it can be watched, cancelled, and be found in Spark's own pages.

The action runs in a thread of its own, which inherits the local properties of the caller (its pool, the streaming query
that it belongs to), so that the caller's stay as they are.  The jobs get a description and, unless the caller has set
one, a group.  Everything here works with Spark Connect, too, where there is no context.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from arraystore.spark.cluster import keep_logs
from arraystore.spark.errors import TaskFailedError, translate_error
from arraystore.spark.report import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["classic_context", "map_in_arrow", "run_action"]

T = TypeVar("T")

_POLL_SECONDS = 0.1
_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


def classic_context(spark: SparkSession) -> SparkContext | None:
    """Return the Spark context of a session; None under Spark Connect, where the driver is another process."""
    from pyspark.sql.utils import is_remote

    return None if is_remote() or type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


def map_in_arrow(frame: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: Any) -> DataFrame:
    """Return ``frame.mapInArrow(function, schema)``, without PySpark's warning of Pandas, which has no part in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(function, schema)


def run_action(
    spark: SparkSession, action: Callable[[], T], *, description: str, tasks: int, progress: Progress | None = None
) -> T:
    """Run an action and return what it returns.

    Parameters
    ----------
    action
        Calls something of Spark that starts jobs.
    description
        For Spark's pages.
    tasks
        How many tasks there will be, for progress.
    progress
        Told about tasks that are done.

    Raises
    ------
    ArrayStoreError
        The one that a task raised.
    TaskFailedError
        If a task failed without one.
    BaseException
        What `progress` raised, or an interrupt: the jobs are cancelled then.
    """
    watched = _Watched(spark, description, tasks, progress)
    with ThreadPoolExecutor(1, thread_name_prefix="arraystore-spark") as pool:
        running = pool.submit(watched.inheriting(action))
        try:
            with watched.telling():
                while not _is_over(running):
                    watched.tell()
        except BaseException:  # somebody at the keyboard, or what is told about progress: nobody waits any more
            watched.cancel()
            raise
        try:
            found = running.result()
        except Exception as error:
            raise _translated(error) from error
    watched.tell_end()
    return found


def _is_over(running: Future[Any]) -> bool:
    return bool(wait([running], timeout=_POLL_SECONDS).done)


class _Watched:
    """The jobs of one action."""

    def __init__(self, spark: SparkSession, description: str, tasks: int, progress: Progress | None) -> None:
        self._spark = spark
        self._context = classic_context(spark)
        self._description = description
        self._tasks = tasks
        self._progress = progress
        self._tag = f"arraystore-{uuid4().hex}"
        self._group: str | None = None
        self._earlier: set[int] = set()
        self._told = -1

    def inheriting(self, action: Callable[[], T]) -> Callable[[], T]:
        """Return the action for another thread, with the local properties of this one."""
        from pyspark.util import inheritable_thread_target

        def job() -> T:
            self._spark.addTag(self._tag)
            if self._context is not None:
                self._context.addJobTag(self._tag)  # the session's tags do not reach all threads that start jobs
                self._describe(self._context)
            return action()

        found: Callable[[], T] = inheritable_thread_target(self._spark)(job)
        return found

    def _describe(self, context: SparkContext) -> None:
        """Describe the jobs; a group that there is stays: a streaming query stops its jobs by it."""
        group = context.getLocalProperty(_GROUP)
        if group is None:
            context.setJobGroup(self._tag, self._description, interruptOnCancel=True)
        else:
            self._earlier = set(context.statusTracker().getJobIdsForGroup(group))
            context.setLocalProperty(_DESCRIPTION, self._description)
        self._group = group or self._tag

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Have Spark Connect tell its progress meanwhile."""
        if self._progress is None or self._context is not None:
            yield
            return
        remote: Any = self._spark

        def tell(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            self._report(sum(stage.num_completed_tasks for stage in stages or ()))

        remote.registerProgressHandler(tell)
        try:
            yield
        finally:
            remote.removeProgressHandler(tell)

    def tell(self) -> None:
        """Tell how many tasks are done by now."""
        if self._progress is None or self._context is None or self._group is None:
            return
        tracker = self._context.statusTracker()
        ours = set(tracker.getJobIdsForGroup(self._group)) - self._earlier
        jobs = (tracker.getJobInfo(job) for job in ours)
        stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
        done = [stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == self._tasks]
        self._report(max(done, default=0))

    def tell_end(self) -> None:
        """Tell that all tasks are done."""
        if self._progress is not None:
            self._report(self._tasks)

    def _report(self, done: int) -> None:
        assert self._progress is not None
        done = min(done, self._tasks)
        if done > self._told:
            self._told = done
            self._progress(done, self._tasks)

    def cancel(self) -> None:
        """Have Spark end what runs: nobody waits for it any more."""
        self._spark.interruptTag(self._tag)
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)


def _translated(error: Exception) -> BaseException:
    """Return what a task said, out of the many lines that Spark wraps around it."""
    found = translate_error(error)
    if isinstance(found, TaskFailedError):
        return TaskFailedError(f"{found.message}. Nothing was committed; when the cause is removed, run it again")
    if found is not error:
        return found
    text = str(error)
    reason = next((line.strip() for line in text.splitlines() if "ailure" in line or "Lost task" in line), text[:500])
    where = " and ".join(keep_logs()) or "the log of the executor"
    return TaskFailedError(f"a Spark task failed without saying why ({reason}). Nothing was committed; see {where}")
