"""Running work on executors through forks of one session.

The driver pickles a fork once; each task writes through its own copy and sends back nothing but its change set.
Attempts that die, run twice or go on after the job is over do no harm: what they wrote lies under keys of its own,
and only the change sets of the attempts that Spark counts are merged.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import uuid4

from zarr.abc.store import Store

from arraystore.errors import ArrayStoreError
from arraystore.spark.cluster import keep_logs
from arraystore.spark.errors import TaskFailedError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

__all__ = ["Progress", "TaskResult", "run_tasks"]

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Called on the driver with the number of tasks done and the number of all."""

_POLL_SECONDS = 0.1
_MARK = re.compile(r"<<arraystore-task:([0-9a-f]*)>>")


class Fork(Protocol):
    """A fork of a session."""

    @property
    def store(self) -> Store: ...

    def changes(self) -> bytes: ...


class Session(Protocol):
    """What can be forked."""

    def fork(self) -> Fork: ...


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[R]):
    """What comes back from one task."""

    changes: bytes
    """The change set, for ``session.merge``."""
    report: R
    """Whatever the work returned."""
    attempt: int
    """0 if the task succeeded at once."""


@dataclass(frozen=True, slots=True)
class _Attempt(Generic[T, R]):
    """The function that an executor runs for one partition."""

    fork: bytes
    work: Callable[[Any, T], R]

    def __call__(self, partition: Iterable[T]) -> Iterator[TaskResult[R]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for share in partition:  # to its end: a worker whose input is left unread is not used again
            try:
                fork: Fork = pickle.loads(self.fork)  # noqa: S301 - the driver of this very job has made it
                report = self.work(fork, share)
                result = TaskResult(fork.changes(), report, attempt)
            except Exception as error:
                raise RuntimeError(_marked(error)) from error
            yield result


def _marked(error: Exception) -> str:
    """Wrap a message so that it survives the way through Spark's own error text."""
    text = str(error) if isinstance(error, ArrayStoreError) else f"{type(error).__name__}: {error}"
    return f"<<arraystore-task:{text.encode().hex()}>> {text}"


def run_tasks(
    spark: SparkSession,
    session: Session,
    shares: Sequence[T],
    work: Callable[[Any, T], R],
    *,
    description: str = "arraystore",
    progress: Progress | None = None,
) -> list[TaskResult[R]]:
    """Run `work(fork, share)` on executors, one task for each share.

    Parameters
    ----------
    session
        Session that the tasks write for; its uncommitted metadata travels along, and it stays as it is.
    shares
        What each task is to do; picklable.
    work
        Picklable, and importable on the executors.  It writes through ``fork.store``.
    progress
        Told about the tasks done.

    Returns
    -------
    list of TaskResult
        In the order of `shares`; pass the ``changes`` to ``session.merge``.

    Raises
    ------
    TaskFailedError
        If a task failed for good.
    """
    if not shares:
        return []
    context = spark.sparkContext
    attempt: _Attempt[T, R] = _Attempt(pickle.dumps(session.fork(), pickle.HIGHEST_PROTOCOL), work)
    results = context.parallelize(shares, len(shares)).mapPartitions(attempt)
    return _collect(context, results, len(shares), description, progress)


def _collect(
    context: SparkContext, results: RDD[TaskResult[R]], total: int, description: str, progress: Progress | None
) -> list[TaskResult[R]]:
    group = f"arraystore-{uuid4().hex}"

    def job() -> list[TaskResult[R]]:
        context.setJobGroup(group, description, interruptOnCancel=True)
        return results.collect()

    with ThreadPoolExecutor(1, thread_name_prefix="arraystore-spark") as pool:
        running = pool.submit(job)
        try:
            while not running.done():
                if progress is not None:
                    progress(_tasks_done(context, group), total)
                try:
                    running.result(timeout=_POLL_SECONDS)
                except NotYet:
                    continue
            collected = running.result()
        except Exception as error:
            raise _translated(error) from error
        except BaseException:
            context.cancelJobGroup(group)
            raise
    if progress is not None:
        progress(total, total)
    return collected


def _tasks_done(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _translated(error: Exception) -> Exception:
    """What a task said, out of the many lines that Spark wraps around it."""
    text = str(error)
    if found := _MARK.search(text):
        return TaskFailedError(
            f"{bytes.fromhex(found[1]).decode()}. Nothing was committed; when the cause is removed, run it again"
        )
    reason = next((line.strip() for line in text.splitlines() if "ailure" in line or "Lost task" in line), text[:500])
    where = " and ".join(keep_logs()) or "the log of the executor"
    return TaskFailedError(f"a Spark task failed without saying why ({reason}). Nothing was committed; see {where}")
