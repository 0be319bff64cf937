"""Writers who get in each other's way, as often and as exactly as a test wants it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import zarr

from arraystore import Repository, Session, Storage
from arraystore._environment import Environment
from arraystore.storage.protocol import BytesLike
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import put_number
from tests.seams import context_of

RECORDS = "/branch/"


async def at_once(_: float) -> None:
    """Sleep for no time."""


def impatient(storage: Storage) -> Repository:
    """Open a repository that never pauses between attempts."""
    repository = Repository.open(storage)
    context_of(repository).environment = Environment(sleep=at_once)
    return repository


class Outrun(WrapperStorage):
    """Lets somebody else act right before each record that is put, as long as that wants to.

    Parameters
    ----------
    inner
        The storage that does the work.
    rival
        Called before each record; it commits through another storage.
    """

    def __init__(self, inner: Storage, rival: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self.rival = rival

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if RECORDS in key:
            await self.rival()
        return await super().put_if_absent(key, data)


def rival_commits(repository: Repository, times: int, first_row: int = 100_000) -> Callable[[], Awaitable[None]]:
    """Return a rival that commits one row of array ``a`` each time, so many times."""
    rows = iter(range(first_row, first_row + times))

    async def rival() -> None:
        row = next(rows, None)
        if row is not None:
            session = await repository.writable_session_async("main")
            put_number(session, row, row)
            await session.commit_async(f"row {row}")

    return rival


def values(session: Session, path: str) -> np.ndarray:
    """Return all values of an array."""
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[:])


def latest(storage: Storage) -> Session:
    """Return what a reader sees who has nothing in memory."""
    return Repository.open(storage).readonly_session("main")


def messages(storage: Storage) -> list[str]:
    """Return the messages of the branch, oldest first, without the repository's own first one."""
    return [info.message for info in Repository.open(storage).ancestry(branch="main")][-2::-1]
