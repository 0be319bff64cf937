"""Our own commit code on the latencies and arrivals of the study, in the simulator.

Every transaction is a process of its own: it opens the repository, with caches of its own, opens a session when it
arrives, runs, and commits.  Nothing is shared between two of them but the bucket, and nothing fails.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from arraystore import ConflictError, Repository
from arraystore._environment import ENVIRONMENT, Memo
from arraystore.simulation import Delay, Latencies, Process, World
from benchmarks.throughput.latencies import Provider, Timing
from benchmarks.throughput.outcomes import Outcome
from benchmarks.throughput.transactions import CONFIG, SOLVER, change, make_arrays
from benchmarks.throughput.workload import Arrival, Workload

__all__ = ["Run", "latencies_of", "run"]


@dataclass
class Run:
    """What a run came to.

    Parameters
    ----------
    outcomes
        Of all transactions.
    requests
        All that was asked for from the start of a commit on, background work included, by kind.
    bytes_read, bytes_written
        By these requests.
    records
        How many records the branch has got.
    """

    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    requests: Counter[str] = field(default_factory=Counter[str])
    bytes_read: int = 0
    bytes_written: int = 0
    records: int = 0

    @property
    def committed(self) -> int:
        """How many transactions were committed."""
        return sum(each.committed for each in self.outcomes)


def _delay(timing: Timing) -> Delay:
    return Delay(timing.median_ms / 1000, timing.sigma, timing.floor_ms / 1000, timing.per_mib_ms / 1000)


def latencies_of(provider: Provider, parallel: int | None = None) -> Latencies:
    """A provider's latencies, for the simulator; `parallel` limits the requests of a process at a time."""
    return Latencies(_delay(provider.get), _delay(provider.put), _delay(provider.conditional_put), parallel)


def run(workload: Workload, seed: int, latencies: Latencies, *, share: bool = True) -> Run:
    """Simulate all transactions of a workload, to their ends.

    `share` lets them share what they decode, which changes nothing but the time that a simulation takes.
    """
    with _rare_collections(), World(seed, latencies=latencies, keep_trace=False) as world:
        return _Study(world, workload, seed, Memo() if share else None).run()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for garbage now and then only: thousands of open sessions are no garbage, and take long to look at."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Study:
    """One run in a simulated world."""

    def __init__(self, world: World, workload: Workload, seed: int, memo: Memo | None) -> None:
        self._world = world
        self._workload = workload
        self._seed = seed
        self._memo = memo
        self._found = Run()
        self._began = 0.0

    def run(self) -> Run:
        """Let everybody arrive, and wait until all is done."""
        world, found = self._world, self._found
        world.run(_prepare)
        world.drain()
        self._began = world.loop.time()
        before = world.counts
        world.run(self._arrivals, until=math.inf)
        world.drain()
        total = world.counts - before
        for name, count in total.requests.items():
            found.requests[name] += count
        found.bytes_read += total.bytes_read
        found.bytes_written += total.bytes_written
        found.requests = +found.requests
        found.records = sum(key.rpartition("/")[2].isdigit() for key in world.bucket.objects if "/branch/" in key)
        return found

    async def _arrivals(self, _: Process) -> None:
        for arrival in self._workload.arrivals(self._seed):
            await asyncio.sleep(self._began + arrival.at - self._world.loop.time())
            self._world.process(f"t{arrival.number}").start(self._main(arrival))

    def _main(self, arrival: Arrival) -> Callable[[Process], Coroutine[Any, Any, None]]:
        async def transaction(process: Process) -> None:
            ENVIRONMENT.set(replace(process.environment, memo=self._memo))
            repo = await Repository.open_async(process.storage)
            strict = arrival.heavy and arrival.number % 2
            session = await repo.writable_session_async("main", isolation="serializable" if strict else "snapshot")
            await change(session, arrival.number, arrival.heavy)
            await asyncio.sleep(self._began + arrival.at + arrival.runtime - self._now())
            began, before = self._now(), process.counts
            committed = True
            try:
                await session.commit_async(f"transaction {arrival.number}", rebase_with=SOLVER)
            except ConflictError:
                committed = False
            own = (process.counts - before).total
            self._note(arrival, began, committed, own)
            self._found.requests.subtract(before.requests)  # what comes before a commit is no part of it
            self._found.bytes_read -= before.bytes_read
            self._found.bytes_written -= before.bytes_written
            self._world.forget(process)

        return transaction

    def _now(self) -> float:
        return self._world.loop.time()

    def _note(self, arrival: Arrival, began: float, committed: bool, requests: int) -> None:
        zero = self._began
        outcome = Outcome(arrival.at, began - zero, self._now() - zero, arrival.heavy, committed, 0, requests)
        self._found.outcomes.append(outcome)


async def _prepare(process: Process) -> None:
    await make_arrays(await process.repository(CONFIG))
