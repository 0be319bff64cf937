"""Sessions: one snapshot, and the changes that will make the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.declared_reads import declared_reads
from arraystore._changes.read_set import ReadSet
from arraystore._commit.note import check_note
from arraystore._commit.prepare import prepare
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_changes import rebase_changes
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._commit.request import Committed, Outstanding, Request
from arraystore._commit.solvers import ConflictSolver, check_solver
from arraystore._context import Context
from arraystore._forks.ledger import ForkLedger, warn_of_unmerged
from arraystore._forks.merge import OnOverlap
from arraystore._forks.uncommitted import build_uncommitted_view, with_uncommitted
from arraystore._history.detached_snapshots import write_detached
from arraystore._log.branch_log import AppendUncertainError
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.append import append, append_async, appending, with_unique
from arraystore._session.base import Isolation, SessionBase, SessionState, pack_writer
from arraystore._session.fork import ForkSession, forks_in, issue_fork, merge_forks
from arraystore._session.move import check_moves, move_node
from arraystore._session.pickling import SnapshotLocator, forget_live, keep_live, live_session
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


@dataclass
class _Attempt:
    """What is known of a commit under way, for the case that it fails.

    Parameters
    ----------
    uncertain
        Whether it may have arrived.
    outstanding
        What others may still commit of it.
    """

    uncertain: bool
    outstanding: Outstanding | None

    def fail(self, uncertain: bool, outstanding: Outstanding | None = None) -> None:
        """Note that there is no answer but an error, and whether the commit may have arrived all the same."""
        self.uncertain, self.outstanding = uncertain, outstanding


class Session(SessionBase):
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
        branch: str | None = None,
        isolation: Isolation = "snapshot",
        verify_chunks: bool | None = None,
    ) -> None:
        super().__init__(context, tip, branch=branch, isolation=isolation, verify_chunks=verify_chunks)
        self._prepared: Prepared | None = None
        self._prepared_version = -1
        self._outstanding: Outstanding | None = None
        self._ledger = ForkLedger()
        self.uniques: list[Unique] = []
        self.default_metadata: dict[str, Any] = {}
        if branch is not None:
            self._show(ChangeSet(tip.state, pack_writer(context)), self.hierarchy.reads)
            self._state = SessionState.OPEN
            keep_live(self._id, self)

    @property
    def branch(self) -> str | None:
        """Branch that the session commits to, None if it only reads."""
        return self._branch

    def __reduce__(self) -> tuple[Any, ...]:
        if self._copied is not None:
            return rebuild_writer, (self._locator(), *self._copied)
        if self._changes is None:
            return super().__reduce__()
        return rebuild_writer, (self._locator(), self._id, run(self._sent(self._changes)))

    async def _sent(self, changes: ChangeSet) -> bytes:
        """Make uncommitted chunks durable, and return what is uncommitted."""
        view = await build_uncommitted_view(changes, self._reader)
        if view.unsent and not self.is_of_this_process:
            raise SessionStateError(
                "chunks of this session wait for upload in the process that wrote them, which this one is a forked "
                "child of: pickle the session there"
            )
        return await view.send()

    # -- changing -------------------------------------------------------------------------------------------

    def discard_changes(self) -> None:
        """Forget everything uncommitted."""
        self.check_writable()
        forget_live(self._id)
        self._id = self.context.environment.new_id()  # forks of what is discarded can no longer be merged
        keep_live(self._id, self)
        self._ledger = ForkLedger()
        self._prepared = None
        self.uniques = []
        # What was read stays read: what comes next may be decided by it.
        self._show(ChangeSet(self._tip.state, pack_writer(self.context)), self.hierarchy.reads)

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
        if self._state is not SessionState.UNCERTAIN:
            self.check_writable()
        changes = self.hierarchy.writable()
        check_solver(rebase_with)
        note = check_note(message, metadata, self.default_metadata)
        depends = self._depends(reads)
        with self._committing() as attempt:
            if not attempt.uncertain:
                if changes.empty and not allow_empty:
                    raise SessionStateError("there is nothing to commit; pass allow_empty=True to commit all the same")
                changes.seal()
                self._prepared = replace(await self._prepare(note), amends=amends)
            assert self._prepared is not None
            if self._prepared.amends is not None:  # it fits on the snapshot that it takes the place of, and no other
                tries = 0
            request = Request(self._pending(self._prepared, depends), self._tip, tries, attempt.uncertain)
            request.outstanding = attempt.outstanding
            return self._committed((await self._carry_through(request, rebase_with, attempt)).tip)

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
        amended = self._prepared is not None and self._prepared.amends is not None
        if self._state is not SessionState.UNCERTAIN or not amended:
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
        changes = self.hierarchy.writable()
        note = check_note(message, metadata, self.default_metadata)
        if changes.empty:
            raise SessionStateError("there is nothing to write")
        with self._committing():
            changes.seal()
            return self._committed(await write_detached(self.context, self._tip, await self._prepare(note)))

    async def _carry_through(self, request: Request, solver: ConflictSolver | None, attempt: _Attempt) -> Committed:
        """Hand a transaction to the branch's committer until it is in the log."""
        committer = self.context.committer(self._branch or "")
        while True:
            answer = committer.submit(request)
            try:
                found = await asyncio.wrap_future(answer)
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
                attempt.fail(attempt.uncertain or request.taken or request.uncertain, request.outstanding)
                raise
            attempt.fail(False)  # whatever fails from here on
            if isinstance(found, Committed):
                return found
            assert solver is not None  # without one there is a ConflictError
            prepared = await resolve_conflicts(self, self.uniques, request.prepared, found, solver)
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
    def _committing(self) -> Iterator[_Attempt]:
        """Take no changes and no other commit meanwhile."""
        with self._lock:
            if self._state is SessionState.COMMITTING:
                raise SessionStateError("the session is being committed already")
            if self._state is not SessionState.UNCERTAIN:
                self.check_writable()
            attempt = _Attempt(self._state is SessionState.UNCERTAIN, self._outstanding)
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
        """Return what the changes depend on; None where that is nothing but what they overwrite."""
        if reads is not None:
            return declared_reads(self._tip.state, reads)
        return self.hierarchy.reads

    def _pending(self, prepared: Prepared, reads: ReadSet | None) -> PendingTransaction:
        return PendingTransaction(prepared, reads, frozenset(unique.node for unique in self.uniques))

    def _committed(self, tip: Tip) -> str:
        self._tip = tip
        self._prepared = None
        self.uniques = []
        self._show(None, None)
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
        changes = self.hierarchy.writable()
        if solver is None:
            raise InvalidInputError("rebase needs a solver; ConflictDetector() is the one that decides nothing")
        check_solver(solver)
        depends = self._depends(reads)
        tip = await self.context.tip(self._branch or "")
        if tip.sequence == self._tip.sequence:
            return
        with self._committing():
            changes.seal()
            prepared = await self._prepare(b"" if self._prepared is None else self._prepared.note)
            transaction = self._pending(prepared, depends)
            prepared = await rebase_prepared(self, self.uniques, transaction, tip, solver)
            moved = await rebase_changes(changes, prepared, tip.state, self.context.reader, pack_writer(self.context))
            moved.packs.committed |= changes.packs.committed
            moved.borrowed = changes.borrowed
            self._prepared, self._prepared_version = prepared, moved.version
            self._ledger.rebased = changes.epoch
            self._tip = tip
            self._show(moved, self.hierarchy.reads)

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
        with appending(self.hierarchy.writable(), dim):
            yield self.store

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
        self._note_unique(append(self, data, dim, unique))

    # -- forks ----------------------------------------------------------------------------------------------

    def fork(self) -> ForkSession:
        """Return a fork: a session that may be pickled, written to in any process, and merged back.

        What is uncommitted here (arrays just created, for instance) travels along.  Taking a fork costs no request;
        chunks that wait for upload are uploaded when it is pickled.
        """
        return run(self.fork_async())

    async def fork_async(self) -> ForkSession:
        """Asynchronous twin of `fork`."""
        return await issue_fork(self, self._ledger)

    @property
    def has_forks(self) -> bool:
        """Whether forks of this session are somewhere that were not merged."""
        return bool(self._ledger.issued)

    def abandon(self, fork: ForkSession) -> None:
        """Give up what was written through a fork, and through what was unpickled from it: no commit warns of it.

        Parameters
        ----------
        fork
            A fork of this session.
        """
        self._ledger.abandon(fork)

    def merge(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Merge what forks changed: all of it, or nothing.

        Parameters
        ----------
        forks
            Forks of this session, what their `changes()` or `merge_sessions` returned, or lists of these.
        on_overlap
            What happens where the same chunk was written by two forks, or by a fork and, since that was taken, the
            session: ``"error"``, or ``"last"``, where the later argument wins, over the session and over what was
            merged before, too.  All else that collides is an error in any case, and so is a chunk into which the array
            has grown meanwhile, of which the later one may know a part only.

        Raises
        ------
        MergeConflictError
            If two forks changed the same chunk or node, or a fork is another session's, or the session was rebased
            since it was taken.
        FormatError
            If a payload is damaged.
        InvalidInputError
            If something else is given.
        """
        flat = list(forks_in(forks))  # iterators are the caller's code: they run in the caller's thread
        run(self.merge_async(flat, on_overlap=on_overlap))

    async def merge_async(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Asynchronous twin of `merge`."""
        await merge_forks(self, self._ledger, forks, on_overlap)

    async def append_async(self, data: Mapping[str, npt.ArrayLike], dim: str, *, unique: str | None = None) -> None:
        """Asynchronous twin of `append`."""
        self.check_writable()
        self._note_unique(await append_async(self, data, dim, unique))

    def _note_unique(self, appended: Unique | None) -> None:
        """Have the commit fail if somebody else appends one of these values, too."""
        if appended is not None:
            self.uniques = with_unique(self.uniques, appended)

    def _warn_of_unmerged_forks(self) -> None:
        """Warn, where this package was called, if forks that may have written something have not been merged."""
        warn_of_unmerged(self._ledger)


def rebuild_writer(locator: SnapshotLocator, identifier: bytes, log: bytes) -> Session:
    """In its own process it is the same session; elsewhere a copy that may be read, uncommitted changes included."""
    live = live_session(identifier)
    if isinstance(live, Session):
        return live
    tip = Tip(with_uncommitted(locator.load().state, log), {})
    copy = Session(locator.context, tip, verify_chunks=locator.verify_chunks)
    copy._copied = identifier, log
    copy._state = SessionState.COPY
    return copy
