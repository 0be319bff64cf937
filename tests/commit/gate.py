"""Commits that are held until others wait for the same record."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from arraystore import (
    ConflictDetector,
    Repository,
    Session,
    Storage,
    in_memory_storage,
)
from arraystore._format.record import Commit
from arraystore.storage import Fault, FaultyStorage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.rivals import RECORDS, impatient
from tests.commit.support import (
    create_repository,
    entries,
    put_number,
    without_maintenance,
)
from tests.seams import waiting_commits

EVERY = 6
"""How often a record is tried before the outcome counts as unknown."""

Start = Callable[[], Awaitable[str]]


class Gate(WrapperStorage):
    """Holds records until they are let through, one by one or all."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.arrived = 0
        self.released = math.inf

    def __reduce__(self) -> tuple[Any, ...]:
        return (Gate, (self._inner,))

    def hold(self) -> None:
        """Let no more records through."""
        self.released = self.arrived

    def release(self, records: float = math.inf) -> None:
        """Let some more records through, all by default."""
        self.released += records

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if RECORDS in key:
            turn = self.arrived
            self.arrived += 1
            while self.released <= turn:  # noqa: ASYNC110 - released in another loop
                await asyncio.sleep(0.001)
        return await super().put_if_absent(key, data)


def gated(*faults: Fault) -> tuple[Storage, Gate, Repository]:
    """Return a repository's storage, and a face of it with a gate before storage that may fail."""
    inner = in_memory_storage()
    create_repository(inner)
    gate = Gate(FaultyStorage(inner, faults))
    return inner, gate, without_maintenance(impatient(gate))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to that")


async def queue(repository: Repository, gate: Gate, commits: Sequence[Start]) -> list[asyncio.Task[str]]:
    """Start commits one after the other: the record of the first is held, the others wait for the next record."""
    gate.hold()
    before = gate.arrived
    tasks = [await join(repository, commits[0])]
    await until(lambda: gate.arrived > before)
    return tasks + [await join(repository, commit) for commit in commits[1:]]


async def join(repository: Repository, commit: Start) -> asyncio.Task[str]:
    """Start a commit, and return when it is in the queue."""
    before = waiting_commits(repository)
    task = asyncio.ensure_future(commit())
    await until(lambda: waiting_commits(repository) > before)
    return task  # type: ignore[return-value]


def together(repository: Repository, gate: Gate, commits: Sequence[Start]) -> list[Any]:
    """Let all but the first of some commits share a record, if they can; returns results and errors."""

    async def run() -> list[Any]:
        tasks = await queue(repository, gate, commits)
        gate.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


def with_row(repository: Repository, row: int, value: int | None = None, **options: Any) -> Session:
    session = repository.writable_session("main", **options)
    put_number(session, row, row if value is None else value)
    return session


def commits_of(sessions: Sequence[Session], **options: Any) -> list[Start]:
    options = {"rebase_with": ConflictDetector()} | options
    return [
        lambda session=session, i=i: session.commit_async(f"commit {i}", {"turn": i}, **options)  # type: ignore[misc]
        for i, session in enumerate(sessions)
    ]


def shares(storage: Storage) -> list[int]:
    """Return how many transactions each commit of the log holds, the first one left out."""
    return [len(e.transactions) for e in entries(storage).values() if isinstance(e, Commit)][1:]
