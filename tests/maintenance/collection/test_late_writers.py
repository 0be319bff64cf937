"""Writers that come back to a log whose records were deleted as expired meanwhile."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from arraystore import ConflictDetector, Repository, SessionExpiredError, in_memory_storage
from arraystore._environment import ENVIRONMENT, Environment
from arraystore.storage.protocol import ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from tests.history.worlds import commit, contents, put, world
from tests.maintenance.collection.test_moved_and_reverted import now
from tests.tiers import mostly_thorough


class AgedStorage(WrapperStorage):
    """Says of all records but the newest that they were written hours ago."""

    async def list(self, prefix: str, start_after: str = "", **options: Any) -> AsyncIterator[list[ObjectInfo]]:
        pages = [page async for page in super().list(prefix, start_after, **options)]
        infos = [info for page in pages for info in page]
        last = max((info.key for info in infos), default="")
        yield [replace(info, modified=1e9 if info.key == last else 1e9 - 7200) for info in infos]


class Clock:
    """A clock that is set forward by hand."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead


def trimmed(storage: AgedStorage) -> None:
    """Let others commit until the records of now are carried by no later one, expire them, and delete the records."""
    other = Repository.open(storage)
    for at in range(560):
        commit(other, put("g/b", at % 6, at + 1))
    other.expire_snapshots(now())
    assert other.garbage_collect(now()).records_deleted > 500


def looked(repository: Repository) -> None:
    repository.verify()


def listed(repository: Repository) -> None:
    repository.expire_snapshots(now(), dry_run=True)


def collected(repository: Repository) -> None:
    repository.garbage_collect(now(), dry_run=True)


@pytest.mark.parametrize("look", mostly_thorough([looked, listed, collected]))
def test_a_writer_whose_number_is_forgotten_is_told_whatever_else_its_process_does(
    look: Callable[[Repository], None],
) -> None:
    storage = AgedStorage(in_memory_storage())
    clock = Clock()
    token = ENVIRONMENT.set(Environment(now_us=clock))
    try:
        mine = world(storage)
    finally:
        ENVIRONMENT.reset(token)
    session = mine.writable_session("main")
    put("g/a", 0, 10)(session)
    trimmed(storage)
    clock.ahead = 7_200_000_000
    look(mine)
    with pytest.raises(SessionExpiredError):
        session.commit("late", rebase_with=ConflictDetector())
    assert contents(Repository.open(storage))["g/a"][1] == [1, 2, 3, 4, 5, 6]
