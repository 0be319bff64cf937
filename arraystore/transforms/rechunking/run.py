"""Rechunking an array of a branch, in one commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from arraystore._format.types import Int64s
from arraystore._repository.arguments import check_repository
from arraystore._repository.repository import Repository
from arraystore._runtime import run as run_async
from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.session import Session
from arraystore.errors import ConflictError, InvalidInputError, RebaseFailedError, RefNotFoundError
from arraystore.transforms.arrays import ArrayShape, check_result, describe_array, open_array
from arraystore.transforms.boxes import cells, cut_boxes, share_out, touched_boxes
from arraystore.transforms.engines import TASKS_PER_SLOT, EngineOption, TransformEngine, transform_engine
from arraystore.transforms.rechunking.copying import BoxCopier
from arraystore.transforms.rechunking.layout import (
    ChunksLike,
    create_intermediate,
    create_rechunked,
    resolve_chunks,
    resolve_shards,
)
from arraystore.transforms.rechunking.plan import DEFAULT_MEMORY, FEWEST_BOXES, RechunkPlan, Stage, plan_copies
from arraystore.transforms.rechunking.work_branch import (
    JobProgress,
    RechunkJob,
    find_progress,
    find_result,
    is_outdated,
    save_progress,
    start,
)

_BATCH_BYTES = 16 << 30
"""Bytes that are copied between commits of the work branch, if that is enough for all slots to be busy."""
_TASK_BYTES = 32 << 20
"""Bytes of boxes that are put into one task, where boxes are smaller."""
_ROUNDS = 16
"""Boxes of a batch for each slot, at least."""


@dataclass(frozen=True, slots=True)
class RechunkReport:
    """Result of a rechunking.

    Parameters
    ----------
    snapshot_id
        The commit; None if the array had these chunks already.
    plan
        The plan, whose text lists its stages.
    resumed
        Whether an interrupted run was continued.
    boxes, tasks
        Boxes that this run copied, and the tasks that did.
    nbytes
        Size of the values that this run copied, in bytes.
    attempts_wasted
        Attempts of tasks that failed before one succeeded.
    seconds
        Duration.
    """

    snapshot_id: str | None
    plan: RechunkPlan
    resumed: bool
    boxes: int
    tasks: int
    nbytes: int
    attempts_wasted: int
    seconds: float


def plan_rechunk(
    repo: Repository,
    path: str,
    chunks: ChunksLike,
    *,
    branch: str = "main",
    shards: ChunksLike | None = None,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
) -> RechunkPlan:
    """Plan a rechunking, without changing anything.

    Parameters
    ----------
    repo, path, chunks, branch, shards, memory, engine
        As in `rechunk`.

    Returns
    -------
    RechunkPlan
        The stages, with their boxes, chunks, bytes and memory; ``print(plan)`` lists them.

    Raises
    ------
    NodeNotFoundError, RefNotFoundError, InvalidInputError
        As `rechunk`.
    """
    check_repository(repo)
    array = describe_array(repo.readonly_session(branch), path)
    sides = resolve_chunks(array, chunks)
    unit = resolve_shards(array, sides, shards) or sides
    return _plan(array, unit, memory, _parallel(transform_engine(engine)))


@shows_progress("Rechunking")
def rechunk(
    repo: Repository,
    path: str,
    chunks: ChunksLike,
    *,
    branch: str = "main",
    target: str | None = None,
    shards: ChunksLike | None = None,
    memory: int = DEFAULT_MEMORY,
    overwrite: bool = False,
    message: str | None = None,
    engine: EngineOption = "threads",
    batch_bytes: int | None = None,
    restart: bool = False,
    progress: Progress | bool = False,
) -> RechunkReport:
    """Copy an array of a branch into other chunks, in bounded memory and one commit.

    Data type, codecs, fill value, attributes and names of dimensions stay; chunks that were never written are not
    written.  Tasks copy boxes of cells, directly or through one intermediate array, as `plan_rechunk` says.  Copies are
    saved on a branch of their own, ``rechunk-…``: an interrupted call is resumed by the same call, and the branch is
    deleted at the end.  What was on it and is not part of the result is deleted by garbage collection.

    The result is that of the snapshot at the start.  Other commits meanwhile are kept; if they change the array that is
    replaced, nothing is committed.

    Parameters
    ----------
    repo
        The repository.
    path
        Path of the array.
    chunks
        Sides of chunks: by dimension, where the others stay, or of all; -1 for a whole dimension.
    branch
        Branch to read from and to commit to.
    target
        Path of the result; by default the array itself is replaced.
    shards
        Sides of shards, which hold whole chunks; without shards by default.
    memory
        Bytes of values that a task may hold. An interrupted call is resumed with the boxes that it began with, if they
        keep to this limit.
    overwrite
        Whether a node at `target` is replaced.
    message
        Message of the commit.
    engine
        ``"threads"`` of this process, ``"spark"``, or an engine.
    batch_bytes
        Bytes that are copied before they are saved; by default 16 GiB, or sixteen boxes for each task that runs at
        once.
    restart
        Whether to begin anew instead of resuming.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with the count of copied boxes
        and the count of all.

    Raises
    ------
    NodeNotFoundError, RefNotFoundError
        If there is no such array or branch.
    InvalidInputError
        If chunks or memory are not possible, there is a node at `target`, or an interrupted call that would be resumed
        needs more memory.
    RebaseFailedError
        If others changed the array that is replaced, or created a node at `target`, meanwhile.
    ConflictError, RefNotFoundError
        If another process runs the same rechunking, and went on or has finished.
    TransformError, TaskFailedError
        If a task failed for good; call it again to resume.
    """
    began = time.perf_counter()
    runner = transform_engine(engine)
    _check_bytes("memory", memory)
    _check_bytes("batch_bytes", batch_bytes)
    check_repository(repo)
    session = repo.readonly_session(branch)
    array = describe_array(session, path)
    sides = resolve_chunks(array, chunks)
    unit = resolve_shards(array, sides, shards)
    job = RechunkJob(branch, array.path, (target or path).strip("/"), sides, unit, overwrite)
    saved = None if restart else _resumable(repo, job, memory)
    if saved is None and job.target == job.path and (array.read_unit, array.write_unit) == (sides, unit or sides):
        nothing = RechunkPlan(array.shape, array.itemsize, memory, None, ())
        return RechunkReport(None, nothing, False, 0, 0, 0, 0, time.perf_counter() - began)
    plan = _plan(array, unit or sides, memory, _parallel(runner))
    fresh = JobProgress(session.snapshot_id, memory, _parallel(runner), plan.digest)
    if saved is None:
        if job.target != job.path:
            check_result(session, job.path, job.target, overwrite=overwrite)
        start(repo, job, fresh)
    run = _Run(repo, job, saved or fresh, runner, batch_bytes or _BATCH_BYTES, callback_of(progress))
    run.copy()
    snapshot = run.finish(message or f"Rechunk {job.path} to {job.target} in chunks of {'×'.join(map(str, sides))}")
    return run.report(snapshot, resumed=saved is not None, seconds=time.perf_counter() - began)


def _resumable(repo: Repository, job: RechunkJob, memory: int) -> JobProgress | None:
    """Return the progress of an interrupted call, None if there is none, or none that is of use any more."""
    saved = find_progress(repo, job)
    if saved is None:
        return None
    array = describe_array(repo.readonly_session(snapshot_id=saved.base), job.path)
    plan = _plan(array, job.shards or job.chunks, saved.memory, saved.parallel)
    if plan.digest != saved.plan:
        return None  # of another release, which cuts other boxes
    tip = repo.lookup_branch(job.work_branch)
    result = find_result(repo, job, saved.base, tip)
    if result is None or not is_outdated(repo, job, saved.base, result):
        _check_memory(plan.stages[saved.stage :], job, memory)
        return saved
    repo.delete_branch(job.work_branch, from_snapshot_id=tip)
    return None


def _check_memory(stages: Sequence[Stage], job: RechunkJob, memory: int) -> None:
    """Check that what is left of an interrupted call, whose boxes are cut already, keeps to a limit."""
    held = max((stage.memory for stage in stages), default=0)
    if held > memory:
        raise InvalidInputError(
            f"memory={memory} is less than tasks of the interrupted rechunking of {job.path!r} hold, {held} bytes: its "
            f"boxes were cut for another limit. Pass memory={held} or more to resume it, or restart=True to begin anew"
        )


def _check_bytes(name: str, count: object) -> None:
    if count is not None and (type(count) is not int or count < 1):
        raise InvalidInputError(f"{name}={count!r} must be an integer count of bytes >= 1")


def _parallel(engine: TransformEngine) -> int:
    return max(FEWEST_BOXES, TASKS_PER_SLOT * engine.slots)


def _plan(array: ArrayShape, unit: tuple[int, ...], memory: int, parallel: int) -> RechunkPlan:
    return plan_copies(array.shape, array.itemsize, array.read_unit, unit, memory, parallel)


class _Run:
    """One call for a job: copies what is left to copy, and commits the result."""

    def __init__(
        self,
        repo: Repository,
        job: RechunkJob,
        state: JobProgress,
        engine: TransformEngine,
        batch_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._repo, self._job, self._state, self._engine = repo, job, state, engine
        self._batch_bytes, self._progress = batch_bytes, progress
        self._base = repo.readonly_session(snapshot_id=state.base)
        self._array = describe_array(self._base, job.path)
        self._chunks = self._base.chunk_coordinates(job.path)
        self.plan = _plan(self._array, job.shards or job.chunks, state.memory, state.parallel)
        self._boxes = [self._stage_boxes(stage) for stage in self.plan.stages]
        self._copied = self._tasks = self._nbytes = self._wasted = 0

    def _stage_boxes(self, stage: Stage) -> Int64s:
        """Return the boxes of a stage in which the source has chunks."""
        shape = self.plan.shape
        boxes = cut_boxes(shape, stage.box)
        return boxes[touched_boxes(shape, stage.box, self._array.write_unit, self._chunks)]

    # -- copying --------------------------------------------------------------------------------------------

    def copy(self) -> None:
        """Copy what is left to copy, and save each batch on the branch of the job."""
        try:
            if not self._state.begun:
                self._begin()
            for number in range(self._state.stage, len(self.plan.stages)):
                self._copy_stage(number)
        except (ConflictError, RefNotFoundError) as error:
            error.add_note(f"another process seems to run the same rechunking, on branch {self._job.work_branch!r}")
            raise

    def _begin(self) -> None:
        """Make the first commit of the branch, or leave no branch behind."""
        try:
            self._save(self._create(), self._state)
        except Exception:
            self._repo.delete_branch(self._job.work_branch, from_snapshot_id=self._state.base)
            raise

    def _create(self) -> Session:
        """Return a session of the branch with the arrays that are to be written."""
        session, job = self._repo.writable_session(self._job.work_branch), self._job
        source = open_array(self._base, job.path)
        replaces = job.overwrite or job.target == job.path
        create_rechunked(session, source, job.target, job.chunks, job.shards, overwrite=replaces)
        if self.plan.intermediate is not None:
            create_intermediate(session, source, job.intermediate, self.plan.intermediate)
        return session

    def _copy_stage(self, number: int) -> None:
        stage, boxes = self.plan.stages[number], self._boxes[number]
        size = max(1, self._batch_bytes // (int(np.prod(stage.box)) * self.plan.itemsize), _ROUNDS * self._engine.slots)
        for start_at in range(self._state.done, len(boxes), size):
            session = self._repo.writable_session(self._job.work_branch)
            batch = boxes[start_at : start_at + size]
            self._copy_boxes(session, number, batch)
            self._save(session, replace(self._state, done=start_at + len(batch)))
        session = self._repo.writable_session(self._job.work_branch)
        if self.plan.intermediate is not None and number == len(self.plan.stages) - 1:
            run_async(session.store.delete_dir(self._job.intermediate))
        self._save(session, replace(self._state, stage=number + 1, done=0))

    def _copy_boxes(self, session: Session, number: int, boxes: Int64s) -> None:
        """Copy boxes of a stage into a session."""
        stage, job = self.plan.stages[number], self._job
        shares = [boxes[part] for part in share_out(cells(boxes), self._most_tasks(len(boxes)))]
        paths = {"source": job.path, "intermediate": job.intermediate, "target": job.target}
        source = self._base if stage.source == "source" else None
        copier = BoxCopier(source, paths[stage.source], paths[stage.target], self._array.dims)
        text = f"rechunk {job.path}, {stage.source} to {stage.target}, {len(boxes)} boxes"
        results = self._engine.run_forks(
            session, copier, shares, description=text, progress=self._tell(sum(map(len, self._boxes[:number])), shares)
        )
        self._copied += len(boxes)
        self._tasks += len(results)
        self._nbytes += sum(result.nbytes for result in results)
        self._wasted += sum(result.attempt for result in results)

    def _most_tasks(self, boxes: int) -> int:
        """Return a count of tasks for so many boxes: a box is enough work for one, unless it is small."""
        small = max(1, _TASK_BYTES // max(1, self.plan.nbytes * len(self.plan.stages) // max(1, self._all)))
        return max(self._engine.slots * TASKS_PER_SLOT, -(-boxes // small))

    @property
    def _all(self) -> int:
        return sum(map(len, self._boxes))

    def _tell(self, earlier: int, shares: Sequence[Int64s]) -> Progress | None:
        """Return a callback that counts boxes of all stages from tasks of one batch."""
        report, before = self._progress, earlier + self._state.done
        if report is None:
            return None
        ends = np.cumsum([0, *map(len, shares)])

        def tell(done: int, _: int) -> None:
            report(before + int(ends[done]), self._all)

        return tell

    def _save(self, session: Session, state: JobProgress) -> None:
        text = f"Rechunking {self._job.path}: stage {state.stage + 1}, {state.done} boxes"
        self._state = save_progress(session, self._job, state, text)

    # -- finishing ------------------------------------------------------------------------------------------

    def finish(self, message: str) -> str:
        """Commit the result to the branch of the caller, once, and delete the branch of the job."""
        job, repo = self._job, self._repo
        tip = repo.lookup_branch(job.work_branch)
        snapshot = find_result(repo, job, self._state.base, tip)
        if snapshot is None:
            try:
                snapshot = repo.cherry_pick(tip, branch=job.branch, message=message)
            except RebaseFailedError:
                repo.delete_branch(job.work_branch, from_snapshot_id=tip)
                raise
        repo.delete_branch(job.work_branch, from_snapshot_id=tip)
        return snapshot

    def report(self, snapshot: str, *, resumed: bool, seconds: float) -> RechunkReport:
        """Return the report of this call."""
        return RechunkReport(
            snapshot, self.plan, resumed, self._copied, self._tasks, self._nbytes, self._wasted, seconds
        )
