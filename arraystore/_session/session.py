"""Sessions: one snapshot, and the changes that will make the next one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.declared_reads import declared_reads
from arraystore._changes.read_set import ReadSet
from arraystore._chunks.pack_writer import PackWriter
from arraystore._commit.note import check_note
from arraystore._commit.prepare import prepare
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_changes import rebase_changes
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._commit.request import Committed, Outstanding, Request
from arraystore._commit.solvers import ConflictSolver, check_solver
from arraystore._context import Context
from arraystore._forks.ledger import ForkLedger, warn_of_unmerged
from arraystore._history.detached_snapshots import write_detached
from arraystore._history.diff import Diff, status_of
from arraystore._log.branch_log import AppendUncertainError
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.append import append, append_async
from arraystore._session.forking import Forking
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.move import check_moves, move_node
from arraystore._session.pickling import forget_live, keep_live, reduce_session
from arraystore._session.rearrange import Readdressing
from arraystore._session.rebase import Unique, rebase_prepared, resolve_conflicts
from arraystore._session.store import ArrayStore
from arraystore.errors import (
    ArrayStoreError,
    ConflictError,
    InvalidInputError,
    ReadOnlyError,
    RefNotFoundError,
    SessionStateError,
)

__all__ = ["Session"]

_ELSEWHERE = (
    "was opened in another process, which would never see what is written here: "
    "take session.fork() there, and merge what its changes() returns"
)

ISOLATIONS = ("snapshot", "serializable")


def isolation_number(name: str) -> int:
    """Return the number of an isolation level; raises `InvalidInputError` for an unknown one."""
    if name not in ISOLATIONS:
        raise InvalidInputError(f"there is no isolation {name!r}; choose one of {', '.join(map(repr, ISOLATIONS))}")
    return ISOLATIONS.index(name)


class Session(Forking, Readdressing):
    """One snapshot of a repository, and, in a writable session, changes over it.

    Sessions come from `Repository.readonly_session` and `Repository.writable_session`.

    Parameters
    ----------
    context
        What sessions of the repository share.
    tip
        The record that the session is based on.
    branch
        Branch to commit to; None for a session that only reads.
    isolation
        ``"serializable"`` notes what is read, and a rebase over a change of that is a conflict.
    verify_chunks
        Whether chunks that are read are checked; None for what the configuration says.
    """

    def __init__(
        self,
        context: Context,
        tip: Tip,
        branch: str | None,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
        verify_chunks: bool | None = None,
    ) -> None:
        super().__init__(context, tip)
        self.verify_chunks = verify_chunks
        self._reader = context.reader.checking(verify_chunks)
        self._branch = branch
        self._id = context.environment.new_id()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._changes: ChangeSet | None = None
        self._prepared: Prepared | None = None
        self._prepared_version = -1
        self._isolation = isolation_number(isolation)
        self.uniques: list[Unique] = []
        self._uncertain = False
        self._outstanding: Outstanding | None = None
        self._busy = False
        self._ledger = ForkLedger()
        self._rebased_epoch = 0
        self.default_metadata: dict[str, Any] = {}
        self.uncommitted: tuple[bytes, bytes] | None = None
        if branch is not None:
            self._changes = ChangeSet(tip.state, pack_writer(context))
            keep_live(self._id, self)
        self.hierarchy = Hierarchy(tip.state, self._reader, self._changes)
        if self._isolation:
            self.hierarchy.reads = ReadSet()

    # -- what it is -----------------------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written: opened so, or committed by now."""
        return self._changes is None

    @property
    def is_of_this_process(self) -> bool:
        """Whether the session was made in this process, and not in one that this is a forked child of."""
        return os.getpid() == self._pid

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to, None if it only reads."""
        return self._branch

    @property
    def isolation(self) -> str:
        """``"snapshot"`` or ``"serializable"``."""
        return ISOLATIONS[self._isolation]

    @property
    def reads(self) -> dict[str, Any]:
        """What a serializable session has noted of its reads, for people; empty for any other."""
        return {} if self.hierarchy.reads is None else self.hierarchy.reads.summary(self.hierarchy.beneath.keys)

    @property
    def store(self) -> ArrayStore:
        """The session as a Zarr store."""
        return ArrayStore(self)

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether there is something to commit."""
        return self._changes is not None and not self._changes.empty

    def describe(self) -> str:
        """Return a short text that tells repository, branch and snapshot."""
        place = f"{self.context.storage.location}@{self._branch or ''}{'/' if self._branch else ''}"
        return place + self.snapshot_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}{' read-only' if self.read_only else ''}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        if self is other:
            return True
        same_place = self.context.storage.location == other.context.storage.location
        same_place &= self.uncommitted == other.uncommitted
        return same_place and self.read_only and other.read_only and self.snapshot_id == other.snapshot_id

    def __hash__(self) -> int:
        return hash(self.context.storage.location)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_session(self)

    # -- changing -------------------------------------------------------------------------------------------

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that something may be written now.

        Raises
        ------
        ReadOnlyError
            If the session is read-only.
        SessionStateError
            If it is being committed, or belongs to another process.
        """
        if self.uncommitted is not None:
            raise ReadOnlyError(f"this session is a copy, to read only, of one that {_ELSEWHERE}")
        if self._changes is None:
            raise ReadOnlyError(refusal)
        if self._busy:
            raise SessionStateError("the session is being committed; write before or after, not meanwhile")
        if self._uncertain:
            raise SessionStateError("nobody knows yet whether this session is committed: call commit again to find out")
        if not self.is_of_this_process:
            raise SessionStateError(f"this writable session {_ELSEWHERE}")

    def status(self) -> Diff:
        """Return what is uncommitted."""
        return Diff() if self._changes is None else status_of(self._changes)

    def discard_changes(self) -> None:
        """Forget everything uncommitted."""
        self.check_writable()
        forget_live(self._id)
        self._id = self.context.environment.new_id()  # forks of what is discarded have no home any more
        keep_live(self._id, self)
        self._changes = ChangeSet(self._tip.state, pack_writer(self.context))
        self._ledger = ForkLedger()
        self._prepared = None
        self.uniques = []
        noted = self.hierarchy.reads  # what was read stays read: what comes next may be decided by it
        self.hierarchy = Hierarchy(self._tip.state, self._reader, self._changes)
        self.hierarchy.reads = noted

    def commit(
        self,
        message: str,
        metadata: dict[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
        reads: Mapping[str, Any] | None = None,
    ) -> str:
        """Make everything that was written visible at once; the session is read-only afterwards.

        Parameters
        ----------
        message
            For the history.
        metadata
            JSON values for the history.
        rebase_with
            Puts the changes on top of what others have committed meanwhile, where they do not collide; it decides
            where they do.  `ConflictDetector()` decides nothing.
        rebase_tries
            How many times that is done at most.
        allow_empty
            Whether a commit may change nothing.
        reads
            What the changes depend on, by path, in place of what a serializable session has noted: None for the
            metadata of a node, ``...`` for all of it, or a selection of items.

        Returns
        -------
        str
            Id of the new snapshot.

        Raises
        ------
        ConflictError
            If somebody else has committed to the branch meanwhile; nothing was committed.
        RebaseFailedError
            If what somebody else has committed collides with these changes; nothing was committed.
        SessionStateError
            If there is nothing to commit.
        InvalidInputError
            If message or metadata cannot be stored.
        StorageError
            If the storage failed.  Call commit again: it finds out first whether the commit had arrived.
        """
        self._warn_of_unmerged_forks()
        return run(
            self.commit_async(
                message,
                metadata,
                rebase_with=rebase_with,
                rebase_tries=rebase_tries,
                allow_empty=allow_empty,
                reads=reads,
            )
        )

    async def commit_async(
        self,
        message: str,
        metadata: dict[str, Any] | None = None,
        *,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1000,
        allow_empty: bool = False,
        reads: Mapping[str, Any] | None = None,
    ) -> str:
        """Asynchronous twin of `commit`."""
        tries = rebase_tries if rebase_with is not None else 0
        return await self._commit(message, metadata, rebase_with, tries, None, allow_empty=allow_empty, reads=reads)

    async def _commit(
        self,
        message: str,
        metadata: dict[str, Any] | None,
        rebase_with: ConflictSolver | None,
        tries: int,
        amends: bytes | None,
        *,
        allow_empty: bool,
        reads: Mapping[str, Any] | None = None,
    ) -> str:
        self._warn_of_unmerged_forks()
        if not self._uncertain:
            self.check_writable()
        changes = self._changes
        assert changes is not None
        assert self._branch is not None
        check_solver(rebase_with)
        note = check_note(message, metadata, self.default_metadata)
        depends = self._depends(reads)
        if changes.empty and not allow_empty and not self._uncertain:
            raise SessionStateError("there is nothing to commit; pass allow_empty=True to commit all the same")
        with self._occupied():
            if not self._uncertain:
                changes.seal()
                self._prepared = replace(await self._prepare(note), amends=amends)
            assert self._prepared is not None
            if self._prepared.amends is not None:  # it fits on the snapshot that it takes the place of, and no other
                tries = 0
            request = Request(self._pending(self._prepared, depends), self._tip, tries, self._uncertain)
            request.outstanding = self._outstanding
            return self._committed((await self._carry_through(request, rebase_with)).tip)

    def amend(self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False) -> str:
        """Commit in the place of the newest snapshot: what was written is added to it, message and metadata are new.

        The snapshot that it takes the place of is in the history no more; branches and tags that were made of it keep
        it.  An amendment is never rebased.

        Parameters
        ----------
        message, metadata
            For the history.
        allow_empty
            Whether only message and metadata may change.

        Raises
        ------
        ConflictError
            If somebody else has committed to the branch meanwhile; nothing was committed.
        InvalidInputError
            If the newest snapshot is the first one of the repository.
        """
        return run(self.amend_async(message, metadata=metadata, allow_empty=allow_empty))

    async def amend_async(
        self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False
    ) -> str:
        """Asynchronous twin of `amend`."""
        if not self._uncertain or self._prepared is None or self._prepared.amends is None:
            self.check_writable()
        if self._tip.state.parent is None:
            raise InvalidInputError("the first snapshot of a repository cannot be amended: nothing is before it")
        return await self._commit(message, metadata, None, 0, self._tip.state.snapshot, allow_empty=allow_empty)

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Write what is uncommitted as a snapshot that is on no branch; the session is read-only afterwards.

        It is found by its id alone, and stays until a garbage collection with a later cut-off, unless a branch or a
        tag is made of it before.

        Parameters
        ----------
        message, metadata
            What `Repository.lookup_snapshot` tells of it.

        Returns
        -------
        str
            Id of the snapshot.

        Raises
        ------
        SessionExpiredError
            If garbage was collected meanwhile up to what the session has written; nothing was kept.
        """
        self._warn_of_unmerged_forks()
        return run(self.flush_async(message, metadata=metadata))

    async def flush_async(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Asynchronous twin of `flush`."""
        self.check_writable()
        changes = self._changes
        assert changes is not None
        note = check_note(message, metadata, self.default_metadata)
        if changes.empty:
            raise SessionStateError("there is nothing to write")
        with self._occupied():
            changes.seal()
            return self._committed(await write_detached(self.context, self._tip, await self._prepare(note)))

    async def _carry_through(self, request: Request, solver: ConflictSolver | None) -> Committed:
        """Hand a transaction to the branch's committer until it is in the log."""
        committer = self.context.committer(self._branch or "")
        while True:
            answer = committer.submit(request)
            try:
                found = await asyncio.wrap_future(answer)
            except asyncio.CancelledError:
                self._uncertain = not committer.withdraw(request)
                self._outstanding = request.outstanding
                raise
            except AppendUncertainError:
                self._uncertain = True
                self._outstanding = request.outstanding
                raise
            except (ConflictError, ReadOnlyError, RefNotFoundError, SessionStateError):
                self._uncertain, self._outstanding = False, None
                raise
            except ArrayStoreError:
                self._uncertain = self._uncertain or request.taken or request.uncertain
                self._outstanding = request.outstanding
                raise
            self._uncertain, self._outstanding = False, None
            if isinstance(found, Committed):
                return found
            assert solver is not None  # without one there is a ConflictError
            prepared = await resolve_conflicts(self, request.prepared, found, solver)
            request = request.again(prepared, found.tip)

    async def _prepare(self, note: bytes) -> Prepared:
        """Make the changes durable; what was prepared before is used again if nothing has changed since."""
        assert self._changes is not None
        again = None
        if self._prepared is not None and self._prepared_version == self._changes.version:
            again = replace(self._prepared, amends=None).with_note(note)
        if again is None:
            environment = self.context.environment
            again = await prepare(self._changes, self.context.reader, environment, note, self._isolation)
            await check_moves(self.context.repository_log, again.log.nodes)
        self._prepared, self._prepared_version = again, self._changes.version
        return again

    @contextmanager
    def _occupied(self) -> Iterator[None]:
        """Take no changes and no other commit meanwhile."""
        with self._lock:
            if self._busy:
                raise SessionStateError("the session is being committed already")
            self._busy = True
        try:
            yield
        finally:
            self._busy = False
            if self._changes is not None and not self._uncertain:
                self._changes.unseal()

    def _depends(self, reads: Mapping[str, Any] | None) -> ReadSet | None:
        """Return what the changes depend on; None where that is nothing but what they overwrite."""
        if reads is not None:
            return declared_reads(self._tip.state, reads)
        return self.hierarchy.reads

    def _pending(self, prepared: Prepared, reads: ReadSet | None) -> PendingTransaction:
        return PendingTransaction(prepared, reads, frozenset(unique.node for unique in self.uniques))

    def _committed(self, tip: Tip) -> str:
        self._tip = tip
        self._changes = None
        self._prepared = None
        self._uncertain = False
        self.uniques = []
        self.hierarchy = Hierarchy(tip.state, self._reader, None)
        return self.snapshot_id

    # -- rebasing -------------------------------------------------------------------------------------------

    def rebase(self, solver: ConflictSolver, *, reads: Mapping[str, Any] | None = None) -> None:
        """Put the uncommitted changes on top of the newest snapshot of the branch, and go on from there.

        Parameters
        ----------
        solver
            Decides where the changes collide with what others have committed.
        reads
            What the changes depend on; see `commit`.

        Raises
        ------
        RebaseFailedError
            If a conflict is left; the session stays as it was.
        """
        run(self.rebase_async(solver, reads=reads))

    async def rebase_async(self, solver: ConflictSolver, *, reads: Mapping[str, Any] | None = None) -> None:
        """Asynchronous twin of `rebase`."""
        self.check_writable()
        changes = self._changes
        assert changes is not None
        assert self._branch is not None
        if solver is None:
            raise InvalidInputError("rebase needs a solver; ConflictDetector() is the one that decides nothing")
        check_solver(solver)
        depends = self._depends(reads)
        tip = await self.context.tip(self._branch)
        if tip.sequence == self._tip.sequence:
            return
        with self._occupied():
            changes.seal()
            prepared = await self._prepare(b"" if self._prepared is None else self._prepared.note)
            prepared = await rebase_prepared(self, self._pending(prepared, depends), tip, solver)
            moved = await rebase_changes(changes, prepared, tip.state, self.context.reader, pack_writer(self.context))
            moved.packs.known |= changes.packs.known
            moved.borrowed = changes.borrowed
            self._prepared, self._prepared_version = prepared, moved.version
            self._rebased_epoch = changes.epoch
            self._changes = moved
            self._tip = tip
            noted = self.hierarchy.reads
            self.hierarchy = Hierarchy(tip.state, self._reader, moved)
            self.hierarchy.reads = noted

    # -- moving, appending ----------------------------------------------------------------------------------

    def move(self, from_path: str, to_path: str) -> None:
        """Give an array, or a group with all that is in it, another path; no chunk is touched.

        Parameters
        ----------
        from_path
            Where it is.
        to_path
            Where it goes; nothing may be there, and its parent must be a group.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        InvalidInputError
            If it cannot go there.
        """
        self.check_writable()
        move_node(self.hierarchy, from_path, to_path)

    @contextmanager
    def appending(self, dim: str) -> Iterator[ArrayStore]:
        """Let arrays that grow along a dimension within the block be appended to.

        Within it, growing an array along `dim` (with zarr's ``resize`` or xarray's ``append_dim``) says "at its end,
        wherever that is by the time of the commit".  Two sessions that append both succeed, in the order in which
        they commit.

        Parameters
        ----------
        dim
            Name of the dimension, as the metadata of the arrays has it.
        """
        self.check_writable()
        changes = self._changes
        assert changes is not None
        before = changes.appending
        if before not in (None, dim):
            raise SessionStateError(f"the session is appending along {before!r} already")
        changes.appending = dim
        try:
            yield self.store
        finally:
            changes.appending = before

    def append(self, data: Mapping[str, npt.ArrayLike], dim: str, *, unique: str | None = None) -> None:
        """Append to all arrays of a group that share a dimension.

        Parameters
        ----------
        data
            What to append, by path of the array; all of the same length along the dimension.
        dim
            Name of the dimension, as the metadata of the arrays has it.
        unique
            Path of a coordinate among them whose values must not repeat: appending one that is there, or that
            somebody else appends meanwhile, is an error.

        Raises
        ------
        InvalidInputError
            If shapes do not fit, an array of the dimension is left out, or a unique value is there already.
        NodeNotFoundError
            If there is no such array.
        """
        self.check_writable()
        append(self, data, dim, unique)

    async def append_async(self, data: Mapping[str, npt.ArrayLike], dim: str, *, unique: str | None = None) -> None:
        """Asynchronous twin of `append`."""
        self.check_writable()
        await append_async(self, data, dim, unique)

    def _warn_of_unmerged_forks(self) -> None:
        """Warn, where this package was called, if forks that may have written something have not been merged."""
        warn_of_unmerged(self._ledger)


def pack_writer(context: Context) -> PackWriter:
    """Return what makes packs of the chunks of one session."""
    return PackWriter(context.storage, context.environment, context.config.pack_settings())
