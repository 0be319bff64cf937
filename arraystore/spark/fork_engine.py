"""Tasks of transforms on executors: they write through forks, and the driver merges what they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from arraystore._runtime.progress import Progress
from arraystore._session.session import Session
from arraystore.spark.fork_job import Outcome, merge_outcomes, run_tasks
from arraystore.transforms.engines import ForkWork, TaskResult, task_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def run_forks(
    spark: SparkSession,
    session: Session,
    work: ForkWork[T],
    shares: Sequence[T],
    *,
    description: str,
    progress: Progress | None,
) -> list[TaskResult]:
    """Run a task for each share, and merge the changes of all into the session, or of none."""
    results: list[TaskResult] = []

    def take(outcomes: list[Outcome]) -> None:
        results.extend(task_result(outcome.report, outcome.attempt) for outcome in outcomes)
        merge_outcomes(session, outcomes)

    run_tasks(spark, session, shares, work, description=f"arraystore: {description}", progress=progress, take=take)
    return results
