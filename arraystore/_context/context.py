"""The context that a repository and its sessions share: storage, caches, tips of branches and background work."""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing.util
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from arraystore._chunks.cache_budget import PROCESS
from arraystore._chunks.cache_usage import CacheStats
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._chunks.reader import ChunkReader
from arraystore._chunks.single_flight import SharedLoad
from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._commit.group_commit import GroupCommitter
from arraystore._context.config import RepositoryConfig
from arraystore._environment import Environment, current_environment
from arraystore._format.ids import SnapshotId
from arraystore._format.refs import Hint, name_in_key
from arraystore._log.branch_entries import deleted_error, settle
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip, refresh
from arraystore._log.repository_log import RepositoryLog
from arraystore._log.state import SnapshotState
from arraystore._maintenance.due import MOST_DETACHED, checkpoint_due
from arraystore._runtime import lazy_module, submit
from arraystore._runtime.values import dataclass
from arraystore.errors import ArrayStoreError, RefNotFoundError
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    from arraystore._maintenance import checkpoints, fold
else:
    checkpoints = lazy_module("arraystore._maintenance.checkpoints")
    fold = lazy_module("arraystore._maintenance.fold")

__all__ = ["Context"]

_logger = logging.getLogger("arraystore")
_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
_PATIENCE = 30.0
"""Seconds that a process waits at its end for background work; a checkpoint takes two requests."""


@dataclass(eq=False)
class _Branch:
    """A branch in this process: its log, the newest tip read, the time of that, and its committer."""

    log: BranchLog
    tip: Tip | None = None
    seen_at: int = 0
    committer: GroupCommitter | None = None

    @property
    def busy(self) -> bool:
        """True if transactions wait to be committed."""
        return self.committer is not None and self.committer.busy


@dataclass(eq=False)
class Context:
    """State shared by a repository and its sessions, pickled as its first four fields."""

    storage: Storage
    """The storage of the repository."""
    repository: bytes
    """Id of the repository."""
    config: RepositoryConfig
    """Configuration of the repository."""
    containers: VirtualContainers
    """Containers that virtual chunks may be read from."""
    environment: Environment = field(default_factory=current_environment)
    """Clock, sleep, random numbers and new ids."""
    hints: dict[str, Hint | None] = field(default_factory=dict)
    """Hints of branches just read; None for a missing one."""

    def __post_init__(self) -> None:
        self.manifests = ManifestCache(self.storage, self.repository, self.config.manifest_cache_bytes)
        self.reader = self._new_reader()
        self.repository_log = RepositoryLog(self.storage, self.repository, self.environment)
        self.imports: dict[str, SnapshotId] = {}
        """Snapshots by the id of what they are imports of, as far as somebody has looked for one."""
        self.checks: dict[SnapshotId, SharedLoad[None]] = {}
        """Checks whether a snapshot of which objects are missing is retained: those under way, or that said no."""
        self._branches: OrderedDict[str, _Branch] = OrderedDict()
        self._work: set[Future[None]] = set()
        self._maintained: set[str] = set()
        self._lock = threading.Lock()
        _contexts.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Context, (self.storage, self.repository, self.config, self.containers))

    def __repr__(self) -> str:
        return f"Context({self.storage.location!r})"

    def after_fork(self) -> None:
        """Drop, in a forked child, locks, tasks and caches that belong to threads of the parent."""
        self._lock = threading.Lock()
        self._work = set()
        for branch in self._branches.values():
            branch.committer = None
        self._maintained = set()
        self.checks = {}
        self.manifests = ManifestCache(self.storage, self.repository, self.config.manifest_cache_bytes)
        self.reader = self._new_reader()

    def _new_reader(self) -> ChunkReader:
        config = self.config
        sizes = config.verify_chunks, config.chunk_cache_bytes, config.chunk_statistics
        return ChunkReader(self.storage, self.manifests, self.containers.find, *sizes)

    def cache_stats(self) -> CacheStats:
        """Return what the caches hold, and how often they helped."""
        with self._lock:
            logs = [branch.log for branch in self._branches.values()]
        records = sum((log.usage for log in logs), CacheUsage())
        return CacheStats(
            self.manifests.usage, self.reader.blocks.usage, records, self.storage.disk_usage, PROCESS.usage
        )

    # -- branches -------------------------------------------------------------------------------------------

    def log(self, branch: str) -> BranchLog:
        """Return the log of a branch."""
        with self._lock:
            return self._branch(branch).log

    def _branch(self, branch: str) -> _Branch:
        """Return a branch as the one used most recently; the lock is held."""
        entry = self._branches.get(branch)
        if entry is None:
            log = BranchLog(self.storage, self.repository, branch, self.environment, self.config.log_cache_bytes)
            self._branches[branch] = entry = _Branch(log)
            self._forget_unused(branch)
        self._branches.move_to_end(branch)
        return entry

    def _forget_unused(self, newest: str) -> None:
        """Drop the branches used least recently beyond the configured count, except busy ones."""
        excess = len(self._branches) - max(1, self.config.branches_in_memory)
        for name, entry in list(self._branches.items()):
            if excess <= 0:
                return
            if name != newest and name not in self._maintained and not entry.busy:
                del self._branches[name]
                excess -= 1

    def committer(self, branch: str) -> GroupCommitter:
        """Return the committer of a branch for all sessions of this process."""
        with self._lock:
            entry = self._branch(branch)
            if entry.committer is None:
                entry.committer = GroupCommitter(
                    entry.log,
                    submit,
                    lambda: self.known_tip(branch),
                    self._finish_commit,
                    lambda: self._age(branch),
                    self.seen,
                    self.start,
                )
            return entry.committer

    def _age(self, branch: str) -> float:
        """Return the seconds since this process last read the tip of a branch."""
        entry = self._branches.get(branch)
        return (self.environment.now_us() - (0 if entry is None else entry.seen_at)) / 1e6

    def _finish_commit(self, tip: Tip, large: bool) -> None:
        self.seen(tip)
        self.after_commit(tip, large)

    async def tip(self, branch: str) -> Tip:
        """Return the tip of a branch, in one request if it is the one last read; raises `RefNotFoundError`."""
        name_in_key(branch)  # raises an error for an invalid name
        try:
            tip = await self.newest(branch)
        except RefNotFoundError:
            tip = None
        if tip is None or tip.state.life.deleted:  # unless it is being created and has no record yet
            table = await self.repository_log.table()
            tip = await settle(self.log(branch), table, tip)
            if tip.state.life.deleted:
                raise deleted_error(branch)
            self.seen(tip)
        return tip

    async def newest(self, branch: str) -> Tip:
        """Return the tip of a branch's log, even one that deletes the branch; raises `RefNotFoundError`."""
        log = self.log(branch)
        last = self.known_tip(branch)
        if last is not None:
            tip = await refresh(log, last)
        else:
            hint = self.hints.pop(branch) if branch in self.hints else await log.hint()
            tip = await load_tip(log, hint)
        self.seen(tip)
        return tip

    async def newest_state(self, branch: str) -> SnapshotState:
        """Return the newest state of a branch's log, even one that deletes the branch."""
        return (await self.newest(branch)).state

    def known_tip(self, branch: str) -> Tip | None:
        """Return the newest tip of a branch read by this process; None if it has read none."""
        entry = self._branches.get(branch)
        return None if entry is None else entry.tip

    def seen(self, tip: Tip) -> None:
        """Remember a tip if it is newer than the one remembered, whose checkpoint is kept."""
        self.environment.after(tip.state.life.fence)
        with self._lock:
            entry = self._branch(tip.state.branch)
            entry.seen_at = self.environment.now_us()
            if entry.tip is None:
                entry.tip = tip
            elif entry.tip.sequence <= tip.sequence:
                entry.tip = _with_checkpoint(tip, entry.tip.state)

    def enrich(self, state: SnapshotState) -> None:
        """Remember the checkpoint and the history pages of a state of a branch."""
        with self._lock:
            entry = self._branches.get(state.branch)
            if entry is not None and entry.tip is not None:
                entry.tip = _with_checkpoint(entry.tip, state)

    # -- background work ------------------------------------------------------------------------------------

    def after_commit(self, tip: Tip, large: bool) -> None:
        """Start the maintenance after a commit; `large` is a change log that readers would have to fetch."""
        branch = tip.state.branch
        newest = self.known_tip(branch)
        if newest is not None:
            tip = _with_checkpoint(tip, newest.state)
        large = large or tip.state.detached >= MOST_DETACHED
        with self._lock:
            if not large and (branch in self._maintained or not checkpoint_due(tip)):
                return
            self._maintained.add(branch)
        self.start(self._maintain(tip, large))

    async def _maintain(self, tip: Tip, large: bool) -> None:
        branch = tip.state.branch
        log = self.log(branch)
        try:
            periodic = await checkpoints.write_periodic(log, tip)
            if periodic is not None:
                self.enrich(periodic)
                tip = _with_checkpoint(tip, periodic)
            checkpoint = tip.state.checkpoint
            if large and (checkpoint is None or checkpoint.sequence < tip.sequence):
                reference = await checkpoints.write_checkpoint(log, tip.state)
                self.enrich(replace(tip.state, checkpoint=reference))
            if periodic is not None:
                self.seen(await fold.fold(log, self.known_tip(branch) or tip, self.reader))
        finally:
            with self._lock:
                self._maintained.discard(branch)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run maintenance in the background; a later commit retries what fails."""
        future = submit(_quietly(work))
        with self._lock:
            self._work.add(future)
        future.add_done_callback(self._work.discard)

    async def idle(self) -> None:
        """Wait until no background work is left."""
        while running := self.running():
            await asyncio.gather(*map(asyncio.wrap_future, running))

    def running(self) -> list[Future[None]]:
        """Return the futures of background work that is not done."""
        with self._lock:
            return [future for future in self._work if not future.done()]


def _with_checkpoint(tip: Tip, other: SnapshotState) -> Tip:
    """Return a tip with the checkpoint and pages of another state if they are newer, and not newer than the tip."""
    mine, theirs = tip.state.checkpoint, other.checkpoint
    if theirs is None or theirs.sequence > tip.sequence or (mine is not None and mine.sequence >= theirs.sequence):
        return tip
    return Tip(replace(tip.state, checkpoint=theirs, pages=other.pages, detached=0), tip.bodies)


def _finish() -> None:
    """Wait for background work at the end of the process, since no later commit may retry it."""
    awaited = [context for context in list(_contexts) if context.environment.awaited]
    wait([future for context in awaited for future in context.running()], timeout=_PATIENCE)


atexit.register(_finish)


def _finish_in_children(finish: Callable[[], None]) -> None:
    """Register `_finish` in processes of multiprocessing, which end without atexit."""
    multiprocessing.util.Finalize(None, finish, exitpriority=0)


_finish_in_children(_finish)
multiprocessing.util.register_after_fork(_finish, _finish_in_children)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Run maintenance, logging its errors: no commit depends on it."""
    try:
        await work
    except ArrayStoreError as error:
        _logger.warning("background maintenance failed, a later commit tries it again: %s", error)


def _after_fork() -> None:
    for context in list(_contexts):
        context.after_fork()


os.register_at_fork(after_in_child=_after_fork)
