"""An event loop whose time is virtual and whose order is always the same.

Nothing is waited for: when no callback is ready, time jumps to the next timer.  Callbacks run in the order in which
they were scheduled.  Every callback belongs to the `Owner` in whose context it was scheduled: those of a paused owner
are kept until it resumes, those of a dead one never run, not even its ``finally`` blocks.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import threading
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["OWNER", "DeadlockError", "Handle", "HorizonError", "Owner", "SimulatedLoop", "SimulationError"]

T = TypeVar("T")

RUNNING, PAUSED, DEAD = 0, 1, 2


class SimulationError(RuntimeError):
    """A simulation cannot go on."""


class DeadlockError(SimulationError):
    """No callback is ready or timed, and a task still waits."""


class HorizonError(SimulationError):
    """Somebody still waits at the time, or after the number of steps, by which everything should have ended."""


class Owner:
    """Whoever callbacks belong to: one life of one simulated process, with a name for messages."""

    __slots__ = ("held", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = RUNNING
        self.held: list[Handle] = []

    def __repr__(self) -> str:
        return f"<Owner {self.name} {('running', 'paused', 'dead')[self.state]}>"


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("arraystore_simulated_owner", default=None)
"""To whom callbacks that are scheduled in this context belong."""


class Handle(asyncio.TimerHandle):
    """A callback that is scheduled."""

    __slots__ = ("args", "at", "callback", "context", "dead", "owner")

    def __init__(  # the base class would keep more than a simulation needs, and takes its time over it
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        owner: Owner | None,
        at: float,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.owner = owner
        self.at = at
        self.dead = False

    def __repr__(self) -> str:
        return f"<Handle {self.callback!r} at {self.at:.6f}>"

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def cancel(self) -> None:
        """Never run this."""
        self.dead = True
        self.callback = _nothing
        self.args = ()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self.dead

    def when(self) -> float:
        """Return the time at which it is due."""
        return self.at

    def get_context(self) -> contextvars.Context:
        """Return the context in which it runs."""
        return self.context if self.context is not None else contextvars.Context()


def _nothing(*_: object) -> None:
    """Stand in for the callback of a cancelled handle."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs everything in one thread, in virtual time.

    Attributes
    ----------
    steps
        Count of callbacks that have run.
    complaints
        Calls of asyncio to the exception handler: errors that were never retrieved.
    """

    def __init__(self) -> None:
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._now = 0.0
        self._thread = threading.get_ident()
        self._running = False
        self._stopping = False
        self._closed = False
        self.steps = 0
        self.complaints: list[dict[str, Any]] = []
        self._graveyard: list[asyncio.Task[Any]] = []

    # -- running ------------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop` is called, or nothing is left to run.

        Raises
        ------
        DeadlockError
            If nothing is left.
        """
        self._run(float("inf"), None)
        if not self._stopping:
            raise DeadlockError(f"nothing is left to run at {self._now:.3f} s, and nobody has said that it is over")

    def run_until_complete(
        self,
        future: Generator[Any, None, T] | Awaitable[T],
        *,
        until: float = float("inf"),
        most_steps: int | None = None,
    ) -> T:
        """Run until a future is done.

        Parameters
        ----------
        future
            A future or a coroutine.
        until
            Virtual time by which it has to be done.
        most_steps
            Callbacks after which it has to be done, so that a loop that takes no time comes to an end too.

        Raises
        ------
        DeadlockError
            If nothing is left to run before it is done.
        HorizonError
            If it is not done by then.
        """
        waited: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        waited.add_done_callback(self._stop_for)
        self._run(until, most_steps)
        if waited.done():
            return waited.result()
        what = f"{waited!r} is not done at {self._now:.3f} s, after {self.steps} steps"
        if self._ready or self._timers:
            raise HorizonError(what)
        raise DeadlockError(f"{what}, and nothing is left to run")

    def _stop_for(self, _: asyncio.Future[Any]) -> None:
        self._stopping = True

    def run_ready(self) -> int:
        """Run what is ready now and what becomes ready by that, without letting time pass; returns how many steps."""
        before = self.steps
        self._run(self._now, None, timers=False)
        return self.steps - before

    def run_for(self, seconds: float) -> None:
        """Run what is due within some time from now, and let that time pass."""
        until = self._now + seconds
        self._run(until, None)
        if not self._stopping:
            self._now = max(self._now, until)

    def run_until_idle(self, until: float) -> None:
        """Run until nothing is left, or what is left is due later than that."""
        self._run(until, None)

    def next_timer(self) -> float | None:
        """Return when the next timer is due, None if there is none."""
        timers = self._timers
        while timers and timers[0][2].dead:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def timers(self) -> list[tuple[Owner | None, float]]:
        """Return whose timers are set and when they are due, the earliest first; those of the dead left out."""
        alive = [(at, number, h) for at, number, h in self._timers if not h.dead]
        found = sorted(
            (*item[:2], item[2].owner) for item in alive if item[2].owner is None or item[2].owner.state != DEAD
        )
        return [(owner, at) for at, _, owner in found]

    def fire(self, owner: Owner | None, when: float) -> bool:
        """Make a timer ready, and let time pass to when it is due; False if there is no such timer."""
        for place, (at, _, handle) in enumerate(sorted(self._timers)):
            if at == when and handle.owner is owner and not handle.dead:
                self._timers.sort()
                del self._timers[place]
                self._now = max(self._now, when)
                self._ready.append(handle)
                return True
        return False

    def _run(self, until: float, most_steps: int | None, *, timers: bool = True) -> None:
        if self._closed:
            raise SimulationError("the simulated loop is closed")
        if self._running or events._get_running_loop() is not None:  # pyright: ignore[reportPrivateUsage]
            raise SimulationError("a simulated loop runs by itself, not within another loop")
        self._running = True
        self._stopping = False
        events._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        try:
            self._spin(until, float("inf") if most_steps is None else self.steps + most_steps, timers)
        finally:
            events._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]
            self._running = False

    def _spin(self, until: float, last_step: float, timers: bool) -> None:
        ready, timed = self._ready, self._timers
        while not self._stopping:
            if ready:
                handle = ready.popleft()
            elif timers and timed and timed[0][0] <= until:
                when, _, handle = heapq.heappop(timed)
                if when > self._now and not handle.dead:
                    self._now = when
            else:
                return
            if handle.dead:
                continue
            owner = handle.owner
            if owner is not None and owner.state:
                if owner.state == PAUSED:
                    owner.held.append(handle)
                continue
            if self.steps >= last_step:
                ready.appendleft(handle)
                return
            self.steps += 1
            if handle.context is None:
                handle.callback(*handle.args)
            else:
                handle.context.run(handle.callback, *handle.args)

    def pause(self, owner: Owner) -> None:
        """Keep back what belongs to an owner."""
        if owner.state == RUNNING:
            owner.state = PAUSED

    def resume(self, owner: Owner) -> None:
        """Run what was kept back, in the order in which it was due."""
        if owner.state == PAUSED:
            owner.state = RUNNING
            self._ready.extend(owner.held)
            owner.held = []

    def kill(self, owner: Owner) -> None:
        """Never again run anything that belongs to an owner."""
        owner.state = DEAD
        owner.held = []
        # Were its tasks collected as garbage, their `finally` blocks would run.
        self._graveyard.extend(asyncio.all_tasks(self))

    # -- scheduling ---------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Schedule a callback after those that are ready."""
        if context is None:
            context = contextvars.copy_context()
        handle = Handle(callback, args, context, context.get(OWNER), self._now)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Schedule a callback; from the simulation's own thread, like everything."""
        if threading.get_ident() != self._thread:
            raise SimulationError(
                f"thread {threading.current_thread().name!r} calls into a simulated loop, which has one thread only: "
                "use the asynchronous calls in simulations"
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Schedule a callback after some virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Schedule a callback at a virtual time."""
        if context is None:
            context = contextvars.copy_context()
        return self._push(Handle(callback, args, context, context.get(OWNER), when))

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Schedule a callback that belongs to nobody: what the world does, whoever is paused or dead."""
        return self._push(Handle(callback, args, None, None, when))

    def _push(self, handle: Handle) -> Handle:
        if not self._closed:
            self._count += 1
            heapq.heappush(self._timers, (handle.at, self._count, handle))
        return handle

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Start a coroutine."""
        return asyncio.Task(coro, loop=self, name=name, context=context, **options)  # type: ignore[arg-type]

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call a function, at once and here: there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is its caller's
            future.set_exception(error)
        return future

    # -- the rest of a loop -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Return from `run_forever` after the callback that runs now."""
        self._stopping = True

    def is_running(self) -> bool:
        """Tell whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Tell whether it is closed."""
        return self._closed

    def close(self) -> None:
        """Drop everything that is scheduled, and unwind what has not ended; that can have no effect any more."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            coroutine = task.get_coro()
            if coroutine is not None:
                _unwind(coroutine)
        self._graveyard.clear()

    def get_debug(self) -> bool:
        """Return False: handles keep no tracebacks."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing."""

    def get_task_factory(self) -> None:
        """Return None: tasks are asyncio's own."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep a complaint for checks."""
        if not self._closed:
            self.complaints.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep a complaint."""
        self.call_exception_handler(context)

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: asynchronous generators are not tracked."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
        """Do nothing: there is no executor."""


def _unwind(coroutine: Any) -> None:
    """Close a coroutine, so that nothing is left for the garbage collector to say.

    What its ``except`` and ``finally`` blocks do then is not part of the simulation, which is over: the loop takes
    no more work, and their errors tell nothing.
    """
    for _ in range(100):  # a coroutine may catch even this, and wait again
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - see above
            continue
        return
