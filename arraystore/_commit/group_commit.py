"""Group commit: transactions that are committed at the same time go into one record.

Within a process, whoever comes first leads: it takes all requests that wait, rebases each onto the tip (see
`arraystore._commit.rebase_request`), and puts one record that commits all that pass, each with its own snapshot.  While
that PUT is on its way the next ones gather.  What collides with a transaction of the same record waits for the next
one, so that no verdict names a snapshot that was never committed.

Processes that contend for a branch propose their transactions to one another: see `arraystore._commit.intent_queue`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from arraystore._commit.batch import Batch
from arraystore._commit.rebase_request import Passages, check_recorded, rebase_request
from arraystore._commit.rebase_step import Invalid
from arraystore._commit.request import Committed, Obstacle, Outstanding, Request
from arraystore._format.record import Commit
from arraystore._log.backoff import Backoff
from arraystore._log.branch_log import AppendUncertainError, BranchLog
from arraystore._log.loading import Tip, follow, load_newest
from arraystore._log.status import check_open
from arraystore._runtime import lazy_module
from arraystore._runtime.values import dataclass
from arraystore.errors import (
    ArrayStoreError,
    FormatError,
    PermissionDeniedError,
    SessionStateError,
    StorageError,
)

if TYPE_CHECKING:
    from arraystore._commit import intent_queue
    from arraystore._commit.intent_queue import IntentQueue
else:
    intent_queue = lazy_module("arraystore._commit.intent_queue")

_MOST_REFUSALS = 100
"""Records in a row that a storage may refuse as existing without showing one."""

_STALE = 10.0
"""Seconds after which a process looks at the log before its first attempt, which would probably lose."""

_STALE_IN_A_CROWD = 1.0
"""The same where others commit: what is proposed for an old record can be taken by few later ones."""

_CROWDED_FOR = 16
"""Newest records among which one that processes shared means that they contend for the branch."""

_UNSEEING = 16
"""Records of its own after which a process looks for intents again: whoever always wins sees nobody who waits."""

_SHORT_TRIES = 2
"""Races that a transaction may lose before it is proposed, where the queue of intents is empty."""


class GroupCommitter:
    """Commits what the sessions of one process want to commit to one branch.

    `start` runs a coroutine in the background, `tidy` one that may as well fail. `newest` returns the newest record
    that this process knows. `after` is told of every record written: its tip, and whether change logs are outside of
    its body. `age` returns for how many seconds nobody here has looked at the branch, `seen` is told of records that
    were read.
    """

    def __init__(
        self,
        log: BranchLog,
        start: Callable[[Coroutine[Any, Any, None]], object],
        newest: Callable[[], Tip | None],
        after: Callable[[Tip, bool], None],
        age: Callable[[], float],
        seen: Callable[[Tip], None],
        tidy: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.log = log
        self._start = start
        self._newest = newest
        self._after = after
        self._age = age
        self._seen = seen
        self._lock = threading.Lock()
        self.intents = None if log.storage.cheap_probes else intent_queue.IntentQueue(log, after, tidy, self._lock)
        self._proposed = False
        self._own: deque[int] = deque(maxlen=_CROWDED_FOR)
        self._unseen = 0  # records of its own since the last listing
        self._backoff = Backoff(log.environment)
        self._waiting: list[Request] = []
        self._leading = False
        self._sent: _SentRecord | None = None
        self._refusals = 0
        self._followed: Tip | None = None  # the record at which the last round ended

    # -- what callers do --------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Future[Committed | Obstacle]:
        """Queue a transaction; the answer comes in its future, or an error."""
        request.answer.set_running_or_notify_cancel()  # only `withdraw` takes it back
        try:
            check_recorded(request.base.state)
        except SessionStateError as error:
            request.answer.set_exception(error)
            return request.answer
        with self._lock:
            self._waiting.append(request)
            lead = not self._leading
            self._leading = True
        if lead:
            self._start(self._lead())
        return request.answer

    @property
    def busy(self) -> bool:
        """True while somebody waits for an answer, or is being led."""
        with self._lock:
            return self._leading or bool(self._waiting)

    def withdraw(self, request: Request) -> bool:
        """Take a transaction back; False if it is too late to know that it was not committed."""
        with self._lock:
            request.abandoned = True
            if request.taken or request.done:
                if self._sent is not None:
                    self._sent.end_if_nobody_waits()
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            return not request.uncertain and request.outstanding is None

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
                self._followed = tip = await self._round(requests, await self._start_from(tip, requests))
                if self.intents is not None:  # else a look costs less than a verdict that leaves out what is newer
                    self._seen(tip)
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

    async def _start_from(self, tip: Tip | None, requests: Sequence[Request]) -> Tip:
        """Return a record that was read of the log, not older than any base; no base of a session takes its place.

        Where an earlier run of rounds ended counts only for what was rebased since: others may have committed after it,
        and a verdict wants all that is new, which an attempt that loses shows.
        """
        needed = max(request.base.sequence for request in requests)
        known = [record for record in (tip, self._newest()) if record is not None]
        newest = max(known, key=lambda each: each.sequence, default=None)
        if newest is None or newest.sequence < needed:
            newest, self._followed = self._followed, None
        if newest is None or newest.sequence < needed:
            return await load_newest(self.log, await self.log.hint(), await self.log.tip(needed))
        if check_open(newest.state) is not None:  # which somebody may have undone since
            return await self._follow(newest, await self.log.newer(newest.sequence))
        return newest

    async def _round(self, requests: list[Request], tip: Tip) -> Tip:
        """Check everybody, put one record; returns the newest record known afterwards."""
        tip = await self._look_first(requests, tip)
        passages = Passages(self.log, tip)
        for request in requests:
            await self._check(request, passages)
        pending = [request for request in requests if not request.done]
        intents = self.intents
        if intents is not None and intents.busy:
            proposed = [request for request in pending if intents.accepts(request)]
            others = [request for request in pending if not intents.accepts(request)]
            if proposed and not (others and self._proposed):
                self._proposed = True
                return await self._propose(intents, proposed, tip)
            pending, self._proposed = others or pending, False
        return await self._attempt(pending, tip)

    async def _check(self, request: Request, passages: Passages) -> None:
        """Rebase a transaction onto a record, or give it its answer."""
        try:
            answer = await rebase_request(request, passages)
        except FormatError as error:  # of what only this one needs, as far as the others know
            self._fail(request, error)
            return
        if isinstance(answer, Invalid):
            self._fail(request, answer.error)
        elif answer is not None:
            self._forget([request])
            request.answer.set_result(answer)

    async def _look_first(self, requests: Sequence[Request], tip: Tip) -> Tip:
        """Catch up before an attempt that would probably lose, or that must not be made twice."""
        if any(request.uncertain for request in requests):
            return await self._follow(tip, await self.log.newer(tip.sequence))
        if any(request.attempts for request in requests):
            return tip
        intents = self.intents
        if intents is not None:
            proposable = any(map(intents.accepts, requests))
            busy = intents.busy or self._is_crowded(tip, _CROWDED_FOR if proposable else 1)
            stale = self._age() > (_STALE_IN_A_CROWD if busy else _STALE)
            if stale or (busy and not proposable) or (proposable and self._unseen >= _UNSEEING):
                self._unseen = 0
                return await self._follow(tip, await intents.look(tip))
            intents.busy = busy  # who proposes looks thereafter: a look before would be one more
            return tip
        if self._backoff.polite:
            await self._backoff.pause()
            return await self._follow(tip, await self.log.newer(tip.sequence))
        return tip

    def _is_crowded(self, tip: Tip, newest: int) -> bool:
        """Tell whether writers of several processes shared one of the newest records, so that there probably are
        intents.

        Not the newest one alone: whoever gets a record in between would go on without them, and leave them behind.
        """
        numbers = range(tip.sequence, tip.sequence - newest, -1)
        return any(self._is_shared(number, tip.bodies.get(number)) for number in numbers)

    def _is_shared(self, number: int, body: bytes | None) -> bool:
        """Tell whether a record commits transactions of several processes."""
        if body is None or number in self._own:
            return False
        entry = self.log.decode(number, body)
        return isinstance(entry, Commit) and len(entry.transactions) > 1

    async def _propose(self, intents: IntentQueue, requests: Sequence[Request], tip: Tip) -> Tip:
        """Propose transactions to other processes; those without an answer are checked again."""
        try:
            moved = await intents.propose(requests, tip)
        except AppendUncertainError as error:
            for request in requests:
                if request.taken and not request.done:
                    self._fail(request, error)
            return tip
        finally:
            self._forget([request for request in requests if request.done])
        return moved

    async def _attempt(self, requests: Sequence[Request], tip: Tip) -> Tip:
        """Put one record of what goes together; returns the newest record known afterwards."""
        backoff = self._backoff
        batch, members = self._gather(requests, tip)
        if not members:
            return tip
        backoff.begin()
        sent = self._send(batch, members)
        if sent is None:
            return tip  # somebody has withdrawn: gather again
        try:
            body = await sent.wait()
        except AppendUncertainError as error:
            for request in members:
                self._fail(request, error)
            return tip
        except PermissionDeniedError as error:  # it did not arrive, so nothing is in doubt
            self._take_back(sent)
            for request in members:
                self._fail(request, error)
            return tip
        finally:
            self._sent = None
        if sent.ended:
            self._forget(members)
            return tip
        if body is not None:
            self._refusals = 0
            backoff.won()
            return self._acknowledge(batch, members, body)
        backoff.lost()
        try:
            newest = await self._follow(tip, await self._look_after(members, tip))
        except StorageError as error:
            for request in members:
                self._fail(request, _unseen(self.log.key(batch.sequence), error))
            return tip
        body = batch.found_in(newest)
        if body is not None:  # refused, and there all the same: the request was sent twice on its way
            self._acknowledge(batch, members, body)
            return newest
        self._release(members, batch.sequence, newest)
        self._count_refusals(newest.sequence - tip.sequence)
        return newest

    def _release(self, members: Sequence[Request], sequence: int, newest: Tip) -> None:
        """Let transactions be withdrawn again, if it was seen that the record of a number is another one."""
        seen = sequence in newest.bodies
        with self._lock:
            for request in members:
                request.taken = False
                request.uncertain = request.uncertain or not seen
                if seen and request.outstanding is not None and request.outstanding.last <= sequence:
                    request.outstanding = None

    async def _look_after(self, members: Sequence[Request], tip: Tip) -> int:
        """Find the newest record after a lost race."""
        intents = self.intents
        if intents is None or not any(intents.accepts(request) for request in members):
            await self._backoff.pause()  # before looking: what is known before a pause is out of date after it
            return await self.log.tip(tip.sequence + 1)
        newest, self._unseen = await intents.look(tip), 0
        intents.busy = intents.busy or any(request.attempts >= _SHORT_TRIES for request in members)
        return newest

    def _send(self, batch: Batch, members: Sequence[Request]) -> _SentRecord | None:
        """Send a record on its way; from now on nobody in it can be sure that it is not committed."""
        with self._lock:
            if any(request.abandoned for request in members):
                return None
            first = [request for request in members if request.outstanding is None]
            for request in first:  # a PUT may arrive long after its sender has given it up
                request.outstanding = Outstanding(batch.sequence, request.transaction, batch.tip)
            for request in members:
                request.taken = True
                request.attempts += 1
            put = asyncio.ensure_future(batch.write(settle=False))
            self._sent = _SentRecord(put, members, asyncio.get_running_loop(), first)
            return self._sent

    def _take_back(self, sent: _SentRecord) -> None:
        """Note that a record has not arrived and never will: what was outstanding before still is."""
        with self._lock:
            for request in sent.requests:
                request.taken = False
            for request in sent.first:
                request.outstanding = None

    def _count_refusals(self, passed: int) -> None:
        self._refusals = 0 if passed else self._refusals + 1
        if self._refusals >= _MOST_REFUSALS:
            self._refusals = 0
            raise AppendUncertainError(
                f"{self.log.storage.location}: {_MOST_REFUSALS} records were refused as existing, and yet the log of "
                f"branch {self.log.branch!r} holds none of them: the storage contradicts itself. Call commit again: it "
                "detects an earlier success, and never commits twice."
            )

    async def _follow(self, tip: Tip, sequence: int) -> Tip:
        return await follow(self.log, tip, sequence)

    def _acknowledge(self, batch: Batch, members: Sequence[Request], body: bytes) -> Tip:
        step = batch.step()
        moved = batch.tip.followed_by(step.after, body)
        self._own.append(moved.sequence)
        self._unseen += 1
        self._forget(members)
        try:
            self._after(moved, batch.large)
        finally:  # whatever happens, they are committed
            for request in members:
                state = step.snapshot(request.prepared.id)
                assert state is not None
                request.answer.set_result(Committed(Tip(state, moved.bodies), request.attempts, len(members)))
        return moved

    def _forget(self, requests: Sequence[Request]) -> None:
        with self._lock:
            self._waiting = [request for request in self._waiting if request not in requests]

    def _fail(self, request: Request, error: BaseException) -> None:
        self._forget([request])
        request.answer.set_exception(error)

    # -- gathering ----------------------------------------------------------------------------------------------

    def _gather(self, requests: Sequence[Request], tip: Tip) -> tuple[Batch, list[Request]]:
        """Gather what fits into one record, each on top of those before it."""
        batch = Batch(self.log, tip)
        members: list[Request] = []
        for request in requests:
            if batch.holds(request.prepared.id):
                continue  # asked for twice, after a cancellation: the log will tell
            if members and not (request.may_rebase and batch.fits(request.transaction)):
                continue
            try:
                if not batch.add(request.prepared):
                    break
            except ArrayStoreError as error:
                self._fail(request, error)
                return self._gather([other for other in requests if other is not request], tip)
            members.append(request)
        return batch, members


@dataclass(eq=False)
class _SentRecord:
    """A record on its way, and who waits for it."""

    put: asyncio.Future[bytes | None]
    requests: Sequence[Request]
    loop: asyncio.AbstractEventLoop
    first: Sequence[Request]
    """Those of which nothing else was on its way."""
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


def _unseen(key: str, error: StorageError) -> AppendUncertainError:
    return AppendUncertainError(
        f"{key}: a record was refused because there is one, and it is unknown whether it is this one, because {error}. "
        "Call commit again: it detects an earlier success, and never commits twice."
    )
