"""A history of ten thousand commits, which takes so long to make that all tests of one process share it."""

from __future__ import annotations

from functools import cache
from unittest import mock

from arraystore import Repository, in_memory_storage
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._format.ids import IdSource
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore.storage import Storage
from tests.commit.support import commit_number, create_repository, tip_of

__all__ = ["GROUP", "ten_thousand_commits"]

GROUP = "ten thousand commits"
"""The xdist group of the tests that need it."""

PAGE = 64
"""Records of a page of the history."""

_START_MS = 1_700_000_000_000
_MINUTE_MS = 60_000


class _Clock:
    """Goes on by a minute for each commit."""

    def __init__(self) -> None:
        self.ms = _START_MS

    def now_us(self) -> int:
        return self.ms * 1000


@cache
def ten_thousand_commits() -> Storage:
    """Make a repository whose commits each write the chunk of their own number; nobody may take any of it away.

    It ends where a page of its history and a checkpoint do.
    """
    storage = in_memory_storage()
    clock = _Clock()
    token = ENVIRONMENT.set(Environment(now_us=clock.now_us, new_id=IdSource(lambda: clock.ms)))
    try:
        repository = create_repository(storage)
    finally:
        ENVIRONMENT.reset(token)
    while tip_of(repository).sequence < 10_200:  # of which some are folds
        _commit(repository, clock, PAGE)
    with mock.patch("arraystore._maintenance.fold.fold", _no_fold):
        _commit(repository, clock, PAGE - tip_of(repository).sequence % PAGE)
    return storage


def _commit(repository: Repository, clock: _Clock, count: int) -> None:
    first = tip_of(repository).sequence
    for row in range(first, first + count):
        clock.ms += _MINUTE_MS
        commit_number(repository, row, row)
    repository.wait_for_maintenance()


async def _no_fold(_log: BranchLog, tip: Tip, _reader: object) -> Tip:
    return tip
