"""The branch that holds the progress of a rechunking, so that an interrupted one is resumed.

It starts at the snapshot that is rechunked.  The first commit and its amendments are one snapshot above it, whose
metadata say how far the copies are; a last one that has only the result is repeated on the branch of the caller.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from arraystore._history.diff import Diff
from arraystore._repository.repository import Repository
from arraystore._session.session import Session
from arraystore.errors import AlreadyExistsError, RefNotFoundError

_KEY = "rechunk"
_VERSION = 1


@dataclass(frozen=True)
class RechunkJob:
    """Job of a rechunking; the same one is resumed."""

    branch: str
    path: str
    target: str
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    overwrite: bool

    @property
    def digest(self) -> str:
        """Text that identifies the job."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def work_branch(self) -> str:
        """Name of the branch that holds its progress."""
        return f"rechunk-{self.digest}"

    @property
    def intermediate(self) -> str:
        """Path of the intermediate array on that branch."""
        return f"rechunk-intermediate-{self.digest}"


@dataclass(frozen=True)
class JobProgress:
    """Progress of a job."""

    base: str
    """Id of the snapshot that is rechunked."""
    memory: int
    parallel: int
    """What the plan was made with."""
    plan: str
    """Digest of the plan."""
    stage: int = 0
    """Stages that are complete."""
    done: int = 0
    """Boxes of the next stage that are copied."""
    begun: bool = False
    """True if the branch has a commit of the job."""

    def metadata(self, job: RechunkJob) -> dict[str, Any]:
        """Return the metadata of the commit that has this progress."""
        values = asdict(self)
        del values["begun"], values["base"]
        return {_KEY: {"version": _VERSION, "job": job.digest, **values}}


def start(repo: Repository, job: RechunkJob, fresh: JobProgress) -> None:
    """Create the branch of a job at its base, or move one there on which nothing was committed."""
    try:
        repo.create_branch(job.work_branch, fresh.base)
    except AlreadyExistsError:
        repo.reset_branch(job.work_branch, fresh.base)


def find_progress(repo: Repository, job: RechunkJob) -> JobProgress | None:
    """Return the progress of a job that was interrupted; None if none was, or before its first commit."""
    try:
        info = repo.lookup_snapshot(repo.lookup_branch(job.work_branch))
    except RefNotFoundError:
        return None
    values = info.metadata.get(_KEY)
    if not isinstance(values, dict) or info.parent_id is None:
        return None
    names = ("memory", "parallel", "stage", "done")
    if values.get("version") != _VERSION or values.get("job") != job.digest:
        return None
    counts = {name: values[name] for name in names if type(values.get(name)) is int and values[name] >= 0}
    if len(counts) < len(names):
        return None
    return JobProgress(info.parent_id, **counts, plan=str(values.get("plan")), begun=True)


def find_result(repo: Repository, job: RechunkJob, base: str, tip: str) -> str | None:
    """Return the commit that an earlier call made of the finished branch before it could delete that."""
    for info in repo.ancestry(branch=job.branch):
        if info.metadata.get("cherry_picked_from") == tip:
            return info.id
        if info.id == base:
            return None
    return None


def is_outdated(repo: Repository, job: RechunkJob, base: str, result: str) -> bool:
    """Tell whether the array has changed since the snapshot that was rechunked, or the result since its commit."""
    since = {job.target: result} | ({job.path: base} if job.path != job.target else {})
    return any(_changes(repo.diff(from_snapshot_id=old, to_branch=job.branch), path) for path, old in since.items())


def _changes(diff: Diff, path: str) -> bool:
    changed = {*diff.new_arrays, *diff.deleted_arrays, *diff.updated_arrays, *diff.updated_chunks}
    moved = {*diff.moved_nodes, *diff.moved_nodes.values()}
    return f"/{path}" in changed or any(f"/{path}/".startswith(f"{each}/") for each in moved)


def save_progress(session: Session, job: RechunkJob, progress: JobProgress, message: str) -> JobProgress:
    """Commit the changes of a session of the branch with the progress that they make."""
    metadata = progress.metadata(job)
    if progress.begun:
        session.amend(message, metadata=metadata, allow_empty=True)
    else:
        session.commit(message, metadata=metadata)
    return replace(progress, begun=True)
