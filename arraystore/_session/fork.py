"""Forks: parts of a session that travel."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.read_set import ReadSet
from arraystore._context import Context
from arraystore._forks.ledger import IssuedFork
from arraystore._forks.merge import OnOverlap, PayloadOrigin, apply_payloads, check_overlap, collect, decode_payload
from arraystore._forks.payload_table import PAYLOAD
from arraystore._forks.uncommitted import UncommittedView, uncommitted_view, with_uncommitted
from arraystore._format.fork_payload import encode_changes
from arraystore._log.loading import Tip
from arraystore._runtime import run
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.pickling import SnapshotLocator
from arraystore._session.session import Session, pack_writer
from arraystore.errors import InvalidInputError, SessionStateError

__all__ = ["ForkSession", "fork_of", "forks_in", "merge_into", "payloads_of", "rebuild_fork_async"]

Isolation = Literal["snapshot", "serializable"]

_AT_ONCE = 64
"""Forks that upload what they have left at the same time."""

_MERGED_INLINE = 16
"""Payloads that are merged on the event loop; more are merged in a thread, so that input and output go on."""


class ForkSession(Session):
    """A part of a session that may travel: written to in any process, never committed, merged back.

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
        super().__init__(context, Tip(state, {}), tip.state.branch, isolation, verify_chunks)
        self._origin = tip
        self._session = session
        self._epoch = epoch
        self._sent = 0
        self._below = below
        self._issued = IssuedFork() if issued is None else issued
        self._issued.fork = weakref.ref(self)
        if isinstance(below, UncommittedView):
            self._reader = below.reader(self._reader)
        self._begin(ReadSet() if self._isolation else None)

    def _begin(self, reads: ReadSet | None) -> None:
        """Begin without changes."""
        self._changes = ChangeSet(self._tip.state, pack_writer(self.context))
        self.hierarchy = Hierarchy(self._tip.state, self._reader, self._changes)
        self.hierarchy.beneath = self._origin.state
        self.hierarchy.reads = reads

    @property
    def branch(self) -> None:
        """Forks are on no branch."""
        return

    def check_writable(self, refusal: str = "the session is read-only") -> None:
        """Check that something may be written now; what a forked child inherits becomes a fork of its own.

        Raises
        ------
        SessionStateError
            If it was written to before the process was forked.
        """
        with self._lock:
            if not self.is_of_this_process and not self.has_uncommitted_changes:
                self._id = self.context.environment.new_id()
                self._begin(self.hierarchy.reads)  # what was read before may decide what is written here
                self._pid = os.getpid()
        super().check_writable(refusal)

    def discard_changes(self) -> None:
        """Forget everything that was written through this fork."""
        super().discard_changes()
        self._begin(self.hierarchy.reads)

    def changes(self) -> bytes:
        """Make what was written durable, and return all changes so far, compactly, for `Session.merge`."""
        return run(self.changes_async())

    async def changes_async(self) -> bytes:
        """Asynchronous twin of `changes`."""
        self.check_writable()
        assert self._changes is not None
        self._issued.sent = True
        self._sent += 1
        origin = PayloadOrigin(self._session, self._id, self._epoch, self._sent)
        return encode_changes(await collect(self._changes, self._reader, origin, self._noted()))

    def _noted(self) -> bytes:
        """Return what this fork has read, as it travels; nothing where its session does not want to know."""
        reads = self.hierarchy.reads
        return b"" if reads is None or reads.empty else reads.encode()

    async def commit_async(self, *_arguments: Any, **_options: Any) -> str:
        """Refuse: forks are merged, and their session is committed."""
        raise SessionStateError("a fork is not committed: merge it into its session, and commit that")

    async def amend_async(self, *_arguments: Any, **_options: Any) -> str:
        """Refuse: forks are merged, and their session amends."""
        raise SessionStateError("a fork does not amend: merge it into its session, and call amend there")

    async def flush_async(self, *_arguments: Any, **_options: Any) -> str:
        """Refuse: forks are merged, and their session is flushed."""
        raise SessionStateError("a fork is not flushed: merge it into its session, and call flush there")

    async def rebase_async(self, *_arguments: Any, **_options: Any) -> None:
        """Refuse: sessions are rebased."""
        raise SessionStateError("a fork is not rebased: merge it into its session, and rebase that")

    async def fork_async(self) -> ForkSession:
        """Refuse: fork the session."""
        raise SessionStateError("a fork is not forked: fork its session, or pickle the fork before writing to it")

    async def merge_async(self, *_forks: Any, **_options: Any) -> None:
        """Refuse: forks are merged into their session."""
        raise SessionStateError("nothing is merged into a fork: merge all forks into their session")

    def append(self, *_arguments: Any, **_options: Any) -> Any:
        """Refuse: append in the session."""
        raise _only_in_session("append to arrays")

    def appending(self, *_arguments: Any, **_options: Any) -> Any:
        """Refuse: append in the session."""
        raise _only_in_session("append to arrays")

    def move(self, *_arguments: Any, **_options: Any) -> Any:
        """Refuse: move in the session."""
        raise _only_in_session("move nodes")

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_unwritten()
        below = run(self._below.send()) if isinstance(self._below, UncommittedView) else self._below
        return rebuild_fork, self._parts(below)

    async def parts_async(self) -> tuple[Any, ...]:
        """Return what it is pickled as: the arguments of `rebuild_fork_async`."""
        self._check_unwritten()
        return self._parts(await self._below.send() if isinstance(self._below, UncommittedView) else self._below)

    def _check_unwritten(self) -> None:
        if self.has_uncommitted_changes:
            raise SessionStateError("this fork has been written to: send what changes() returns, not the fork")

    def _parts(self, below: bytes | None) -> tuple[Any, ...]:
        self._issued.sent = True
        locator = SnapshotLocator.of(self.context, self._origin.state, self.verify_chunks)
        return locator, self._session, self._epoch, below, self.isolation, self._noted()


def _only_in_session(what: str) -> SessionStateError:
    return SessionStateError(f"forks do not {what}: do it in the session, before forking")


def rebuild_fork(
    locator: SnapshotLocator, session: bytes, epoch: int, below: bytes | None, isolation: Isolation, noted: bytes
) -> ForkSession:
    """Return a fork of its own from what was pickled."""
    return _rebuilt(locator, locator.load(), session, epoch, below, isolation, noted)


async def rebuild_fork_async(
    locator: SnapshotLocator, session: bytes, epoch: int, below: bytes | None, isolation: Isolation, noted: bytes
) -> ForkSession:
    """Asynchronous twin of `rebuild_fork`."""
    return _rebuilt(locator, await locator.load_async(), session, epoch, below, isolation, noted)


def _rebuilt(
    locator: SnapshotLocator,
    tip: Tip,
    session: bytes,
    epoch: int,
    below: bytes | None,
    isolation: Isolation,
    noted: bytes,
) -> ForkSession:
    fork = ForkSession(locator.context, tip, session, epoch, below, isolation, verify_chunks=locator.verify_chunks)
    if noted and fork.hierarchy.reads is not None:
        fork.hierarchy.reads.update(ReadSet.decode("reads of a pickled fork", noted))
    return fork


async def fork_of(session: Session) -> ForkSession:
    """Return a fork of a session; see `Session.fork`."""
    session.check_writable()
    changes, ledger = session._changes, session._ledger
    assert changes is not None
    with changes.lock:
        changes.epoch = max(changes.epoch, session._rebased_epoch)
        epoch = changes.next_epoch()
        changes.packs.settle()  # what the session overwrites from now on goes elsewhere, and is noted
    below = await _below(session, changes)
    issued = ledger.issue(epoch)
    isolation: Isolation = "serializable" if session._isolation else "snapshot"
    verify = session.verify_chunks
    return ForkSession(session.context, session._tip, session._id, epoch, below, isolation, issued, verify)


async def _below(session: Session, changes: ChangeSet) -> UncommittedView | None:
    """Return what is uncommitted, as forks see it: the same for all that are taken while nothing changes."""
    known, version = session._ledger.view, changes.version
    if known is not None and known[0] is changes and known[1] == version:
        return known[2]
    if changes.empty:
        return None
    found = await uncommitted_view(changes, session.context.reader)
    session._ledger.view = changes, version, found
    return found


async def merge_into(session: Session, forks: Iterable[Any], on_overlap: str) -> None:
    """Bring home what forks changed; see `Session.merge`."""
    session.check_writable()
    checked = check_overlap(on_overlap)
    payloads = await payloads_of(list(forks_in(forks)))
    if len(payloads) > _MERGED_INLINE:
        await asyncio.to_thread(_bring_home, session, payloads, checked)
    else:
        _bring_home(session, payloads, checked)


def _bring_home(session: Session, payloads: Sequence[bytes], on_overlap: OnOverlap) -> None:
    changes, ledger, reads = session._changes, session._ledger, session.hierarchy.reads
    assert changes is not None
    decoded = [decode_payload(data, session._id, session._rebased_epoch) for data in payloads]
    noted: list[ReadSet] = []
    if reads is not None:
        noted = [ReadSet.decode(PAYLOAD, fork.reads) for payload in decoded for fork in payload.forks if fork.reads]
    ledger.settle(apply_payloads(changes, decoded, ledger.merged, on_overlap))
    for found in noted:
        assert reads is not None
        reads.update(found)
    session.hierarchy.forget()


def forks_in(forks: Iterable[Any]) -> Iterator[ForkSession | bytes]:
    """Yield forks and payloads out of lists of lists of them.

    Raises
    ------
    InvalidInputError
        If something else is among them.
    """
    for fork in forks:
        if isinstance(fork, bytes | ForkSession):
            yield fork
        elif isinstance(fork, bytearray | memoryview):
            yield bytes(fork)
        elif isinstance(fork, Iterable) and not isinstance(fork, str):
            yield from forks_in(fork)
        else:
            raise InvalidInputError(
                f"{str(fork)[:80]!r} ({type(fork).__name__}) is neither a fork nor what the changes() of one returned"
            )


async def payloads_of(forks: Sequence[ForkSession | bytes]) -> list[bytes]:
    """Return what forks changed, for those that are not payloads already."""
    found: list[bytes] = []
    for start in range(0, len(forks), _AT_ONCE):
        some = forks[start : start + _AT_ONCE]
        if all(isinstance(fork, bytes) for fork in some):
            found += [fork for fork in some if isinstance(fork, bytes)]
        else:
            found += await asyncio.gather(*(_payload(fork) for fork in some))
    return found


async def _payload(fork: ForkSession | bytes) -> bytes:
    return fork if isinstance(fork, bytes) else await fork.changes_async()
