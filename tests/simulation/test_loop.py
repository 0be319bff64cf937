"""The simulated loop: virtual time, one order, and code of the dead that never runs."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from arraystore import _runtime
from arraystore.simulation.loop import OWNER, DeadlockError, HorizonError, Owner, SimulatedLoop, SimulationError


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop()
    yield made
    made.close()


def owned(loop: SimulatedLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Owner, asyncio.Task[Any]]:
    """Start a coroutine that belongs to an owner of its own."""
    owner = Owner("somebody")
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return owner, loop.create_task(work(), context=context)


def test_an_hour_passes_at_once(loop: SimulatedLoop) -> None:
    started = time.monotonic()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600
    assert time.monotonic() - started < 10


def test_timers_fire_in_order_of_time_and_then_of_their_making(loop: SimulatedLoop) -> None:
    seen: list[tuple[str, float]] = []

    async def note(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    async def everybody() -> None:
        await asyncio.gather(note("a", 2), note("b", 1), note("c", 2), note("d", 0))

    loop.run_until_complete(everybody())
    assert seen == [("d", 0.0), ("b", 1.0), ("a", 2.0), ("c", 2.0)]


def test_a_future_that_nobody_completes_is_a_deadlock(loop: SimulatedLoop) -> None:
    with pytest.raises(DeadlockError, match="nothing is left to run"):
        loop.run_until_complete(loop.create_future())


def test_what_takes_too_long_is_told_from_a_deadlock(loop: SimulatedLoop) -> None:
    with pytest.raises(HorizonError):
        loop.run_until_complete(asyncio.sleep(11), until=10)


def test_a_loop_that_takes_no_time_ends_too(loop: SimulatedLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - it waits for nothing
            await asyncio.sleep(0)

    with pytest.raises(HorizonError):
        loop.run_until_complete(spin(), most_steps=1000)
    assert loop.steps == 1000


def test_timeouts_are_virtual_and_cancel(loop: SimulatedLoop) -> None:
    async def late() -> str:
        try:
            await asyncio.wait_for(asyncio.sleep(5), 2)
        except TimeoutError:
            return "too late"
        return "in time"

    assert loop.run_until_complete(late()) == "too late"
    assert loop.time() == 2


def test_a_paused_owner_does_nothing_until_it_resumes_and_then_goes_on_in_order(loop: SimulatedLoop) -> None:
    seen: list[tuple[int, float]] = []

    async def count() -> None:
        for number in range(4):
            await asyncio.sleep(1)
            seen.append((number, loop.time()))

    owner, task = owned(loop, count)
    loop.run_for(1.5)
    loop.pause(owner)
    loop.run_for(10)
    assert seen == [(0, 1.0)]
    loop.resume(owner)
    loop.run_until_complete(task)
    assert seen == [(0, 1.0), (1, 11.5), (2, 12.5), (3, 13.5)]


def test_a_dead_owner_never_runs_again_not_even_finally_not_even_as_garbage(loop: SimulatedLoop) -> None:
    seen: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(1)
        except BaseException:
            seen.append("except")
            raise
        finally:
            seen.append("finally")

    async def outer() -> None:
        await asyncio.gather(inner(), asyncio.create_task(inner()))

    owner, task = owned(loop, outer)
    loop.run_for(0.5)
    loop.kill(owner)
    del task
    gc.collect()
    loop.run_for(10)
    gc.collect()
    assert seen == []
    assert loop.complaints == []


def test_callbacks_of_futures_belong_to_who_waits_not_to_who_completes_them(loop: SimulatedLoop) -> None:
    future = loop.create_future()
    seen: list[str] = []

    async def wait() -> None:
        seen.append(await future)

    owner, _ = owned(loop, wait)
    loop.run_ready()
    loop.pause(owner)
    loop.at(1.0, future.set_result, "answer")
    loop.run_for(5)
    assert seen == []
    loop.resume(owner)
    loop.run_ready()
    assert seen == ["answer"]


def test_executors_run_at_once_in_the_same_thread(loop: SimulatedLoop) -> None:
    async def ask() -> int:
        return await asyncio.to_thread(threading.get_ident)

    async def fail() -> None:
        await asyncio.to_thread(int, "x")

    assert loop.run_until_complete(ask()) == threading.get_ident()
    with pytest.raises(ValueError, match="invalid literal"):
        loop.run_until_complete(fail())


def test_background_work_of_arraystore_runs_on_the_simulated_loop(loop: SimulatedLoop) -> None:
    threads = threading.active_count()

    async def work() -> float:
        await asyncio.sleep(7)
        return loop.time()

    async def wait() -> float:
        submitted: Future[float] = _runtime.submit(work())
        return await asyncio.wrap_future(submitted)

    before = _runtime._loop
    with _runtime.run_on(loop):
        assert loop.run_until_complete(wait()) == 7
    assert _runtime._loop is before
    assert threading.active_count() == threads


def test_a_synchronous_call_within_a_simulation_says_what_to_do(loop: SimulatedLoop) -> None:
    async def wrong() -> None:
        _runtime.run(asyncio.sleep(0))

    with _runtime.run_on(loop), pytest.raises(RuntimeError, match="await its _async twin"):
        loop.run_until_complete(wrong())


def test_other_threads_are_turned_away(loop: SimulatedLoop) -> None:
    found: list[BaseException] = []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except SimulationError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(found) == 1


def test_simulated_loops_do_not_nest(loop: SimulatedLoop) -> None:
    async def inner() -> None:
        SimulatedLoop().run_for(1)

    with pytest.raises(SimulationError, match="not within another loop"):
        loop.run_until_complete(inner())


def test_closing_unwinds_what_is_left_without_a_sound() -> None:
    loop = SimulatedLoop()
    seen: list[str] = []

    async def stubborn(wait: Awaitable[Any]) -> None:
        try:
            await wait
        finally:
            seen.append("closed")
            loop.call_soon(seen.append, "ran after the end")

    task = loop.create_task(stubborn(loop.create_future()))
    loop.run_ready()
    loop.close()
    del task
    gc.collect()
    assert seen == ["closed"]
    with pytest.raises(SimulationError, match="closed"):
        loop.run_for(1)


def test_an_exception_of_a_callback_ends_the_run(loop: SimulatedLoop) -> None:
    loop.call_soon(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        loop.run_ready()
