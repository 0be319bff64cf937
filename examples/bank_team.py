"""Tellers who work at once: in processes of their own, or, where the storage is in memory, in threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from bank_transfers import WAYS, Way

import arraystore
from arraystore.storage import CountingStorage, Storage

_PATIENCE = 120.0
"""Most seconds that tellers wait for one another before they begin."""


@dataclass(frozen=True)
class Shift:
    """What a teller has done.

    Parameters
    ----------
    moved
        Transfers that succeeded.
    refused
        How often a commit failed because of what others had committed.
    began, ended
        On the clock that all processes of a machine share.
    log, first
        Operation and key of each request, and which of them was the first of this shift.
    """

    moved: int
    refused: int
    began: float
    ended: float
    log: tuple[tuple[str, str], ...]
    first: int


class Team:
    """Some tellers.  Whatever they are given to do, they begin at the same moment."""

    def __init__(self, size: int, executor: Executor, *, share: bool) -> None:
        self.size = size
        self._executor = executor
        self._share = share

    def work(self, storage: Storage, way: Way, transfers: int) -> list[Future[Shift]]:
        """Let each teller move money so many times."""
        counting = CountingStorage(storage)
        # Threads share one repository object, so that their commits can share records.
        given: Any = arraystore.Repository.open(counting) if self._share else storage
        return [self._executor.submit(_shift, given, WAYS.index(way), transfers, teller) for teller in range(self.size)]

    def requests(self, shifts: Sequence[Shift]) -> list[tuple[str, str]]:
        """Operation and key of all requests of a team."""
        if self._share:  # everybody counted the requests of all
            return list(max((shift.log for shift in shifts), key=len)[min(shift.first for shift in shifts) :])
        return [request for shift in shifts for request in shift.log[shift.first :]]


@contextmanager
def processes(size: int) -> Iterator[Team]:
    """Tellers in processes, which know nothing of one another but what is in the storage."""
    context = get_context("spawn")
    barrier = context.Barrier(size)
    with ProcessPoolExecutor(size, mp_context=context, initializer=_meet_at, initargs=(barrier,)) as executor:
        yield Team(size, executor, share=False)


@contextmanager
def threads(size: int) -> Iterator[Team]:
    """Tellers in threads of this process."""
    _meet_at(threading.Barrier(size))
    with ThreadPoolExecutor(size) as executor:
        yield Team(size, executor, share=True)


_barrier: Any = None


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _shift(given: Any, way: int, transfers: int, teller: int) -> Shift:
    """Work; each teller of a team does so in a process or thread of its own, since all wait for all."""
    repository = given if isinstance(given, arraystore.Repository) else _open(given)
    counting = repository.storage
    assert isinstance(counting, CountingStorage)
    chance = random.Random(teller)
    repository.readonly_session("main")  # the branch is found, so that only transfers are measured
    _barrier.wait(_PATIENCE)
    before, began = len(counting.log), time.monotonic()
    results = [WAYS[way].transfer(repository, chance, teller) for _ in range(transfers)]
    ended = time.monotonic()
    moved, refused = sum(done for done, _ in results), sum(times for _, times in results)
    return Shift(moved, refused, began, ended, counting.log, before)


def _open(storage: Storage) -> arraystore.Repository:
    return arraystore.Repository.open(CountingStorage(storage))
