"""The limit of requests in flight: it follows what a service takes, and costs nothing where nothing throttles."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from arraystore.simulation.loop import SimulatedLoop
from arraystore.storage import ObstoreStorage, StorageConcurrencySettings, StorageRetriesSettings, s3_storage
from arraystore.storage.request_limit import Outcome, RequestLimit
from tests.seams import client_of
from tests.storage.test_retries import QUICK, SLOW_DOWN, ScriptedServer, server

__all__ = ["server"]

T = TypeVar("T")
LATENCY = 0.025


class Service:
    """Answers after a while, in virtual time, but at once and with a refusal beyond what it has room for."""

    def __init__(self, loop: SimulatedLoop, limit: RequestLimit, room: float = float("inf")) -> None:
        self.loop, self.limit, self.room = loop, limit, room
        self.latency = LATENCY
        self.chance: random.Random | None = None
        self.in_flight = self.most = self.served = self.refused = 0

    async def request(self) -> bool:
        """Send one request; returns whether it was answered."""
        sent = await self.limit.enter()
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        accepted = self.served < self.room and (self.chance is None or self.chance.random() >= 0.003)
        self.served += accepted
        self.refused += not accepted
        await asyncio.sleep(self.latency if accepted else self.latency / 5)
        self.served -= accepted
        self.in_flight -= 1
        self.limit.leave(sent, Outcome.ANSWERED if accepted else Outcome.THROTTLED)
        return accepted

    async def work(self, requests: int, *, backoff: float = 0.1, seed: int = 0) -> float:
        """Send requests, all at once, again until each was answered; returns the seconds that took."""
        rng = random.Random(seed)

        async def one() -> None:
            accepted = await self.request()
            while not accepted:
                await asyncio.sleep(rng.uniform(backoff / 10, backoff))
                accepted = await self.request()

        started = self.loop.time()
        await asyncio.gather(*[one() for _ in range(requests)])
        return self.loop.time() - started


async def at_once(service: Service, requests: int) -> None:
    """Send requests together, once each."""
    await asyncio.gather(*[service.request() for _ in range(requests)])


def limit_on(loop: SimulatedLoop, most: int = 256, least: int = 4, slow: float = 30.0) -> RequestLimit:
    settings = StorageConcurrencySettings(max_requests=most, min_requests=least)
    return RequestLimit(settings, slow, loop.time)


def test_where_nothing_throttles_the_maximum_is_in_flight_from_the_first_request_on(loop: SimulatedLoop) -> None:
    service = Service(loop, limit_on(loop))
    assert loop.run_until_complete(service.work(2560)) == pytest.approx(10 * LATENCY)
    assert service.most == 256
    assert service.limit.limit == 256
    assert service.limit.in_flight == 0


def test_the_limit_settles_at_what_a_throttling_service_takes(loop: SimulatedLoop) -> None:
    service = Service(loop, limit_on(loop), room=40)
    loop.run_until_complete(service.work(600))
    assert service.limit.limit < 42
    service.refused = service.most = 0
    seconds = loop.run_until_complete(service.work(6000))
    assert service.most < 42
    assert service.refused <= 0.03 * 6000
    assert seconds <= 1.5 * 6000 / 40 * LATENCY  # the saw tooth lies between a half and the whole of what fits


def test_a_fixed_limit_beyond_what_a_service_takes_costs_many_more_refusals(loop: SimulatedLoop) -> None:
    adaptive = Service(loop, limit_on(loop), room=40)
    fixed = Service(loop, limit_on(loop, least=256), room=40)
    loop.run_until_complete(adaptive.work(1000))
    loop.run_until_complete(fixed.work(1000))
    assert fixed.most == 256
    assert fixed.refused > 5 * adaptive.refused


@pytest.mark.thorough
def test_a_few_requests_in_a_thousand_that_are_refused_by_chance_do_not_lower_the_limit(loop: SimulatedLoop) -> None:
    service = Service(loop, limit_on(loop))
    service.chance = random.Random(3)
    loop.run_until_complete(service.work(20_000))
    assert service.refused > 40
    assert service.limit.limit == service.most == 256


def test_requests_in_flight_together_halve_the_limit_once(loop: SimulatedLoop) -> None:
    limit = limit_on(loop)

    async def refused(count: int) -> None:
        sent = [await limit.enter() for _ in range(count)]
        await asyncio.sleep(LATENCY)
        for each in sent:
            limit.leave(each, Outcome.THROTTLED)

    loop.run_until_complete(refused(100))
    assert 45 <= limit.limit <= 50  # half of those in flight: a half of 256 would be no help
    loop.run_until_complete(refused(45))
    assert 20 <= limit.limit <= 23


def test_the_limit_recovers_by_one_for_each_round_up_to_the_maximum(loop: SimulatedLoop) -> None:
    service = Service(loop, limit_on(loop, most=20), room=0)
    loop.run_until_complete(at_once(service, 20))
    assert service.limit.limit == 10
    service.room = 100
    loop.run_until_complete(service.work(10))
    assert 10.9 < service.limit.limit <= 11
    loop.run_until_complete(service.work(1000))
    assert service.limit.limit == 20


def test_however_much_a_service_throttles_the_minimum_is_let_through(loop: SimulatedLoop) -> None:
    service = Service(loop, limit_on(loop, least=3), room=0)
    for _ in range(20):
        loop.run_until_complete(at_once(service, 10))
    assert service.limit.limit == 3


def test_answers_that_come_close_to_their_timeout_lower_the_limit(loop: SimulatedLoop) -> None:
    service = Service(loop, limit_on(loop, most=64, slow=1.0))
    service.latency = 1.5
    loop.run_until_complete(service.work(64))
    assert 30 <= service.limit.limit <= 32


def test_a_cancelled_request_gives_its_slot_back_whether_it_was_sent_or_waits(loop: SimulatedLoop) -> None:
    limit = limit_on(loop, most=2)

    async def hold() -> None:
        sent = await limit.enter()
        try:
            await asyncio.sleep(1)
        finally:
            limit.leave(sent, Outcome.UNKNOWN)

    async def run() -> None:
        tasks = [asyncio.ensure_future(hold()) for _ in range(6)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()  # sent
        tasks[2].cancel()  # waits, and is next
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [True, False, True, False, False, False]

    loop.run_until_complete(run())
    assert limit.in_flight == 0


def test_a_request_cancelled_at_the_moment_it_gets_its_slot_gives_it_back(loop: SimulatedLoop) -> None:
    limit = limit_on(loop, most=1)

    async def run() -> None:
        sent = await limit.enter()
        waits = asyncio.ensure_future(limit.enter())
        await asyncio.sleep(0)
        limit.leave(sent)  # hands the slot over
        waits.cancel()  # before the task learns of it
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert limit.in_flight == 0

    loop.run_until_complete(run())


def in_thread(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on an event loop of its own."""
    done: Future[T] = Future()
    threading.Thread(target=lambda: done.set_result(asyncio.run(work))).start()
    return done


def test_threads_and_event_loops_share_one_limit() -> None:
    limit = RequestLimit(StorageConcurrencySettings(max_requests=3), 30.0)
    lock, release = threading.Lock(), threading.Event()
    counts = {"now": 0, "most": 0, "done": 0}

    def count(step: int) -> None:
        with lock:
            counts["now"] += step
            counts["most"] = max(counts["most"], counts["now"])
            counts["done"] += step < 0
            if counts["now"] == 3:
                release.set()  # nobody goes on before as many are in flight as may be

    def synchronous() -> None:
        for _ in range(50):
            sent = limit.enter_sync()
            count(1)
            release.wait(10)
            count(-1)
            limit.leave(sent)

    async def one() -> None:
        sent = await limit.enter()
        count(1)
        await asyncio.to_thread(release.wait, 10)
        count(-1)
        limit.leave(sent)

    async def many() -> None:
        await asyncio.gather(*[one() for _ in range(50)])

    threads = [threading.Thread(target=synchronous) for _ in range(3)]
    for thread in threads:
        thread.start()
    for loop_done in [in_thread(many()), in_thread(many())]:
        loop_done.result(30)
    for thread in threads:
        thread.join(30)
    assert counts == {"now": 0, "most": 3, "done": 250}
    assert limit.in_flight == 0


def test_a_thread_that_runs_an_event_loop_never_waits_for_the_tasks_of_that_loop() -> None:
    limit = RequestLimit(StorageConcurrencySettings(max_requests=1), 30.0)

    async def run() -> None:
        sent = await limit.enter()
        limit.leave(limit.enter_sync())  # would wait forever: the slot is this very task's
        limit.leave(sent)

    asyncio.run(asyncio.wait_for(run(), 10))
    assert limit.in_flight == 0


def test_a_request_that_can_be_left_out_takes_a_free_slot_or_none(loop: SimulatedLoop) -> None:
    limit = limit_on(loop, most=4, least=1)
    assert [limit.try_enter() for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, None]
    limit.leave(0.0)
    assert limit.try_enter() == 0.0
    for outcome in (Outcome.THROTTLED, *[Outcome.UNKNOWN] * 3):
        limit.leave(0.0, outcome)
    assert limit.in_flight == 0
    assert limit.try_enter() is None, "the service throttles"


def storage_on(server: ScriptedServer, most: int, retries: StorageRetriesSettings = QUICK.retries) -> ObstoreStorage:
    return s3_storage(
        bucket="b",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        allow_http=True,
        anonymous=True,
        settings=replace(QUICK, retries=retries, concurrency=StorageConcurrencySettings(max_requests=most)),
    )


def test_requests_in_flight_are_bounded(server: ScriptedServer) -> None:
    storage = storage_on(server, 3)
    server.objects["/b/a"] = b"x"
    limit = client_of(storage).limit
    most = 0

    async def run() -> None:
        nonlocal most
        tasks = [asyncio.ensure_future(storage.get("a")) for _ in range(20)]
        while not all(task.done() for task in tasks):
            most = max(most, limit.in_flight)
            await asyncio.sleep(0)
        assert [bytes(task.result()) for task in tasks] == [b"x"] * 20

    asyncio.run(run())
    assert most == 3


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_throttled_request_lowers_the_limit_and_is_sent_again(server: ScriptedServer, method: str) -> None:
    storage = storage_on(server, 16)
    server.objects["/b/a"] = b"x"
    server.script[method] = [SLOW_DOWN]
    limit = client_of(storage).limit
    if method == "GET":
        assert bytes(await storage.get("a")) == b"x"
    else:
        assert await storage.put_if_absent("new", b"x")
    assert server.requests == [method, method]
    assert 4 <= limit.limit < 5  # one request was in flight, so the limit went to the minimum
    assert limit.in_flight == 0


def test_what_is_sent_again_goes_before_what_was_never_sent(loop: SimulatedLoop) -> None:
    limit = limit_on(loop, most=1)
    order: list[str] = []

    async def send(name: str, *, first: bool = False) -> None:
        sent = await limit.enter(first=first)
        order.append(name)
        await asyncio.sleep(LATENCY)
        limit.leave(sent)

    async def run() -> None:
        await asyncio.gather(send("a"), send("b"), send("c"), send("again", first=True))

    loop.run_until_complete(run())
    assert order == ["a", "again", "b", "c"]


async def test_the_time_that_a_request_waits_for_its_slot_takes_nothing_from_its_retries(
    server: ScriptedServer,
) -> None:
    storage = storage_on(server, 1, replace(QUICK.retries, total=0.2))
    server.objects["/b/a"] = b"x"
    server.script["GET"] = [SLOW_DOWN]
    limit = client_of(storage).limit
    sent = limit.try_enter()
    assert sent is not None
    read = asyncio.ensure_future(storage.get("a"))
    await asyncio.sleep(0.3)  # longer than retries may take altogether
    limit.leave(sent)
    assert bytes(await read) == b"x"


async def test_errors_other_than_throttling_leave_the_limit_alone(server: ScriptedServer) -> None:
    storage = storage_on(server, 16)
    server.objects["/b/a"] = b"x"
    server.script["GET"] = [(500, b""), (502, b"")]
    assert bytes(await storage.get("a")) == b"x"
    assert client_of(storage).limit.limit == 16
