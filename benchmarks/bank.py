"""Transfers between accounts by many processes at once: the load of the contention cases, for us and for the peer.

Both libraries have the same names for sessions, commits and conflicts, so one loop drives either.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

import icechunk
import zarr

import arraystore
from benchmarks.contenders import by_name
from benchmarks.places import Place
from benchmarks.systems import System

__all__ = [
    "ACCOUNTS",
    "OPENING",
    "Shift",
    "Tally",
    "check_bank",
    "library",
    "open_bank",
    "run_processes",
    "run_threads",
    "work",
]

ACCOUNTS = 50
OPENING = 100
_LONGEST = 100
"""Most seconds that a worker may take beyond its shift; then it gives up, so that a livelock shows as such."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What each worker does.

    Parameters
    ----------
    seconds
        For how long it begins transfers.
    most
        How many transfers it makes at most; None for no bound.
    rule
        ``"bank"``: two accounts out of fifty, read, checked and written. ``"own"``: its own chunk, again and again.
    """

    seconds: float
    most: int | None = None
    rule: Literal["bank", "own"] = "bank"


@dataclass(slots=True)
class Tally:
    """What one worker did.

    Parameters
    ----------
    latencies
        Seconds from the beginning of each transfer to its acknowledgement, all its attempts included.
    collisions
        Transfers that somebody else's commit made impossible, so that they were done again.
    errors
        Other errors, by their text.
    processor
        Seconds of processor time.
    wall
        Seconds from the first beginning to the last acknowledgement.
    """

    latencies: list[float] = field(default_factory=list)
    collisions: int = 0
    errors: list[str] = field(default_factory=list)
    processor: float = 0.0
    wall: float = 0.0


def library(system: System) -> ModuleType:
    """The package of a system: both have the same names for what is needed here."""
    return icechunk if system.name.startswith("icechunk") else arraystore


def open_bank(system: System, place: Place) -> Any:
    """Make a repository with the accounts in it."""
    repository = system.create(place)
    session = repository.writable_session("main")
    accounts = zarr.create_array(
        session.store, name="accounts", shape=(ACCOUNTS,), chunks=(1,), dtype="int64", compressors=None, fill_value=0
    )
    accounts[:] = OPENING
    session.commit("open the bank")
    return repository


def _transfer(session: Any, luck: random.Random) -> None:
    accounts = zarr.open_array(session.store, path="accounts", mode="r+")
    while True:
        payer, payee = luck.sample(range(ACCOUNTS), 2)
        balance = int(accounts[payer])
        if balance > 0:
            break
    amount = luck.randint(1, min(balance, 10))
    accounts[payer] = balance - amount
    accounts[payee] = int(accounts[payee]) + amount


def _increment(session: Any, number: int) -> None:
    accounts = zarr.open_array(session.store, path="accounts", mode="r+")
    accounts[number] = int(accounts[number]) + 1


def work(system: System, repository: Any, number: int, shift: Shift, ready: Callable[[], object]) -> Tally:
    """Do one worker's shift."""
    api = library(system)
    error_type = arraystore.ArrayStoreError if api is arraystore else icechunk.IcechunkError
    luck, tally = random.Random(number), Tally()
    change = (lambda one: _transfer(one, luck)) if shift.rule == "bank" else (lambda one: _increment(one, number))
    ready()
    started, processor = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < shift.seconds and len(tally.latencies) != shift.most:
        began = time.perf_counter()
        while time.perf_counter() - started < shift.seconds + _LONGEST:
            session = repository.writable_session("main")
            change(session)
            try:
                session.commit(f"transfer by {number}", rebase_with=api.ConflictDetector())
            except api.ConflictError:
                tally.collisions += 1
                continue
            except error_type as error:
                tally.errors.append(f"{type(error).__name__}: {error}"[:200])
                continue
            tally.latencies.append(time.perf_counter() - began)
            break
    tally.wall = time.perf_counter() - started
    tally.processor = time.process_time() - processor
    return tally


def _process(name: str, place: Place, number: int, shift: Shift, barrier: Any, answers: Any) -> None:
    try:
        system = by_name(name)
        repository = system.open(place, None)
        repository.readonly_session("main")
        tally = work(system, repository, number, shift, barrier.wait)
        if isinstance(repository, arraystore.Repository):
            repository.wait_for_maintenance()  # a process of multiprocessing ends without waiting for anything
        answers.put((number, tally))
    except BaseException as error:
        barrier.abort()
        answers.put((number, f"{type(error).__name__}: {error}"))
        raise


def run_processes(system: System, place: Place, workers: int, shift: Shift) -> list[Tally]:
    """Let so many processes work at once, which begin together."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(workers), context.Queue()
    started = [
        context.Process(target=_process, args=(system.name, place, number, shift, barrier, answers), daemon=True)
        for number in range(workers)
    ]
    for process in started:
        process.start()
    found = dict(answers.get(timeout=shift.seconds + _LONGEST + 60) for _ in started)
    for process in started:
        process.join()
    broken = {number: answer for number, answer in found.items() if isinstance(answer, str)}
    if broken:
        raise RuntimeError(f"{len(broken)} of {workers} workers broke down: {broken}")
    return [found[number] for number in range(workers)]


def run_threads(system: System, repository: Any, workers: int, shift: Shift) -> list[Tally]:
    """Let so many threads work at once on one repository object."""
    barrier = threading.Barrier(workers)
    futures: list[Future[Tally]] = [Future() for _ in range(workers)]

    def run(number: int) -> None:
        try:
            futures[number].set_result(work(system, repository, number, shift, barrier.wait))
        except BaseException as error:
            barrier.abort()
            futures[number].set_exception(error)
            raise

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(workers)]
    for thread in threads:
        thread.start()
    return [future.result() for future in futures]


def check_bank(system: System, place: Place, handle: Any) -> tuple[int, int]:
    """Return how many commits the history has, and how much money the bank holds."""
    repository = system.open(place, handle)
    commits = sum(1 for _ in repository.ancestry(branch="main")) - 2  # the birth, and the opening of the accounts
    accounts = zarr.open_array(repository.readonly_session("main").store, path="accounts", mode="r")[:]
    if (accounts < 0).any():
        raise AssertionError(f"{system.name}: a balance is negative")
    return commits, int(accounts.sum())
