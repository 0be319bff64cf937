"""The log of a branch: finding its tip, reading spans of it, appending to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from arraystore._environment import Environment
from arraystore._format.digest import log_start
from arraystore._format.envelope import unpack_body
from arraystore._format.ids import id_to_text
from arraystore._format.layer import EnclosingRecord
from arraystore._format.record import (
    Body,
    Commit,
    Expiry,
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
from arraystore._log.record_cache import Kept
from arraystore._log.spans import Span, carriers
from arraystore.errors import (
    FormatError,
    LogForkError,
    LogHoleError,
    ObjectNotFoundError,
    RefNotFoundError,
    SessionExpiredError,
    StorageError,
)
from arraystore.storage.protocol import BytesLike, Storage

__all__ = [
    "LONGEST_PAUSE",
    "AppendUncertainError",
    "BranchLog",
    "Put",
    "Resolved",
    "check_repository",
    "put_surely",
    "read_hint",
    "unsettled",
]

LONGEST_PAUSE = 600.0
"""Seconds between looking for the newest record and having written the next one, after which a writer checks that it
was not overtaken by more than the log remembers.  Expired records are left for several times as long."""

_NEAR = (2, 3)
_FAR = (*range(2, 8), *(1 << power for power in range(3, 17)))
"""How far behind the newest record that was found others are looked for, which lost ones would hide.

Up to seven lost records never hide newer ones then, and more do not where at least as many are left behind them.
"""

_FAR_EVERY = 10.0
"""Seconds for which a process that has looked far away looks nearby only."""

_RECORDS_KEPT = 256
_LOGS_KEPT = 256
_BODIES_KEPT = 512
_ALL = 1 << 60

_OVERHEAD, _DECODED = 1024, 8
"""Bytes that the Python objects of a record take, and how many times as large as its bytes what is decoded of it is."""

Resolved = tuple[Transaction, TransactionLog, bytes]
"""A transaction with its change log and its encoded note, wherever these were."""


class AppendUncertainError(StorageError):
    """The storage failed while a record was on its way: nobody knows yet whether it arrived."""


class BranchLog:
    """One branch's log.

    Parameters
    ----------
    storage
        Where it is.
    repository
        Id of the repository.
    branch
        Name of the branch.
    environment
        Time and chance.
    room
        Most bytes of records, and of what is decoded of them, that are kept.
    """

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
        """Number of the newest repository record about the configuration, as far as it is known; hints tell it on."""
        self.hinted: Hint | None = None
        """The hint as it was read last."""
        self.holes: set[int] = set()
        """Records that looks have found missing below newer ones, unless they have expired."""
        self.chain = LogChain(self.key, log_start(repository, branch))
        self._looked_at = 0
        self._looked_far_at: int | None = None
        self._seen = -1  # newest record that was found, read or written here
        self._newest = -1  # record that the look found, or that is known to exist otherwise
        self._recent: Kept[Record] = Kept({}, _RECORDS_KEPT, room // 2)
        self.memo = None if environment.memo is None else environment.memo.log(storage.location, self.prefix)
        self._decoded: Kept[tuple[bytes, Body]]
        self._resolved: Kept[list[Resolved]]
        if self.memo is None:
            self._decoded = Kept({}, _BODIES_KEPT, room // 4)
            self._resolved = Kept({}, _LOGS_KEPT, room // 4)
        else:
            self._decoded = Kept(self.memo.bodies, _ALL, _ALL)
            self._resolved = Kept(self.memo.resolved, _ALL, _ALL)

    def key(self, sequence: int) -> str:
        """Return the key of a record."""
        return record_key(self.prefix, sequence)

    async def read(self, sequence: int) -> Record:
        """Read a record, which never changes, so it is read once.

        Raises
        ------
        ObjectNotFoundError
            If there is none.
        """
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
        known = memo.records.get(sequence)
        if known is None or known[0] != data:
            known = memo.records[sequence] = (
                bytes(data),
                decode_record(key, data, self.branch, sequence, self.repository),
            )
        found: Record = known[1]
        return found

    async def hint(self) -> Hint | None:
        """Read the branch's hint; None where it is missing or unreadable, which costs time but no safety."""
        hint = await read_hint(self.storage, self.branch)
        if hint is not None and hint.repository != self.repository:
            await self.check_repository()  # somebody may have been here since
            return None
        if hint is not None:
            self.settings = max(self.settings, hint.settings)
            self.hinted = hint
        return hint

    async def exists(self, sequence: int) -> bool:
        """Tell whether a record exists, without reading it."""
        return sequence in self._recent or await self._is_there(sequence)

    async def tip(self, known: int | None) -> int:
        """Find the number of the newest record.

        Parameters
        ----------
        known
            Number of a record that is believed to exist, None to start from nothing.

        Raises
        ------
        RefNotFoundError
            If the branch has no record.
        LogHoleError
            If there was a newer one, which is lost.
        """
        await self._look_at_holes_again()
        began, seen = self.environment.now_us(), self._seen
        if self.storage.cheap_probes:
            found = await self._probe(known)
        else:
            found = await self._list_after(known)
        if found is None and known is not None:
            found = await self._list_after(None)  # the hint was wrong, or what it named was trimmed
        if not self.storage.cheap_probes:
            found = await self._unlisted(found, known)
        self._looked(began, found)
        if found is None:
            await self.check_repository()
            raise RefNotFoundError(f"there is no branch {self.branch!r}")
        return found if found >= seen else await self._above(found, seen)

    async def _above(self, found: int, seen: int) -> int:
        """Return the newest record where the one that was found is older than one that was seen before."""
        newest = max(found, await self._list_after(None) or 0)
        if newest < seen and await self._is_there(seen):
            return seen  # a listing may be behind
        if newest < seen:
            raise self.lost(newest + 1, f"this process has seen record {seen}")
        return newest

    def lost(self, sequence: int, why: str) -> LogHoleError:
        """Return the error about the newest records of a log, which are lost."""
        return LogHoleError(
            self.key(sequence),
            f"is missing, and so is all behind it, though {why}. Restore the records from a backup or an older version "
            "in the bucket. If there is none, or the bucket was put back on purpose, run arraystore repair, which "
            f"removes what names them, and open the repository anew: the branch is at record {sequence - 1} then",
        )

    async def survey(self) -> None:
        """Note records missing below newer ones wherever in the log, where looking for the tip lists nothing.

        For maintenance, which deletes what no record needs: it must not take for the tip what is below a hole.
        """
        if self.storage.cheap_probes:
            self._seen = max(self._seen, await self._list_after(None) or -1)

    async def _look_at_holes_again(self) -> None:
        """Note those holes again that nobody has mended."""
        if self.holes:
            self.holes = set()
            await self._list_after(None)

    async def _unlisted(self, found: int | None, known: int | None) -> int | None:
        """Return the newest record that is known of where a listing is behind it; costs nothing where it is not."""
        least = -1 if found is None else found
        for number in sorted({self._newest, known or 0, 0}, reverse=True):
            if number > least and await self._is_there(number):
                return number
        return found

    async def check_repository(self) -> None:
        """Check that the repository to which this log belongs is still the one that is here.

        Raises
        ------
        RepositoryGoneError
            If it was deleted, or another one was created in its place.
        """
        await check_repository(self.storage, self.repository)

    async def _digest(self, sequence: int) -> bytes:
        """Return the digest of the log up to a record: known, unless nobody here has read that for long."""
        known = self.chain.known(sequence)
        return (await self.read(sequence)).digest if known is None else known

    def check_holes(self, expired: int) -> None:
        """Check that no record is missing but those that have expired.

        Raises
        ------
        LogHoleError
            If a look has found one missing, and it still is what a reader has to go by.
        """
        self.holes = {hole for hole in self.holes if hole > expired}
        if self.holes:
            raise LogHoleError(
                self.key(min(self.holes)),
                "is missing, and there are newer records. Run arraystore repair, which rebuilds it if later records "
                "repeat all that it held; otherwise arraystore verify names what is lost, and it has to be restored "
                "from a backup or an older version in the bucket",
            )

    async def _list_after(self, known: int | None) -> int | None:
        """Return the newest record from `known` on; it is listed itself, so one request tells that it exists."""
        newest: int | None = None
        start_after = self.key(known - 1) if known else ""
        async for page in self.storage.list(self.prefix, start_after):
            for info in page:
                number = read_record_key(self.prefix, info.key)
                if number is None:
                    continue
                if newest is not None and number > newest + 1 and not await self._is_there(newest + 1):
                    self.holes.add(newest + 1)
                newest = number
        return newest

    async def _probe(self, known: int | None) -> int | None:
        """Return the newest record from `known` on, by asking for single ones.

        Expired records are deleted from the oldest on, so if one is there when the next one is not, that is not yet
        written.
        """
        low = known or 0
        if not await self.exists(low):
            return None if known is not None else await self._list_after(None)
        while True:
            low = await self._gallop(low)
            beyond = await self._beyond(low, _FAR)
            if beyond is None:
                return low if await self._is_there(low) else await self._list_after(None)
            low = beyond

    async def _beyond(self, sequence: int, steps: Iterable[int]) -> int | None:
        """Look for records behind the one after which there seems to be none; lost ones would hide them."""
        for step in steps:
            if await self._is_there(sequence + step):
                if not await self._is_there(sequence + 1):  # it may have been written just now
                    self.holes.add(sequence + 1)
                return sequence + step
        return None

    async def _gallop(self, low: int) -> int:
        """Return a record from which on the next one is missing."""
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
        """Tell whether a record exists at this moment, whatever was seen of it before."""
        try:
            await self.storage.head(self.key(sequence))
        except ObjectNotFoundError:
            return False
        return True

    async def newer(self, known: int) -> int:
        """Return the number of the newest record, cheap where `known` still is it: one request for the next one.

        After a long pause the next one may be missing because it has been written, has expired and is deleted.
        """
        began = self.environment.now_us()
        self._newest, self._seen = max(self._newest, known), max(self._seen, known)
        if self.holes:
            return await self.tip(known)
        try:
            await self.read(known + 1)
        except ObjectNotFoundError:
            if known < self._newest or not self._looked_lately():
                return await self.tip(max(known, self._newest))
            if self.storage.cheap_probes and await self._beyond(known, self._steps(began)) is not None:
                return await self.tip(known)
            self._looked(began, known)
            return known
        return await self.tip(known + 1)

    def _steps(self, now: int) -> Iterable[int]:
        """Return how far to look behind a tip that is known: far away now and then only, which takes its time."""
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
        """Tell whether the log was looked at so lately that nothing written since can be deleted by now."""
        return not self._is_late(self._looked_at)

    def _is_late(self, looked_at: int) -> bool:
        return not 0 <= self.environment.now_us() - looked_at < LONGEST_PAUSE * 1_000_000

    async def span(self, first: int, last: int) -> Span:
        """Read the bodies of some neighbouring records, in one parallel round of ≤ 3 + (last-first)/512 requests."""
        records = await asyncio.gather(*(self.read(number) for number in carriers(first, last)))
        bodies: dict[int, bytes] = {}
        for record in reversed(records):
            self.chain.link(record)  # once more: those before it are known by now
            bodies.update(record.bodies())
        return Span(
            {number: bodies[number] for number in range(first, last + 1)},
            {record.sequence: record for record in records},
        )

    def decode(self, sequence: int, body: bytes) -> Body:
        """Decode the body of a record, which is done once for those that were met lately."""
        known = self._decoded.get(sequence)
        if known is not None and known[0] == body:
            return known[1]
        found = decode_body(self.key(sequence), body, self.branch, sequence)
        self._decoded.put(sequence, (body, found), _OVERHEAD + _DECODED * len(body))
        return found

    async def resolve(self, sequence: int, commit: Commit, records: dict[int, Record] | None = None) -> list[Resolved]:
        """Fetch what the transactions of a commit keep outside of its body: logs, notes; once, unless large.

        Parameters
        ----------
        sequence
            Number of the record.
        commit
            Its entry.
        records
            Records that are at hand.
        """
        found = self._resolved.get(sequence)
        if found is None:
            found = [
                (item, await self._log(sequence, item, records), await self.note(sequence, item, records))
                for item in commit.transactions
            ]
            if not any(isinstance(item.log, bytes) for item in commit.transactions):
                self._resolved.put(sequence, found, self._weight_of_logs(sequence, len(found), records))
        return found

    def _weight_of_logs(self, sequence: int, count: int, records: dict[int, Record] | None) -> int:
        """Estimate what logs and notes take that are not in the body of their record."""
        record = (records or {}).get(sequence) or self._recent.get(sequence)
        attached = 0 if record is None else sum(map(len, record.attachments))
        return count * _OVERHEAD + _DECODED * attached

    async def note(self, sequence: int, item: Transaction, records: dict[int, Record] | None = None) -> bytes:
        """Return message and metadata of a transaction, encoded."""
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
        """Write a record unless one of its number exists.

        Parameters
        ----------
        record
            The record.
        settle
            Whether to settle a refusal by reading the record that is there: an intermediary may have sent the PUT
            twice.  Only a caller that looks for its entry in the log by itself leaves that out.

        Returns
        -------
        bool
            Whether the record of this number is this one.  True is known for certain: what a storage leaves open after
            a timeout is asked again until it answers.  So is False if it was to be settled.

        Raises
        ------
        AppendUncertainError
            If the storage fails for so long that it stays unknown.
        SessionExpiredError
            If so much time went by that the number was given, taken and forgotten meanwhile; nothing was committed.
        """
        key = self.key(record.sequence)
        began = self.environment.now_us()
        looked_at, newest = self._looked_at, self._newest
        if self.storage.cheap_probes or self._is_late(looked_at):
            await self.check_repository()
        if record.repository != self.repository:  # otherwise it has its place already
            record = replace(record, repository=self.repository, before=await self._digest(record.sequence - 1))

        async def is_own() -> bool:
            return (await self.read(record.sequence)).body == record.body

        encoded = encode_record(record)
        try:
            won = await put_surely(self.storage, self.environment, key, encoded, is_own if settle else unsettled)
        except StorageError as error:
            raise AppendUncertainError(
                f"{key}: it is unknown whether this record arrived, because {error}. If this was a commit, call commit "
                "again: it finds out first, and never commits twice. Anything else: look whether it has happened "
                "before doing it again."
            ) from error
        if won:
            if self._is_late(looked_at) or record.sequence <= newest:  # others in this process may have looked since
                await self._check_still_open(record, fresh=won == Put.WRITTEN)
            self.chain.link(record)
            if self.storage.cheap_probes:
                await self._check_beyond(record, fresh=won == Put.WRITTEN)
            self._looked(began, record.sequence)
            self._recent.put(record.sequence, record, _weight(record))
        else:
            self._newest = max(self._newest, record.sequence)  # it is there, whether or not a listing shows it
        return bool(won)

    async def _check_beyond(self, record: Record, *, fresh: bool) -> None:
        """Check that the record behind one just written goes on from it; otherwise it was put where one was lost."""
        if not await self._is_there(record.sequence + 1):
            return
        try:
            await self.read(record.sequence + 1)
        except LogForkError:
            if not fresh:
                raise
            self.chain.forget(record.sequence)
            await self.storage.delete([self.key(record.sequence)])  # nobody can go on from it
            raise LogHoleError(
                self.key(record.sequence),
                "is missing, and there are newer records, which go on from it. Nothing was committed. Run arraystore "
                "repair, which rebuilds it if later records repeat all that it held, or restore it from a backup or an "
                "older version in the bucket, and open a new session",
            ) from None

    async def _check_still_open(self, record: Record, *, fresh: bool) -> None:
        """Check, after a long pause, that a record just written is not one of those that were deleted as expired.

        Where the number was free because whoever had it is forgotten, the record is nobody's: readers begin behind it.
        But it may also have been written long ago, and have expired since as any other.  So it is deleted only if the
        records behind it carry another body of its number, or, where they tell nothing, if it is known to be fresh.
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
            except ObjectNotFoundError:  # forgotten, too
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
                f"{key}: so much time went by before the answer to this record came that its place in the log has "
                "expired, and nothing tells whether it was there before that. Look at the newest snapshot, then open a "
                "new session and write again what is missing."
            )
        await self.storage.delete([key])
        raise SessionExpiredError(
            f"{key}: so much time went by before this record was written that its place in the log had been forgotten. "
            "Nothing was committed. Open a new session and write the changes again."
        )


def _weight(record: Record) -> int:
    """Estimate what a record takes in memory."""
    parts = (record.body, *record.attachments, *record.previous)
    return _OVERHEAD + sum(map(len, parts)) + 64 * len(parts)


def transaction_key(identifier: bytes) -> str:
    """Return the key of a transaction log."""
    return "transactions/" + id_to_text(identifier)
