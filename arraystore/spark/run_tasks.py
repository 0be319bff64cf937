"""Running a function on executors through forks of one session, one task for each share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.spark.fork_job import Outcome, run_fork_job, task_frame
from arraystore.spark.report import Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["run_tasks"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Shares:
    """Work of a task on its share."""

    shares: tuple[Any, ...]
    work: Callable[[Any, Any], Mapping[str, Any] | None]

    def __call__(self, fork: ForkSession, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        (number,) = numbers
        return self.work(fork, self.shares[number]) or {}


def run_tasks(
    spark: SparkSession,
    session: Session,
    shares: Sequence[T],
    work: Callable[[Any, T], Mapping[str, Any] | None],
    *,
    description: str = "arraystore",
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run `work(fork, share)` on executors, one task for each share."""
    if not shares:
        return []
    job = _Shares(tuple(shares), work)
    frame = task_frame(spark, len(shares))
    return run_fork_job(session, frame, job, description=description, tasks=len(shares), progress=progress)
