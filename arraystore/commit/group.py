"""Group commit: transactions of one process that are committed at the same time share records.

Whoever comes first leads: it takes everybody who waits, checks each against what others have committed and against
those taken before it, and puts one record that commits all that pass, each with its own snapshot.  While that PUT is
on its way the next ones gather.  What collides with a transaction of the same record waits for the next one, so
that no verdict names a snapshot that never came to be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from arraystore.commit.backoff import Backoff
from arraystore.commit.branch import Passed, Tip, advance, passed_between
from arraystore.commit.committer import append_entry
from arraystore.commit.detect import Ours, detect
from arraystore.commit.footprint import Footprint, footprint_of
from arraystore.commit.log import AppendUncertainError, BranchLog, Resolved
from arraystore.commit.prepare import Prepared, replaced
from arraystore.commit.reads import ReadSet
from arraystore.commit.resolve import adapted
from arraystore.commit.state import State, StateBuilder
from arraystore.conflicts import Conflict
from arraystore.errors import ArrayStoreError, ConflictError, StorageError
from arraystore.format.ids import id_to_text
from arraystore.format.record import MAX_ATTACHED, MAX_BODY, Birth, Commit, Rewrite, Transaction, encode_body
from arraystore.format.transaction import TransactionLog

_ROOM = MAX_BODY - 256
"""Bytes of a record's body for its transactions."""

_MOST_REFUSALS = 100
"""Records in a row that a storage may refuse as existing without showing one."""

__all__ = ["Committed", "GroupCommitter", "Obstacle", "Request", "check"]


@dataclass(frozen=True)
class Committed:
    """A transaction that is in the log.

    Parameters
    ----------
    tip
        Its record, with the snapshot that it made.
    attempts
        In how many records it was tried.
    together
        How many transactions its record holds.
    """

    tip: Tip
    attempts: int
    together: int


@dataclass(frozen=True)
class Obstacle:
    """What a transaction has to get over before it can be tried again.

    Parameters
    ----------
    conflicts
        With what was committed meanwhile; may be empty where only `Request.guard` objects.
    theirs
        What was committed.
    before, tip
        The snapshot on which it was checked last, and the newest one.
    attempts
        In how many records it was tried.
    """

    conflicts: tuple[Conflict, ...]
    theirs: Footprint
    before: State
    tip: Tip
    attempts: int


@dataclass(eq=False)
class Request:
    """A transaction that wants to be committed.

    Parameters
    ----------
    prepared
        What it changes; replaced as it is rebased.
    base
        Record for which it was checked last.
    tries
        How many times it may be put on top of what others committed.
    reads
        What it depends on, where it is serializable.
    guard
        Arrays to which, if others have appended, its owner wants to look before it goes on.
    uncertain
        Whether an earlier attempt may have arrived.
    """

    prepared: Prepared
    base: Tip
    tries: int = 0
    reads: ReadSet | None = None
    guard: frozenset[bytes] = frozenset()
    uncertain: bool = False
    attempts: int = 0
    rebased: int = 0
    taken: bool = False
    abandoned: bool = False
    _ours: tuple[Prepared, Ours] | None = None
    answer: Future[Committed | Obstacle] = field(default_factory=Future)

    def again(self, prepared: Prepared, base: Tip) -> Request:
        """Return a request for what became of the transaction, checked for another record."""
        found = Request(prepared, base, self.tries, self.reads, self.guard)
        found.attempts, found.rebased = self.attempts, self.rebased
        return found

    @property
    def ours(self) -> Ours:
        """What it wants, worked out once."""
        if self._ours is None or self._ours[0] is not self.prepared:
            self._ours = self.prepared, Ours.of(self.prepared)
        return self._ours[1]

    @property
    def done(self) -> bool:
        """Whether it has its answer."""
        return self.answer.done()


class GroupCommitter:
    """Commits what the sessions of one process want to commit to one branch.

    Parameters
    ----------
    log
        The branch.
    start
        Runs a coroutine in the background.
    newest
        Returns the newest record that this process knows, None if it knows none.
    after
        Told of every record that was written: its tip, and whether its change logs are outside of its body.
    """

    def __init__(
        self,
        log: BranchLog,
        start: Callable[[Coroutine[Any, Any, None]], object],
        newest: Callable[[], Tip | None],
        after: Callable[[Tip, bool], None],
    ) -> None:
        self.log = log
        self._start = start
        self._newest = newest
        self._after = after
        self._lock = threading.Lock()
        self._backoff = Backoff(log.environment)
        self._waiting: list[Request] = []
        self._leading = False
        self._flight: _Flight | None = None
        self._refusals = 0

    # -- what callers do --------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Future[Committed | Obstacle]:
        """Queue a transaction; the answer comes in its future, or an error."""
        request.answer.set_running_or_notify_cancel()  # only `withdraw` takes it back
        with self._lock:
            self._waiting.append(request)
            lead = not self._leading
            self._leading = True
        if lead:
            self._start(self._lead())
        return request.answer

    def withdraw(self, request: Request) -> bool:
        """Take a transaction back; False if it is too late to know that it was not committed."""
        with self._lock:
            request.abandoned = True
            if request.taken or request.done:
                if self._flight is not None:
                    self._flight.end_if_nobody_waits()
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            return not request.uncertain

    # -- what the leader does -----------------------------------------------------------------------------------

    async def _lead(self) -> None:
        tip: Tip | None = None
        while True:
            with self._lock:
                requests = [request for request in self._waiting if not (request.done or request.abandoned)]
                self._waiting = list(requests)
                if not requests:
                    self._leading = False
                    return
            try:
                tip = self._start_from(tip, requests)
                tip = await self._round(requests, tip)
            except BaseException as error:
                with self._lock:
                    for request in requests:
                        if not request.done:
                            request.answer.set_exception(error)
                    self._waiting = [request for request in self._waiting if not request.done]
                    self._leading = bool(self._waiting)
                    again = self._leading
                if not isinstance(error, Exception):
                    raise
                if not again:
                    return
                tip = None

    def _start_from(self, tip: Tip | None, requests: Sequence[Request]) -> Tip:
        """Return the newest record that anybody here knows."""
        known = [request.base for request in requests]
        newest = self._newest()
        known += [found for found in (tip, newest) if found is not None]
        return max(known, key=lambda each: each.sequence)

    async def _round(self, requests: list[Request], tip: Tip) -> Tip:
        """Check everybody, put one record; returns the newest record known afterwards."""
        backoff = self._backoff
        if backoff.polite and not any(request.attempts for request in requests):
            await backoff.pause()
            tip = await self._follow(tip, await self.log.newer(tip.sequence))
        if any(request.uncertain for request in requests):
            tip = await self._follow(tip, await self.log.newer(tip.sequence))
        passages: dict[int, _Passage] = {}
        for request in requests:
            await self._check(request, tip, passages)
        batch = self._batch([request for request in requests if not request.done], tip)
        if not batch:
            return tip
        backoff.begin()
        flight = self._take_off(batch, tip)
        if flight is None:
            return tip  # somebody has withdrawn: gather again
        try:
            body = await flight.wait()
        except AppendUncertainError as error:
            for request in batch.requests:
                self._fail(request, error)
            return tip
        finally:
            self._flight = None
        if flight.ended:
            self._forget(batch.requests)
            return tip
        if body is not None:
            self._refusals = 0
            backoff.won()
            return self._succeeded(batch, tip, body)
        with self._lock:
            for request in batch.requests:
                request.taken = False
        backoff.lost()
        await backoff.pause()  # before looking: what is known before a pause is out of date after it
        newest = await self._follow(tip, await self.log.tip(tip.sequence + 1))
        self._count_refusals(newest.sequence - tip.sequence)
        return newest

    def _take_off(self, batch: _Batch, tip: Tip) -> _Flight | None:
        """Send a record on its way; from now on nobody in it can be sure that it is not committed."""
        with self._lock:
            if any(request.abandoned for request in batch.requests):
                return None
            for request in batch.requests:
                request.taken = True
                request.attempts += 1
            entry = append_entry(self.log, tip, Commit(tuple(batch.transactions)), tuple(batch.attachments))
            self._flight = _Flight(asyncio.ensure_future(entry), batch.requests, asyncio.get_running_loop())
            return self._flight

    def _count_refusals(self, passed: int) -> None:
        self._refusals = 0 if passed else self._refusals + 1
        if self._refusals >= _MOST_REFUSALS:
            self._refusals = 0
            raise StorageError(
                f"{self.log.storage.location}: {_MOST_REFUSALS} records were refused as existing, and yet the log of "
                f"branch {self.log.branch!r} holds none of them: the storage contradicts itself. Nothing was committed."
            )

    async def _follow(self, tip: Tip, sequence: int) -> Tip:
        moved, _ = await advance(self.log, tip, sequence)
        return moved

    def _succeeded(self, batch: _Batch, tip: Tip, body: bytes) -> Tip:
        sequence = tip.sequence + 1
        moved = tip.followed_by(batch.builder.build(), body)
        assert moved.sequence == sequence
        self._forget(batch.requests)
        try:
            self._after(moved, any(not isinstance(t.log, TransactionLog) for t in batch.transactions))
        finally:  # whatever happens, they are committed
            for request, state in zip(batch.requests, batch.states, strict=True):
                own = moved if state is None else Tip(state, moved.bodies)
                request.answer.set_result(Committed(own, request.attempts, len(batch.requests)))
        return moved

    def _forget(self, requests: Sequence[Request]) -> None:
        with self._lock:
            self._waiting = [request for request in self._waiting if request not in requests]

    def _fail(self, request: Request, error: BaseException) -> None:
        self._forget([request])
        request.answer.set_exception(error)

    # -- checking -----------------------------------------------------------------------------------------------

    async def _check(self, request: Request, tip: Tip, passages: dict[int, _Passage]) -> None:
        """Bring a transaction up to a record: rebased, or with its answer."""
        at = request.base.sequence
        if at >= tip.sequence and not request.uncertain:
            return
        if at not in passages:
            passages[at] = _Passage(request.base.state, await passed_between(self.log, at, tip.sequence))
        passage = passages[at]
        own = _find(passage.passed, request.prepared.id)
        if own is not None:
            mine, _ = await advance(self.log, request.base, own.sequence, request.prepared.id)
            self._forget([request])
            request.answer.set_result(Committed(mine, max(request.attempts, 1), len(own.transactions)))
            return
        request.uncertain = False
        if not any(isinstance(each.entry, Commit | Birth) for each in passage.passed):
            assert all(isinstance(each.entry, Rewrite) for each in passage.passed)
            request.base = tip  # rewrites change no data: the same transaction fits on top of them
            return
        if request.rebased >= request.tries:
            expected, actual = id_to_text(request.base.state.snapshot), id_to_text(tip.state.snapshot)
            self._fail(request, ConflictError(expected, actual, self.log.branch))
            return
        request.rebased += 1
        await self._rebase(request, passage.footprint, tip)

    async def _rebase(self, request: Request, theirs: Footprint, tip: Tip) -> None:
        obstacle = await _checked(self.log, request, theirs, tip)
        if obstacle is not None:
            self._forget([request])
            request.answer.set_result(obstacle)

    # -- gathering ----------------------------------------------------------------------------------------------

    def _batch(self, requests: Sequence[Request], tip: Tip) -> _Batch:
        """Gather what fits into one record, each on top of those before it."""
        batch = _Batch(self.log, tip)
        for request in requests:
            if any(request.prepared.id == other.prepared.id for other in batch.requests):
                continue  # asked for twice, after a cancellation: the log will tell
            if batch.requests and not self._goes_with(request, batch, tip):
                continue
            if not batch.has_room(request.prepared):
                break
            try:
                batch.add(request)
            except ArrayStoreError as error:
                self._fail(request, error)
                return self._batch([other for other in requests if other is not request], tip)
        return batch

    def _goes_with(self, request: Request, batch: _Batch, tip: Tip) -> bool:
        """Tell whether a transaction goes with those gathered; if not, the next record decides."""
        if request.rebased >= request.tries or not request.guard.isdisjoint(batch.theirs.nodes):
            return False
        now = batch.builder.peek()
        if adapted(request.prepared, tip.state, now) is not None:
            return False
        return not _collisions(request, batch.theirs, tip.state, now)


@dataclass(eq=False)
class _Flight:
    """A record on its way, and who waits for it."""

    put: asyncio.Future[bytes | None]
    requests: Sequence[Request]
    loop: asyncio.AbstractEventLoop
    ended: bool = False

    async def wait(self) -> bytes | None:
        """Return the record's body if it arrived; None if it lost, or if nobody waits for it any more."""
        try:
            return await self.put
        except asyncio.CancelledError:
            if not self.ended:
                self.put.cancel()
                raise
            return None

    def end_if_nobody_waits(self) -> None:
        """Give a PUT up whose callers have all gone away, so that one that hangs does not hold up those who come."""
        if not self.ended and all(request.abandoned for request in self.requests):
            self.ended = True
            self.loop.call_soon_threadsafe(self.put.cancel)


@dataclass(eq=False)
class _Passage:
    """What was committed since a record, for all who are based on it."""

    base: State
    passed: list[Passed]

    @cached_property
    def footprint(self) -> Footprint:
        return footprint_of(self.base, [item for each in self.passed for item in each.transactions])


class _Batch:
    """Transactions that share a record."""

    def __init__(self, log: BranchLog, tip: Tip) -> None:
        self.log = log
        self.tip = tip
        self.sequence = tip.sequence + 1
        self.builder = StateBuilder(tip.state)
        self.theirs = Footprint()
        self.requests: list[Request] = []
        self.transactions: list[Transaction] = []
        self.attachments: list[bytes] = []
        self.states: list[State | None] = []
        self._body = 0

    def __bool__(self) -> bool:
        return bool(self.requests)

    def has_room(self, prepared: Prepared) -> bool:
        """Tell whether the record can take one more transaction; an empty one takes any."""
        if not self.requests:
            return True
        attached = sum(map(len, self.attachments)) + sum(map(len, prepared.attachments))
        return attached <= MAX_ATTACHED and self._body + self._size(self._transaction(prepared)) <= _ROOM

    def _transaction(self, prepared: Prepared) -> Transaction:
        parent = self.builder.peek().snapshot
        return prepared.transaction(parent, self.log.branch, self.sequence, len(self.attachments))

    def _size(self, transaction: Transaction) -> int:
        return len(encode_body(self.sequence, Commit((transaction,)), self.log.branch))

    def add(self, request: Request) -> None:
        """Put a transaction behind the others; raises `FormatError` if it does not fit what they make."""
        prepared = request.prepared
        transaction = self._transaction(prepared)
        located = prepared.located(self.log.branch, self.sequence, len(self.attachments))
        resolved: Resolved = (transaction, located, prepared.note)
        if self.requests:
            self.states[-1] = self.builder.build()  # what the one before it made
        self.builder.commit(self.sequence, [resolved])
        self._body += self._size(transaction)
        self.theirs.add(self.tip.state, prepared.id, located)
        self.requests.append(request)
        self.transactions.append(transaction)
        self.attachments += prepared.attachments
        self.states.append(None)


def _find(passed: Sequence[Passed], identifier: bytes) -> Passed | None:
    return next((each for each in passed if any(item.id == identifier for item, _, _ in each.transactions)), None)


async def check(log: BranchLog, request: Request, tip: Tip) -> Obstacle | None:
    """Bring a transaction up to a record without committing it; returns what is in its way.

    Parameters
    ----------
    log
        The branch.
    request
        The transaction; it is based on that record afterwards, unless something is in its way.
    tip
        The record.
    """
    base = request.base
    passed = await passed_between(log, base.sequence, tip.sequence)
    theirs = footprint_of(base.state, [item for each in passed for item in each.transactions])
    return await _checked(log, request, theirs, tip)


async def _checked(log: BranchLog, request: Request, theirs: Footprint, tip: Tip) -> Obstacle | None:
    before = request.base.state
    conflicts = _collisions(request, theirs, before, tip.state)
    guarded = any(theirs.nodes[i].appended or theirs.nodes[i].chunks for i in request.guard & theirs.nodes.keys())
    if conflicts or guarded:
        return Obstacle(tuple(conflicts), theirs, before, tip, request.attempts)
    prepared = request.prepared
    nodes = adapted(prepared, before, tip.state)
    if nodes is not None:
        request.prepared = await replaced(prepared, nodes, prepared.log.chunks, (), log.storage, log.environment)
    request.base = tip
    return None


def _collisions(request: Request, theirs: Footprint, before: State, after: State) -> list[Conflict]:
    conflicts = detect(request.ours, theirs, before, after)
    return conflicts if request.reads is None else [*conflicts, *request.reads.collisions(theirs, before)]
