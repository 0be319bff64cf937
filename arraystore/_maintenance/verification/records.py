"""Reading a log record by record, and checking that records repeat each other truly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from arraystore._format.digest import chained, log_start
from arraystore._format.envelope import unpack_body
from arraystore._format.layer import EnclosingRecord
from arraystore._format.record import (
    LONGEST_SKIP,
    Body,
    Commit,
    Record,
    Transaction,
    decode_body,
    decode_note,
)
from arraystore._format.record import decode_record as decode
from arraystore._format.transaction import TransactionLog, decode_transaction, read_log
from arraystore._log.branch_log import BranchLog, Resolved, transaction_key
from arraystore._maintenance.verification.findings import Collector
from arraystore._maintenance.verification.inventory import Inventory
from arraystore._maintenance.verification.rebuilding import KnownLog, attached_to
from arraystore.errors import FormatError, ObjectNotFoundError

__all__ = ["Entry", "LogWindows", "Window"]

_PARALLEL = 32
_ATTACHED_AT_HAND = 64 << 20

_RESTORE = "restore the object from a backup or an older version in the bucket"
_NOT_REPEATED = f"{_RESTORE}; no later record repeats what it held"
_NOT_FITTING = f"{_RESTORE}; what later records repeat of it does not fit the records beside it, or these are gone, too"
_NOT_ATTACHED = f"{_RESTORE}; later records repeat what it held, but for what was attached to it"
_REBUILD = "run repair, which rebuilds the record from what later ones repeat of it"
_CUT_OFF = "restore the record that is meant from a backup or an older version in the bucket"


@dataclass(frozen=True)
class Entry:
    """What one record says.

    Parameters
    ----------
    number
        Of the record.
    body
        Its entry; None where nobody knows it.
    transactions
        Those of a commit, with their change logs and notes; None where one of them cannot be read.
    problem
        Key, problem and repair of what makes `transactions` None.
    digest
        Of the log up to the record; None where nobody knows it.
    """

    number: int
    body: Body | None
    transactions: tuple[Resolved, ...] | None = ()
    problem: tuple[str, str, str] | None = None
    digest: bytes | None = None


@dataclass(frozen=True)
class Window:
    """Some neighbouring records.

    Parameters
    ----------
    entries
        In order, without gaps.
    records
        Those that are at hand, by branch and number, without what they repeat.
    """

    entries: tuple[Entry, ...]
    records: dict[tuple[str, int], Record]


@dataclass
class LogWindows:
    """Reads a log from its records, a window at a time.

    Parameters
    ----------
    log
        The log.
    inventory
        What there is.
    collector
        Takes what is wrong.
    counts
        Takes how much was looked at.
    keeps
        Whether snapshots of a record are kept.
    base
        Number of the record before the first that is read, and the digest of the log up to it, where a checkpoint
        holds that.
    lost
        Numbers of records that are missing or damaged; the walk tells whom that affects.
    """

    log: BranchLog
    inventory: Inventory
    collector: Collector
    counts: Counter[str]
    keeps: Callable[[int], bool]
    base: tuple[int, bytes] | None = None
    lost: dict[int, tuple[str, str, str]] = field(default_factory=dict[int, tuple[str, str, str]])
    rebuilt: list[Record] = field(default_factory=list[Record])
    """Records that are missing, as a repair can write them, in order."""
    _missing: set[int] = field(default_factory=set[int])
    _newest_link: dict[int, tuple[bytes, bytes]] = field(default_factory=dict[int, tuple[bytes, bytes]])

    async def read(self, first: int, last: int) -> AsyncIterator[Window]:
        """Read records, in windows whose last record carries all others of it."""
        at = first
        while at <= last:
            end = min(last, -(-at // LONGEST_SKIP) * LONGEST_SKIP)
            yield await self._window(at, end)
            at = end + 1

    async def _window(self, first: int, last: int) -> Window:
        room = asyncio.Semaphore(_PARALLEL)
        records: dict[tuple[str, int], Record] = {}
        carried: dict[int, dict[bytes, int]] = {}
        own: dict[int, bytes] = {}
        links: dict[int, tuple[bytes, bytes]] = {-1: (b"", log_start(self.log.repository, self.log.branch))}
        if self.base is not None:
            links[self.base[0]] = b"", self.base[1]
        links |= self._newest_link
        held = 0

        async def read(number: int) -> None:
            nonlocal held
            async with room:
                record = await self._record(number)
            if record is None:
                return
            own[number] = record.body
            links[number] = record.before, record.digest
            for other, body in record.bodies().items():
                if other < number:
                    carried.setdefault(other, {}).setdefault(body, number)
            size = sum(map(len, record.attachments))
            if held + size <= _ATTACHED_AT_HAND:
                held += size
                records[self.log.branch, number] = Record(record.branch, number, record.body, record.attachments)

        for at in range(first, last + 1, 4 * _PARALLEL):
            await asyncio.gather(*(read(number) for number in range(at, min(last + 1, at + 4 * _PARALLEL))))
        if first in self._missing and first - 1 not in links and first > 0:
            links |= await self._before_first(first - 1)
        bodies = self._agreed(own, carried, range(first, last + 1))
        self._check_links(links, bodies, range(first, last + 1))
        self._newest_link = {last: links[last]} if last in links else {}
        entries: list[Entry] = []
        for at in range(first, last + 1, 4 * _PARALLEL):
            part = range(at, min(last + 1, at + 4 * _PARALLEL))
            found = await asyncio.gather(*(self._entry(n, bodies.get(n), records, room) for n in part))
            entries += [replace(e, digest=links[e.number][1]) if e.number in links else e for e in found]
        earlier = {n: next(iter(found)) for n, found in carried.items() if n < first and len(found) == 1}
        known = KnownLog(self.log.repository, self.log.branch, earlier | bodies, links, frozenset(own))
        self._rebuild(known, [entry for entry in entries if entry.number in self._missing])
        return Window(tuple(entries), records)

    def _check_links(self, links: dict[int, tuple[bytes, bytes]], bodies: dict[int, bytes], numbers: range) -> None:
        """Check that each record goes on from the one before it, or from what others repeat of that."""
        for number in numbers:
            if number not in links:
                if number - 1 in links and number in bodies:
                    before = links[number - 1][1]
                    links[number] = before, chained(before, bodies[number])
            elif number - 1 in links and links[number][0] != links[number - 1][1]:
                what = f"the record goes on from another record {number - 1} than the one that is there"
                self.collector.error(self.log.key(number), what, _CUT_OFF)

    async def _before_first(self, number: int) -> dict[int, tuple[bytes, bytes]]:
        """Return the digest of the log up to what has expired, where the newest record of that is still there."""
        try:
            record = await self.log.read(number)
        except (FormatError, ObjectNotFoundError):  # nothing is wrong with that: it has expired
            return {}
        return {number: (record.before, record.digest)}

    def _rebuild(self, known: KnownLog, missing: list[Entry]) -> None:
        """Make missing records anew where all that they held is known, and tell of the others what is not."""
        for entry in missing:
            if entry.body is None:
                continue
            record = known.rebuilt(entry.number)
            attached = attached_to(entry.body, self.log.branch, entry.number)
            if record is None:
                remedy = _NOT_FITTING
            elif attached:
                remedy = f"{_NOT_ATTACHED}: {', '.join(attached)}"
            else:
                remedy = _REBUILD
                self.rebuilt.append(record)
            key, problem, _ = self.lost[entry.number]
            self.lost[entry.number] = key, problem, remedy

    async def _record(self, number: int) -> Record | None:
        key = self.log.key(number)
        try:
            record = decode(key, await self.log.storage.get(key), self.log.branch, number, self.log.repository)
        except ObjectNotFoundError:
            self.lost[number] = key, "the record does not exist, though later ones do", _NOT_REPEATED
            self._missing.add(number)
            return None
        except FormatError as error:
            self.lost[number] = key, f"the record cannot be read: {error.reason}", _RESTORE
            return None
        self.counts["records"] += 1
        return record

    def _agreed(self, own: dict[int, bytes], carried: dict[int, dict[bytes, int]], numbers: range) -> dict[int, bytes]:
        """Compare bodies with what other records repeat of them; what is lost is taken from there."""
        bodies = dict(own)
        for number in numbers:
            found = carried.get(number, {})
            if number in own:
                for body, carrier in found.items():
                    if body != own[number]:
                        self.collector.error(
                            self.log.key(carrier),
                            f"the record repeats record {number} otherwise than that one is",
                            _RESTORE,
                        )
            elif len(found) == 1:
                bodies[number] = next(iter(found))
        return bodies

    async def _entry(
        self, number: int, body: bytes | None, records: dict[tuple[str, int], Record], room: asyncio.Semaphore
    ) -> Entry:
        if body is None:
            return Entry(number, None, None, self.lost.get(number))
        key = self.log.key(number)
        try:
            entry = decode_body(key, body, self.log.branch, number)
        except FormatError as error:
            problem = key, f"the entry of the record cannot be read: {error.reason}", _RESTORE
            self.lost[number] = problem
            return Entry(number, None, None, problem)
        if not isinstance(entry, Commit):
            return Entry(number, entry)
        try:
            async with room:
                resolved = [(item, await self._log(number, item, records), await self._note(number, item, records))
                            for item in entry.transactions]  # fmt: skip
        except FormatError as error:
            return Entry(number, entry, None, (error.object_name, error.reason, _RESTORE))
        except ObjectNotFoundError as error:
            return Entry(number, entry, None, (error.key, "the object does not exist", _RESTORE))
        return Entry(number, entry, tuple(resolved))

    async def _note(self, number: int, item: Transaction, records: dict[tuple[str, int], Record]) -> bytes:
        note = item.note if isinstance(item.note, bytes) else None
        if note is None:
            assert isinstance(item.note, int)
            note = await self._attached(number, item.first + item.note, records)
        decode_note(self.log.key(number), note)
        return note

    async def _log(self, number: int, item: Transaction, records: dict[tuple[str, int], Record]) -> TransactionLog:
        self.counts["transactions"] += 1
        if isinstance(item.log, TransactionLog):
            return item.log
        if isinstance(item.log, bytes):
            key = transaction_key(item.log)
            if self.keeps(number):
                self.inventory.transactions.reach(item.log)
            return decode_transaction(key, await self.log.storage.get(key))
        name = self.log.key(number)
        attached = await self._attached(number, item.first + item.log, records)
        return read_log(name, unpack_body(name, attached), EnclosingRecord(self.log.branch, number, item.first))

    async def _attached(self, number: int, index: int, records: dict[tuple[str, int], Record]) -> bytes:
        record = records.get((self.log.branch, number))
        key = self.log.key(number)
        if record is None:
            record = decode(key, await self.log.storage.get(key), self.log.branch, number, self.log.repository)
        if not 0 <= index < len(record.attachments):
            raise FormatError(key, f"has no attachment {index}")
        return record.attachments[index]
