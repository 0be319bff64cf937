"""Forks of sessions, for worker processes, and their merge."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.read_set import ReadSet
from arraystore._chunks.reader import VerifyChunks
from arraystore._context.context import Context
from arraystore._forks.ledger import CachedView, ForkLedger, IssuedFork, warn_of_unmerged
from arraystore._forks.lineage import Lineage, has_strangers, numbered_by
from arraystore._forks.merge import (
    OnOverlap,
    PayloadOrigin,
    apply_payloads,
    check_overlap,
    collect,
    decode_payload,
    note_unseen,
)
from arraystore._forks.merged import Merged
from arraystore._forks.payload_table import PAYLOAD
from arraystore._forks.uncommitted import UncommittedView, build_uncommitted_view, with_uncommitted
from arraystore._format.fork_payload import ChangePayload, ForkChanges, encode_changes
from arraystore._format.ids import ForkId
from arraystore._format.node import Node
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.base import Isolation, SessionBase, SessionState, pack_writer
from arraystore._session.pickling import SnapshotLocator, forget_live, keep_live, live_session
from arraystore._session.unavailable import UnavailableSession, opened_or_unavailable
from arraystore.errors import ArrayStoreError, InvalidInputError, MergeConflictError, ReadOnlyError, SessionStateError

_AT_ONCE = 64
"""Count of forks that upload at the same time."""

_MERGED_INLINE = 16
"""Count of payloads merged on the event loop; more are merged in a thread, so that requests continue."""

SESSION_ONLY = {
    "amend": "a fork does not amend: merge it into its session, and call amend there",
    "append": "forks do not append to arrays: append in the session, before forking",
    "appending": "forks do not append to arrays: append in the session, before forking",
    "commit": "a fork is not committed: merge it into its session, and commit that",
    "flush": "a fork is not flushed: merge it into its session, and call flush there",
    "move": "forks do not move nodes: move them in the session, before forking",
    "rebase": "a fork is not rebased: merge it into its session, and rebase that",
}
"""Remedies by name of the methods that sessions have and forks lack, without asynchronous twins."""


class SessionOnlyError(SessionStateError, AttributeError):
    """The error of a call that only sessions support."""


class ForkSession(SessionBase):
    """A copy of a session for a worker process, whose change set is merged back into the session.

    Comes from `Session.fork`.  It may be pickled at any time: each copy that is unpickled is a fork of its own, with
    the changes that were made before.
    """

    def __init__(
        self,
        context: Context,
        tip: Tip,
        lineage: Lineage,
        below: Sequence[UncommittedView | bytes],
        isolation: Isolation,
        issued: IssuedFork | None = None,
        verify_chunks: VerifyChunks = "config",
    ) -> None:
        state = tip.state
        for each in below:
            state = with_uncommitted(state, each) if isinstance(each, bytes) else each.state
        self._origin = tip
        super().__init__(context, Tip(state, {}), branch=state.branch, isolation=isolation, verify_chunks=verify_chunks)
        self._lineage = lineage
        self._sent = 0
        self._copy: tuple[bytes, PickledFork] | None = None
        """Id of the fork that this is a copy of, and what travelled."""
        self._below = tuple(below)
        self._issued = IssuedFork() if issued is None else issued
        self._issued.fork = weakref.ref(self)
        for each in below:
            if isinstance(each, UncommittedView):
                self._reader = each.reader(self._reader)
        self._begin()
        self._state = SessionState.OPEN

    if not TYPE_CHECKING:  # for type checkers a fork simply lacks these methods

        def __getattr__(self, name: str) -> NoReturn:
            remedy = SESSION_ONLY.get(name.removesuffix("_async"))
            if remedy is not None:
                raise SessionOnlyError(remedy)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _begin(self) -> None:
        """Begin without changes, keeping the read set, since earlier reads may decide later writes."""
        keep_live(self._id, self)
        self._ledger = ForkLedger()
        self._covered: set[Lineage] = set()
        self._show(ChangeSet(self._tip.state, pack_writer(self.context)), self.hierarchy.reads)

    def _show(self, changes: ChangeSet | None, reads: ReadSet | None) -> None:
        super()._show(changes, reads)
        self.hierarchy.beneath = self._origin.state

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that the fork is writable, making a copy inherited by a forked child a fork of its own."""
        with self._lock:
            if not self.is_of_this_process and not self.has_uncommitted_changes:
                self._id = self.context.environment.new_id()
                self._pid = os.getpid()
                self._begin()
        super().check_writable(refusal)

    def _refused(self, refusal: str) -> ArrayStoreError:
        if self._state is SessionState.COPY:
            return ReadOnlyError(
                "this is a read-only copy of a fork, which came here with a store or an array, and what is written to "
                "it would be lost: send the fork itself, write to its store, and return the fork or its changes(); "
                "dask arrays are written by arraystore.dask.store_dask or arraystore.xarray.to_arraystore"
            )
        return super()._refused(refusal)

    def discard_changes(self) -> None:
        """Discard all changes of this fork."""
        self.check_writable()
        forget_live(self._id)
        self._id = self.context.environment.new_id()
        self._begin()

    # -- changes --------------------------------------------------------------------------------------------

    def changes(self) -> bytes:
        """Upload the chunks written, and return all changes as a payload for `Session.merge`."""
        self._warn_of_unmerged_forks()
        return run(self._changes_payload())

    async def changes_async(self) -> bytes:
        """Asynchronous twin of `changes`."""
        self._warn_of_unmerged_forks()
        return await self._changes_payload()

    async def _changes_payload(self) -> bytes:
        self.check_writable()
        self._issued.sent = True
        self._sent += 1
        line = self._lineage
        origin = PayloadOrigin(line.session, ForkId(self._id), line.epoch, self._sent, line.parents)
        payload = await collect(self.hierarchy.writable(), self._reader, origin)
        own = [replace(each, reads=self._noted()) for each in payload.forks]  # all that what was written depends on
        return encode_changes(replace(payload, forks=(*own, *self._covered_forks())))

    def _covered_forks(self) -> Iterator[ForkChanges]:
        """Yield forks of others that were merged into this fork, for these not to wait for them."""
        for line in self._covered - {self._lineage}:
            yield ForkChanges(ForkId(self.context.environment.new_id()), line.epoch, 1, parents=line.parents)

    def _noted(self) -> bytes:
        """Return the encoded read set; empty if reads are not tracked."""
        reads = self.hierarchy.reads
        return b"" if reads is None or reads.empty else reads.encode()

    async def _keep_snapshot(self, node: Node) -> None:
        raise SessionStateError(
            f"a fork cannot move chunks of array {'/' + node.path!r} that it has not written itself: "
            "shift or reindex the array in the session, before or after its forks"
        )

    # -- pickling -------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        if self._copy is not None:
            return open_fork_of_store, self._copy
        if self.has_uncommitted_changes:
            self._warn_of_unmerged_forks()
        elif all(isinstance(each, bytes) for each in self._below):  # nothing to upload
            self._issued.sent = True
            return PickledFork.open, (self._pickled([each for each in self._below if isinstance(each, bytes)], b""),)
        return PickledFork.open, (run(self.parts_async()),)

    async def parts_async(self) -> PickledFork:
        """Return the form in which a fork travels to another process, with its changes, whose chunks are uploaded."""
        written = await self._changes_payload() if self.has_uncommitted_changes else b""
        self._issued.sent = True
        return self._pickled(await self._send_below(), written)

    async def _send_below(self) -> list[bytes]:
        return [each if isinstance(each, bytes) else await each.send() for each in self._below]

    def _pickled(self, below: Sequence[bytes], written: bytes) -> PickledFork:
        locator = SnapshotLocator.of(self.context, self._origin.state, self.verify_chunks)
        return PickledFork(locator, self._lineage, tuple(below), self.isolation, self._noted(), written)

    def for_store(self) -> ForkOfStore:
        """Return what is pickled with a store: in this process the fork itself, elsewhere a copy to read."""
        return ForkOfStore(self)

    async def _parts_to_read(self) -> PickledFork:
        """Return the form in which a copy to read travels."""
        written = b""
        if self.has_uncommitted_changes:
            super().check_writable()  # chunks of an inherited fork are uploaded by the process that wrote them
            origin = PayloadOrigin(self._lineage.session, ForkId(self._id), self._lineage.epoch, 1)
            written = encode_changes(await collect(self.hierarchy.writable(), self._reader, origin))
        return self._pickled(await self._send_below(), written)

    # -- forks ----------------------------------------------------------------------------------------------

    def fork(self) -> ForkSession:
        """Return a fork of this fork, which sees its changes, and is merged into it."""
        return run(self.fork_async())

    async def fork_async(self) -> ForkSession:
        """Asynchronous twin of `fork`."""
        return await issue_fork(self, self._ledger)

    @property
    def has_forks(self) -> bool:
        """True if the fork has issued forks that were not merged."""
        return bool(self._ledger.issued)

    def abandon(self, fork: ForkSession) -> None:
        """Abandon the changes of a fork of this fork; see `Session.abandon`."""
        self._ledger.abandon(fork)

    def merge(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Merge the changes of forks of this fork, or of other forks of its session; see `Session.merge`."""
        flat = list(forks_in(forks))
        run(self.merge_async(flat, on_overlap=on_overlap))

    async def merge_async(
        self, *forks: ForkSession | bytes | Iterable[ForkSession | bytes], on_overlap: OnOverlap = "error"
    ) -> None:
        """Asynchronous twin of `merge`."""
        await merge_forks(self, self._ledger, forks, on_overlap)

    def _warn_of_unmerged_forks(self) -> None:
        warn_of_unmerged(self._ledger, "fork", "the changes of the fork")

    def _decode(self, data: bytes) -> ChangePayload:
        payload = decode_payload(data, self._lineage.session)
        ours = {self._id, *(parent for parent, _ in self._lineage.parents)}
        if any(fork.fork in ours for fork in payload.forks):
            raise MergeConflictError(
                "these changes are of the fork itself, or of one that it is a fork of: merge it into that one"
            )
        return payload

    def _number(self, payloads: Sequence[ChangePayload]) -> list[ChangePayload]:
        """Return payloads whose forks are numbered as forks of this one, and take over what they have not seen."""
        numbered = [numbered_by(payload, ForkId(self._id)) for payload in payloads]
        if any(map(has_strangers, numbered)):
            note_unseen(self.hierarchy.writable(), self._ledger.merged)
        return numbered

    def _note_merged(self, payloads: Sequence[ChangePayload]) -> None:
        forks = [fork for payload in payloads for fork in payload.forks]
        others = (fork for fork in forks if ForkId(self._id) not in dict(fork.parents))
        self._covered.update(Lineage(self._lineage.session, fork.epoch, fork.parents) for fork in others)
        self._covered.add(self._lineage)
        self._lineage = self._lineage.after_merging(forks)


@dataclass(frozen=True)
class PickledFork:
    """Fork on its way to another process; whoever opens it gets a fork of their own."""

    locator: SnapshotLocator
    lineage: Lineage
    below: tuple[bytes, ...]
    """Encoded uncommitted changes of the session, and of each fork between it and this one."""
    isolation: Isolation
    reads: bytes
    """Encoded read set; empty if reads are not tracked."""
    written: bytes
    """Payload of its own changes; empty for none."""

    def open(self) -> ForkSession | UnavailableSession:
        """Return a fork of its own."""
        return opened_or_unavailable(self.load, (PickledFork.open, (self,)))

    def load(self) -> ForkSession:
        """Return a fork of its own; raises the error of a snapshot that cannot be loaded."""
        return self._at(self.locator.load())

    async def open_async(self) -> ForkSession:
        """Asynchronous twin of `load`."""
        return self._at(await self.locator.load_async())

    def _at(self, tip: Tip) -> ForkSession:
        place = self.locator
        fork = ForkSession(
            place.context, tip, self.lineage, self.below, self.isolation, verify_chunks=place.verify_chunks
        )
        if self.reads and fork.hierarchy.reads is not None:
            fork.hierarchy.reads.update(ReadSet.decode("reads of a pickled fork", self.reads))
        if self.written:
            payload = decode_payload(self.written)
            fork._covered = {Lineage(payload.session, each.epoch, each.parents) for each in payload.forks}
            apply_payloads(fork.hierarchy.writable(), [payload], Merged())
            fork.hierarchy.forget()
        return fork


@dataclass(frozen=True)
class ForkOfStore:
    """The fork of a store or an array that is pickled."""

    fork: ForkSession

    def __reduce__(self) -> tuple[Any, ...]:
        fork = self.fork
        return open_fork_of_store, fork._copy or (fork._id, run(fork._parts_to_read()))


def open_fork_of_store(identifier: bytes, parts: PickledFork) -> ForkSession | UnavailableSession:
    """Return the same fork in its own process, or a read-only copy with its changes in another."""
    live = live_session(identifier)
    if isinstance(live, ForkSession):
        return live

    def open_copy() -> ForkSession:
        copy = parts.load()
        copy._copy = identifier, parts
        copy._state = SessionState.COPY
        return copy

    return opened_or_unavailable(open_copy, (open_fork_of_store, (identifier, parts)))


async def issue_fork(session: SessionBase, ledger: ForkLedger) -> ForkSession:
    """Return a fork of a session; see `Session.fork`."""
    session.check_writable()
    changes = session.hierarchy.writable()
    with changes.lock:
        changes.epoch = max(changes.epoch, ledger.rebased)
        epoch = changes.next_epoch()
        changes.packs.settle()  # later writes of the session go to other packs, and are tracked
    view = await _load_view(session.context, changes, ledger)
    below: tuple[UncommittedView | bytes, ...] = () if view is None else (view,)
    tip, lineage = session.base_tip, Lineage(session._id, epoch)
    if isinstance(session, ForkSession):
        tip, lineage = session._origin, session._lineage.child(ForkId(session._id), epoch)
        below = (*session._below, *below)
    fork = ForkSession(
        session.context, tip, lineage, below, session.isolation, ledger.issue(epoch), session.verify_chunks
    )
    if isinstance(session, ForkSession) and session.hierarchy.reads is not None and fork.hierarchy.reads is not None:
        fork.hierarchy.reads.update(session.hierarchy.reads)
    return fork


async def _load_view(context: Context, changes: ChangeSet, ledger: ForkLedger) -> UncommittedView | None:
    """Return a view of uncommitted changes, shared by all forks issued before the next change."""
    cached, version = ledger.view, changes.version
    if cached is not None and cached.changes is changes and cached.version == version:
        return cached.view
    if changes.empty:
        return None
    view = await build_uncommitted_view(changes, context.reader)
    ledger.view = CachedView(changes, version, view)
    return view


async def merge_forks(session: SessionBase, ledger: ForkLedger, forks: Iterable[Any], on_overlap: str) -> None:
    """Merge the changes of forks; see `Session.merge`."""
    session.check_writable()
    checked = check_overlap(on_overlap)
    payloads = await collect_payloads(list(forks_in(forks)))
    if len(payloads) > _MERGED_INLINE:
        await asyncio.to_thread(_merge_payloads, session, ledger, payloads, checked)
    else:
        _merge_payloads(session, ledger, payloads, checked)


def _merge_payloads(session: SessionBase, ledger: ForkLedger, payloads: Sequence[bytes], on_overlap: OnOverlap) -> None:
    reads, changes = session.hierarchy.reads, session.hierarchy.writable()
    if isinstance(session, ForkSession):
        decoded = [session._decode(data) for data in payloads]
    else:
        decoded = [decode_payload(data, session._id, ledger.rebased) for data in payloads]
    noted: list[ReadSet] = []
    if reads is not None:
        noted = [ReadSet.decode(PAYLOAD, fork.reads) for payload in decoded for fork in payload.forks if fork.reads]
    with changes.lock:  # a commit meanwhile has what they wrote with what it depends on, or neither
        if isinstance(session, ForkSession):
            merged = apply_payloads(changes, session._number(decoded), ledger.merged, on_overlap)
            ledger.settle(merged, ForkId(session._id))
            session._note_merged(decoded)
        else:
            merged = apply_payloads(changes, decoded, ledger.merged, on_overlap)
            ledger.settle(merged)
        for reads_of_fork in noted:
            assert reads is not None
            reads.update(reads_of_fork)
    _settle_at_issuers(merged)
    session.hierarchy.forget()


def _settle_at_issuers(forks: Iterable[ForkChanges]) -> None:
    """Drop merged forks from the ledgers of the forks of this process that have issued them."""
    for fork in forks:
        issuer, number = fork.parents[-1] if fork.parents else (b"", 0)
        if isinstance(live := live_session(issuer), ForkSession):
            live._ledger.issued.pop(number, None)


def forks_in(forks: Iterable[Any]) -> Iterator[ForkSession | bytes]:
    """Yield forks and payloads from nested iterables; raises `InvalidInputError` for anything else."""
    for fork in forks:
        if isinstance(fork, bytes | ForkSession):
            yield fork
        elif isinstance(fork, bytearray | memoryview):
            yield bytes(fork)
        elif isinstance(fork, Iterable) and not isinstance(fork, str):
            yield from forks_in(fork)
        else:
            raise InvalidInputError(
                f"{str(fork)[:80]!r} ({type(fork).__name__}) is neither a fork nor the result of a fork's changes()"
            )


async def collect_payloads(forks: Sequence[ForkSession | bytes]) -> list[bytes]:
    """Return the payloads of forks, and payloads as they are."""
    payloads: list[bytes] = []
    for start in range(0, len(forks), _AT_ONCE):
        some = forks[start : start + _AT_ONCE]
        if all(isinstance(fork, bytes) for fork in some):
            payloads += [fork for fork in some if isinstance(fork, bytes)]
        else:
            payloads += await asyncio.gather(*(_collect_payload(fork) for fork in some))
    return payloads


async def _collect_payload(fork: ForkSession | bytes) -> bytes:
    return fork if isinstance(fork, bytes) else await fork.changes_async()
