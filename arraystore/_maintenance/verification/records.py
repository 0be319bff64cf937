"""Verification of records: each can be read, continues the log, and repeats others correctly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from arraystore._format.digest import chained, log_start
from arraystore._format.record import (
    LONGEST_SKIP,
    Body,
    Commit,
    Record,
    decode_body,
    decode_note,
)
from arraystore._format.record import decode_record as decode
from arraystore._log.branch_log import BranchLog
from arraystore._log.state import Resolved
from arraystore._maintenance.verification.findings import Problem
from arraystore._maintenance.verification.inventory import Audit
from arraystore._maintenance.verification.rebuilding import KnownLog, attached_to
from arraystore.errors import FormatError, ObjectNotFoundError

_PARALLEL = 32
_ATTACHED_AT_HAND = 64 << 20

_RESTORE = "restore the object from a backup or an older version in the bucket"
_NOT_REPEATED = f"{_RESTORE}; no later record repeats what it held"
_NOT_FITTING = f"{_RESTORE}; what later records repeat of it does not fit the records beside it, or these are gone, too"
_NOT_ATTACHED = f"{_RESTORE}; later records repeat what it held, but for what was attached to it"
_REBUILD = "run repair, which rebuilds the record from what later ones repeat of it"
_MOVE_AWAY = f"{_RESTORE}; without one, move it away and run repair, which rebuilds it from what later records repeat"
_CUT_OFF = "restore the record that is meant from a backup or an older version in the bucket"


@dataclass(frozen=True)
class Entry:
    """Entry of one record."""

    number: int
    body: Body | None
    """Decoded entry; None if it is lost."""
    transactions: tuple[Resolved, ...] | None = ()
    """Transactions of a commit with their change logs and notes; None if one of them cannot be read."""
    problem: Problem | None = None
    """The reason why `transactions` is None."""
    digest: bytes | None = None
    """Digest of the log up to the record; None if it is lost."""


@dataclass(frozen=True)
class Window:
    """Neighbouring records."""

    entries: tuple[Entry, ...]
    """Entries in order, without gaps."""
    records: dict[tuple[str, int], Record]
    """Loaded records by branch and number, without what they repeat."""


@dataclass
class LogWindows:
    """Reads a log from its records, a window at a time."""

    log: BranchLog
    audit: Audit
    keeps: Callable[[int], bool]
    """Tells whether snapshots of a record are retained."""
    base: tuple[int, bytes] | None = None
    """Number of the record before the first one read, and the digest up to it where a checkpoint holds that."""
    lost: dict[int, Problem] = field(default_factory=dict[int, Problem])
    """Missing or damaged records by number; the walk reports their uses."""
    rebuilt: list[Record] = field(default_factory=list[Record])
    """Missing records in order, as a repair can write them."""
    _missing: set[int] = field(default_factory=set[int])
    _newest_link: dict[int, tuple[bytes, bytes]] = field(default_factory=dict[int, tuple[bytes, bytes]])

    async def read(self, first: int, last: int) -> AsyncIterator[Window]:
        """Yield windows whose last record carries all others of them."""
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
            loaded = await asyncio.gather(*(self._entry(n, bodies.get(n), records, room) for n in part))
            entries += [replace(e, digest=links[e.number][1]) if e.number in links else e for e in loaded]
        earlier = {n: next(iter(variants)) for n, variants in carried.items() if n < first and len(variants) == 1}
        available = KnownLog(self.log.repository, self.log.branch, earlier | bodies, links, frozenset(own))
        self._rebuild(available, [entry for entry in entries if entry.number in self.lost])
        return Window(tuple(entries), records)

    def _check_links(self, links: dict[int, tuple[bytes, bytes]], bodies: dict[int, bytes], numbers: range) -> None:
        """Check that each record continues the log from the one before it, or from its repeated body."""
        for number in numbers:
            if number not in links:
                if number - 1 in links and number in bodies:
                    before = links[number - 1][1]
                    links[number] = before, chained(before, bodies[number])
            elif number - 1 in links and links[number][0] != links[number - 1][1]:
                what = f"the record goes on from another record {number - 1} than the existing one"
                self.audit.collector.error(self.log.key(number), what, _CUT_OFF)

    async def _before_first(self, number: int) -> dict[int, tuple[bytes, bytes]]:
        """Load the digest of the log up to the newest expired record, where that still exists."""
        try:
            record = await self.log.read(number)
        except (FormatError, ObjectNotFoundError):  # no damage: it has expired
            return {}
        return {number: (record.before, record.digest)}

    def _rebuild(self, available: KnownLog, lost: list[Entry]) -> None:
        """Rebuild missing records whose parts are all available, and report the lost parts of others."""
        for entry in lost:
            if entry.body is None:
                continue
            record = available.rebuilt(entry.number)
            attached = attached_to(entry.body, self.log.branch, entry.number)
            if record is None:
                remedy = _NOT_FITTING
            elif attached:
                remedy = f"{_NOT_ATTACHED}: {', '.join(attached)}"
            elif entry.number not in self._missing:
                remedy = _MOVE_AWAY
            else:
                remedy = _REBUILD
                self.rebuilt.append(record)
            self.lost[entry.number] = replace(self.lost[entry.number], repair=remedy)

    async def _record(self, number: int) -> Record | None:
        key = self.log.key(number)
        try:
            record = decode(key, await self.log.storage.get(key), self.log.branch, number, self.log.repository)
        except ObjectNotFoundError:
            self.lost[number] = Problem(key, "the record does not exist, though later ones do", _NOT_REPEATED)
            self._missing.add(number)
            return None
        except FormatError as error:
            self.lost[number] = Problem(key, f"the record cannot be read: {error.reason}", _RESTORE)
            return None
        self.audit.counts["records"] += 1
        return record

    def _agreed(self, own: dict[int, bytes], carried: dict[int, dict[bytes, int]], numbers: range) -> dict[int, bytes]:
        """Compare bodies with those that other records repeat, and take those of lost records from there."""
        bodies = dict(own)
        for number in numbers:
            variants = carried.get(number, {})
            if number in own:
                for body, carrier in variants.items():
                    if body != own[number]:
                        self.audit.collector.error(
                            self.log.key(carrier),
                            f"the record repeats record {number} otherwise than that one is",
                            _RESTORE,
                        )
            elif len(variants) == 1:
                bodies[number] = next(iter(variants))
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
            problem = Problem(key, f"the entry of the record cannot be read: {error.reason}", _RESTORE)
            self.lost[number] = problem
            return Entry(number, None, None, problem)
        if not isinstance(entry, Commit):
            return Entry(number, entry)
        self.audit.counts["transactions"] += len(entry.transactions)
        for item in entry.transactions:
            if isinstance(item.log, bytes) and self.keeps(number):
                self.audit.inventory.transactions.reach(item.log)
        record = records.get((self.log.branch, number))
        try:
            async with room:
                resolved = await self.log.resolve(number, entry, None if record is None else {number: record})
            for each in resolved:
                decode_note(key, each.note)
        except FormatError as error:
            name = key if error.object_name.startswith(key) else error.object_name
            return Entry(number, entry, None, Problem(name, error.reason, _RESTORE))
        except ObjectNotFoundError as error:
            return Entry(number, entry, None, Problem(error.key, "the object does not exist", _RESTORE))
        return Entry(number, entry, tuple(resolved))
