"""Copying a branch, a tag or a snapshot to another repository, with its history or without."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from arraystore._log.state import SnapshotState
from arraystore._repository.arguments import check_repository
from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore._repository.snapshots import SnapshotInfo
from arraystore._runtime import run
from arraystore._runtime.engine import Engine, EngineOption, caller_engine
from arraystore._runtime.progress import callback_of, shows_progress
from arraystore._session.session import Session
from arraystore.copying.changes import apply_changes
from arraystore.copying.errors import CopyDivergedError, CopyTargetError
from arraystore.copying.provenance import copied_from, time_of, time_of_copy, with_origin
from arraystore.copying.report import BranchCopyReport, CopyCounter, CopyProgressCallback
from arraystore.errors import ConflictError, InvalidInputError, RepositoryNotFoundError, SnapshotNotFoundError
from arraystore.storage.protocol import Storage
from arraystore.storage.sharing import engine_for

__all__ = ["copy_branch", "copy_branch_async", "first_snapshot", "tip_of"]

_AHEAD = 4
"""Snapshots of the source that are opened while one is copied."""


@shows_progress("Copying")
def copy_branch(
    source: Repository,
    target: Storage | Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    to_branch: str | None = None,
    history: bool = False,
    message: str | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> BranchCopyReport:
    """Copy a branch, a tag or a snapshot to a branch of another repository.

    Metadata documents are copied byte for byte and chunks as they are encoded, packed anew; virtual references stay
    references to the same objects.  Called again, it copies what has changed since: the metadata of each copied commit
    names the snapshot that it is a copy of.

    Parameters
    ----------
    source
        Repository to copy from.
    target
        Repository to copy to, or a storage: a repository is created there if there is none.
    branch, tag, snapshot_id
        What to copy; exactly one.
    to_branch
        Branch of the target, created if there is none; by default the same name, and ``main`` for a tag or a snapshot.
    history
        Whether each snapshot becomes a commit, with its message and metadata.  Otherwise there is one commit.
    message
        Of the one commit; by default that of the snapshot.
    metadata
        Added to that of each commit.
    overwrite
        Whether content of the target's branch that is not a copy may be replaced.
    engine
        Where chunks are copied: ``"threads"`` of this process, ``"spark"`` for the executors of the active session, or
        an engine (`arraystore.spark.engine`).  Each snapshot is committed by this process.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with a `CopyProgress` after
        each object, or each task of an engine.

    Raises
    ------
    CopyTargetError
        If the target's branch has content that is not a copy.
    CopyDivergedError
        If the target's branch is a copy of a snapshot that is not in the source's history any more, or another writer
        commits to it.
    """
    return run(
        copy_branch_async(
            source,
            target,
            branch=branch,
            tag=tag,
            snapshot_id=snapshot_id,
            to_branch=to_branch,
            history=history,
            message=message,
            metadata=metadata,
            overwrite=overwrite,
            engine=caller_engine(engine),
            progress=progress,
        )
    )


@shows_progress("Copying")
async def copy_branch_async(
    source: Repository,
    target: Storage | Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    to_branch: str | None = None,
    history: bool = False,
    message: str | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> BranchCopyReport:
    """Asynchronous twin of `copy_branch`."""
    if history and message is not None:
        raise InvalidInputError("with history each commit keeps its own message; leave message out, or history")
    check_repository(source)
    workers = engine_for(engine, source.storage, target.storage if isinstance(target, Repository) else target)
    wanted = (await source.readonly_session_async(branch, tag=tag, snapshot_id=snapshot_id)).snapshot_id
    name = to_branch or branch or MAIN
    repo = await _open_target(target, source)
    if repo.storage.location == source.storage.location and name == branch:
        raise InvalidInputError(f"branch {name!r} cannot be copied onto itself; name another one in to_branch")
    counter = CopyCounter(callback_of(progress))
    counter.enter("snapshots")
    copy = _Copy(source, repo, name, metadata or {}, counter, overwrite, workers)
    await copy.prepare()
    if copy.copied_snapshot == wanted:
        return copy.report()
    if history:
        async for info, session in _open_ahead(source, await copy.missing(wanted)):
            await copy.commit(session, info, info.message)
    else:
        info = await source.lookup_snapshot_async(wanted)
        session = await source.readonly_session_async(snapshot_id=wanted)
        await copy.commit(session, info, info.message if message is None else message)
    return copy.report()


@dataclass(eq=False)
class _Copy:
    """Copies snapshots of one repository to a branch of another."""

    _source: Repository
    _target: Repository
    _branch: str
    _metadata: dict[str, Any]
    _counter: CopyCounter
    _overwrite: bool
    _engine: Engine | None
    _state: SnapshotState | None = None
    _commits: int = 0
    _is_copy: bool = False
    _time: int = 0
    tip: str = ""
    """Newest snapshot of the target's branch."""
    copied_snapshot: str | None = None
    """Snapshot of the source that `tip` is a copy of; None if it is not a copy, or the source no longer has it."""

    async def prepare(self) -> None:
        """Read which snapshot the target's branch is a copy of, and create the branch if it does not exist."""
        if self._branch not in await self._target.list_branches_async():
            first = await first_snapshot(self._target)
            await self._target.create_branch_async(self._branch, first.id)
        shown = await tip_of(self._target, self._branch)
        self.tip, self._time = shown.id, time_of(shown)
        origin = copied_from(shown)
        if origin is not None:
            self._is_copy = True
            try:
                opened = await self._source.readonly_session_async(snapshot_id=origin)
            except (SnapshotNotFoundError, InvalidInputError):
                return
            self.copied_snapshot, self._state = origin, opened.hierarchy.state
        elif not self._overwrite and (await self._open_tip()).hierarchy.state.nodes:
            raise CopyTargetError(
                f"branch {self._branch!r} of {self._target.storage.location} has content that is not a copy; name "
                "another branch, or pass overwrite=True to replace it by a commit"
            )

    async def _open_tip(self) -> Session:
        return await self._target.readonly_session_async(snapshot_id=self.tip)

    async def missing(self, wanted: str) -> list[SnapshotInfo]:
        """Return the snapshots of a history that the target's branch lacks, oldest first."""
        infos: list[SnapshotInfo] = []
        async for info in self._source.async_ancestry(snapshot_id=wanted):
            if info.id == self.copied_snapshot:
                return infos[::-1]
            infos.append(info)
        if self._is_copy and not self._overwrite:
            raise CopyDivergedError(
                f"branch {self._branch!r} of {self._target.storage.location} is a copy of a snapshot that is not in "
                f"the history of {wanted}; copy to another branch, copy without history, or pass overwrite=True"
            )
        self._state = None
        if infos[-1].parent_id is None and not (await self._open_tip()).hierarchy.state.nodes:
            first = await self._source.readonly_session_async(snapshot_id=infos[-1].id)
            if not first.hierarchy.state.nodes:
                infos.pop()  # a repository begins with an empty snapshot, and so does the other one
        return infos[::-1]

    async def commit(self, opened: Session, info: SnapshotInfo, message: str) -> None:
        """Commit the copy of one snapshot."""
        session = await self._target.writable_session_async(self._branch)
        if session.snapshot_id != self.tip:
            raise self._overtaken_error()
        await apply_changes(session, self._state, opened, self._counter, self._engine)
        session.written = self._time = time_of_copy(info.written_at, self._time)
        metadata = with_origin({**info.metadata, **self._metadata}, info.id, info.written_at)
        try:
            self.tip = await session.commit_async(message, metadata, allow_empty=True)
        except ConflictError as error:
            raise self._overtaken_error() from error
        self.copied_snapshot, self._state = info.id, opened.hierarchy.state
        self._commits += 1

    def _overtaken_error(self) -> CopyDivergedError:
        return CopyDivergedError(
            f"another writer commits to branch {self._branch!r} of {self._target.storage.location} while it is copied "
            "to; copy to a branch of its own"
        )

    def report(self) -> BranchCopyReport:
        """Return the report of the copy."""
        counter = self._counter
        return BranchCopyReport(self._branch, self.tip, self._commits, counter.objects, counter.bytes, counter.virtual)


async def _open_ahead(source: Repository, infos: Sequence[SnapshotInfo]) -> AsyncIterator[tuple[SnapshotInfo, Session]]:
    """Open snapshots ahead of the one that is being copied."""
    opening: deque[tuple[SnapshotInfo, asyncio.Task[Session]]] = deque()
    rest = iter(infos)
    try:
        while True:
            while len(opening) < _AHEAD and (info := next(rest, None)) is not None:
                opening.append((info, asyncio.create_task(source.readonly_session_async(snapshot_id=info.id))))
            if not opening:
                return
            info, task = opening.popleft()
            yield info, await task
    finally:
        for _, task in opening:
            task.cancel()


async def _open_target(target: Storage | Repository, source: Repository) -> Repository:
    """Open the target's repository, or create one with the configuration of the source."""
    if isinstance(target, Repository):
        return target
    try:
        return await Repository.open_async(target)
    except RepositoryNotFoundError:
        return await Repository.open_or_create_async(target, source.config)


async def tip_of(repo: Repository, branch: str) -> SnapshotInfo:
    """Return the newest snapshot of a branch."""
    async for info in repo.async_ancestry(branch=branch):
        return info
    raise SnapshotNotFoundError(f"branch {branch!r} of {repo.storage.location} has no snapshot")


async def first_snapshot(repo: Repository) -> SnapshotInfo:
    """Return the oldest snapshot of a repository's main branch, from which new branches start."""
    first: SnapshotInfo | None = None
    async for info in repo.async_ancestry(branch=MAIN):
        first = info
    if first is None:
        raise SnapshotNotFoundError(f"branch {MAIN!r} of {repo.storage.location} has no snapshot")
    return first
