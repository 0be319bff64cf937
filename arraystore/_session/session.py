"""Writable sessions: a snapshot, and the change set that a commit makes the next one of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.reader import VerifyChunks
from arraystore._commit.note import check_note
from arraystore._commit.prepare import prepare
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._commit.request import Attempt, Committed, Outstanding, Request
from arraystore._context.context import Context
from arraystore._forks.ledger import ForkLedger, warn_of_unmerged
from arraystore._format.derivation import Derivation
from arraystore._format.ids import SnapshotId
from arraystore._log.branch_log import AppendUncertainError
from arraystore._log.loading import Tip
from arraystore._runtime import lazy_module, run
from arraystore._session.base import Isolation, SessionBase, SessionState, pack_writer, rebuild_writer
from arraystore._session.move import check_moves, move_node
from arraystore._session.pickling import forget_live, keep_live
from arraystore._session.store import ArrayStore
from arraystore.errors import (
    ArrayStoreError,
    ConflictError,
    InvalidInputError,
    ReadOnlyError,
    RefNotFoundError,
    SessionStateError,
)

if TYPE_CHECKING:
    from arraystore._changes import declared_reads
    from arraystore._changes.read_set import ReadSet
    from arraystore._commit import rebase_changes, solvers
    from arraystore._commit.solvers import ConflictSolver
    from arraystore._forks import uncommitted
    from arraystore._forks.merge import OnOverlap
    from arraystore._history import detached_snapshots
    from arraystore._session import append, fork, rebase
    from arraystore._session.fork import ForkSession
    from arraystore._session.rebase import Unique
else:
    declared_reads = lazy_module("arraystore._changes.declared_reads")
    rebase_changes = lazy_module("arraystore._commit.rebase_changes")
    solvers = lazy_module("arraystore._commit.solvers")
    uncommitted = lazy_module("arraystore._forks.uncommitted")
    detached_snapshots = lazy_module("arraystore._history.detached_snapshots")
    append = lazy_module("arraystore._session.append")
    fork = lazy_module("arraystore._session.fork")
    rebase = lazy_module("arraystore._session.rebase")


class Session(SessionBase):
    """A base snapshot and, in a writable session, a change set that a commit turns into a new snapshot.

    Sessions come from `Repository.readonly_session` and `Repository.writable_session`.

    Parameters
    ----------
    context
        State shared by the sessions of the repository.
    tip
        The record of the base.
    branch
        Branch to commit to; None for a read-only session.
    isolation
        ``"serializable"`` tracks reads, and a rebase over a change of data that was read is a conflict.
    verify_chunks
        Whether to verify chunks that are read; ``"config"`` for what the configuration says.
    """

    def __init__(
        self,
        context: Context,
        tip: Tip,
        branch: str | None = None,
        isolation: Isolation = "snapshot",
        verify_chunks: VerifyChunks = "config",
    ) -> None:
        super().__init__(context, tip, branch=branch, isolation=isolation, verify_chunks=verify_chunks)
        self._prepared: Prepared | None = None
        self._prepared_version = -1
        self._outstanding: Outstanding | None = None
        self._ledger = ForkLedger()
        self._made_on = tip.state.snapshot  # which a rebase leaves behind
        self.uniques: list[Unique] = []
        self.append_lock = threading.RLock()
        self.default_metadata: dict[str, Any] = {}
        self.rebase_metadata: Callable[[int], dict[str, Any]] | None = None
        """Returns metadata of a commit with a solver by the number of times that it was rebased."""
        self.written: int | None = None  # time of the snapshot in microseconds, if it is a copy of an older one
        if branch is not None:
            self._show(ChangeSet(tip.state, pack_writer(context)), self.hierarchy.reads)
            self._state = SessionState.OPEN
            keep_live(self._id, self)

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to; None if it is read-only."""
        return self._branch

    def __reduce__(self) -> tuple[Any, ...]:
        if self._copied is not None:
            return rebuild_writer, (type(self), self._locator(), *self._copied)
        if self._changes is None:
            return super().__reduce__()
        return rebuild_writer, (type(self), self._locator(), self._id, run(self._send_uncommitted(self._changes)))

    async def _send_uncommitted(self, changes: ChangeSet) -> bytes:
        """Upload uncommitted chunks, and return the encoded uncommitted changes."""
        view = await uncommitted.build_uncommitted_view(changes, self._reader)
        if view.unsent and not self.is_of_this_process:
            raise SessionStateError(
                "chunks of this session wait for upload in the process that wrote them, which this one is a forked "
                "child of: pickle the session there"
            )
        return await view.send()

    # -- changing -------------------------------------------------------------------------------------------

    def discard_changes(self) -> None:
        """Discard all uncommitted changes."""
        self.check_writable()
        with self.append_lock:  # an append changes all its arrays in one change set
            self._discard()

    def _discard(self) -> None:
        forget_live(self._id)
        self._id = self.context.environment.new_id()  # forks of the discarded changes can no longer be merged
        keep_live(self._id, self)
        self._ledger = ForkLedger()
        self._prepared = None
        self._made_on = self._tip.state.snapshot
        self.uniques = []
        changes = ChangeSet(self._tip.state, pack_writer(self.context))
        changes.append_mode = self.hierarchy.writable().append_mode  # whose blocks have not ended
        # The read set stays: earlier reads may decide later writes.
        self._show(changes, self.hierarchy.reads)

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
        """Commit all changes atomically as a new snapshot; the session is read-only afterwards.

        Parameters
        ----------
        message
            Message for the history.
        metadata
            JSON values for the history.
        rebase_with
            Solver of the conflicts of a rebase onto commits since the base; without one the commit is not rebased.
            `ConflictDetector()` rebases, and solves no conflict.
        rebase_tries
            Largest count of rebases.
        allow_empty
            Whether a commit without changes is allowed.
        reads
            Data that the changes depend on, by path, in place of the reads that a serializable session has tracked:
            None for the metadata of a node, ``...`` for all of it, or a selection of items.

        Returns
        -------
        str
            Id of the new snapshot.

        Raises
        ------
        ConflictError
            If the branch has commits since the base, and there is no solver or no rebase left; nothing was committed.
        RebaseFailedError
            If a conflict with a commit since the base is left; nothing was committed.
        SessionStateError
            If there is nothing to commit.
        InvalidInputError
            If message or metadata cannot be stored.
        StorageError
            If the storage failed.  Call commit again: it is idempotent, and detects an earlier success.
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
        amends: SnapshotId | None,
        *,
        allow_empty: bool,
        reads: Mapping[str, Any] | None = None,
    ) -> str:
        self._warn_of_unmerged_forks()
        if self._state is not SessionState.UNCERTAIN:
            self.check_writable()
        changes = self.hierarchy.writable()
        if rebase_with is not None:
            solvers.check_solver(rebase_with)
        counted = self.rebase_metadata if rebase_with is not None else None
        derivation = Derivation.of(self._made_on, self._tip.state.snapshot, self._ledger.merged_forks, tries > 0)

        def note_after(rebases: int) -> bytes:
            added = {} if counted is None else counted(rebases)
            return check_note(message, metadata, {**self.default_metadata, **added}, derivation)

        note = note_after(0)
        depends = self._depends(reads)
        with self._committing() as attempt:
            if not attempt.uncertain:
                if changes.empty and not allow_empty:
                    raise SessionStateError("there is nothing to commit; pass allow_empty=True to commit all the same")
                changes.seal()
                self._prepared = (await self._prepare(note)).as_snapshot(amends, self.written)
            assert self._prepared is not None
            if self._prepared.amends is not None:  # an amendment fits only the snapshot that it replaces
                tries = 0
            request = Request(self._pending(self._prepared, depends), self._tip, tries, attempt.uncertain)
            request.outstanding = attempt.outstanding
            request.rebase_note = None if counted is None else note_after
            return self._finish_commit((await self._carry_through(request, rebase_with, attempt)).tip)

    def amend(self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False) -> str:
        """Replace the newest snapshot by one with these changes added, and with new message and metadata.

        The replaced snapshot is removed from the history of the branch; other branches and tags of it keep it.  An
        amendment is never rebased.

        Parameters
        ----------
        message, metadata
            Message and JSON values for the history.
        allow_empty
            Whether an amendment of only message and metadata is allowed.

        Raises
        ------
        ConflictError
            If the branch has commits since the base; nothing was committed.
        InvalidInputError
            If the newest snapshot is the first one of the repository.
        """
        self._warn_of_unmerged_forks()
        return run(self.amend_async(message, metadata=metadata, allow_empty=allow_empty))

    async def amend_async(
        self, message: str, *, metadata: dict[str, Any] | None = None, allow_empty: bool = False
    ) -> str:
        """Asynchronous twin of `amend`."""
        amended = self._prepared is not None and self._prepared.amends is not None
        if self._state is not SessionState.UNCERTAIN or not amended:
            self.check_writable()
        if self._tip.state.parent is None:
            raise InvalidInputError("the first snapshot of a repository cannot be amended: commit instead")
        return await self._commit(message, metadata, None, 0, self._tip.state.snapshot, allow_empty=allow_empty)

    def flush(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Write the uncommitted changes as a snapshot on no branch; the session is read-only afterwards.

        The snapshot is found only by its id, and kept until a garbage collection with a later cut-off, unless a branch
        or tag of it is created before.

        Parameters
        ----------
        message, metadata
            Message and JSON values that `Repository.lookup_snapshot` returns.

        Returns
        -------
        str
            Id of the snapshot.

        Raises
        ------
        SessionExpiredError
            If garbage collection has fenced the session, or the snapshot that it is based on has expired; the snapshot
            was not kept.
        """
        self._warn_of_unmerged_forks()
        return run(self.flush_async(message, metadata=metadata))

    async def flush_async(self, message: str, *, metadata: dict[str, Any] | None = None) -> str:
        """Asynchronous twin of `flush`."""
        self._warn_of_unmerged_forks()
        self.check_writable()
        changes = self.hierarchy.writable()
        note = check_note(message, metadata, self.default_metadata, Derivation(forks=self._ledger.merged_forks))
        if changes.empty:
            raise SessionStateError("there is nothing to flush: the session has no uncommitted changes")
        with self._committing():
            changes.seal()
            return self._finish_commit(
                await detached_snapshots.write_detached(self.context, self._tip, await self._prepare(note))
            )

    async def _carry_through(self, request: Request, solver: ConflictSolver | None, attempt: Attempt) -> Committed:
        """Submit a transaction to the branch's committer until it is in the log."""
        committer = self.context.committer(self._branch or "")
        while True:
            future = committer.submit(request)
            try:
                outcome = await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                attempt.fail(not committer.withdraw(request), request.outstanding)
                raise
            except AppendUncertainError:
                attempt.fail(True, request.outstanding)
                raise
            except (ConflictError, ReadOnlyError, RefNotFoundError, SessionStateError):
                attempt.fail(False)
                raise
            except ArrayStoreError:
                attempt.fail(attempt.uncertain or request.in_doubt, request.outstanding)
                raise
            attempt.fail(False)  # also for an error from here on
            if isinstance(outcome, Committed):
                return outcome
            assert solver is not None  # without one there is a ConflictError
            prepared = await rebase.resolve_conflicts(self, self.uniques, request.prepared, outcome, solver)
            request = request.again(prepared, outcome.tip)

    async def _prepare(self, note: bytes) -> Prepared:
        """Make the changes durable, reusing an earlier preparation of the same changes."""
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
    def _committing(self) -> Iterator[Attempt]:
        """Refuse changes and other commits within the block."""
        with self._lock:
            if self._state is SessionState.COMMITTING:
                raise SessionStateError("the session is being committed already: await that commit")
            if self._state is not SessionState.UNCERTAIN:
                self.check_writable()
            attempt = Attempt(self._state is SessionState.UNCERTAIN, self._outstanding)
            self._state = SessionState.COMMITTING
        try:
            yield attempt
        finally:
            self._outstanding = attempt.outstanding
            if self._changes is None:
                self._state = SessionState.COMMITTED
            elif attempt.uncertain:
                self._state = SessionState.UNCERTAIN
            else:
                self._changes.unseal()
                self._state = SessionState.OPEN

    def _depends(self, reads: Mapping[str, Any] | None) -> ReadSet | None:
        """Return the reads that the changes depend on; None for only the chunks and nodes that they overwrite."""
        if reads is not None:
            return declared_reads.declared_reads(self._tip.state, reads)
        return self.hierarchy.reads

    def _pending(self, prepared: Prepared, reads: ReadSet | None) -> PendingTransaction:
        return PendingTransaction(prepared, reads, frozenset(unique.node for unique in self.uniques))

    def _finish_commit(self, tip: Tip) -> str:
        self._tip = tip
        self._prepared = None
        self.uniques = []
        self._show(None, None)
        return self.snapshot_id

    # -- rebasing -------------------------------------------------------------------------------------------

    def rebase(self, solver: ConflictSolver, *, reads: Mapping[str, Any] | None = None) -> None:
        """Rebase the uncommitted changes onto the newest snapshot of the branch, which becomes the base.

        Parameters
        ----------
        solver
            Solver of the conflicts with commits since the base.
        reads
            Data that the changes depend on; see `commit`.

        Raises
        ------
        RebaseFailedError
            If a conflict is left; the session is unchanged.
        """
        run(self.rebase_async(solver, reads=reads))

    async def rebase_async(self, solver: ConflictSolver, *, reads: Mapping[str, Any] | None = None) -> None:
        """Asynchronous twin of `rebase`."""
        self.check_writable()
        changes = self.hierarchy.writable()
        if solver is None:
            raise InvalidInputError("rebase needs a solver: pass ConflictDetector() to solve no conflict")
        solvers.check_solver(solver)
        depends = self._depends(reads)
        tip = await self.context.tip(self._branch or "")
        if tip.sequence == self._tip.sequence:
            return
        with self._committing():
            changes.seal()
            prepared = await self._prepare(b"" if self._prepared is None else self._prepared.note)
            transaction = self._pending(prepared, depends)
            prepared = await rebase.rebase_prepared(self, self.uniques, transaction, tip, solver)
            moved = await rebase_changes.rebase_changes(
                changes, prepared, tip.state, self.context.reader, pack_writer(self.context)
            )
            moved.packs.committed |= changes.packs.committed
            moved.borrowed = changes.borrowed
            self._prepared, self._prepared_version = prepared, moved.version
            self._ledger.rebased = changes.epoch
            self._made_on = tip.state.snapshot if changes.empty else self._made_on
            self._tip = tip
            self._show(moved, self.hierarchy.reads)

    # -- moving, appending ----------------------------------------------------------------------------------

    def move(self, from_path: str, to_path: str) -> None:
        """Move an array, or a group with all its members, to another path; no chunk is read or written.

        Parameters
        ----------
        from_path
            Path of the node.
        to_path
            New path, which must be free, and whose parent must be a group.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        InvalidInputError
            If it cannot be moved there.
        """
        self.check_writable()
        move_node(self.hierarchy, from_path, to_path)

    @contextmanager
    def appending(self, dim: str) -> Iterator[ArrayStore]:
        """Append to arrays that grow along a dimension within the block.

        Growing an array along `dim` (with zarr's ``resize`` or xarray's ``append_dim``) then means "at its end,
        wherever that is at the time of the commit".  Two sessions that append both succeed, in the order of their
        commits.  Blocks of one dimension may be nested, and be open in several threads at once.

        Parameters
        ----------
        dim
            Name of the dimension, as the metadata of the arrays has it.

        Raises
        ------
        SessionStateError
            If a block of another dimension is open.
        """
        self.check_writable()
        with self.hierarchy.writable().append_mode.along(dim):
            yield self.store

    def append(self, data: Mapping[str, npt.ArrayLike], dim: str, *, unique: str | None = None) -> None:
        """Append to all arrays of a group that share a dimension; if that fails, none of them has changed.

        Parameters
        ----------
        data
            Values by path of the array, all of the same length along the dimension.
        dim
            Name of the dimension, as the metadata of the arrays has it.
        unique
            Path of a coordinate among them whose values must not repeat: appending a value that it has, or that
            another session commits first, is an error.

        Raises
        ------
        InvalidInputError
            If shapes do not match, an array of the dimension is missing, or a unique value repeats.
        NodeNotFoundError
            If there is no such array.
        """
        self.check_writable()
        with self.append_lock:  # one after the other: each begins where the one before has ended
            appended = append.append(self, data, dim, unique)
            if appended is not None:
                self.uniques = append.with_unique(self.uniques, appended)

    # -- forks ----------------------------------------------------------------------------------------------

    def fork(self) -> ForkSession:
        """Return a fork, which may be pickled, written to in any process, and merged back.

        A fork sees the uncommitted changes of the session (arrays just created, for instance).  Forking takes no
        request; chunks not uploaded yet are uploaded when the fork is pickled.
        """
        return run(self.fork_async())

    async def fork_async(self) -> ForkSession:
        """Asynchronous twin of `fork`."""
        return await fork.issue_fork(self, self._ledger)

    @property
    def has_forks(self) -> bool:
        """True if the session has issued forks that were not merged."""
        return bool(self._ledger.issued)

    def abandon(self, fork: ForkSession) -> None:
        """Abandon the changes of a fork and its unpickled copies, so that no commit warns of them.

        Parameters
        ----------
        fork
            A fork of this session.
        """
        self._ledger.abandon(fork)

    def merge(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Merge the changes of forks atomically.

        Parameters
        ----------
        forks
            Forks of this session, results of their `changes()` or of `merge_sessions`, or lists of these.
        on_overlap
            The policy for a chunk written by two forks, or by a fork and, after it was issued, the session:
            ``"error"``, or ``"last"``, where the later argument wins, also over the session and over earlier merges.
            Any other conflict is an error in any case, and so is such a chunk at the end of an array that was resized
            meanwhile, of which one writer may have seen a part only.

        Raises
        ------
        MergeConflictError
            If two forks changed the same chunk or node, or an array is decoded otherwise than a fork has encoded its
            chunks, or a fork is another session's, or was issued before the session was rebased.
        FormatError
            If a payload is damaged.
        InvalidInputError
            If an argument is neither a fork nor bytes.
        """
        flat = list(fork.forks_in(forks))  # iterators are the caller's code: they run in the caller's thread
        run(self.merge_async(flat, on_overlap=on_overlap))

    async def merge_async(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Asynchronous twin of `merge`."""
        await fork.merge_forks(self, self._ledger, forks, on_overlap)

    async def append_async(self, data: Mapping[str, npt.ArrayLike], dim: str, *, unique: str | None = None) -> None:
        """Asynchronous twin of `append`."""
        self.check_writable()
        await asyncio.to_thread(self.append, data, dim, unique=unique)

    def _warn_of_unmerged_forks(self) -> None:
        """Warn, at the caller of this package, of forks that may have been written to and were not merged."""
        warn_of_unmerged(self._ledger)
