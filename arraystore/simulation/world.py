"""A simulated world: a bucket, and processes that run arraystore's own code against it.

To test a pipeline, write its processes as coroutines and run them, with as many seeds as there is time for::

    from arraystore.simulation import Faults, World

    async def writer(process):
        repo = await process.repository()                      # opens it, or creates it; caches of its own
        session = await repo.writable_session_async("main")
        await session.store.set("zarr.json", group_json)       # zarr's Store methods, awaited
        await session.commit_async(f"by {process.name}", rebase_with=ConflictDetector())

    async def reader(process):
        await asyncio.sleep(process.rng.uniform(0, 10))        # virtual seconds
        ...

    with World(seed=7, faults=Faults.heavy()) as world:
        world.run(writer, writer, reader)                      # until all of them have returned
        world.drain()                                          # until background work has ended too
        print(world.trace)                                     # what happened, in order
        print(world.counts.total, world.bucket.objects.keys())

The same seed gives the same trace, event for event.  Only asynchronous calls work (``commit_async``, not ``commit``;
``store.set``, not ``array[...] = ``): everything is one thread.  Time, chance and ids come from the simulation wherever
arraystore's code runs in a simulated process, so ``Repository.open_async(process.storage)`` works as well.

Processes can be handled one by one::

    alice = world.process("alice")
    alice.start(writer)                 # runs writer(alice) once the world runs
    world.loop.run_for(0.5)             # inside `with world.running():`, or use world.run_for(0.5)
    alice.pause(10.0)                   # what it has on its way goes on; it does nothing for 10 s
    alice.crash(restart_after=1.0)      # none of its code runs any more, no `finally`; then writer(alice') starts
    world.run()

A process that crashes starts again with a new `Process` of the same name and the next `life`, and with nothing but what
is in the bucket; that is what `Faults.crashes` does as well.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from arraystore._context.config import RepositoryConfig
from arraystore._environment import ENVIRONMENT, Environment
from arraystore._format.ids import IdSource
from arraystore._repository.repository import Repository
from arraystore._runtime import run_on
from arraystore.errors import StorageError
from arraystore.simulation.bucket import Bucket
from arraystore.simulation.faults import Faults
from arraystore.simulation.latency import Latencies
from arraystore.simulation.loop import DEAD, OWNER, PAUSED, RUNNING, HorizonError, SimulatedLoop, SimulationError
from arraystore.simulation.network import Network, Sender, TimedNetwork
from arraystore.simulation.storage import SimulatedStorage, Tally
from arraystore.simulation.trace import Trace
from arraystore.storage.counting import Counts

__all__ = ["EPOCH", "SOURCES", "Main", "Process", "World"]

EPOCH = 1_700_000_000
"""Start of virtual time, in seconds since 1970."""

SOURCES = "sources://simulated/"
"""Container of virtual chunks, where a world has sources."""

_OPENINGS = 50

Main = Callable[["Process"], Coroutine[Any, Any, Any]]
"""Main function of a process."""


class Process(Sender):
    """One life of a process.

    Attributes
    ----------
    base_name
        Its name in every life; `name` adds the number of the life from the second one on.
    life
        Count of its crashes before.
    storage
        Its way to the bucket.
    sources
        Its way to the sources of virtual chunks; None if there are none.
    environment
        Its clock, its ids.
    rng
        Random numbers for what it decides.
    result
        Return value of its main, once it has ended.
    """

    def __init__(self, world: World, base_name: str, life: int = 0) -> None:
        self.base_name = base_name
        self.life = life
        name = base_name if not life else f"{base_name}.{life}"
        super().__init__(name, world.stream(f"requests of {name}"))
        self.world = world
        self.rng = world.stream(f"decisions of {name}")
        self.result: Any = None
        self.storage = world.storage_for(self)
        self.sources = world.sources_for(self)
        self._skew = self.chance.uniform(-1, 1) * world.faults.skew
        self.environment = Environment(
            now_us=self.now_us,
            sleep=self.sleep,
            random=self.chance.random,
            new_id=IdSource(lambda: self.now_us() // 1000, self.chance.randbytes),
            awaited=False,
        )
        self._main: Main | None = None
        self._task: asyncio.Task[Any] | None = None
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, self)
        self._context.run(ENVIRONMENT.set, self.environment)

    def now_us(self) -> int:
        """Return what its clock shows."""
        return int((EPOCH + self._skew + self.world.loop.time()) * 1e6)

    def set_clock(self, ahead: float) -> None:
        """Put its clock ahead of the true time by so many seconds."""
        self._skew = ahead

    async def sleep(self, seconds: float) -> None:
        """Wait for some time, for the protocol."""
        await asyncio.sleep(seconds)

    # -- what it does -------------------------------------------------------------------------------------------

    def start(self, main: Main) -> None:
        """Run `main(process)` as soon as the world runs; again from the start after a crash, if it restarts."""
        if self._main is not None:
            raise SimulationError(f"process {self.name} has something to do already; make another process")
        self._main = main
        self._task = self.world.loop.create_task(self._context.run(main, self), name=self.name, context=self._context)
        self._task.add_done_callback(self._ended, context=contextvars.Context())
        self.world.count_in(self)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self.state == DEAD:
            return
        failure = None if task.cancelled() else task.exception()
        if failure is None and not task.cancelled():
            self.result = task.result()
        self.world.count_out(self, failure)

    async def repository(self, config: RepositoryConfig | None = None) -> Repository:
        """Open the repository, or create it, with caches of its own; again and again while the storage fails."""
        containers = {} if self.sources is None else {SOURCES: self.sources}
        for _ in range(_OPENINGS):
            try:
                return await Repository.open_or_create_async(
                    self.storage, config, authorize_virtual_chunk_access=containers
                )
            except StorageError:
                await asyncio.sleep(self.rng.random())
        return await Repository.open_or_create_async(self.storage, config, authorize_virtual_chunk_access=containers)

    @property
    def counts(self) -> Counts:
        """The requests of this life."""
        return self.storage.counts

    @property
    def alive(self) -> bool:
        """Tell whether it has not crashed."""
        return self.state != DEAD

    @property
    def done(self) -> bool:
        """Tell whether its main has ended."""
        return self._task is not None and self._task.done()

    # -- what befalls it ----------------------------------------------------------------------------------------

    def pause(self, seconds: float | None = None) -> None:
        """Stop, wherever it is, for some time or until `resume`; what it has on its way goes on."""
        if self.state == RUNNING:
            self.world.note(self.name, "pause", "" if seconds is None else f"{seconds:.6f} s")
            self.world.loop.pause(self)
            if seconds is not None:
                self.world.loop.at(self.world.loop.time() + seconds, self.resume)

    def resume(self) -> None:
        """Go on."""
        if self.state == PAUSED:
            self.world.note(self.name, "resume")
            self.world.loop.resume(self)

    def crash(self, restart_after: float | None = None) -> None:
        """Stop for good: nothing of it runs any more.  Called by itself, it stops at its next `await`.

        Requests that it has sent may take effect or not.

        Parameters
        ----------
        restart_after
            Seconds after which its main starts again, in a new life; None for never.
        """
        if self.state == DEAD:
            return
        self.world.note(self.name, "crash")
        self.world.loop.kill(self)
        self.world.bury(self, restart_after)


class World:
    """Simulated processes, bucket and network.

    Parameters
    ----------
    seed
        Of all random numbers.
    faults
        Faults; none by default.
    latencies
        Latencies of requests; those of S3 by default.
    keep_trace
        Whether events are kept; runs of millions of requests had better not.
    network
        Carries requests instead of the one with latencies and faults; made from the world.
    sources
        Makes the bucket of the sources of virtual chunks from a clock, which all processes read, and the trace does not
        show; None for no sources.

    Attributes
    ----------
    loop, bucket, trace, faults, latencies
        See there.
    processes
        All processes that were not forgotten, by name.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        faults: Faults | None = None,
        latencies: Latencies | None = None,
        keep_trace: bool = True,
        network: Callable[[World], Network] | None = None,
        sources: Callable[[Callable[[], float]], Bucket] | None = None,
    ) -> None:
        self.seed = seed
        self.faults = faults or Faults.none()
        self.latencies = latencies or Latencies.s3()
        self.loop = SimulatedLoop()  # type: ignore[abstract] # what it leaves out, nothing here asks for
        self.bucket = Bucket(f"simulated://{seed}", self.loop.time)
        self.trace = Trace(keep_trace)
        self.sources = None if sources is None else sources(self.loop.time)
        self.processes: dict[str, Process] = {}
        self._total = Tally()
        self._going: set[str] = set()
        self._failures: list[BaseException] = []
        self._over: asyncio.Future[None] | None = None
        self._network: Network = (
            network(self)
            if network is not None
            else TimedNetwork(self.loop, self.bucket, self.latencies, self.faults, self.trace)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<World of seed {self.seed} at {self.loop.time():.3f} s>"

    def close(self) -> None:
        """Drop everything that has not ended."""
        self.loop.close()
        self.processes.clear()

    # -- making -------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> random.Random:
        """Return random numbers that depend on the seed and on this name, and on nothing else."""
        return random.Random(hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest())

    def process(self, name: str) -> Process:
        """Make a process, or return the one of this name, in its newest life."""
        found = self.processes.get(name)
        if found is None:
            found = self.processes[name] = self.born(name, 0)
        return found

    def born(self, name: str, life: int) -> Process:
        """Make a process in one of its lives."""
        return Process(self, name, life)

    def forget(self, process: Process) -> None:
        """Drop a process that has ended, so that thousands can come and go."""
        self.processes.pop(process.base_name, None)

    def storage_for(self, sender: Sender) -> SimulatedStorage:
        """Return a way to the bucket."""
        return SimulatedStorage(
            sender,
            self.loop,
            self._network,
            self.bucket,
            self._total,
            tries=self.faults.tries if self.faults.of_requests else 1,
            parallel=self.latencies.parallel,
            listing_lag=self.faults.late_listings,
        )

    def sources_for(self, sender: Sender) -> SimulatedStorage | None:
        """Return a way to the sources of virtual chunks; None if there are none."""
        if self.sources is None:
            return None
        network = TimedNetwork(self.loop, self.sources, self.latencies, self.faults, Trace(keep=False))
        return SimulatedStorage(sender, self.loop, network, self.sources, Tally())

    # -- running ------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[SimulatedLoop]:
        """Let arraystore's background work run on this world's loop."""
        with run_on(self.loop):
            yield self.loop

    def run(self, *mains: Main, until: float = 86_400.0, most_steps: int = 100_000_000) -> list[Any]:
        """Start some processes, and run until everything that was started has ended.

        Parameters
        ----------
        mains
            Each gets a process of its own, named after it and numbered.
        until
            Virtual time by which everything has to have ended.
        most_steps
            Callbacks by which it has to.

        Returns
        -------
        list
            Return values of `mains`; None for one that crashed for good.

        Raises
        ------
        HorizonError, DeadlockError
            If something does not end.
        Exception
            Error that one of them raised.
        """
        started = [self._start(main) for main in mains]
        if self._going and not self._failures:
            self._over = self.loop.create_future()
            with self.running():
                try:
                    self.loop.run_until_complete(self._over, until=until, most_steps=most_steps)
                except SimulationError as error:
                    raise type(error)(f"seed {self.seed}: {sorted(self._going)} have not ended: {error}") from error
                finally:
                    self._over = None
        if self._failures:
            raise self._failures.pop(0)
        return [self.processes[name].result for name in started]

    def _start(self, main: Main) -> str:
        stem = getattr(main, "__name__", "process")
        name = next(name for i in range(1 << 30) if (name := f"{stem}-{i}") not in self.processes)
        self.process(name).start(main)
        return name

    def run_for(self, seconds: float) -> None:
        """Run for some virtual seconds."""
        with self.running():
            self.loop.run_for(seconds)

    def drain(self, seconds: float = 3600.0) -> None:
        """Run until nothing is left to do, background work of processes that have ended included.

        Raises
        ------
        HorizonError
            If something goes on for longer.
        """
        until = self.loop.time() + seconds
        with self.running():
            self.loop.run_until_idle(until)
        if self.loop.next_timer() is not None:
            raise HorizonError(f"seed {self.seed}: something goes on after {seconds} s of waiting for it to end")

    # -- who has ended ------------------------------------------------------------------------------------------

    def count_in(self, process: Process) -> None:
        """Note that a process has begun."""
        self._going.add(process.base_name)
        faults = self.faults
        if faults.pauses:
            self._plan(process, faults.pauses, self._pause)
        if faults.crashes:
            self._plan(process, faults.crashes, self._crash)

    def count_out(self, process: Process, failure: BaseException | None) -> None:
        """Note that a process has ended."""
        self._going.discard(process.base_name)
        if failure is not None:
            self._failures.append(failure)
        if self._over is not None and not self._over.done() and (self._failures or not self._going):
            self._over.set_result(None)

    def bury(self, process: Process, restart_after: float | None) -> None:
        """Note that a process has crashed, and see to its next life."""
        if process.base_name not in self._going or process.done:
            return
        if restart_after is None:
            self.count_out(process, None)
        else:
            self.loop.at(self.loop.time() + restart_after, self._restart, process)

    def _restart(self, dead: Process) -> None:
        main = dead._main  # pyright: ignore[reportPrivateUsage]
        assert main is not None
        self.note(dead.base_name, "restart")
        found = self.processes[dead.base_name] = self.born(dead.base_name, dead.life + 1)
        found.start(main)

    # -- faults of processes ------------------------------------------------------------------------------------

    def _plan(self, process: Process, mean: float, strike: Callable[[Process], None]) -> None:
        at = self.loop.time() + process.chance.expovariate(1 / mean)
        if at < self.faults.until:
            self.loop.at(at, strike, process)

    def _pause(self, process: Process) -> None:
        if process.alive and not process.done:
            seconds = self.faults.pause.draw(process.chance)
            process.pause(seconds)
            self.loop.at(self.loop.time() + seconds, self._plan, process, self.faults.pauses, self._pause)

    def _crash(self, process: Process) -> None:
        if process.alive and not process.done:
            process.crash(self.faults.downtime * process.chance.expovariate(1.0))

    # -- what happened ------------------------------------------------------------------------------------------

    def note(self, process: str, operation: str, detail: str = "") -> None:
        """Add an event to the trace."""
        self.trace.note(self.loop.time(), process, operation, "", detail)

    @property
    def counts(self) -> Counts:
        """The requests of all processes."""
        return self._total.counts
