"""What sessions of one repository share in a process: storage, caches, the branches as last seen, background work."""

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
from dataclasses import dataclass, field, replace
from typing import Any

from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._chunks.reader import ChunkReader
from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._commit.group_commit import GroupCommitter
from arraystore._config import RepositoryConfig
from arraystore._environment import Environment, current_environment
from arraystore._format.refs import Hint, name_in_key
from arraystore._log.branch_entries import deleted_error, settle
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip, refresh
from arraystore._log.repository_log import RepositoryLog
from arraystore._log.state import State
from arraystore._maintenance.checkpoints import MOST_DETACHED, checkpoint_due, write_checkpoint, write_periodic
from arraystore._maintenance.fold import fold
from arraystore._runtime import submit
from arraystore.errors import ArrayStoreError, RefNotFoundError
from arraystore.storage.protocol import Storage

__all__ = ["Context"]

_logger = logging.getLogger("arraystore")
_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
_PATIENCE = 30.0
"""Most seconds that a process waits at its end for background work; a checkpoint takes two requests."""


@dataclass(eq=False)
class _Branch:
    """A branch as this process knows it: its log, its newest record and when that was looked for, its committer."""

    log: BranchLog
    tip: Tip | None = None
    seen_at: int = 0
    committer: GroupCommitter | None = None

    @property
    def busy(self) -> bool:
        """Whether transactions wait to be committed."""
        return self.committer is not None and self.committer.busy


@dataclass(eq=False)
class Context:
    """Shared by a repository and its sessions; pickles as its first four fields.

    Parameters
    ----------
    storage
        Where the repository is.
    repository
        Its id.
    config
        Its configuration.
    containers
        Where its virtual chunks may be read from.
    environment
        Time and chance.
    hints
        Hints of branches that were read just now, None for one that is missing.
    """

    storage: Storage
    repository: bytes
    config: RepositoryConfig
    containers: VirtualContainers
    environment: Environment = field(default_factory=current_environment)
    hints: dict[str, Hint | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.manifests = ManifestCache(self.storage, self.repository, self.config.manifest_cache_bytes)
        self.reader = self._new_reader()
        self.repository_log = RepositoryLog(self.storage, self.repository, self.environment)
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
        """Forget, in a forked child, what belongs to threads of the parent."""
        self._lock = threading.Lock()
        self._work = set()
        for known in self._branches.values():
            known.committer = None
        self._maintained = set()
        self.manifests = ManifestCache(self.storage, self.repository, self.config.manifest_cache_bytes)
        self.reader = self._new_reader()

    def _new_reader(self) -> ChunkReader:
        config = self.config
        return ChunkReader(
            self.storage, self.manifests, self.containers.find, config.verify_chunks, config.chunk_cache_bytes
        )

    # -- branches -------------------------------------------------------------------------------------------

    def log(self, branch: str) -> BranchLog:
        """Return the log of a branch."""
        with self._lock:
            return self._known(branch).log

    def _known(self, branch: str) -> _Branch:
        """Return what is known of a branch, used just now; the lock is held."""
        found = self._branches.get(branch)
        if found is None:
            log = BranchLog(self.storage, self.repository, branch, self.environment, self.config.log_cache_bytes)
            self._branches[branch] = found = _Branch(log)
            self._forget_unused(branch)
        self._branches.move_to_end(branch)
        return found

    def _forget_unused(self, newest: str) -> None:
        """Drop the branches used least recently where they are too many, but for those that something is done to."""
        excess = len(self._branches) - max(1, self.config.branches_in_memory)
        for name, known in list(self._branches.items()):
            if excess <= 0:
                return
            if name != newest and name not in self._maintained and not known.busy:
                del self._branches[name]
                excess -= 1

    def committer(self, branch: str) -> GroupCommitter:
        """Return what commits to a branch for all sessions of this process."""
        with self._lock:
            known = self._known(branch)
            if known.committer is None:
                known.committer = GroupCommitter(
                    known.log,
                    submit,
                    lambda: self.known_tip(branch),
                    self._written,
                    lambda: self._age(branch),
                    self.start,
                )
            return known.committer

    def _age(self, branch: str) -> float:
        """Return for how many seconds nobody here has looked at a branch."""
        known = self._branches.get(branch)
        return (self.environment.now_us() - (0 if known is None else known.seen_at)) / 1e6

    def _written(self, tip: Tip, large: bool) -> None:
        self.seen(tip)
        self.after_commit(tip, large)

    async def tip(self, branch: str) -> Tip:
        """Return the newest record of a branch: one request if it is the one last seen.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        name_in_key(branch)  # which tells what can be none
        try:
            tip = await self.newest(branch)
        except RefNotFoundError:
            tip = None
        if tip is None or tip.state.life.deleted:  # unless somebody has created it, and not come to its first record
            table = await self.repository_log.table()
            tip = await settle(self.log(branch), table, tip)
            if tip.state.life.deleted:
                raise deleted_error(branch)
            self.seen(tip)
        return tip

    async def newest(self, branch: str) -> Tip:
        """Return the newest record of a branch's log, even if that says that the branch is deleted.

        Raises
        ------
        RefNotFoundError
            If there is no such log.
        """
        log = self.log(branch)
        known = self.known_tip(branch)
        if known is not None:
            tip = await refresh(log, known)
        else:
            hint = self.hints.pop(branch) if branch in self.hints else await log.hint()
            tip = await load_tip(log, hint)
        self.seen(tip)
        return tip

    async def newest_state(self, branch: str) -> State:
        """Return the newest state of a branch's log, even if that says that the branch is deleted."""
        return (await self.newest(branch)).state

    def known_tip(self, branch: str) -> Tip | None:
        """Return the newest record of a branch that was seen here; None if none was."""
        known = self._branches.get(branch)
        return None if known is None else known.tip

    def seen(self, tip: Tip) -> None:
        """Remember a tip, if it is newer than the one that is known; checkpoints that are known stay so."""
        self.environment.after(tip.state.life.fence)
        with self._lock:
            known = self._known(tip.state.branch)
            known.seen_at = self.environment.now_us()
            if known.tip is None:
                known.tip = tip
            elif known.tip.sequence <= tip.sequence:
                known.tip = _with_checkpoint(tip, known.tip.state)

    def enrich(self, state: State) -> None:
        """Remember the checkpoint and the pages that a state of a branch has got."""
        with self._lock:
            known = self._branches.get(state.branch)
            if known is not None and known.tip is not None:
                known.tip = _with_checkpoint(known.tip, state)

    # -- background work ------------------------------------------------------------------------------------

    def after_commit(self, tip: Tip, large: bool) -> None:
        """Start what a commit leaves to do, off everyone's critical path.

        Parameters
        ----------
        tip
            The record that was committed.
        large
            Whether its change log is outside of its body, so that readers would have to fetch it.
        """
        branch = tip.state.branch
        known = self.known_tip(branch)
        if known is not None:
            tip = _with_checkpoint(tip, known.state)
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
            periodic = await write_periodic(log, tip)
            if periodic is not None:
                self.enrich(periodic)
                tip = _with_checkpoint(tip, periodic)
            known = tip.state.checkpoint
            if large and (known is None or known.sequence < tip.sequence):
                reference = await write_checkpoint(log, tip.state)
                self.enrich(replace(tip.state, checkpoint=reference))
            if periodic is not None:
                self.seen(await fold(log, self.known_tip(branch) or tip, self.reader))
        finally:
            with self._lock:
                self._maintained.discard(branch)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; what fails there is tried again by a later commit."""
        future = submit(_quietly(work))
        with self._lock:
            self._work.add(future)
        future.add_done_callback(self._work.discard)

    async def idle(self) -> None:
        """Wait until nothing runs in the background."""
        while running := self.running():
            await asyncio.gather(*map(asyncio.wrap_future, running))

    def running(self) -> list[Future[None]]:
        """Return what runs in the background now."""
        with self._lock:
            return [future for future in self._work if not future.done()]


def _with_checkpoint(tip: Tip, other: State) -> Tip:
    """Return a tip with another state's checkpoint and pages, if those are newer than its own and not too new."""
    mine, theirs = tip.state.checkpoint, other.checkpoint
    if theirs is None or theirs.sequence > tip.sequence or (mine is not None and mine.sequence >= theirs.sequence):
        return tip
    return Tip(replace(tip.state, checkpoint=theirs, pages=other.pages, detached=0), tip.bodies)


def _finish() -> None:
    """Let background work end before the process does: a program of one commit has no later one to do it."""
    awaited = [context for context in list(_contexts) if context.environment.awaited]
    wait([future for context in awaited for future in context.running()], timeout=_PATIENCE)


atexit.register(_finish)


def _finish_in_children(finish: Callable[[], None]) -> None:
    """Do so in processes of multiprocessing, which end without atexit, and begin by forgetting what was to be done."""
    multiprocessing.util.Finalize(None, finish, exitpriority=0)


_finish_in_children(_finish)
multiprocessing.util.register_after_fork(_finish, _finish_in_children)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Run maintenance: nothing depends on it, and whoever finds it undone does it."""
    try:
        await work
    except ArrayStoreError as error:
        _logger.warning("background maintenance failed, a later commit tries it again: %s", error)


def _after_fork() -> None:
    for context in list(_contexts):
        context.after_fork()


os.register_at_fork(after_in_child=_after_fork)
