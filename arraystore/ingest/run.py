"""An ingest from end to end: look at sources and group, plan, check, write through Spark, commit once."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from arraystore import ConflictDetector, Repository
from arraystore._runtime import run
from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.ingest.model import GroupInfo
from arraystore.ingest.plan import IngestPlan, plan_ingest
from arraystore.ingest.regions import regions_of
from arraystore.ingest.source import describe_source
from arraystore.ingest.target import make_array, normal_group, read_group, require_group, resize_array
from arraystore.ingest.transfer import RegionTransfer
from arraystore.ingest.values import check_values
from arraystore.spark.cluster import parallelism, start_session
from arraystore.spark.fork_job import merge_outcomes, run_tasks
from arraystore.spark.regions.write_regions import TASKS_PER_SLOT
from arraystore.storage import Storage
from arraystore.storage.sharing import check_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Result of an ingest."""

    snapshot_id: str
    plan: IngestPlan
    message: str
    seconds: float
    retried: int
    """Tasks whose first attempt failed."""


@dataclass(frozen=True, slots=True)
class PreparedIngest:
    """A checked plan, not yet carried out."""

    plan: IngestPlan
    storage: Storage
    branch: str
    session: Session | None
    """None if the repository does not exist yet."""


def prepare(
    sources: Sequence[str | os.PathLike[str]],
    storage: Storage,
    *,
    group: str = "",
    branch: str = "main",
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    tasks: int | None = None,
    skip: Sequence[str] = (),
    source_group: str | None = None,
    master: str | None = None,
) -> PreparedIngest:
    """Plan an ingest and make every check that needs no task, without changing the repository.

    Parameters are those of `ingest`.
    """
    infos = [describe_source(_absolute(source), source_group) for source in sources]
    session = _session(storage, branch)
    path = normal_group(group)
    target = GroupInfo(f"/{path}", False) if session is None else read_group(session.store, path)
    planned = TASKS_PER_SLOT * parallelism(master) if tasks is None else tasks
    plan = plan_ingest(infos, target, append_dim=append_dim, chunks=chunks, tasks=planned, skip=skip)
    remarks = check_values(plan, session if target.exists else None)
    return PreparedIngest(replace(plan, notes=(*plan.notes, *remarks)), storage, branch, session)


def _absolute(source: str | os.PathLike[str]) -> str:
    """Return a source as an absolute path, because executors may run in another directory."""
    text = os.fspath(source).removeprefix("file://")
    return text if "://" in text else os.path.abspath(text)


def _session(storage: Storage, branch: str) -> Session | None:
    if Repository.exists(storage):
        return Repository.open(storage).writable_session(branch)
    if branch != "main":
        raise InvalidInputError(
            f"there is no repository at {storage.location}, and a new one has no branch {branch!r} yet; use main"
        )
    return None


@shows_progress("Writing")
def ingest(
    sources: Sequence[str | os.PathLike[str]],
    storage: Storage,
    *,
    group: str = "",
    branch: str = "main",
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    tasks: int | None = None,
    skip: Sequence[str] = (),
    source_group: str | None = None,
    message: str | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress | bool = False,
) -> IngestReport:
    """Copy NetCDF, HDF5 or Zarr sources into a repository, in one commit.

    Parameters
    ----------
    sources
        Paths, readable by every executor; Zarr groups may be URLs.
    storage
        Where the repository is; it is created if it does not exist.
    group
        Group that takes the variables.
    append_dim
        Dimension along which the sources follow each other, and along which existing arrays grow.
    chunks
        Chunk sizes of new arrays by dimension.
    tasks
        Largest number of tasks; by default three for each slot of the cluster.
    skip
        Variables to leave out.
    source_group
        Group within the sources.
    message
        Message of the commit.
    spark
        Session to use; by default the active one, or a new one at `master`.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with the tasks done and their
        total.

    Raises
    ------
    IngestError
        If the sources cannot be read or do not fit; no task has started then.
    TaskFailedError
        If a task failed for good.
    RebaseFailedError
        If a concurrent commit conflicts with it, by changing the same variables for instance; appends along the same
        dimension do not conflict if they end at chunk boundaries.
    """
    prepared = prepare(
        sources, storage, group=group, branch=branch, append_dim=append_dim, chunks=chunks, tasks=tasks, skip=skip,
        source_group=source_group, master=master,
    )  # fmt: skip
    return carry_out(prepared, message=message, spark=spark, master=master, progress=progress)


@shows_progress("Writing")
def carry_out(
    prepared: PreparedIngest,
    *,
    message: str | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress | bool = False,
) -> IngestReport:
    """Carry out a plan."""
    plan = prepared.plan
    if plan.tasks:
        check_shared(prepared.storage, "executors")
    if plan.tasks and spark is None:
        spark = start_session(master)  # first, so that a missing Java leaves nothing behind
    began = time.perf_counter()
    session = prepared.session or Repository.create(prepared.storage).writable_session(prepared.branch)
    _prepare_group(plan, session)
    text = message or _default_message(plan)
    retried = 0
    if plan.tasks and spark is not None:
        work, report = RegionTransfer.of(plan), callback_of(progress)
        outcomes = run_tasks(spark, session, plan.tasks, work, description=text, progress=report)
        merge_outcomes(session, outcomes)
        retried = sum(outcome.attempt > 0 for outcome in outcomes)
    snapshot = session.commit(text, metadata=_metadata(plan), rebase_with=ConflictDetector())
    run(session.context.idle())  # a batch job leaves nothing behind in the background
    return IngestReport(snapshot, plan, text, time.perf_counter() - began, retried)


def _prepare_group(plan: IngestPlan, session: Session) -> None:
    """Create and grow arrays and write the small ones, before tasks start."""
    group = require_group(session.store, plan.group.path, plan.group_attrs)
    with session.appending(plan.append_dim) if plan.append_dim else nullcontext():
        for array in plan.arrays:
            (make_array if array.is_new else resize_array)(group, array)
    small = [region for array in plan.arrays if array.on_driver for region in regions_of(array, array.nbytes)]
    RegionTransfer.of(plan)(session, small)


def _default_message(plan: IngestPlan) -> str:
    """Return the default message of the commit."""
    what = plan.sources[0].name if len(plan.sources) == 1 else f"{len(plan.sources)} sources"
    if plan.appends:
        return f"Append {what} to {plan.group.path} along {plan.append_dim}"
    return f"Ingest {what} into {plan.group.path}"


def _metadata(plan: IngestPlan) -> dict[str, Any]:
    """Return metadata for the commit; names only, since a path or URL may hold a secret."""
    return {
        "ingest.sources": [source.name for source in plan.sources],
        "ingest.group": plan.group.path,
        "ingest.append_dim": plan.append_dim,
        "ingest.arrays": [array.name for array in plan.arrays],
        "ingest.bytes": plan.nbytes,
        "ingest.tasks": len(plan.tasks),
    }
