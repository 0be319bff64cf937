"""Log of a branch: finding its tip, reading spans of it, appending to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from arraystore._chunks.cache_budget import CacheBudget
from arraystore._environment import Environment
from arraystore._format.digest import log_start
from arraystore._format.envelope import unpack_body
from arraystore._format.ids import id_to_text
from arraystore._format.layer import EnclosingRecord
from arraystore._format.lifecycle import Expiry
from arraystore._format.record import (
    Body,
    Commit,
    Record,
    Transaction,
    decode_body,
    decode_record,
    encode_record,
    first_carried,
    read_record_key,
    record_key,
)
from arraystore._format.refs import (
    Hint,
    branch_prefix,
    history_prefix,
)
from arraystore._format.transaction import TransactionLog, decode_transaction, read_log
from arraystore._log.chain import LogChain
from arraystore._log.conditional_put import Put, put_surely, unsettled
from arraystore._log.presence import check_repository, read_hint
from arraystore._log.record_cache import RecordCache
from arraystore._log.spans import Span, carriers
from arraystore._log.state import Resolved
from arraystore.errors import (
    FormatError,
    LogForkError,
    LogHoleError,
    ObjectNotFoundError,
    PermissionDeniedError,
    RefNotFoundError,
    SessionExpiredError,
    StorageError,
)
from arraystore.storage.cache_usage import CacheUsage
from arraystore.storage.protocol import BytesLike, Storage

LONGEST_PAUSE = 600.0
"""Seconds between finding the tip and having written the next record after which a writer checks that its place in the
log has not expired meanwhile.  Expired records are deleted only after several times as long."""

_NEAR = (2, 3)
_FAR = (*range(2, 8), *(1 << power for power in range(3, 17)))
"""Distances beyond the newest record found at which others are looked for, which lost ones would hide.

Up to seven lost records never hide newer ones then, and more do not where at least as many are left after them.
"""

_FAR_EVERY = 10.0
"""Seconds for which a process that has looked far away looks only nearby."""

_RECORDS_KEPT = 256
_LOGS_KEPT = 256
_BODIES_KEPT = 512
_ALL = 1 << 60

_OVERHEAD, _DECODED = 1024, 8
"""Bytes that the Python objects of a record take, and the size of its decoded values relative to its bytes."""


class AppendUncertainError(StorageError):
    """The storage failed while a record was being written: it is unknown whether it arrived."""


class BranchLog:
    """Log of one branch, with a cache of at most `room` bytes of records and of values decoded from them."""

    def __init__(
        self, storage: Storage, repository: bytes, branch: str, environment: Environment, room: int = 16 << 20
    ) -> None:
        self.storage = storage
        self.repository = repository
        self.branch = branch
        self.environment = environment
        self.prefix = branch_prefix(repository, branch)
        self.history_prefix = history_prefix(repository, branch)
        self.settings = 0
        """Number of the newest repository record about the configuration that was seen; hints pass it on."""
        self.hinted: Hint | None = None
        """Hint that was read last."""
        self.holes: set[int] = set()
        """Records found missing below newer ones, unless they have expired."""
        self.chain = LogChain(self.key, log_start(repository, branch))
        self._looked_at = 0
        self._looked_far_at: int | None = None
        self._seen = -1  # newest record that was listed, read or written here
        self._newest = -1  # newest record of the last listing, or known to exist otherwise
        self._recent: RecordCache[Record] = RecordCache({}, _RECORDS_KEPT, room // 2)
        self.memo = None if environment.memo is None else environment.memo.log(storage.location, self.prefix)
        self._decoded: RecordCache[tuple[bytes, Body]]
        self._resolved: RecordCache[list[Resolved]]
        if self.memo is None:
            self._decoded = RecordCache({}, _BODIES_KEPT, room // 4)
            self._resolved = RecordCache({}, _LOGS_KEPT, room // 4)
        else:
            unbounded = CacheBudget(_ALL)  # others share the memo
            self._decoded = RecordCache(self.memo.bodies, _ALL, _ALL, unbounded)
            self._resolved = RecordCache(self.memo.resolved, _ALL, _ALL, unbounded)

    @property
    def usage(self) -> CacheUsage:
        """Return what its caches hold, and how often they helped."""
        return self._recent.usage + self._decoded.usage + self._resolved.usage

    def key(self, sequence: int) -> str:
        """Return the key of a record."""
        return record_key(self.prefix, sequence)

    async def read(self, sequence: int) -> Record:
        """Read a record, which never changes and is cached; raises `ObjectNotFoundError` if there is none."""
        record = self._recent.get(sequence)
        if record is None:
            key = self.key(sequence)
            record = self._record(key, await self.storage.get(key), sequence)
            self.chain.link(record)
            self._recent.put(sequence, record, _weight(record))
        return record

    def _record(self, key: str, data: BytesLike, sequence: int) -> Record:
        memo = self.memo
        if memo is None:
            return decode_record(key, data, self.branch, sequence, self.repository)
        cached = memo.records.get(sequence)
        if cached is None or cached[0] != data:
            cached = memo.records[sequence] = (
                bytes(data),
                decode_record(key, data, self.branch, sequence, self.repository),
            )
        record: Record = cached[1]
        return record

    async def hint(self) -> Hint | None:
        """Read the hint of the branch; None where it is missing or unreadable, which costs time but no safety."""
        hint = await read_hint(self.storage, self.branch)
        if hint is not None and hint.repository != self.repository:
            await self.check_repository()  # the hint may be of a repository created since
            return None
        if hint is not None:
            self.settings = max(self.settings, hint.settings)
            self.hinted = hint
        return hint

    async def exists(self, sequence: int) -> bool:
        """Tell whether a record exists, without reading it."""
        return sequence in self._recent or await self._is_there(sequence)

    async def tip(self, start: int | None) -> int:
        """Find the number of the newest record, starting from one believed to exist.

        Raises `RefNotFoundError` if the branch has no record, `LogHoleError` if its newest ones are lost.
        """
        await self._look_at_holes_again()
        began, seen = self.environment.now_us(), self._seen
        if self.storage.cheap_probes:
            newest = await self._probe(start)
        else:
            newest = await self._list_after(start)
        if newest is None and start is not None:
            newest = await self._list_after(None)  # the hint is wrong, or its record was deleted
        if not self.storage.cheap_probes:
            newest = await self._unlisted(newest, start)
        self._looked(began, newest)
        if newest is None:
            await self.check_repository()
            raise RefNotFoundError(f"there is no branch {self.branch!r}")
        return newest if newest >= seen else await self._above(newest, seen)

    async def _above(self, listed: int, seen: int) -> int:
        """Return the newest record where the newest one listed is older than one seen before."""
        newest = max(listed, await self._list_after(None) or 0)
        if newest < seen and await self._is_there(seen):
            return seen  # a listing may lag behind
        if newest < seen:
            raise self.lost(newest + 1, f"this process has seen record {seen}")
        return newest

    def lost(self, sequence: int, why: str) -> LogHoleError:
        """Return the error about the newest records of a log, which are lost."""
        return LogHoleError(
            self.key(sequence),
            f"is missing, and so are all later ones, though {why}. Restore the records from a backup or an older "
            "version in the bucket. If there is none, or the bucket was restored to an older state on purpose, run "
            "arraystore repair, which removes the references to them, and open the repository again: the branch is at "
            f"record {sequence - 1} then",
        )

    async def survey(self) -> None:
        """Note records missing below newer ones anywhere in the log, where finding the tip lists nothing.

        For maintenance, which deletes objects that no record references: it must not take a record below a hole for the
        tip.
        """
        if self.storage.cheap_probes:
            self._seen = max(self._seen, await self._list_after(None) or -1)

    async def _look_at_holes_again(self) -> None:
        """List the log again for holes that are not repaired."""
        if self.holes:
            self.holes = set()
            await self._list_after(None)

    async def _unlisted(self, listed: int | None, start: int | None) -> int | None:
        """Return the newest record that is known to exist where the listing lags behind it."""
        least = -1 if listed is None else listed
        for number in sorted({self._newest, start or 0, 0}, reverse=True):
            if number > least and await self._is_there(number):
                return number
        return listed

    async def check_repository(self) -> None:
        """Check that the storage still has the repository of this log; raises `RepositoryGoneError`."""
        await check_repository(self.storage, self.repository)

    async def _digest(self, sequence: int) -> bytes:
        """Return the digest of the log up to a record, which is read unless its digest is cached."""
        digest = self.chain.digest(sequence)
        return (await self.read(sequence)).digest if digest is None else digest

    def check_holes(self, expired: int) -> None:
        """Check that only expired records are missing; raises `LogHoleError`."""
        self.holes = {hole for hole in self.holes if hole > expired}
        if self.holes:
            raise LogHoleError(
                self.key(min(self.holes)),
                "is missing, and there are newer records. Run arraystore repair, which rebuilds it if later records "
                "repeat all its content; otherwise arraystore verify lists the lost objects, which have to be restored "
                "from a backup or an older version in the bucket",
            )

    async def _list_after(self, start: int | None) -> int | None:
        """Return the newest record from `start` on, itself listed, so that one request tells that it exists."""
        newest: int | None = None
        start_after = self.key(start - 1) if start else ""
        async for page in self.storage.list(self.prefix, start_after):
            for info in page:
                number = read_record_key(self.prefix, info.key)
                if number is None:
                    continue
                if newest is not None and number > newest + 1 and not await self._is_there(newest + 1):
                    self.holes.add(newest + 1)
                newest = number
        return newest

    async def _probe(self, start: int | None) -> int | None:
        """Return the newest record from `start` on, by requests for single records.

        Expired records are deleted from the oldest on, so if one exists and the next one does not, the next is not yet
        written.
        """
        low = start or 0
        if not await self.exists(low):
            return None if start is not None else await self._list_after(None)
        while True:
            low = await self._gallop(low)
            beyond = await self._beyond(low, _FAR)
            if beyond is None:
                return low if await self._is_there(low) else await self._list_after(None)
            low = beyond

    async def _beyond(self, sequence: int, steps: Iterable[int]) -> int | None:
        """Look for records beyond the seemingly newest one, which lost ones would hide."""
        for step in steps:
            if await self._is_there(sequence + step):
                if not await self._is_there(sequence + 1):  # it may have been written meanwhile
                    self.holes.add(sequence + 1)
                return sequence + step
        return None

    async def _gallop(self, low: int) -> int:
        """Return a record whose successor is missing."""
        step = 1
        while await self.exists(low + step):
            low += step
            step *= 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if await self.exists(middle):
                low = middle
            else:
                high = middle
        return low

    async def _is_there(self, sequence: int) -> bool:
        """Tell whether a record exists now, whatever is cached."""
        try:
            await self.storage.head(self.key(sequence))
        except ObjectNotFoundError:
            return False
        return True

    async def newer(self, newest: int) -> int:
        """Return the number of the newest record, by one request for the next one if there is none after `newest`.

        After a long pause the next one may be missing because it was written, has expired and was deleted.
        """
        began = self.environment.now_us()
        self._newest, self._seen = max(self._newest, newest), max(self._seen, newest)
        if self.holes:
            return await self.tip(newest)
        try:
            await self.read(newest + 1)
        except ObjectNotFoundError:
            if newest < self._newest or not self._looked_lately():
                return await self.tip(max(newest, self._newest))
            if self.storage.cheap_probes and await self._beyond(newest, self._steps(began)) is not None:
                return await self.tip(newest)
            self._looked(began, newest)
            return newest
        if self.storage.cheap_probes or not await self._ends_at(newest + 1):
            return await self.tip(newest + 1)
        self._looked(began, newest + 1)
        return newest + 1

    async def _ends_at(self, newest: int) -> bool:
        """Tell whether a record that was just read is the newest one, as it mostly is: a GET costs less than a LIST."""
        try:
            await self.read(newest + 1)
        except ObjectNotFoundError:
            return newest >= self._newest and self._looked_lately()
        return False

    def _steps(self, now: int) -> Iterable[int]:
        """Return the distances beyond a known tip to look at: far ones only now and then, since these take time."""
        at = self._looked_far_at
        if at is not None and 0 <= now - at < _FAR_EVERY * 1_000_000:
            return _NEAR
        self._looked_far_at = now
        return _FAR

    def _looked(self, began: int, newest: int | None) -> None:
        self._looked_at = began
        if newest is not None:
            self._newest, self._seen = max(self._newest, newest), max(self._seen, newest)

    def _looked_lately(self) -> bool:
        """Tell whether the log was read so recently that no record written since can have been deleted."""
        return not self._is_late(self._looked_at)

    def _is_late(self, looked_at: int) -> bool:
        return not 0 <= self.environment.now_us() - looked_at < LONGEST_PAUSE * 1_000_000

    async def span(self, first: int, last: int) -> Span:
        """Read the bodies of consecutive records, in one parallel round of ≤ 3 + (last-first)/512 requests."""
        records = await asyncio.gather(*(self.read(number) for number in carriers(first, last)))
        bodies: dict[int, bytes] = {}
        for record in reversed(records):
            self.chain.link(record)  # once more: the chain has those before it now
            bodies.update(record.bodies())
        return Span(
            {number: bodies[number] for number in range(first, last + 1)},
            {record.sequence: record for record in records},
        )

    def decode(self, sequence: int, body: bytes) -> Body:
        """Decode the body of a record, once for bodies in the cache."""
        cached = self._decoded.get(sequence)
        if cached is not None and cached[0] == body:
            return cached[1]
        entry = decode_body(self.key(sequence), body, self.branch, sequence)
        self._decoded.put(sequence, (body, entry), _OVERHEAD + _DECODED * len(body))
        return entry

    async def resolve(self, sequence: int, commit: Commit, records: dict[int, Record] | None = None) -> list[Resolved]:
        """Fetch the logs and notes of a commit's transactions that are outside of its body; cached, unless large."""
        resolved = self._resolved.get(sequence)
        if resolved is None:
            resolved = [
                Resolved(item, await self._log(sequence, item, records), await self.note(sequence, item, records))
                for item in commit.transactions
            ]
            if not any(isinstance(item.log, bytes) for item in commit.transactions):
                self._resolved.put(sequence, resolved, self._weight_of_logs(sequence, len(resolved), records))
        return resolved

    def _weight_of_logs(self, sequence: int, count: int, records: dict[int, Record] | None) -> int:
        """Estimate the bytes of logs and notes that are not in the body of their record."""
        record = (records or {}).get(sequence) or self._recent.get(sequence)
        attached = 0 if record is None else sum(map(len, record.attachments))
        return count * _OVERHEAD + _DECODED * attached

    async def note(self, sequence: int, item: Transaction, records: dict[int, Record] | None = None) -> bytes:
        """Return the encoded message and metadata of a transaction."""
        if isinstance(item.note, bytes):
            return item.note
        return await self._attached(sequence, item.first + item.note, records)

    async def _attached(self, sequence: int, index: int, records: dict[int, Record] | None) -> bytes:
        record = (records or {}).get(sequence) or await self.read(sequence)
        if not 0 <= index < len(record.attachments):
            raise FormatError(self.key(sequence), f"has no attachment {index}")
        return record.attachments[index]

    async def _log(self, sequence: int, item: Transaction, records: dict[int, Record] | None) -> TransactionLog:
        if isinstance(item.log, TransactionLog):
            return item.log
        if isinstance(item.log, bytes):
            key = transaction_key(item.log)
            return decode_transaction(key, await self.storage.get(key))
        name = f"{self.key(sequence)}: change log"
        attached = await self._attached(sequence, item.first + item.log, records)
        return read_log(name, unpack_body(name, attached), EnclosingRecord(self.branch, sequence, item.first))

    async def append(self, record: Record, *, settle: bool = True) -> bool:
        """Write a record unless one of its number exists, and return whether the record of this number is this one.

        True is certain, and so is False with `settle`, which reads the record that exists after a refusal, since an
        intermediary may have repeated the PUT; only a caller that looks for its entry in the log does without. Raises
        `AppendUncertainError` if the storage fails for so long that it stays unknown, and `SessionExpiredError` if the
        number was used, expired and deleted meanwhile, so that nothing was committed.
        """
        key = self.key(record.sequence)
        began = self.environment.now_us()
        looked_at, newest = self._looked_at, self._newest
        if self.storage.cheap_probes or self._is_late(looked_at):
            await self.check_repository()
        if record.repository != self.repository:  # otherwise its place is set already
            record = replace(record, repository=self.repository, before=await self._digest(record.sequence - 1))

        async def is_own() -> bool:
            return (await self.read(record.sequence)).body == record.body

        encoded = encode_record(record)
        try:
            won = await put_surely(self.storage, self.environment, key, encoded, is_own if settle else unsettled)
        except PermissionDeniedError:  # it did not arrive
            raise
        except StorageError as error:
            raise _uncertain(key, "arrived", error) from error
        if won:
            late = self._is_late(looked_at) or record.sequence <= newest  # others here may have listed the log since
            try:
                await self._check_place(record, late=late, fresh=won == Put.WRITTEN)
            except StorageError as error:  # a denial, too, is one of these looks, not of the write
                raise _uncertain(key, "is a part of its log", error) from error
            self._looked(began, record.sequence)
            self._recent.put(record.sequence, record, _weight(record))
        else:
            self._newest = max(self._newest, record.sequence)  # it exists, even if a listing does not have it
        return bool(won)

    async def _check_place(self, record: Record, *, late: bool, fresh: bool) -> None:
        """Check that a record just written is a part of its log."""
        if late:
            await self._check_still_open(record, fresh=fresh)
        self.chain.link(record)
        if self.storage.cheap_probes:
            await self._check_beyond(record, fresh=fresh)

    async def _check_beyond(self, record: Record, *, fresh: bool) -> None:
        """Check that the record after one just written continues it; otherwise it took the place of a lost one."""
        if not await self._is_there(record.sequence + 1):
            return
        try:
            await self.read(record.sequence + 1)
        except LogForkError:
            if not fresh:
                raise
            self.chain.forget(record.sequence)
            await self.storage.delete([self.key(record.sequence)])  # no record can continue it
            raise LogHoleError(
                self.key(record.sequence),
                "is missing, and there are newer records, which continue it. Nothing was committed. Run arraystore "
                "repair, which rebuilds it if later records repeat all its content, or restore it from a backup or an "
                "older version in the bucket, and open a new session",
            ) from None

    async def _check_still_open(self, record: Record, *, fresh: bool) -> None:
        """Check, after a long pause, that a record just written is not one of those deleted as expired.

        Where the number was free because its record was deleted, readers start after the record. But it may also have
        been written long ago, and have expired since as any other. So it is deleted only if later records carry another
        body of its number, or, where they carry none, if it is known to be fresh.
        """
        sequence = record.sequence
        newest = await self._list_after(sequence)
        if newest is None or newest == sequence:
            return
        expired = False
        carried: bytes | None = None
        at = newest
        while at > sequence and carried is None:
            try:
                bodies = (await self.read(at)).bodies()
            except ObjectNotFoundError:  # deleted, too
                expired = True
                break
            carried = bodies.get(sequence)
            entries = [self.decode(number, body) for number, body in bodies.items() if number > sequence]
            expired = expired or any(isinstance(entry, Expiry) and entry.upto >= sequence for entry in entries)
            at = first_carried(at) - 1
        if carried == record.body or not expired:
            return
        key = self.key(sequence)
        if carried is None and not fresh:
            raise SessionExpiredError(
                f"{key}: the answer to this record took so long that its place in the log has expired: it is unknown "
                "whether it was committed before that. Look at the newest snapshot, then open a new session and write "
                "the missing changes again."
            )
        await self.storage.delete([key])
        raise SessionExpiredError(
            f"{key}: writing this record took so long that its place in the log has expired. Nothing was committed. "
            "Open a new session and write the changes again."
        )


def _uncertain(key: str, what: str, error: StorageError) -> AppendUncertainError:
    return AppendUncertainError(
        f"{key}: it is unknown whether this record {what}, because {error}. If this was a commit, call commit again: "
        "it detects an earlier success, and never commits twice. For any other operation, look whether it has "
        "happened before repeating it."
    )


def _weight(record: Record) -> int:
    """Estimate the bytes that a record takes in memory."""
    parts = (record.body, *record.attachments, *record.previous)
    return _OVERHEAD + sum(map(len, parts)) + 64 * len(parts)


def transaction_key(identifier: bytes) -> str:
    """Return the key of a change log."""
    return "transactions/" + id_to_text(identifier)
