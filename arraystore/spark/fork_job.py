"""Writing on executors through forks of one session, and merging their changes.

The driver pickles one fork.  Each task writes through a copy of its own and returns one row: its change set, or the
name of the object that holds it, and a report of plain values.  Nothing that a worker returns is unpickled.  Attempts
that die, run twice, or outlive the job do no harm: they write under keys of their own, and only the rows of the
attempts that Spark counts are merged.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from arraystore._runtime.engine import expect
from arraystore._runtime.plain_values import pack, unpack
from arraystore._runtime.progress import Progress
from arraystore._session.change_set_transfer import MOST_INLINE, is_spilled, receive_change_sets, send_change_set
from arraystore._session.fork import ForkSession
from arraystore._session.rearrange import DELETE
from arraystore._session.session import Session
from arraystore.distributed import merge_sessions
from arraystore.errors import FormatError, MergeConflictError
from arraystore.spark.codec_pipeline import fused_codec_pipeline
from arraystore.spark.errors import marked_text
from arraystore.spark.report import WriteReport
from arraystore.spark.snapshots import check_reachable
from arraystore.spark.spark_action import map_in_arrow, run_action, task_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

Work = Callable[[ForkSession, Iterator[Any]], Mapping[str, Any]]
"""Writes Arrow batches through a fork, and returns a report of plain values."""


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


@dataclass(frozen=True, slots=True)
class Attempt:
    """Work of an executor on one partition."""

    fork_bytes: bytes
    """Pickled fork, see `pickle_new_fork`."""
    work: Work
    """Function that writes."""
    most_inline: int = MOST_INLINE
    """Largest change set that is sent in the result, in bytes."""

    def outcome(self, batches: Iterator[Any]) -> bytes:
        """Do the work and return its outcome, for `read_outcome`."""
        with self.writing() as fork:
            report = self.work(fork, batches)
            for _ in batches:  # a worker whose input is left unread is not reused
                pass
            return self.result(fork, report)

    @contextmanager
    def writing(self) -> Iterator[ForkSession]:
        """Give a fork of its own to the block, whose errors Spark gets in a form that the driver translates back."""
        try:
            fork: ForkSession = pickle.loads(self.fork_bytes)  # noqa: S301 - the driver of this very job has made it
            with fused_codec_pipeline():
                yield fork
        except Exception as error:
            raise RuntimeError(marked_text(error)) from error

    def result(self, fork: ForkSession, report: Mapping[str, Any]) -> bytes:
        """Return what a fork has written and a report of it as an outcome, for `read_outcome`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        return pack((task, attempt, send_change_set(fork, self.most_inline), dict(report)))


def read_outcome(name: str, data: bytes) -> Outcome:
    """Decode an outcome; raise `FormatError` with the name of the bytes."""
    match unpack(name, data, lists=True):
        case [int() as task, int() as attempt, bytes() as change_set, dict() as report]:
            return Outcome(task, attempt, change_set, report)
        case _:
            raise FormatError(name, "has not the parts of an outcome")


def run_fork_job(
    session: Session,
    frame: DataFrame | Callable[[Attempt], DataFrame],
    work: Work,
    *,
    description: str,
    tasks: int,
    progress: Progress | None = None,
    most_inline: int = MOST_INLINE,
    take: Callable[[list[Outcome]], None] | None = None,
) -> list[Outcome]:
    """Run a task for each partition of a frame, which writes through a fork of a session.

    A function in place of a frame makes one whose own tasks write through forks, too.
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    fork = session.fork()
    attempt = Attempt(pickle_fork(session, fork), work, most_inline)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"outcome": [attempt.outcome(iter(batches))]})

    try:
        rows = frame(attempt) if callable(frame) else frame
        # As text, the schema would be parsed by the JVM for each job.
        results = map_in_arrow(rows, task, StructType([StructField("outcome", BinaryType())]))
        table = run_action(rows.sparkSession, results.toArrow, description=description, tasks=tasks, progress=progress)
        found = (read_outcome("outcome of a task", data) for data in table.column(0).to_pylist())
        outcomes = sorted(found, key=lambda outcome: outcome.task)
        if take is not None:
            take(outcomes)
    except BaseException:
        session.abandon(fork)
        raise
    if not outcomes:  # Spark runs no task where it finds a frame empty, so nothing of the fork comes back
        session.abandon(fork)
    return outcomes


def run_tasks(
    spark: SparkSession,
    session: Session,
    shares: Sequence[T],
    work: Callable[[Any, T], Mapping[str, Any] | None],
    *,
    description: str = "arraystore",
    progress: Progress | None = None,
    take: Callable[[list[Outcome]], None] | None = None,
) -> list[Outcome]:
    """Run `work(fork, share)` on executors through forks of one session, one task for each share."""
    if not shares:
        return []
    count = len(shares)

    def task(fork: ForkSession, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        (number,) = [number for batch in batches for number in batch.column(0).to_pylist()]
        return work(fork, shares[number]) or {}

    def take_all(outcomes: list[Outcome]) -> None:
        expect([outcome.task for outcome in outcomes] == list(range(count)), "one outcome for each task")
        if take is not None:
            take(outcomes)

    return run_fork_job(
        session, task_frame(spark, count), task, description=description, tasks=count, progress=progress, take=take_all
    )


def report_of(
    arrays: tuple[str, ...], outcomes: Sequence[Outcome], began: float, *, chunks: int | None = None
) -> WriteReport:
    """Add up the reports of tasks; `began` is the time of `time.perf_counter` at the check of the arguments."""

    def total(name: str) -> int:
        return sum(int(outcome.report.get(name, 0)) for outcome in outcomes)

    return WriteReport(
        arrays,
        total("rows"),
        total("chunks") if chunks is None else chunks,
        total("nbytes"),
        len(outcomes),
        sum(outcome.attempt for outcome in outcomes),
        sum(is_spilled(outcome.change_set) for outcome in outcomes),
        time.perf_counter() - began,
    )


def merge_outcomes(
    session: Session, outcomes: Iterable[Outcome], overwritten: Sequence[str] = (), beneath: Sequence[bytes] = ()
) -> None:
    """Merge the changes of all tasks, or none.

    All earlier chunks of the overwritten arrays are deleted; changes of the tasks win over the change sets beneath.
    """
    changes: list[bytes] = receive_change_sets(session.context, [outcome.change_set for outcome in outcomes])
    try:
        if (overwritten or beneath) and changes:
            changes = [merge_sessions(changes)]
        for path in overwritten:
            session.reindex_array(path, lambda _: DELETE, vectorized=True)
        session.merge(*beneath, *changes, on_overlap="last" if overwritten or beneath else "error")
    except MergeConflictError as error:
        if _SHARED not in error.message:
            raise
        remedy = (
            f"{error.message}. With Spark: let one task own each chunk (repartition_by_chunk; in SQL for a few rows: "
            "INSERT INTO ... SELECT /*+ COALESCE(1) */ ...), nothing was merged"
        )
        raise MergeConflictError(remedy, error.path, error.chunks) from error
