"""Executions in which somebody else decides which request takes effect next.

Instead of latencies there are choices: everything runs until all processes wait, and then one of the requests on their
way takes effect and is answered.

Sleeps end at once: whatever a process does after one is a request again, which can be held up for as long as the sleep
would have taken.  That is done `Bounds.wakes` times for each process (one that polls would never stop), and from then
on only when nothing else can happen.  A sleep may also take much longer than it should, so that the patience of its
process is at an end: whether it does is a choice, for the first `Bounds.naps` sleeps of each process.

Clocks are each process's own, so that none depends on what others do: a request takes a millisecond, a sleep what it
should, or an hour.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arraystore.errors import StorageError
from arraystore.simulation.loop import SimulatedLoop, SimulationError
from arraystore.simulation.network import CHANGING, CONDITIONAL, Request
from arraystore.simulation.world import EPOCH, Process, World
from tests.simulation.observations import Observations

__all__ = [
    "BARRIER",
    "OVERSLEPT",
    "Actor",
    "Bounds",
    "Choice",
    "Configuration",
    "Execution",
    "Footprint",
    "Pending",
    "independent",
]

BARRIER = "time passes"
"""The choice where there is no other: the earliest timer fires."""

EFFECT, UNACKNOWLEDGED, LOST, LATE, REFUSED, CRASH = "", "unacknowledged", "lost", "late", "sent twice", "crash"
OVERSLEPT = "overslept"

Choice = tuple[str, str]
"""Which request (or `BARRIER`), and what becomes of it."""


@dataclass(frozen=True)
class Bounds:
    """How far an exploration goes.

    Parameters
    ----------
    crashes
        Most processes that die in one execution, at any point.
    failures
        Most writes of one execution whose answer is lost: with its effect, without it, or with an effect that comes
        later.
    repetitions
        Most conditional writes of one execution that are sent twice on their way: written, and answered as existing.
    wakes
        Sleeps of each process that end before everything else has happened.
    naps
        Sleeps of each process that may take much too long.
    steps
        Most requests of one execution; one that takes more is held not to end.
    """

    crashes: int = 0
    failures: int = 0
    repetitions: int = 0
    wakes: int = 6
    naps: int = 0
    steps: int = 400


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an effect touches.

    Parameters
    ----------
    thread
        Whose it is.
    read, written
        Keys.
    listed
        Prefix, and the key after which the listing starts.
    dies
        Whether it is the end of its process.
    """

    thread: str
    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    listed: tuple[str, str] | None = None
    dies: bool = False


def independent(one: Footprint, other: Footprint) -> bool:
    """Tell whether two effects lead to the same whichever comes first.

    Answers to requests that one process has on its way at the same time are taken to commute where their effects do.
    """
    if one.thread == other.thread and (one.dies or other.dies):
        return False
    return not (_disturbs(one, other) or _disturbs(other, one))


def _disturbs(writer: Footprint, other: Footprint) -> bool:
    for key in writer.written:
        if key in other.written or key in other.read:
            return True
        if other.listed is not None and key.startswith(other.listed[0]) and key > other.listed[1]:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that may take effect next.

    Parameters
    ----------
    id
        The same in every execution that gets here.
    birth
        How many steps had been made when it was sent.
    process
        Whose it is.
    footprint
        What it would touch now.
    outcomes
        What may become of it.
    text
        For people.
    """

    id: str
    birth: int
    process: str
    footprint: Footprint
    outcomes: tuple[str, ...]
    text: str


Actor = Callable[[Process, "Execution"], Coroutine[Any, Any, Any]]
"""What a process does.  It prepares, awaits `Execution.line()`, and from then on its requests are choices."""


@dataclass(frozen=True)
class Configuration:
    """What is explored.

    Parameters
    ----------
    name, about
        For people.
    actors
        What each process does.
    check
        Says what is wrong with how an execution has ended.
    prepare
        What is done before, once for all executions.
    bounds
        How far to go.
    seed
        Of ids, and so of their order.
    restarts
        Whether a process that died starts again.
    quick
        Whether it is exhausted within seconds.
    """

    name: str
    actors: tuple[Actor, ...]
    check: Callable[[Execution], Sequence[str]]
    prepare: Actor | None = None
    bounds: Bounds = Bounds()
    about: str = ""
    seed: int = 0
    restarts: bool = False
    quick: bool = True


class _Chosen(Process):
    """A process with a clock of its own, whose sleeps end when it is told so."""

    clock = 0.0

    def now_us(self) -> int:
        """Return what its clock shows."""
        return int((EPOCH + self.clock) * 1e6)

    async def sleep(self, seconds: float) -> None:
        """Wait until the execution lets it go on."""
        world = self.world
        assert isinstance(world, _ChosenWorld)
        await world.execution.put_to_sleep(self, seconds)


class _ChosenWorld(World):
    """A world whose processes are those of an execution."""

    def __init__(self, execution: Execution, seed: int) -> None:
        self.execution = execution
        super().__init__(seed, network=lambda _: execution)

    def born(self, name: str, life: int) -> Process:
        """Make a process in one of its lives."""
        found = _Chosen(self, name, life)
        found.clock = self.execution.began
        return found


@dataclass(frozen=True)
class Start:
    """What all executions of a configuration start from."""

    objects: Mapping[str, bytes] = field(default_factory=dict)
    notes: Observations = field(default_factory=Observations)
    time: float = 0.0

    @classmethod
    def of(cls, configuration: Configuration) -> Start:
        """Do what is to be done before."""
        if configuration.prepare is None:
            return cls()
        run = Execution(
            Configuration(_PREPARING, (configuration.prepare,), lambda _: (), seed=configuration.seed), cls()
        )
        try:
            while not (run.settle() or run.over):
                run.perform((BARRIER, EFFECT))
            error = run.results.get(_FIRST)
            if isinstance(error, Exception) or run.unfinished:
                raise SimulationError(f"{configuration.name} could not be prepared: {error!r}") from error
            return cls(dict(run.world.bucket.objects), run.notes, 1.0)
        finally:
            run.close()


class Execution:
    """One execution.

    Parameters
    ----------
    configuration
        What is executed.
    start
        What it starts from.

    Attributes
    ----------
    world
        Where it happens.
    notes
        What its processes noted.
    results
        What actors returned, by the name of their process; an exception where one failed.
    """

    def __init__(self, configuration: Configuration, start: Start) -> None:
        self.configuration = configuration
        self.bounds = configuration.bounds
        self.notes = copy.deepcopy(start.notes)
        self.results: dict[str, Any] = {}
        self.steps = 0
        self.crashes = 0
        self.failures = 0
        self.repetitions = 0
        self._exploring = False
        self._sent: dict[str, int] = {}
        self._pending: dict[str, tuple[Request, int]] = {}
        self._sleeping: dict[str, tuple[_Chosen, float, asyncio.Future[None], int]] = {}
        self._sleeps: dict[str, int] = {}
        self.began = start.time
        self.world: World = _ChosenWorld(self, configuration.seed)
        self.loop: SimulatedLoop = self.world.loop
        for key, data in start.objects.items():
            self.world.bucket.put(key, data)
        self._answers = contextvars.Context()
        names = (_FIRST,) if configuration.name == _PREPARING else _NAMES
        with self.world.running():
            self._gate: asyncio.Future[None] = self.loop.create_future()
            for name, actor in zip(names, configuration.actors, strict=False):
                self.world.process(name).start(self._main(actor))
            self.loop.run_ready()
            while self._sleeping:
                self._wake(next(iter(self._sleeping)))
                self.loop.run_ready()
            self._sleeps.clear()
            self._exploring = configuration.name != _PREPARING
            self._gate.set_result(None)

    def close(self) -> None:
        """Drop what is left."""
        self.world.close()

    def _main(self, actor: Actor) -> Callable[[Process], Coroutine[Any, Any, None]]:
        async def main(process: Process) -> None:
            try:
                self.results[process.name] = await actor(process, self)
            except Exception as error:  # noqa: BLE001 - the check decides about it
                self.results[process.name] = error

        return main

    async def line(self) -> None:
        """Wait until everybody has prepared; what is asked from now on is a choice."""
        await asyncio.shield(self._gate)

    # -- the network --------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Take a request of a process."""
        if not self._exploring:
            request.take_effect()
            self.loop.call_soon(request.answer, context=self._answers)
            return
        name = request.sender.name
        number = self._sent[name] = self._sent.get(name, 0) + 1
        self._pending[f"{name}:{number}"] = request, self.steps

    # -- what the explorer does ---------------------------------------------------------------------------------

    def settle(self) -> list[Pending]:
        """Run until everybody waits; returns what may happen next, nothing if only time can pass or all is over."""
        with self.world.running():
            while True:
                self.loop.run_ready()
                awake = next((i for i in self._sleeping if self._wakes_at_once(i)), None)
                if awake is None:
                    if not self._restarted():
                        break
                elif self._number(awake) <= self.bounds.naps:
                    return [self._nap(awake)]
                else:
                    self._wake(awake)
        return [self._describe(identifier) for identifier in sorted(self._pending)]

    def _restarted(self) -> bool:
        """Let a process that died start again; such timers belong to nobody."""
        when = next((at for owner, at in self.loop.timers() if owner is None), None)
        return when is not None and self.loop.fire(None, when)

    # -- sleeping -----------------------------------------------------------------------------------------------

    async def put_to_sleep(self, process: _Chosen, seconds: float) -> None:
        """Let a process sleep until its turn comes."""
        number = self._sleeps[process.name] = self._sleeps.get(process.name, 0) + 1
        future: asyncio.Future[None] = self.loop.create_future()
        self._sleeping[f"{process.name} sleeps {number}"] = process, seconds, future, self.steps
        await future

    def _number(self, identifier: str) -> int:
        return int(identifier.rpartition(" ")[2])

    def _wakes_at_once(self, identifier: str) -> bool:
        return self._number(identifier) <= self.bounds.wakes

    def _wake(self, identifier: str, late: float = 0.0) -> None:
        process, seconds, future, _ = self._sleeping.pop(identifier)
        process.clock += seconds + late
        if not future.done():
            future.get_loop().call_soon(_end_sleep, future, context=self._answers)

    def _nap(self, identifier: str) -> Pending:
        process, _, _, birth = self._sleeping[identifier]
        outcomes = (EFFECT, OVERSLEPT)
        return Pending(identifier, birth, process.name, Footprint(process.name), outcomes, identifier)

    @property
    def over(self) -> bool:
        """Whether nothing can happen any more; ask after `settle` has returned nothing."""
        return not self._pending and not self._sleeping and self.loop.next_timer() is None

    @property
    def unfinished(self) -> list[str]:
        """Names of the processes that are alive and have not ended."""
        return [name for name, each in self.world.processes.items() if each.alive and not each.done]

    def footprint(self, request: Request, thread: str) -> Footprint:
        """Return what a request would touch if it took effect now."""
        if request.operation == "list":
            prefix, after = request.args
            return Footprint(thread, listed=(prefix, after))
        if request.operation == "delete":
            return Footprint(thread, written=tuple(request.args[0]))
        if request.operation == "put" or (
            request.operation in CHANGING and request.key not in self.world.bucket.objects
        ):
            return Footprint(thread, written=(request.key,))
        return Footprint(thread, read=(request.key,))

    def _describe(self, identifier: str) -> Pending:
        request, birth = self._pending[identifier]
        process = request.sender.name
        thread = identifier if identifier.endswith(_LATE) else process
        outcomes = [EFFECT]
        if thread == process:
            if self.failures < self.bounds.failures and request.operation in CHANGING:
                outcomes += [UNACKNOWLEDGED, LOST, LATE]
            if self.repetitions < self.bounds.repetitions and request.operation in CONDITIONAL:
                outcomes.append(REFUSED)
            if self.crashes < self.bounds.crashes:
                outcomes.append(CRASH)
        text = f"{process}: {request.operation} {request.key}"
        return Pending(identifier, birth, process, self.footprint(request, thread), tuple(outcomes), text)

    def perform(self, choice: Choice) -> Footprint | None:
        """Make a step; returns what it touched, None for a barrier."""
        identifier, outcome = choice
        self.steps += 1
        if identifier == BARRIER:
            self._let_time_pass()
            return None
        if identifier in self._sleeping:
            name = self._sleeping[identifier][0].name
            self._wake(identifier, _HOUR if outcome == OVERSLEPT else 0.0)
            return Footprint(name)
        request, _ = self._pending[identifier]
        process = request.sender.name
        thread = identifier if identifier.endswith(_LATE) else process
        if outcome == CRASH:
            self._crash(process)
            return Footprint(process, dies=True)
        del self._pending[identifier]
        if outcome in (LOST, LATE):
            self.failures += 1
            if outcome == LATE:
                self._pending[identifier + _LATE] = request, self.steps
            self._tell(request, request.fail, StorageError(f"no answer to {request.operation} of {request.key!r}"))
            return Footprint(process)
        touched = self.footprint(request, thread)
        effect = request.take_effect()
        self.world.trace.note(
            self.loop.time(), process, request.operation, request.key, ", ".join(filter(None, (effect, outcome)))
        )
        if outcome == UNACKNOWLEDGED:
            self.failures += 1
            self._tell(request, request.fail, StorageError(f"no answer to {request.operation} of {request.key!r}"))
        elif thread == process:
            if outcome == REFUSED:
                self.repetitions += 1
                request.value = "exists"
            self._tell(request, request.answer)
        return touched

    def _let_time_pass(self) -> None:
        """Wake whoever has slept least often, as nothing else can happen; without any, the earliest timer fires."""
        if self._sleeping:
            self._wake(min(self._sleeping, key=lambda i: (self._number(i), i)))
        else:
            owner, when = self.loop.timers()[0]
            self.loop.fire(owner, when)

    def _tell(self, request: Request, callback: Callable[..., None], *args: Any) -> None:
        sender = request.sender
        assert isinstance(sender, _Chosen)
        sender.clock += _TICK
        self.loop.call_soon(callback, *args, context=self._answers)

    def _crash(self, name: str) -> None:
        """Let a process die; what it has on its way is lost, as what arrives later had better arrive before."""
        self.crashes += 1
        for identifier in [i for i, (r, _) in self._pending.items() if r.sender.name == name and not i.endswith(_LATE)]:
            del self._pending[identifier]
        for identifier in [i for i, (process, *_) in self._sleeping.items() if process.name == name]:
            del self._sleeping[identifier]
        process = next(each for each in self.world.processes.values() if each.name == name)
        process.crash(0.0 if self.configuration.restarts else None)


def _end_sleep(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_TICK, _HOUR = 0.001, 3600.0
_NAMES = "abcdefgh"
_LATE = "~"
_PREPARING, _FIRST = "preparing", "first"
