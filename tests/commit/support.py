"""Small repositories, and storages that behave like distant ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import zarr
from zarr.core.buffer import cpu

from arraystore import Repository, in_memory_storage
from arraystore._format.record import Commit, Rewrite
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip
from arraystore._session.session import Session
from arraystore.storage import CountingStorage, Storage
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from tests.seams import context_of

ROWS = 200_000
"""Chunks of the array of `create_repository`, one number each."""


class DistantStorage(WrapperStorage):
    """Answers no cheap probes, and measures rounds: the longest chain of requests that waited for one another.

    A request takes effect once nothing else is left to run, so requests that are made together count as one round.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.cheap_probes = False
        self._done = 0

    @property
    def rounds(self) -> int:
        """Rounds since `start`."""
        return self._done

    def start(self) -> None:
        """Count from zero."""
        self._done = 0

    async def _travel(self) -> int:
        depth = self._done + 1
        for _ in range(30):
            await asyncio.sleep(0)
        return depth

    def _arrived(self, depth: int) -> None:
        self._done = max(self._done, depth)

    async def get(self, key: str) -> BytesLike:
        depth = await self._travel()
        try:
            return await super().get(key)
        finally:
            self._arrived(depth)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        depth = await self._travel()
        try:
            return await super().get_ranges(key, ranges)
        finally:
            self._arrived(depth)

    async def put(self, key: str, data: BytesLike) -> None:
        depth = await self._travel()
        await super().put(key, data)
        self._arrived(depth)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        depth = await self._travel()
        try:
            return await super().put_if_absent(key, data)
        finally:
            self._arrived(depth)

    async def head(self, key: str) -> ObjectInfo:
        depth = await self._travel()
        try:
            return await super().head(key)
        finally:
            self._arrived(depth)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        depth = await self._travel()
        failures = await super().delete(keys)
        self._arrived(depth)
        return failures

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        depth = await self._travel()
        async for page in self._inner.list(prefix, start_after):
            yield page
        self._arrived(depth)


def create_repository(storage: Storage | None = None) -> Repository:
    """Create a repository whose record 1 makes an array ``a`` of many chunks of one number each."""
    repository = Repository.create(storage or in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array(
        "a", shape=(ROWS,), chunks=(1,), dtype="i4", compressors=None, fill_value=-1
    )
    session.commit("create a")
    return repository


def put_number(session: Session, row: int, value: int, array: str = "a") -> None:
    """Write one chunk, without zarr's detours."""
    session.store.set_sync(f"{array}/c/{row}", cpu.Buffer.from_bytes(np.int32(value).tobytes()))


def put_bytes(session: Session, row: int, data: bytes, array: str = "a") -> None:
    """Write any bytes as a chunk."""
    session.store.set_sync(f"{array}/c/{row}", cpu.Buffer.from_bytes(data))


def number(session: Session, row: int, array: str = "a") -> int | None:
    """Read one chunk; None if there is none."""
    found = session.store.get_sync(f"{array}/c/{row}")
    return None if found is None else int(np.frombuffer(found.to_bytes(), "<i4")[0])


def commit_number(repository: Repository, row: int, value: int, branch: str = "main") -> str:
    """Commit one chunk, in a session of its own."""
    session = repository.writable_session(branch)
    put_number(session, row, value)
    return session.commit(f"row {row}")


def commit_rows(repository: Repository, first: int, last: int) -> list[str]:
    """Commit rows one by one, each holding its own number."""
    return [commit_number(repository, row, row) for row in range(first, last + 1)]


def repository_at(storage: Storage, sequence: int) -> Repository:
    """Create a repository whose log ends with a commit of this number; maintenance is done, but nothing is folded."""
    if sequence == 0:
        return Repository.create(storage)
    repository = create_repository(storage)
    with mock.patch("arraystore._maintenance.fold.fold", _no_fold):
        for number in range(2, sequence + 1):
            commit_number(repository, number, number)
            if number % 64 == 0:
                repository.wait_for_maintenance()
    repository.wait_for_maintenance()
    assert tip_of(repository).sequence == sequence
    return repository


async def _no_fold(log: BranchLog, tip: Tip, reader: object) -> Tip:
    return tip


def tip_of(repository: Repository, branch: str = "main") -> Tip:
    """Return the newest record of a branch."""
    return asyncio.run(context_of(repository).tip(branch))


def paths(session: Session) -> list[str]:
    """Return the paths of all groups and arrays but the root, in order."""
    return sorted(dict(zarr.open_group(session.store, mode="r").members(max_depth=None)))


def reopened(storage: Storage, branch: str = "main") -> Tip:
    """Load the newest record of a branch with nothing in memory."""
    return asyncio.run(_reopened(context_of(Repository.open(storage)).log(branch)))


async def _reopened(log: BranchLog) -> Tip:
    return await load_tip(log, await log.hint())


def entries(storage: Storage, branch: str = "main") -> dict[int, Any]:
    """Return all entries of a log, each read from its own record."""

    async def read() -> dict[int, Any]:
        log = context_of(Repository.open(storage)).log(branch)
        found = {}
        for sequence in range(await log.tip(None) + 1):
            found[sequence] = log.decode(sequence, (await log.read(sequence)).body)
        return found

    return run_alone(read())


def run_alone(work: Any) -> Any:
    """Run a coroutine on a loop of its own."""
    return asyncio.run(work)


def commits_in(storage: Storage, branch: str = "main") -> list[tuple[int, bytes]]:
    """Return number and snapshot of every commit of a log, in order."""
    found = entries(storage, branch)
    return [(n, t.id) for n, entry in found.items() if isinstance(entry, Commit) for t in entry.transactions]


def rewrites_in(storage: Storage, branch: str = "main") -> list[int]:
    """Return the numbers of all rewrites of a log."""
    return [n for n, entry in entries(storage, branch).items() if isinstance(entry, Rewrite)]


def keys(storage: Storage, prefix: str = "") -> list[str]:
    """List all keys."""
    return [info.key for info in objects(storage, prefix)]


def objects(storage: Storage, prefix: str = "") -> list[ObjectInfo]:
    """List all objects."""

    async def run() -> list[ObjectInfo]:
        return [info async for page in storage.list(prefix) for info in page]

    return run_alone(run())


def copy_of(storage: Storage) -> Storage:
    """Return a storage in memory with the same objects."""
    copy = in_memory_storage()
    for key in keys(storage):
        copy.put_sync(key, bytes(storage.get_sync(key)))
    return copy


def size_of(storage: Storage) -> int:
    """Return the bytes of all objects."""
    return sum(info.size for info in objects(storage))


def delete(storage: Storage, prefix: str) -> int:
    """Delete everything whose key starts with a text; returns how much that was."""
    found = keys(storage, prefix)
    assert run_alone(storage.delete(found)) == []
    return len(found)


def put(storage: Storage, key: str, data: bytes) -> None:
    """Write an object."""
    storage.put_sync(key, data)


def requests(storage: CountingStorage) -> dict[str, int]:
    """Return how often each operation was called since the last call of this function, without `sync`."""
    counted = Counter(operation for operation, _ in storage.log if operation != "sync")
    storage.reset()
    return dict(counted)


def without_maintenance(repository: Repository) -> Repository:
    """Let a repository's commits leave their background work undone, as a process that dies does."""
    context_of(repository).start = lambda work: work.close()  # type: ignore[method-assign]
    return repository


def layer_counts(tip: Tip, path: str = "a") -> list[int]:
    """Return the number of references in each layer of an array, oldest first."""
    return [layer.count for layer in tip.state.nodes[path].layers]
