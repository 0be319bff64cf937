"""The change feed of a branch as a DataFrame: the changes of each commit, chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arraystore._repository.repository import Repository
from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_count
from arraystore.spark.cluster import slots
from arraystore.spark.snapshots import check_reachable, open_repository
from arraystore.spark.spark_action import map_tasks
from arraystore.spark.streams.change_feed_history import HistoryStep, newest_step, slices, steps_between
from arraystore.spark.streams.change_feed_rows import FEED_SCHEMA, batches_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_changes(
    spark: SparkSession,
    repo: Repository | str | os.PathLike[str],
    *,
    branch: str = "main",
    from_: str | None = None,
    to: str | None = None,
    paths: str | Sequence[str] | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Return what the commits of a branch changed, one row for each chunk, array, group and file.

    Snapshots are compared with the one before them, so the rows are exact whatever a commit wrote.  Later commits do
    not change the DataFrame.

    Parameters
    ----------
    spark
        The Spark session.
    repo
        The repository, its path or its URL.
    branch
        Whose history.
    from_
        Id of the snapshot after which to begin; None for the first one that is kept, whose nodes are all reported.
    to
        Id of the last snapshot, on the branch; None for the newest one.
    paths
        Arrays, and groups with their members, whose changes are returned; None for all.
    tasks
        Count of tasks that compare snapshots; by default four for each slot.

    Returns
    -------
    DataFrame
        Columns ``snapshot_id``, ``parent_id``, ``sequence`` (position in the history of the branch, the same for
        commits that went into one record), ``committed_at``, ``message``, ``path``; ``change``, one of ``chunk``,
        ``created_array``, ``created_group``, ``created_file``, ``deleted_array``, ``deleted_group``, ``deleted_file``,
        ``resized``, ``updated_metadata``, ``updated_file``, ``moved``; ``chunk``, the grid coordinates of a chunk;
        ``region_start`` and ``region_stop``, in items, of the chunk, or of the whole array where that was created or
        resized; and ``old_path`` of what has moved.

    Raises
    ------
    RefNotFoundError
        If there is no such branch.
    SnapshotExpiredError
        If one of the snapshots does not exist, or has expired.
    SnapshotNotFoundError
        If `from_` is not in the history that leads to `to`.
    """
    opened, wanted = open_repository(repo), _check_paths(paths)
    check_reachable(opened.context)
    shares = plan_changes(opened, branch, from_, to, 4 * slots(spark) if tasks is None else tasks)
    return map_tasks(spark, len(shares), lambda task: batches_of(opened, shares[task], wanted), FEED_SCHEMA)


def plan_changes(
    repo: Repository, branch: str, from_: str | None, to: str | None, tasks: int
) -> list[tuple[HistoryStep, ...]]:
    """Return the snapshots that each task compares with those before them."""
    check_count("tasks", tasks)
    newest = newest_step(repo, branch).snapshot
    if to is not None and to != newest:
        steps_between(repo, branch, to, newest)  # it is on the branch, or this says so
    return list(slices(steps_between(repo, branch, from_, newest if to is None else to), tasks))


def _check_paths(paths: Any) -> tuple[str, ...] | None:
    """Return paths as a tuple; raise `InvalidInputError` if they are not valid paths."""
    if paths is None:
        return None
    checked = (paths,) if isinstance(paths, str) else tuple(paths)
    if not checked or not all(isinstance(path, str) for path in checked):
        raise InvalidInputError(f"paths must be at least one path of an array or a group, not {paths!r}")
    return checked
