"""Writing on executors through forks of one session, and bringing home what they changed.

The driver pickles one fork.  Each task writes through a copy of its own and returns one row: its change set, or where
that lies, and a report of plain values.  Nothing that a worker returns is unpickled.  Attempts that die, run twice, or
go on after the job is over do no harm: what they wrote lies under keys of their own, and only the rows of the attempts
that Spark counts are merged.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import FormatError, MergeConflictError
from arraystore.spark.change_set_transfer import MOST_INLINE, receive_change_sets, send_change_set
from arraystore.spark.codec_pipeline import fused_codec_pipeline
from arraystore.spark.errors import marked
from arraystore.spark.report import Progress
from arraystore.spark.snapshots import check_reachable
from arraystore.spark.spark_action import map_in_arrow, run_action

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Attempt", "Outcome", "Work", "merge_outcomes", "pickled", "pickled_fork", "run_fork_job", "task_frame"]

Work = Callable[[ForkSession, Iterator[Any]], Mapping[str, Any]]
"""Writes through a fork what batches of Arrow say, and returns a report of plain values."""


@cache
def _outcome_schema() -> StructType:
    """Return the schema of what tasks return; as text it would be parsed by the JVM for each job."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    types = {"task": IntegerType(), "attempt": IntegerType(), "change_set": BinaryType(), "report": BinaryType()}
    return StructType([StructField(name, kind) for name, kind in types.items()])


_REPORT = "report of a task"
_SHARED = "written by more than one fork"
"""What the error of a merge says where two tasks have written the same chunk."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes back from one task.

    Parameters
    ----------
    task
        Its number.
    attempt
        0 if it succeeded at once.
    change_set
        Its change set, or the name of the object that holds it; see `merge_outcomes`.
    report
        What the work returned.
    """

    task: int
    attempt: int
    change_set: bytes
    report: dict[str, Any]


def pickled_fork(session: Session) -> bytes:
    """Return a fork of a session, pickled: each time that it is unpickled, it is a fork of its own.

    Raises
    ------
    SessionStateError
        If the session cannot be written to.
    InvalidInputError
        If its storage is the memory of this process.
    StorageError
        If its storage holds credentials that are not to be pickled.
    """
    return pickled(session, session.fork())


def pickled(session: Session, fork: ForkSession) -> bytes:
    """Pickle a fork for the executors, or abandon it if that fails, so that no commit warns of it."""
    try:
        check_reachable(session.context)
        return pickle.dumps(fork, pickle.HIGHEST_PROTOCOL)
    except BaseException:
        session.abandon(fork)
        raise


def task_frame(spark: SparkSession, tasks: int) -> DataFrame:
    """Return a frame of one row and one partition for each task; column ``id`` is its number."""
    return spark.range(0, tasks, 1, tasks)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an executor does with one partition.

    Parameters
    ----------
    ticket
        See `pickled_fork`.
    work
        What is to be done.
    most_inline
        Bytes of a change set that travel in the result.
    """

    fork_bytes: bytes
    work: Work
    most_inline: int = MOST_INLINE

    def outcome(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, int, bytes, bytes]:
        """Do the work and return task, attempt, change set and report.

        Raises
        ------
        RuntimeError
            With the mark of what went wrong; see `arraystore.spark.errors`.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        try:
            fork: ForkSession = pickle.loads(self.fork_bytes)  # noqa: S301 - the driver of this very job has made it
            with fused_codec_pipeline():
                report = self.work(fork, batches)
            for _ in batches:  # to the end: a worker whose input is left unread is not used again
                pass
            return task, attempt, send_change_set(fork, self.most_inline), pack_report(report)
        except Exception as error:
            raise RuntimeError(marked(error)) from error


def pack_report(report: Mapping[str, Any]) -> bytes:
    """Return a report as bytes; numbers of numpy become plain ones."""
    found = msgpack.packb(dict(report), use_bin_type=True, default=_plain)
    assert isinstance(found, bytes)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"a report holds plain values, not {type(value).__name__}")


def unpack_report(data: bytes) -> dict[str, Any]:
    """Read a report; raises `FormatError`."""
    try:
        found = msgpack.unpackb(data, raw=False, max_ext_len=0, strict_map_key=False)  # counts by number are plain, too
    except Exception as error:
        raise FormatError(_REPORT, f"cannot be read ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise FormatError(_REPORT, "is no mapping")
    return found


def run_fork_job(
    session: Session,
    frame: DataFrame,
    work: Work,
    *,
    description: str,
    tasks: int,
    progress: Progress | None = None,
    most_inline: int = MOST_INLINE,
    take: Callable[[list[Outcome]], None] | None = None,
) -> list[Outcome]:
    """Have each partition of a frame worked through by a task that writes through a fork of a session.

    Parameters
    ----------
    session
        Session that the tasks write for; what is uncommitted travels along, and it stays as it is.
    frame
        Input of the tasks.
    work
        Picklable by cloudpickle.
    description
        For Spark's pages.
    tasks
        Number of partitions, as far as it is known, for progress.
    progress
        Told about the tasks done.
    most_inline
        Bytes of a change set that travel in the result.
    take
        What is done with the outcomes; where it raises, as where a task fails, what the tasks wrote is given up.

    Returns
    -------
    list of Outcome
        One for each partition, in their order; see `merge_outcomes`.

    Raises
    ------
    InvalidInputError, StorageError
        If workers cannot reach the storage; no task has started then.
    ArrayStoreError
        The error of a task that failed for good.
    """
    fork = session.fork()
    attempt = Attempt(pickled(session, fork), work, most_inline)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        number, tries, change_set, report = attempt.outcome(iter(batches))
        columns = [
            pa.array([number], pa.int32()), pa.array([tries], pa.int32()),
            pa.array([change_set], pa.binary()), pa.array([report], pa.binary()),
        ]  # fmt: skip
        yield pa.RecordBatch.from_arrays(columns, names=["task", "attempt", "change_set", "report"])

    results = map_in_arrow(frame, task, _outcome_schema())
    try:
        table = run_action(frame.sparkSession, results.toArrow, description=description, tasks=tasks, progress=progress)
        outcomes = sorted(outcomes_in(table), key=lambda outcome: outcome.task)
        if take is not None:
            take(outcomes)
    except BaseException:
        session.abandon(fork)
        raise
    return outcomes


def outcomes_in(table: pa.Table) -> Iterator[Outcome]:
    """Read the rows of a table that tasks returned."""
    columns = [table.column(name).to_pylist() for name in ("task", "attempt", "change_set", "report")]
    for task, attempt, change_set, report in zip(*columns, strict=True):
        yield Outcome(task, attempt, change_set, unpack_report(report))


def merge_outcomes(session: Session, outcomes: Iterable[Outcome]) -> None:
    """Bring home what tasks changed: all of it, or nothing.

    Raises
    ------
    MergeConflictError
        If two tasks wrote the same chunk.
    SessionExpiredError
        If a garbage collection has taken a change set away that was spilled.
    """
    sent = [outcome.change_set for outcome in outcomes]
    try:
        session.merge(*receive_change_sets(session.context, sent))
    except MergeConflictError as error:
        if _SHARED not in error.message:
            raise
        remedy = f"{error.message}. With Spark: let one task own each chunk (repartition_by_chunk), nothing was merged"
        raise MergeConflictError(remedy, error.path, error.chunks) from error
