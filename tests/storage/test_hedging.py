"""Hedged reads: late ones are sent twice, within a budget, and the first answer wins."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from arraystore.errors import InvalidInputError, StorageError
from arraystore.simulation.loop import SimulatedLoop
from arraystore.storage import (
    ObstoreStorage,
    StorageConcurrencySettings,
    StorageHedgingSettings,
    StorageSettings,
    s3_storage,
)
from arraystore.storage.bucket_client import BucketClient
from arraystore.storage.hedging import first_answer
from tests.seams import client_of
from tests.storage.test_retries import HANG, QUICK, ScriptedServer, server
from tests.tiers import mostly_thorough

__all__ = ["server"]

USUAL = 0.02
SIZE = 1000


class Service:
    """Answers reads after given times, in virtual time: the next of a list, and the usual one after its end."""

    def __init__(self, loop: SimulatedLoop, hedging: StorageHedgingSettings | None = None, most: int = 256) -> None:
        settings = StorageSettings(
            hedging=hedging or StorageHedgingSettings(budget=0.02, multiple=3.0, minimum_delay=0.001),
            concurrency=StorageConcurrencySettings(max_requests=most, min_requests=1),
        )
        storage = s3_storage(bucket="b", region="us-east-1", anonymous=True, settings=settings)
        self.loop = loop
        self.client = BucketClient(storage.config, loop.time)
        self.answers: list[float] = []
        self.durations: Callable[[], float] = lambda: USUAL
        self.sent = self.cancelled = 0

    async def request(self, _: BucketClient) -> int:
        """Answer with the number of the request."""
        self.sent += 1
        number = self.sent
        answer = self.answers.pop(0) if self.answers else self.durations()
        try:
            await asyncio.sleep(answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return number

    def run(self, work: Awaitable[int]) -> int:
        """Run a read; returns the number of the request that was answered."""
        return self.loop.run_until_complete(work)

    def read(self, size: int | None = SIZE) -> int:
        return self.run(self.client.read(self.request, size=size))

    def train(self, reads: int = 100, size: int | None = SIZE) -> None:
        """Send reads that take the usual time."""
        for _ in range(reads):
            self.read(size)
        self.sent = 0


def test_a_late_read_is_sent_again_and_the_first_answer_wins(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    service.answers = [10.0]
    started = loop.time()
    assert service.read() == 2
    assert loop.time() - started == pytest.approx(3 * USUAL + USUAL)
    loop.run_for(1)
    assert (service.sent, service.cancelled) == (2, 1)
    assert service.client.limit.in_flight == 0


def test_the_first_request_wins_if_its_answer_comes_first_after_all(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    service.answers = [3.5 * USUAL]
    assert service.read() == 1
    loop.run_for(1)
    assert (service.sent, service.cancelled) == (2, 1)
    assert service.client.limit.in_flight == 0


def test_nothing_is_late_before_enough_was_read(loop: SimulatedLoop) -> None:
    service = Service(loop, StorageHedgingSettings(budget=1.0))
    service.train(20)
    service.answers = [10.0]
    assert service.read() == 1


def test_no_read_is_late_before_the_minimum(loop: SimulatedLoop) -> None:
    service = Service(loop, StorageHedgingSettings(budget=1.0, minimum_delay=1.0))
    service.train()
    service.answers = [0.9]
    assert service.read() == 1
    assert service.sent == 1


def test_what_is_late_depends_on_the_size(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    service.durations = lambda: 50 * USUAL
    service.train(size=1_000_000)
    assert service.read(1_500_000) == 1
    assert service.sent == 1  # as all reads of its size
    assert service.read(None) == 2
    assert service.sent == 2  # nothing is known of whole objects
    service.durations = lambda: USUAL
    service.answers = [50 * USUAL]
    assert service.read() == 4  # late for one of a thousand bytes


def test_no_more_reads_are_sent_twice_than_the_budget_allows(loop: SimulatedLoop) -> None:
    service = Service(loop)
    rng = random.Random(1)
    service.durations = lambda: 100 * USUAL if rng.random() < 0.04 else USUAL  # twice what the budget is for
    for _ in range(5000):
        service.read()
    assert 0.015 * 5000 < service.sent - 5000 <= 0.02 * 5000


def test_a_standstill_of_the_service_does_not_double_the_requests(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train(1000)
    service.answers = [10.0] * 200

    async def many() -> int:
        await asyncio.gather(*[service.client.read(service.request, size=SIZE) for _ in range(100)])
        return service.sent

    assert service.run(many()) <= 104


def test_the_tail_is_cut_where_requests_get_lost_now_and_then(loop: SimulatedLoop) -> None:
    def slowest_of(budget: float) -> float:
        service = Service(loop, StorageHedgingSettings(budget=budget))
        rng = random.Random(7)
        service.durations = lambda: 2.0 if rng.random() < 0.005 else USUAL * rng.lognormvariate(0, 0.4)
        service.train(200)
        times = []
        for _ in range(2000):
            started = loop.time()
            service.read()
            times.append(loop.time() - started)
        return sorted(times)[int(0.999 * len(times))]

    assert slowest_of(0) >= 2.0
    assert slowest_of(0.02) < 0.5


def test_a_budget_of_nothing_sends_nothing_twice(loop: SimulatedLoop) -> None:
    service = Service(loop, StorageHedgingSettings(budget=0))
    service.train(300)
    service.answers = [10.0]
    assert service.read() == 1
    assert service.sent == 1


def test_nothing_is_sent_twice_while_the_service_throttles(loop: SimulatedLoop) -> None:
    service = Service(loop, most=16)
    service.train()
    service.client.limit._adapt(loop.time(), throttled=True)
    service.answers = [10.0]
    assert service.read() == 1
    assert service.sent == 1


def test_nothing_is_sent_twice_while_all_slots_are_taken(loop: SimulatedLoop) -> None:
    service = Service(loop, most=1)
    service.train()
    service.answers = [10.0]
    assert service.read() == 1
    assert service.sent == 1


async def read_with(service: Service, *steps: tuple[float, str]) -> str:
    """Send a read whose requests fail after their times, those with a question mark, or are answered."""
    left = list(steps)

    async def request(_: BucketClient) -> str:
        seconds, answer = left.pop(0)
        await asyncio.sleep(seconds)
        if answer.endswith("?"):
            raise ValueError(answer)
        return answer

    try:
        return await service.client.read(request, size=SIZE)
    finally:
        assert left == []
        await asyncio.sleep(0.1)
        assert service.client.limit.in_flight == 0


@pytest.mark.parametrize(
    "steps", [((4 * USUAL, "first?"), (2 * USUAL, "second")), ((6 * USUAL, "first"), (0.5 * USUAL, "second?"))]
)
def test_an_error_of_one_request_gives_way_to_the_answer_of_the_other(
    loop: SimulatedLoop, steps: tuple[tuple[float, str], ...]
) -> None:
    service = Service(loop)
    service.train()
    expected = next(answer for _, answer in steps if not answer.endswith("?"))
    assert loop.run_until_complete(read_with(service, *steps)) == expected


@pytest.mark.parametrize("second", [0.5 * USUAL, 2 * USUAL])
def test_if_both_requests_fail_the_error_is_that_of_the_first(loop: SimulatedLoop, second: float) -> None:
    service = Service(loop)
    service.train()
    with pytest.raises(ValueError, match="first"):
        loop.run_until_complete(read_with(service, (4 * USUAL, "first?"), (second, "second?")))


def test_a_read_that_fails_in_time_is_not_sent_again(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    with pytest.raises(ValueError, match="first"):
        loop.run_until_complete(read_with(service, (USUAL, "first?")))


def test_a_cancelled_read_cancels_both_requests(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    service.answers = [10.0, 10.0]

    async def run() -> None:
        task = asyncio.ensure_future(service.client.read(service.request, size=SIZE))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)

    loop.run_until_complete(run())
    assert (service.sent, service.cancelled) == (2, 2)
    assert service.client.limit.in_flight == 0


def test_a_second_request_that_is_cancelled_before_it_starts_gives_its_slot_back(loop: SimulatedLoop) -> None:
    service = Service(loop, StorageHedgingSettings(budget=1.0))
    service.train()

    async def run() -> None:
        second = service.client._start_again(service.request)
        assert second is not None
        assert service.client.limit.in_flight == 1
        second.cancel()
        await asyncio.sleep(0.1)

    loop.run_until_complete(run())
    assert (service.sent, service.client.limit.in_flight) == (0, 0)


def test_a_task_goes_on_after_a_read_that_was_answered_by_the_second_request(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    service.answers = [10.0]

    async def run() -> int:
        answer = await service.client.read(service.request, size=SIZE)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        await asyncio.sleep(1)
        return answer + await service.client.read(service.request, size=SIZE)

    assert loop.run_until_complete(run()) == 2 + 3


@pytest.mark.parametrize("before", [0.0, 1e-9])
def test_a_read_that_is_cancelled_as_the_second_answer_comes_is_cancelled(loop: SimulatedLoop, before: float) -> None:
    service = Service(loop)
    service.train()
    service.answers = [10.0]

    async def run() -> None:
        task = asyncio.ensure_future(service.client.read(service.request, size=SIZE))
        loop.call_at(loop.time() + 4 * USUAL - before, task.cancel)
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.sleep(0.1)

    loop.run_until_complete(run())
    assert (service.sent, service.client.limit.in_flight) == (2, 0)


def test_a_time_limit_that_ends_as_the_second_answer_comes_is_a_timeout(loop: SimulatedLoop) -> None:
    service = Service(loop)
    service.train()
    service.answers = [10.0]

    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4 * USUAL):
                await service.client.read(service.request, size=SIZE)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        await asyncio.sleep(0.1)

    loop.run_until_complete(run())
    assert service.client.limit.in_flight == 0


@pytest.mark.parametrize("settings", [{"budget": -0.1}, {"budget": 1.1}, {"multiple": 0}, {"minimum_delay": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        StorageHedgingSettings(**settings)


# -- through a storage ------------------------------------------------------------------------------------------------


@pytest.fixture
def storage(server: ScriptedServer) -> ObstoreStorage:
    server.objects["/b/a"] = b"0123456789"
    return s3_storage(
        bucket="b",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        allow_http=True,
        anonymous=True,
        settings=replace(QUICK, hedging=StorageHedgingSettings(budget=0.1, minimum_delay=0.2)),
    )


async def test_a_read_that_hangs_is_answered_by_a_second_one(server: ScriptedServer, storage: ObstoreStorage) -> None:
    for _ in range(48):
        await storage.get("a")
    server.requests.clear()
    server.script["GET"] = [HANG]
    assert bytes(await storage.get("a")) == b"0123456789"
    assert server.requests == ["GET", "GET"]


@pytest.mark.parametrize("hang", mostly_thorough(["put_if_absent", "put", "put_new", "delete"]))
async def test_a_write_is_never_sent_twice_for_being_late(
    server: ScriptedServer, storage: ObstoreStorage, hang: str
) -> None:
    for _ in range(48):
        await storage.get("a")
    sent_twice: list[object] = []
    client_of(storage)._start_again = sent_twice.append  # type: ignore[assignment, method-assign]
    server.script = {"PUT": [HANG], "POST": [HANG]}
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "put": lambda: storage.put("b", b"1"),
        "put_if_absent": lambda: storage.put_if_absent("b", b"1"),
        "put_new": lambda: storage.put_new("b", b"1"),
        "delete": lambda: storage.delete(["b"]),
    }
    await calls[hang]()
    assert sent_twice == []


async def test_two_answers_at_one_moment_interrupt_nothing_that_comes_after_them() -> None:
    loop = asyncio.get_running_loop()
    first: asyncio.Future[str] = loop.create_future()
    second: asyncio.Future[str] = loop.create_future()

    def both() -> None:
        first.set_result("first")  # which wakes the task, before the callback of the other one runs
        second.set_result("second")

    loop.call_later(0.02, both)
    assert await first_answer(first, 0.001, lambda: second) == "first"
    await asyncio.sleep(0.01)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_first_request_that_fails_when_it_is_interrupted_leaves_no_cancellation_behind() -> None:
    loop = asyncio.get_running_loop()
    second: asyncio.Future[str] = loop.create_future()

    async def first() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise StorageError("broken off") from None
        raise AssertionError

    loop.call_later(0.02, second.set_result, "second")
    assert await first_answer(first(), 0.001, lambda: second) == "second"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_first_request_that_answers_although_it_is_interrupted_leaves_no_cancellation_behind() -> None:
    loop = asyncio.get_running_loop()
    second: asyncio.Future[str] = loop.create_future()

    async def first() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        return "first"

    loop.call_later(0.02, second.set_result, "second")
    assert await first_answer(first(), 0.001, lambda: second) == "first"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
