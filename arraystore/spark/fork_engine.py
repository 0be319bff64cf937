"""Tasks of transforms on executors: they write through forks, and the driver merges what they return."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from arraystore._session.session import Session
from arraystore.spark.fork_job import merge_outcomes, run_tasks
from arraystore.spark.report import Progress
from arraystore.transforms.engines import ForkWork, TaskResult

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
    outcomes = run_tasks(
        spark, session, shares, work, description=f"arraystore: {description}", progress=progress,
        take=partial(merge_outcomes, session),
    )  # fmt: skip
    return [TaskResult(outcome.report, outcome.attempt) for outcome in outcomes]
