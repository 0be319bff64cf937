"""Forks of sessions, for worker processes, and their merge."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.read_set import ReadSet
from arraystore._context import Context
from arraystore._forks.ledger import CachedView, ForkLedger, IssuedFork
from arraystore._forks.merge import OnOverlap, PayloadOrigin, apply_payloads, check_overlap, collect, decode_payload
from arraystore._forks.payload_table import PAYLOAD
from arraystore._forks.uncommitted import UncommittedView, build_uncommitted_view, with_uncommitted
from arraystore._format.fork_payload import encode_changes
from arraystore._format.ids import ForkId
from arraystore._format.node import Node
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.base import Isolation, SessionBase, SessionState, pack_writer
from arraystore._session.pickling import SnapshotLocator
from arraystore.errors import InvalidInputError, SessionStateError

_AT_ONCE = 64
"""Count of forks that upload at the same time."""

_MERGED_INLINE = 16
"""Count of payloads merged on the event loop; more are merged in a thread, so that requests continue."""

SESSION_ONLY = {
    "abandon": "a fork has no forks: call abandon on its session",
    "amend": "a fork does not amend: merge it into its session, and call amend there",
    "append": "forks do not append to arrays: append in the session, before forking",
    "appending": "forks do not append to arrays: append in the session, before forking",
    "commit": "a fork is not committed: merge it into its session, and commit that",
    "flush": "a fork is not flushed: merge it into its session, and call flush there",
    "fork": "a fork is not forked: fork its session, or pickle the fork before writing to it",
    "has_forks": "a fork has no forks: ask its session",
    "merge": "nothing is merged into a fork: merge all forks into their session",
    "move": "forks do not move nodes: move them in the session, before forking",
    "rebase": "a fork is not rebased: merge it into its session, and rebase that",
}
"""Remedies by name of the methods that sessions have and forks lack, without asynchronous twins."""


class SessionOnlyError(SessionStateError, AttributeError):
    """The error of a call that only sessions support."""


class ForkSession(SessionBase):
    """A copy of a session for a worker process, whose change set is merged back into the session.

    Comes from `Session.fork`.  Every copy that is unpickled is a fork of its own.
    """

    def __init__(
        self,
        context: Context,
        tip: Tip,
        session: bytes,
        epoch: int,
        below: UncommittedView | bytes | None,
        isolation: Isolation,
        issued: IssuedFork | None = None,
        verify_chunks: bool | None = None,
    ) -> None:
        if below is None:
            state = tip.state
        else:
            state = with_uncommitted(tip.state, below) if isinstance(below, bytes) else below.state
        self._origin = tip
        super().__init__(context, Tip(state, {}), branch=state.branch, isolation=isolation, verify_chunks=verify_chunks)
        self._session = session
        self._epoch = epoch
        self._sent = 0
        self._below = below
        self._issued = IssuedFork() if issued is None else issued
        self._issued.fork = weakref.ref(self)
        if isinstance(below, UncommittedView):
            self._reader = below.reader(self._reader)
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
        self._show(ChangeSet(self._tip.state, pack_writer(self.context)), self.hierarchy.reads)

    def _show(self, changes: ChangeSet | None, reads: ReadSet | None) -> None:
        super()._show(changes, reads)
        self.hierarchy.beneath = self._origin.state

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that the fork is writable, making a copy inherited by a forked child a fork of its own."""
        with self._lock:
            if not self.is_of_this_process and not self.has_uncommitted_changes:
                self._id = self.context.environment.new_id()
                self._begin()
                self._pid = os.getpid()
        super().check_writable(refusal)

    def discard_changes(self) -> None:
        """Discard all changes of this fork."""
        self.check_writable()
        self._id = self.context.environment.new_id()
        self._begin()

    def changes(self) -> bytes:
        """Upload the chunks written, and return all changes as a payload for `Session.merge`."""
        return run(self.changes_async())

    async def changes_async(self) -> bytes:
        """Asynchronous twin of `changes`."""
        self.check_writable()
        self._issued.sent = True
        self._sent += 1
        origin = PayloadOrigin(self._session, ForkId(self._id), self._epoch, self._sent)
        return encode_changes(await collect(self.hierarchy.writable(), self._reader, origin, self._noted()))

    def _noted(self) -> bytes:
        """Return the encoded read set; empty if reads are not tracked."""
        reads = self.hierarchy.reads
        return b"" if reads is None or reads.empty else reads.encode()

    async def _keep_snapshot(self, node: Node) -> None:
        raise SessionStateError(
            f"a fork cannot move chunks of array {'/' + node.path!r} that it has not written itself: "
            "shift or reindex the array in the session, before or after its forks"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_unwritten()
        below = run(self._below.send()) if isinstance(self._below, UncommittedView) else self._below
        return PickledFork.open, (self._pickled(below),)

    async def parts_async(self) -> PickledFork:
        """Return the form in which a fork travels to another process."""
        self._check_unwritten()
        return self._pickled(await self._below.send() if isinstance(self._below, UncommittedView) else self._below)

    def _check_unwritten(self) -> None:
        if self.has_uncommitted_changes:
            raise SessionStateError("this fork has been written to: send the result of changes(), not the fork")

    def _pickled(self, below: bytes | None) -> PickledFork:
        self._issued.sent = True
        locator = SnapshotLocator.of(self.context, self._origin.state, self.verify_chunks)
        return PickledFork(locator, self._session, self._epoch, below, self.isolation, self._noted())


@dataclass(frozen=True)
class PickledFork:
    """Fork on its way to another process; whoever opens it gets a fork of their own."""

    locator: SnapshotLocator
    session: bytes
    """Id of the session."""
    epoch: int
    below: bytes | None
    """Encoded uncommitted changes of the session."""
    isolation: Isolation
    reads: bytes
    """Encoded read set; empty if reads are not tracked."""

    def open(self) -> ForkSession:
        """Return a fork of its own."""
        return self._at(self.locator.load())

    async def open_async(self) -> ForkSession:
        """Asynchronous twin of `open`."""
        return self._at(await self.locator.load_async())

    def _at(self, tip: Tip) -> ForkSession:
        place = self.locator
        fork = ForkSession(
            place.context, tip, self.session, self.epoch, self.below, self.isolation, verify_chunks=place.verify_chunks
        )
        if self.reads and fork.hierarchy.reads is not None:
            fork.hierarchy.reads.update(ReadSet.decode("reads of a pickled fork", self.reads))
        return fork


async def issue_fork(session: SessionBase, ledger: ForkLedger) -> ForkSession:
    """Return a fork of a session; see `Session.fork`."""
    session.check_writable()
    changes = session.hierarchy.writable()
    with changes.lock:
        changes.epoch = max(changes.epoch, ledger.rebased)
        epoch = changes.next_epoch()
        changes.packs.settle()  # later writes of the session go to other packs, and are tracked
    below = await _load_view(session.context, changes, ledger)
    return ForkSession(
        session.context,
        session.base_tip,
        session._id,
        epoch,
        below,
        session.isolation,
        ledger.issue(epoch),
        session.verify_chunks,
    )


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
    decoded = [decode_payload(data, session._id, ledger.rebased) for data in payloads]
    noted: list[ReadSet] = []
    if reads is not None:
        noted = [ReadSet.decode(PAYLOAD, fork.reads) for payload in decoded for fork in payload.forks if fork.reads]
    ledger.settle(apply_payloads(changes, decoded, ledger.merged, on_overlap))
    for reads_of_fork in noted:
        assert reads is not None
        reads.update(reads_of_fork)
    session.hierarchy.forget()


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
