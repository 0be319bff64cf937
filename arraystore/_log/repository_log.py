"""Repository log: finding its newest table, appending to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from arraystore._environment import Environment
from arraystore._format.record import read_record_key, record_key
from arraystore._format.repository_log import (
    TABLE_EVERY,
    RepositoryEntry,
    RepositoryRecord,
    RepositoryTable,
    carried_from,
    decode_repository_record,
    encode_repository_record,
    repository_log_prefix,
)
from arraystore._log.backoff import Backoff
from arraystore._log.conditional_put import put_surely
from arraystore._log.presence import check_repository
from arraystore.errors import FormatError, LogForkError, ObjectNotFoundError, StorageError
from arraystore.storage.protocol import BytesLike, Storage

_TRIES = 100


class RepositoryLog:
    """Log of tags, branches, settings and watermarks."""

    def __init__(self, storage: Storage, repository: bytes, environment: Environment) -> None:
        self.storage = storage
        self.repository = repository
        self.prefix = repository_log_prefix(repository)
        self.environment = environment
        self._cached = RepositoryTable.first(repository)
        self._hint = 0
        self._last = RepositoryRecord(0, ())
        self._refused = 0  # newest number that another writer had used when it was tried here

    def over(self, storage: Storage) -> RepositoryLog:
        """Return the same log through another view of its storage, with everything cached here."""
        other = RepositoryLog(storage, self.repository, self.environment)
        other._cached, other._hint, other._last = self._cached, self._hint, self._last
        return other

    def key(self, number: int) -> str:
        """Return the key of a record."""
        return record_key(self.prefix, number)

    def learn(self, other: RepositoryLog) -> None:
        """Take over the newest table of another view of the same log."""
        self._see(other.cached_table)

    def hinted(self, number: int) -> None:
        """Take note of a record that is believed to exist."""
        self._hint = max(self._hint, number)

    @property
    def cached_table(self) -> RepositoryTable:
        """Newest table that was read here."""
        return self._cached

    async def table(self) -> RepositoryTable:
        """Return the newest table: one LIST, and one or two GETs where it has changed."""
        newest = await self._newest(max(self._cached.number, self._hint))
        if newest is None and self._hint > self._cached.number:
            newest = await self._newest(self._cached.number)  # the hint is wrong
        if self._refused > max(newest or 0, self._cached.number):
            newest = self._refused  # a listing may lag behind
        if newest is not None and newest > self._cached.number:
            self._see(await self._load(newest))
        return self._cached

    def _see(self, table: RepositoryTable) -> None:
        if table.number > self._cached.number:
            self._cached = table

    async def _newest(self, start: int) -> int | None:
        """Return the number of the newest record from `start` on; None if there is none."""
        newest: int | None = None
        after = self.key(start - 1) if start > 1 else self.prefix
        async for page in self.storage.list(self.prefix, after):
            for info in page:
                number = read_record_key(self.prefix, info.key)
                newest = newest if number is None else number
        return newest

    async def _load(self, number: int) -> RepositoryTable:
        """Return the table after a record."""
        base = carried_from(number) - 1
        if self._cached.number >= base or number % TABLE_EVERY == 0:
            record = await self.read(number)
            table = self._cached
        else:
            record, before = await asyncio.gather(self.read(number), self.read(base))
            assert before.table is not None
            table = before.table
        if record.table is not None:
            self._check_link(number, record, table)
            return record.table
        for at, entry in enumerate(record.entries, carried_from(number)):
            if at == number:
                self._check_link(number, record, table)
            if at > table.number:
                table = _applied(self.key(number), table, entry)
        return table

    def _check_link(self, number: int, record: RepositoryRecord, table: RepositoryTable) -> None:
        """Check that a record continues the table before it."""
        if table.number == number - 1 and record.before != table.digest:
            raise LogForkError(
                self.key(number),
                f"goes on from another record {number - 1} than the one in the log. Run arraystore verify, "
                "and restore the right record from a backup or an older version in the bucket",
            )

    async def read(self, number: int) -> RepositoryRecord:
        """Read a record."""
        if self._last.number == number:
            return self._last
        return self._decoded(number, await self.storage.get(self.key(number)))

    def _decoded(self, number: int, data: BytesLike) -> RepositoryRecord:
        record = decode_repository_record(self.key(number), data, number, self.repository)
        if number > self._last.number:
            self._last = record
        return record

    async def append(
        self, decide: Callable[[RepositoryTable], RepositoryEntry | None], *, fresh: bool = True
    ) -> RepositoryTable:
        """Append the entry, if any, that `decide` returns for the newest table, and return the table then.

        Without `fresh`, the first attempt is made after the newest table that was read here. Raises `StorageError` if
        the storage fails for so long that it stays unknown whether the entry arrived.
        """
        backoff = Backoff(self.environment)
        table = await self.table() if fresh else self._cached
        for _ in range(_TRIES):
            entry = decide(table)
            if entry is None:
                return table
            backoff.begin()
            after = await self._put(table, entry)
            if after is not None:
                backoff.won()
                return after
            backoff.lost()
            await backoff.pause()
            table = await self.table()
        raise StorageError(f"{self.storage.location}: other writers were faster {_TRIES} times in a row; try again")

    async def _put(self, table: RepositoryTable, entry: RepositoryEntry) -> RepositoryTable | None:
        if self.storage.cheap_probes:
            await check_repository(self.storage, self.repository)
        number = table.number + 1
        entries: tuple[RepositoryEntry, ...] = ()
        if carried_from(number) < number:
            entries = (await self.read(number - 1)).entries
        after = table.after(entry)
        record = RepositoryRecord(
            number, (*entries, entry), None if number % TABLE_EVERY else after, self.repository, table.digest
        )
        key, encoded = self.key(number), encode_repository_record(record)

        async def is_own() -> bool:
            data = await self.storage.get(key)
            if bytes(data) == encoded:
                return True
            self._decoded(number, data)  # cached for reading the table
            return False

        if not await put_surely(self.storage, self.environment, key, encoded, is_own):
            self._refused = max(self._refused, number)
            return None
        self._last = record
        self._see(after)
        return after

    async def entries(self) -> AsyncIterator[list[tuple[int, RepositoryEntry]]]:
        """List entries with their numbers, newest first, 64 at a time."""
        number = (await self.table()).number
        while number > 0:
            try:
                record = await self.read(number)
            except ObjectNotFoundError:
                return  # deleted by maintenance
            first = carried_from(number)
            yield [(first + i, entry) for i, entry in enumerate(record.entries)][::-1]
            number = first - 1


def _applied(key: str, table: RepositoryTable, entry: RepositoryEntry) -> RepositoryTable:
    try:
        return table.after(entry)
    except AssertionError:
        raise FormatError(key, "an entry must fit the table before it") from None
