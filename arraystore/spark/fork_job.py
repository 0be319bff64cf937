"""Writing on executors through forks of one session, and merging their changes.

The driver pickles one fork.  Each task writes through a copy of its own and returns one row: its change set, or the
name of the object that holds it, and a report of plain values.  Nothing that a worker returns is unpickled.  Attempts
that die, run twice, or outlive the job do no harm: they write under keys of their own, and only the rows of the
attempts that Spark counts are merged.
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
from arraystore.spark.errors import marked_text
from arraystore.spark.report import Progress
from arraystore.spark.snapshots import check_reachable
from arraystore.spark.spark_action import map_in_arrow, run_action

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "Attempt",
    "Outcome",
    "Work",
    "merge_outcomes",
    "pickle_fork",
    "pickle_new_fork",
    "run_fork_job",
    "task_frame",
]

Work = Callable[[ForkSession, Iterator[Any]], Mapping[str, Any]]
"""Writes Arrow batches through a fork, and returns a report of plain values."""


@cache
def _outcome_schema() -> StructType:
    """Return the schema of the rows that tasks return; as text it would be parsed by the JVM for each job."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    types = {"task": IntegerType(), "attempt": IntegerType(), "change_set": BinaryType(), "report": BinaryType()}
    return StructType([StructField(name, kind) for name, kind in types.items()])


_REPORT = "report of a task"
_SHARED = "written by more than one fork"
"""Part of the error of a merge if two tasks have written the same chunk."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one task."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempts before this one, 0 for the first."""
    change_set: bytes
    """Change set, or the name of the object that holds it; see `merge_outcomes`."""
    report: dict[str, Any]
    """Report that the work returned."""


def pickle_new_fork(session: Session) -> bytes:
    """Return a pickled fork of a session; each unpickling makes a fork of its own."""
    return pickle_fork(session, session.fork())


def pickle_fork(session: Session, fork: ForkSession) -> bytes:
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
    """Work of an executor on one partition."""

    fork_bytes: bytes
    """Pickled fork, see `pickle_new_fork`."""
    work: Work
    """Function that writes."""
    most_inline: int = MOST_INLINE
    """Largest change set that is sent in the result, in bytes."""

    def outcome(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, int, bytes, bytes]:
        """Do the work and return task, attempt, change set and report."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        try:
            fork: ForkSession = pickle.loads(self.fork_bytes)  # noqa: S301 - the driver of this very job has made it
            with fused_codec_pipeline():
                report = self.work(fork, batches)
            for _ in batches:  # a worker whose input is left unread is not reused
                pass
            return task, attempt, send_change_set(fork, self.most_inline), pack_report(report)
        except Exception as error:
            raise RuntimeError(marked_text(error)) from error


def pack_report(report: Mapping[str, Any]) -> bytes:
    """Return a report as bytes; numpy scalars become Python numbers."""
    packed = msgpack.packb(dict(report), use_bin_type=True, default=_plain)
    assert isinstance(packed, bytes)
    return packed


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"a report holds plain values, not {type(value).__name__}")


def unpack_report(data: bytes) -> dict[str, Any]:
    """Decode a report; raise `FormatError`."""
    try:
        # Counts by number are plain values, too: keys need not be text.
        report = msgpack.unpackb(data, raw=False, max_ext_len=0, strict_map_key=False)
    except Exception as error:
        raise FormatError(_REPORT, f"cannot be read ({type(error).__name__})") from error
    if not isinstance(report, dict):
        raise FormatError(_REPORT, "is not a mapping")
    return report


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
    """Run a task for each partition of a frame, which writes through a fork of a session."""
    fork = session.fork()
    attempt = Attempt(pickle_fork(session, fork), work, most_inline)

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
    """Yield the outcomes in a table that tasks returned."""
    columns = [table.column(name).to_pylist() for name in ("task", "attempt", "change_set", "report")]
    for task, attempt, change_set, report in zip(*columns, strict=True):
        yield Outcome(task, attempt, change_set, unpack_report(report))


def merge_outcomes(session: Session, outcomes: Iterable[Outcome]) -> None:
    """Merge the changes of all tasks, or none."""
    sent = [outcome.change_set for outcome in outcomes]
    try:
        session.merge(*receive_change_sets(session.context, sent))
    except MergeConflictError as error:
        if _SHARED not in error.message:
            raise
        remedy = f"{error.message}. With Spark: let one task own each chunk (repartition_by_chunk), nothing was merged"
        raise MergeConflictError(remedy, error.path, error.chunks) from error
