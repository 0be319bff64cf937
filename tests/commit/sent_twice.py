"""A repository behind something that sends requests twice, and what has to be true of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import zarr
from zarr.core.buffer import cpu

from arraystore import (
    ConflictDetector,
    Repository,
    Session,
    in_memory_storage,
)
from arraystore._format.envelope import Kind
from arraystore.errors import ArrayStoreError, StorageError
from arraystore.storage import Storage
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import objects

CHUNK = 256
COMMITS = 12
RIVAL = 900
"""Row that a rival writes."""


def row_bytes(number: int) -> bytes:
    """Return what a row holds."""
    return np.random.default_rng(number).bytes(CHUNK * 8)


def put_row(session: Session, row: int) -> None:
    """Write a row."""
    session.store.set_sync(f"a/c/{row}", cpu.Buffer.from_bytes(row_bytes(row)))


def commit_row(repository: Repository, row: int, branch: str = "main") -> str:
    """Commit a row, in a session of its own."""
    session = repository.writable_session(branch)
    put_row(session, row)
    return session.commit(f"row {row}")


def rows_shown(repository: Repository, branch: str = "main") -> set[int]:
    """Return the rows of a branch, each of which is what it has to be."""
    store = repository.readonly_session(branch).store
    found = set()
    for row in [*range(40), *range(RIVAL, RIVAL + 10)]:
        data = store.get_sync(f"a/c/{row}")
        if data is not None:
            assert data.to_bytes() == row_bytes(row)
            found.add(row)
    return found


class SentTwice(WrapperStorage):
    """Carries out conditional writes of some kinds of objects, and gives the answer to a repetition, or none.

    Parameters
    ----------
    inner
        Where they arrive.
    fault
        ``refused``: written, answered as existing; ``failed``: written, answered with an error, once for each object;
        ``down``: the same, every time;
        ``overtaken``: written, somebody else commits behind it, and only then it is answered as existing.
    kind
        Of the objects.
    """

    def __init__(self, inner: Storage, fault: str, kind: Kind) -> None:
        super().__init__(inner)
        self.fault = fault
        self.kind = kind
        self.hit: list[str] = []
        self.rivals: set[int] = set()

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        written = await super().put_if_absent(key, data)
        if bytes(data)[5] != self.kind or not written or (self.fault == "failed" and key in self.hit):
            return written
        first = key not in self.hit
        self.hit.append(key)
        if self.fault in ("failed", "down"):
            raise StorageError(f"{key}: 500, on purpose")
        if self.fault == "overtaken" and first and len(self.rivals) < 3:
            await self._rival()
        return False

    async def _rival(self) -> None:
        row = RIVAL + len(self.rivals)
        self.rivals.add(row)
        try:
            session = await (await Repository.open_async(self.inner)).writable_session_async("main")
            put_row(session, row)
            await session.commit_async("rival", rebase_with=ConflictDetector())
        except ArrayStoreError:  # read-only by now, for instance
            self.rivals.discard(row)


@dataclass
class World:
    """A repository, seen through a storage that sends requests twice."""

    inner: Storage
    faulty: SentTwice
    snapshots: list[str]
    rows: set[int] = field(default_factory=lambda: set(range(1, COMMITS + 1)))

    @property
    def repository(self) -> Repository:
        """The repository through the faulty storage, opened anew."""
        return Repository.open(self.faulty)

    @property
    def truth(self) -> Repository:
        """The repository as it is."""
        return Repository.open(self.inner)


@functools.cache
def build() -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return the objects of a repository of some commits, a branch and a tag, and its snapshots."""
    storage = in_memory_storage()
    repository = Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array(
        "a", shape=(CHUNK * 1000,), chunks=(CHUNK,), dtype="f8", compressors=None
    )
    snapshots = [session.commit("create a")]
    snapshots += [commit_row(repository, row) for row in range(1, COMMITS + 1)]
    repository.create_branch("dev", snapshots[4])
    repository.create_tag("tag", snapshots[2])
    return [(info.key, bytes(storage.get_sync(info.key))) for info in objects(storage)], snapshots


def copy_of(objects_: list[tuple[str, bytes]]) -> Storage:
    """Return a storage with some objects."""
    storage = in_memory_storage()
    for key, data in objects_:
        storage.put_sync(key, data)
    return storage


def fill(repository: Repository) -> None:
    """Commit an array with its row 1."""
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array(
        "a", shape=(CHUNK * 1000,), chunks=(CHUNK,), dtype="f8", compressors=None
    )
    put_row(session, 1)
    session.commit("row 1")


def check_whole(inner: Storage) -> None:
    """Check that all rows that were built are there, and nothing is wrong."""
    truth = Repository.open(inner)
    assert rows_shown(truth) == set(range(1, COMMITS + 1))
    assert truth.verify(level="chunks").findings == ()
