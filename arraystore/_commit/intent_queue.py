"""Group commit across processes: writers that contend for a branch queue intents and commit them together.

A writer whose record lost a race publishes its transaction as an *intent* among the records of the branch.  Whoever
owns the oldest intent leads: it reads the others', checks each against every record since the one that it was
published for, and puts **one** record that commits all that pass and refuses those that collide.  The others follow
the log and find their verdict there.  Any number of leaders is safe: a record is put-if-absent right after the tip
that its leader knows whole, and a leader takes nothing that a record up to there has decided.

Each intent is checked against one record after the other.  So what collides once is refused by every leader for
ever, whether or not a record says so, and its owner can be certain that it is not committed.  An intent also names
the last record that may take it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from arraystore._commit.batch import Batch
from arraystore._commit.intent_payload import proposal_of, read_proposal
from arraystore._commit.intent_tracking import (
    PASSED_OVER,
    IntentListing,
    Pace,
    TrackedIntent,
    TrackedProposal,
    rebase_proposal,
)
from arraystore._commit.rebase_step import Invalid, Passage, step
from arraystore._commit.request import Committed, Outstanding, Request
from arraystore._format.ids import SnapshotId
from arraystore._format.intent import (
    MAX_INTENT,
    PATIENCE,
    Intent,
    decode_intent,
    encode_intent,
    intent_key,
    read_intent_key,
)
from arraystore._format.node import NodeKind
from arraystore._format.record import Commit
from arraystore._format.zarr_metadata import array_info
from arraystore._log.branch_log import AppendUncertainError, BranchLog
from arraystore._log.conditional_put import put_surely, unsettled
from arraystore._log.loading import Step, Tip, steps_to
from arraystore._log.state import Resolved
from arraystore.errors import ArrayStoreError, FormatError, ObjectNotFoundError, StorageError

_MOST_TAKEN = 256
"""Intents that a leader looks at for one record."""

_MOST_RECENT = 1 << 12
"""Transactions that are remembered as decided, so that nobody waits for what is left of their intents.  Beyond, those
of the newest records are: older intents are not listed."""

_MOST_CONTRADICTIONS = 100
_FAILURES = 5
"""Requests that may fail in a row while a writer waits for its verdict."""

_QUIET_PART, _POLLS = 0.6, 0.2
"""Parts of a leader's turn: for how long nobody looks after a record, and how long between two looks."""

_SLOWING = 0.3
"""Part of the time since the last record that passes at least between two looks: who waits for long looks less often,
so that waiting takes no processor from those who are waited for."""

_WAIT = 3.0
"""Turns without a record after which the second of the queue stops waiting for the first."""


class IntentQueue:
    """Queue of intents of a branch, as one process sees it.

    `wrote` is told of every record written here: its tip, and whether change logs are outside of its body. `tidy` runs
    in the background what may as well fail. `lock` is held by whoever withdraws a request, and by the queue while it
    takes some.
    """

    def __init__(
        self,
        log: BranchLog,
        wrote: Callable[[Tip, bool], None],
        tidy: Callable[[Coroutine[Any, Any, None]], None],
        lock: threading.Lock,
    ) -> None:
        self.log = log
        self.busy = False
        self._lock = lock
        self._wrote = wrote
        self._tidy = tidy
        self._pace = Pace()
        self._tip: Tip | None = None
        self._passages: dict[int, Passage] = {}
        self._known: dict[str, TrackedIntent] = {}
        self._recent: dict[SnapshotId, int] = {}  # by which record: it says nothing about what is proposed after it
        self._limit = 0
        self._looked = False
        self._progress = 0.0
        self._alone = True
        self._contradictions = 0

    # -- looking ------------------------------------------------------------------------------------------------

    async def look(self, tip: Tip) -> int:
        """List what is behind a record, intents included; returns the number of the newest record."""
        listing = await self._list(tip.sequence)
        self._note(listing)
        self.busy = any(
            known.open and not known.decided and known.last > listing.newest for known in self._known.values()
        )
        return listing.newest

    async def _list(self, after: int) -> IntentListing:
        log = self.log
        began = self._now()
        listing = IntentListing(after)
        pages = 0
        async for page in log.storage.list(log.prefix, log.key(max(0, after - PATIENCE))):
            pages += 1
            if pages == 1:
                self._pace.requested(self._now() - began)
            elif pages == 2:
                hint = await log.hint()  # so far behind that leaping beats reading on
                if hint is not None and hint.sequence > listing.newest + PATIENCE:
                    leap = await self._list(hint.sequence)
                    if leap.listed >= hint.sequence:  # a hint may be wrong
                        return leap
            for info in page:
                listing.add(log.prefix, info.key)
        return listing

    def _note(self, listing: IntentListing) -> None:
        """Take up intents that are new, and forget those that are gone."""
        self._looked = True
        listed = set(listing.keys)
        self._known = {key: known for key, known in self._known.items() if key in listed}
        for key in listing.keys:
            if key not in self._known:
                sequence, identifier = read_intent_key(self.log.prefix, key) or (0, SnapshotId(b""))
                known = self._known[key] = TrackedIntent(key, identifier, sequence, sequence + PATIENCE)
                known.decided = self._recent.get(identifier, -1) > sequence

    def _now(self) -> float:
        return self.log.environment.now_us() / 1e6

    # -- proposing -----------------------------------------------------------------------------------------------

    @staticmethod
    def accepts(request: Request) -> bool:
        """Tell whether a transaction may be proposed: what others commit must not end it, and it must be small."""
        return request.tries > request.rebased and not isinstance(request.prepared.log_place, bytes)

    async def propose(self, requests: Sequence[Request], tip: Tip) -> Tip:
        """Propose transactions that were checked for a tip, wait for their verdicts, and return the newest record.

        Those without an answer afterwards were refused, or too late, and are as they were; they are certain not to be
        committed, unless something of them is `outstanding`.
        """
        await self._start_at(tip)
        mine = await self._publish(requests)
        if mine is None:
            return self._at
        failures = 0
        while True:
            try:
                await self._step(mine)
                failures = 0
            except AppendUncertainError:
                raise
            except StorageError as error:  # which may pass
                failures += 1
                if failures >= _FAILURES:
                    raise _unknown(mine.key, "was committed", str(error)) from error
                await self.log.environment.sleep(0.05 * 2**failures * (0.5 + self.log.environment.random()))
            except Exception as error:  # whatever it is: others may commit what was proposed
                raise _unknown(mine.key, "was committed", f"of {error!r}") from error
            if self._is_over(mine):
                return self._at

    @property
    def _at(self) -> Tip:
        assert self._tip is not None
        return self._tip

    async def _start_at(self, tip: Tip) -> None:
        """Begin to follow the log, from where this process proposed something last if that is not long ago."""
        known, self._limit = self._tip, tip.sequence + PATIENCE
        if known is None or not 0 <= tip.sequence - known.sequence <= PATIENCE:
            self._start_anew(tip)
        elif known.sequence < tip.sequence:
            try:
                await self._follow_to(tip.sequence)
            except ObjectNotFoundError:  # a record, or what the branch was reset to, has expired and is collected
                self._start_anew(tip)
        self._progress = self._now()

    def _start_anew(self, tip: Tip) -> None:
        """Begin at a record with nothing known of those before it but what it carries."""
        self._tip, self._passages = tip, {}
        fresh = {key: TrackedIntent(key, each.id, each.sequence, each.last) for key, each in self._known.items()}
        self._known, self._recent = fresh, self._decided_lately(tip)
        for each in fresh.values():
            each.decided = self._recent.get(each.id, -1) > each.sequence

    def _decided_lately(self, tip: Tip) -> dict[SnapshotId, int]:
        """Return what the records at hand decided: their intents may still be there, and nobody waits for these."""
        decided: dict[SnapshotId, int] = {}
        for number, body in tip.bodies.items():
            if tip.sequence - PATIENCE < number <= tip.sequence:
                entry = self.log.decode(number, body)
                if isinstance(entry, Commit):
                    decided |= dict.fromkeys([*(item.id for item in entry.transactions), *entry.refused], number)
        return decided

    async def _publish(self, requests: Sequence[Request]) -> TrackedIntent | None:
        """Write the intent of some requests; None if it would be too large for others to read."""
        log, environment = self.log, self.log.environment
        sequence = self._at.sequence
        entries = [TrackedProposal(each.transaction, each) for each in requests if each.base.sequence == sequence]
        proposals = tuple(proposal_of(entry.transaction) for entry in entries)
        for entry, proposed in zip(entries, proposals, strict=True):  # a session may be read on; others see this much
            reads = read_proposal("new intent", proposed).reads
            entry.transaction = replace(entry.transaction, reads=reads)
        encoded = encode_intent(Intent(log.branch, sequence, sequence + PATIENCE, proposals))
        if len(encoded) > MAX_INTENT and len(entries) > 1:
            return await self._publish(requests[: len(requests) // 2])
        if len(encoded) > MAX_INTENT or not entries:
            self.busy = False  # it has to be committed by itself
            return None
        again = requests[0].outstanding is not None  # there may be an intent of this name
        identifier = SnapshotId(environment.new_id()) if again else entries[0].prepared.id
        key = intent_key(log.prefix, sequence, identifier)
        mine = TrackedIntent(key, identifier, sequence, sequence + PATIENCE, entries, sequence)
        if not self._mark_taken(entries, mine.last):
            return await self._publish([each for each in requests if not each.abandoned])
        began = self._now()
        try:
            await put_surely(log.storage, environment, key, encoded, unsettled)  # of this name there is no other
        except StorageError as error:
            raise _unknown(key, "arrived", str(error)) from error
        self._pace.requested((self._now() - began) / 2)
        self._known[key] = mine
        self._alone, self._limit = True, mine.last
        return mine

    def _mark_taken(self, entries: Sequence[TrackedProposal], last: int) -> bool:
        """Note that nobody can be sure any more that these are not committed; False if one was withdrawn."""
        with self._lock:
            requests = [entry.request for entry in entries if entry.request is not None]
            if any(each.abandoned for each in requests):
                return False
            for entry, each in zip(entries, requests, strict=True):
                each.outstanding = Outstanding(last, entry.transaction, self._at)
                each.taken, each.attempts = True, each.attempts + 1
            return True

    def _waits(self, mine: TrackedIntent) -> bool:
        """Tell whether a verdict is to come."""
        return mine.open and self._at.sequence < mine.last

    def _is_over(self, mine: TrackedIntent) -> bool:
        """Tell whether nothing is left to wait for."""
        entries = mine.entries or []
        if not self._waits(mine):
            self._known.pop(mine.key, None)
            for entry in entries:
                if entry.request is not None:
                    entry.request.taken = False
                    entry.request.outstanding = None
            self.busy = not self._alone
            self._looked = False
            return True
        return all(entry.request is not None and entry.request.abandoned for entry in entries)

    async def _step(self, mine: TrackedIntent) -> None:
        """Do the next thing: lead, or see what others have done."""
        self._progress = min(self._progress, self._now())  # a clock may be set back
        turn = self._turn(mine)
        if turn <= self._now():
            await self._lead(mine)
            return
        pace = self._pace
        quiet = self._progress + _QUIET_PART * pace.turn - self._now()
        pause = max(quiet, _POLLS * pace.turn, _SLOWING * (self._now() - self._progress))
        await self.log.environment.sleep(min(pause, max(turn - self._now(), 0.0)))
        await self._follow(mine)

    def _turn(self, mine: TrackedIntent) -> float:
        """Return from when on this process leads, unless something happens before."""
        if not self._looked:
            return 0.0
        rank = sum(self._counts(other) and other.key < mine.key for other in self._known.values())
        if not rank:
            return 0.0
        others = min((rank - 1) / 2, math.log2(rank))  # many at once have died together
        return self._progress + self._pace.turn * (_WAIT + others)

    def _counts(self, intent: TrackedIntent) -> bool:
        """Tell whether the owner of an intent may be expected to lead."""
        over = intent.unreadable or intent.passed_over >= PASSED_OVER or intent.last <= self._at.sequence
        return intent.open and not (over or intent.decided)

    # -- following the log --------------------------------------------------------------------------------------

    async def _follow(self, mine: TrackedIntent) -> bool:
        """Read on for as long as there are records and a verdict is to come; tells whether there was one."""
        moved = 0
        while self._waits(mine) and self._at.sequence < self._limit:
            began = self._now()
            try:
                await self.log.read(self._at.sequence + 1)
            except ObjectNotFoundError:
                self._pace.requested(self._now() - began)
                return moved > 0
            moved += 1
            await self._follow_to(self._at.sequence + 1)
            if moved >= 4:  # this process has slept: records are read in leaps, not one by one
                await self._follow_to(await self.log.tip(self._at.sequence))
        return True

    async def _follow_to(self, sequence: int) -> None:
        sequence = min(sequence, max(self._limit, self._at.sequence))  # what comes later decides nothing here
        if sequence == self._at.sequence:
            return
        self._tip, steps = await steps_to(self.log, self._at, sequence)
        for each in steps:
            self._note_record(each)

    def _note_record(self, passed: Step) -> None:
        """Take a record into account."""
        passage = Passage.of(passed)
        number = passed.passed.sequence
        self._passages[number] = passage
        self._passages.pop(number - 2 * PATIENCE, None)
        decided = passage.ids | passage.refused
        self._recent |= dict.fromkeys(decided, number)
        if len(self._recent) > _MOST_RECENT:
            self._recent = {each: at for each, at in self._recent.items() if at in self._passages}
        now = self._now()
        self._progress = now
        self._contradictions = 0
        own = {entry.prepared.id for known in self._known.values() for entry in known.entries or () if entry.request}
        if passage.ids - own:
            self._alone = False
        older = [intent for intent in self._known.values() if intent.sequence < number]
        furthest = max((intent.key for intent in older if intent.id in decided), default="")
        for intent in older:
            intent.passed_over += intent.decided or intent.key < furthest  # else there only was no room
            intent.decided = intent.decided or intent.id in decided
            for entry in intent.entries or ():
                if not entry.decided:
                    self._decide(entry, passage)

    def _decide(self, entry: TrackedProposal, passage: Passage) -> None:
        if entry.prepared.id in passage.ids:
            entry.decided = True
            if entry.request is not None:
                self._answer(entry.request, passage)
        elif entry.prepared.id in passage.refused:
            entry.decided = entry.refused = True

    def _answer(self, request: Request, passage: Passage) -> None:
        (record,) = passage.records
        state = Step(record, passage.before, passage.after).snapshot(request.prepared.id)
        assert state is not None
        sequence = record.sequence
        bodies = {number: body for number, body in self._at.bodies.items() if number <= sequence}
        if not request.done:
            together = len(record.transactions)
            request.answer.set_result(Committed(Tip(state, bodies), request.attempts, together))

    # -- leading --------------------------------------------------------------------------------------------------

    async def _lead(self, mine: TrackedIntent) -> None:
        """Decide about everybody who waits, and put the record that says so."""
        listing = await self._list(self._at.sequence)
        waited_for = {key for key, known in self._known.items() if known.key < mine.key}
        self._note(listing)
        self._known.setdefault(mine.key, mine)
        if listing.newest > self._at.sequence:
            await self._follow_to(listing.newest)
            if not self._waits(mine):
                return
        before_me = {key for key, known in self._known.items() if key < mine.key and self._counts(known)}
        if before_me - waited_for:
            self._progress = self._now()  # their owners have not had their time yet
            return
        while True:
            takeable = await self._read_all(mine)
            batch, tidied = self._gather(takeable)
            if not len(batch):
                return
            body = await batch.write(settle=False)  # whose record it is shows as the log is followed
            if body is not None:
                self._finish_record(batch, body, tidied)
                return
            if not await self._follow(mine):
                await self._contradict()
            else:
                self._finish_refused(batch, tidied)
            if not self._waits(mine) or self._turn(mine) > self._now():
                return

    async def _contradict(self) -> None:
        """Wait before another attempt at a record that was refused as existing, and does not exist."""
        self._contradictions += 1
        if self._contradictions >= _MOST_CONTRADICTIONS:
            self._contradictions = 0
            location = self.log.storage.location
            raise AppendUncertainError(
                f"{location}: {_MOST_CONTRADICTIONS} times a record was refused as existing that does not exist: the "
                "storage contradicts itself. Call commit again: it detects an earlier success, and never commits twice."
            )
        await self.log.environment.sleep(self._pace.request)

    async def _read_all(self, mine: TrackedIntent) -> list[TrackedIntent]:
        """Return the intents that the next record may take; those of others are read, all at once."""
        takeable = self._takeable(mine)
        await asyncio.gather(*(self._read(each) for each in takeable if each.entries is None))
        return [each for each in takeable if each.entries]

    def _takeable(self, mine: TrackedIntent) -> list[TrackedIntent]:
        """Return the intents that the next record may take, and that can be checked here, in order."""
        number = self._at.sequence + 1
        takeable = [
            known
            for key, known in sorted(self._known.items())
            if known.open and not known.stale and known.last >= number and self._reaches(known.sequence)
        ]
        return takeable[:_MOST_TAKEN] + [each for each in takeable[_MOST_TAKEN:] if each is mine]

    def _reaches(self, sequence: int) -> bool:
        """Tell whether every record after one, up to the tip, is at hand."""
        return sequence == self._at.sequence or sequence + 1 in self._passages

    async def _read(self, intent: TrackedIntent) -> None:
        log = self.log
        try:
            data = await log.storage.get(intent.key)
            if len(data) > MAX_INTENT:
                raise FormatError(intent.key, f"{len(data)} bytes; an intent has at most {MAX_INTENT}")
            read = decode_intent(intent.key, data, log.branch, intent.sequence)
            intent.entries = [TrackedProposal(read_proposal(intent.key, proposal)) for proposal in read.proposals]
        except ObjectNotFoundError:
            intent.entries = []  # decided, and tidied away
            return
        except FormatError:
            intent.unreadable = True  # by another release, or damaged: its owner has to help itself
            return
        intent.last, intent.checked = read.last, intent.sequence

    def _gather(self, takeable: Sequence[TrackedIntent]) -> tuple[Batch, list[str]]:
        """Return the record that decides what can be decided, and the intents that are obsolete after it."""
        batch = Batch(self.log, self._at)
        tidied = [key for key, known in self._known.items() if not known.open or known.last <= self._at.sequence]
        newest = {entry.prepared.id: intent for intent in takeable for entry in intent.entries or ()}
        for intent in takeable:
            self._check(intent)
            left = 0
            for entry in intent.entries or ():
                if entry.decided or newest[entry.prepared.id] is not intent:
                    continue  # of what was proposed twice, only the later proposal counts
                if entry.refused:
                    left += not batch.refuse(entry.prepared.id)
                else:
                    left += not self._take(batch, entry)
            if not left:
                tidied.append(intent.key)
        return batch, tidied

    def _take(self, batch: Batch, entry: TrackedProposal) -> bool:
        if entry.request is not None and entry.request.done:
            return True
        if batch.holds(entry.prepared.id) or not batch.fits(entry.transaction):
            return False
        try:
            return batch.add(entry.prepared)
        except ArrayStoreError:
            self._refuse(entry)  # what it says cannot be: its owner gets an error from its own attempt
            return batch.refuse(entry.prepared.id)

    def _check(self, intent: TrackedIntent) -> None:
        """Check the entries of an intent against the records that have come since it was checked last."""
        if intent.checked == intent.sequence:
            for entry in intent.entries or ():
                if entry.request is None and not self._makes_sense(entry, intent.sequence):
                    self._refuse(entry)
        for number in range(intent.checked + 1, self._at.sequence + 1):
            passage = self._passages[number]
            for entry in intent.entries or ():
                if entry.decided:
                    continue
                self._decide(entry, passage)
                if not (entry.decided or entry.refused) and not rebase_proposal(entry, passage, self.log.environment):
                    self._refuse(entry)
        intent.checked = self._at.sequence

    def _refuse(self, entry: TrackedProposal) -> None:
        """Refuse a transaction; for one of this process that is its verdict, since no leader sees it otherwise."""
        entry.refused = True
        entry.decided = entry.request is not None

    def _makes_sense(self, entry: TrackedProposal, sequence: int) -> bool:
        """Tell whether what somebody else proposes can be applied to what it was published for."""
        state = self._at.state if sequence == self._at.sequence else self._passages[sequence + 1].before
        if isinstance(step(entry.transaction, Passage.at(state)), Invalid):
            return False
        transaction = entry.prepared.transaction(state.snapshot, self.log.branch, sequence + 1)
        try:
            after = state.committed(sequence + 1, [Resolved(transaction, entry.prepared.log, entry.prepared.note)])
            for change in entry.prepared.log.nodes:
                node = after.by_id(change.id)
                if node is not None and node.kind == NodeKind.ARRAY:
                    array_info(node.documents)
        except ArrayStoreError:
            return False
        return True

    def _finish_record(self, batch: Batch, body: bytes, tidied: Sequence[str]) -> None:
        mine = batch.step()
        moved = self._at.followed_by(mine.after, body)
        self._tip = moved
        try:
            self._wrote(moved, batch.large)
        finally:
            self._note_record(mine)
        if tidied:
            self._tidy(self._delete(tidied))

    def _finish_refused(self, batch: Batch, tidied: Sequence[str]) -> None:
        """See to what follows a record of one's own that was refused, and is in the log all the same."""
        body = batch.found_in(self._at)
        if body is not None:
            self._wrote(batch.tip.followed_by(batch.step().after, body), batch.large)
            if tidied:
                self._tidy(self._delete(tidied))

    async def _delete(self, keys: Sequence[str]) -> None:
        await self.log.storage.delete(keys)


def _unknown(key: str, what: str, reason: str) -> AppendUncertainError:
    return AppendUncertainError(
        f"{key}: it is unknown whether this intent {what}, because {reason}. Call commit again: it detects an "
        "earlier success, and never commits twice."
    )
