"""Clients that commit one transaction after the other: how many they get through tells how long each one takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from arraystore import Repository
from arraystore.simulation import Process, World
from benchmarks.throughput.latencies import Provider
from benchmarks.throughput.ours import latencies_of
from benchmarks.throughput.outcomes import Outcome
from benchmarks.throughput.transactions import CONFIG, SOLVER, change, make_arrays

__all__ = ["Load", "commit_for", "numbers", "simulate"]

_APART = 1 << 16


@dataclass(frozen=True)
class Load:
    """Some clients, for some seconds.

    Parameters
    ----------
    clients
        How many.
    seconds
        How long.
    heavy_every
        Every so manieth transaction of a client is heavy; 0 for none.
    warmup
        Seconds at the start that are not counted.
    slowdown
        How many times longer requests take than they do on S3.
    """

    clients: int
    seconds: float
    heavy_every: int = 0
    warmup: float = 2.0
    slowdown: float = 1.0

    def is_heavy(self, number: int) -> bool:
        """Whether a transaction is heavy."""
        return bool(self.heavy_every) and number % self.heavy_every == 0


def numbers(client: int) -> Iterator[int]:
    """Numbers of a client's transactions, which are nobody else's."""
    return iter(range(client * _APART, (client + 1) * _APART))


async def commit_for(repo: Repository, client: int, load: Load, now: Callable[[], float]) -> list[Outcome]:
    """Commit until the time is over; `now` counts from the start."""
    outcomes: list[Outcome] = []
    for number in numbers(client):
        arrived = now()
        if arrived >= load.seconds:
            break
        heavy = load.is_heavy(number)
        session = await repo.writable_session_async("main", isolation="serializable" if heavy else "snapshot")
        await change(session, number, heavy)
        began = now()
        await session.commit_async(f"transaction {number}", rebase_with=SOLVER)
        outcomes.append(Outcome(arrived, began, now(), heavy, True, 0))
    return outcomes


def simulate(load: Load, provider: Provider, seed: int) -> tuple[list[Outcome], int]:
    """Do so in the simulator; returns what became of the transactions, and how many requests there were."""
    with World(seed, latencies=latencies_of(provider), keep_trace=False) as world:

        async def prepare(process: Process) -> None:
            await make_arrays(await process.repository(CONFIG))

        world.run(prepare)
        world.drain()
        start, before = world.loop.time(), world.counts
        found: list[Outcome] = []

        async def client(process: Process) -> None:
            repo = await Repository.open_async(process.storage)
            mine = int(process.name.rpartition("-")[2])
            found.extend(await commit_for(repo, mine, load, lambda: world.loop.time() - start))

        world.run(*[client] * load.clients)
        world.drain()
        return found, (world.counts - before).total
