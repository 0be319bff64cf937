"""Counting, latency and faults: they change what they promise to change and nothing else."""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arraystore.errors import InvalidInputError, ObjectNotFoundError, StorageError
from arraystore.storage import (
    CountingStorage,
    Counts,
    Fault,
    FaultyStorage,
    InjectedFaultError,
    Latency,
    LatencyStorage,
    LocalStorage,
    MemoryStorage,
    Storage,
    WrapperStorage,
    in_memory_storage,
)

METHODS = [
    name
    for name, _ in inspect.getmembers(Storage, inspect.isfunction)
    if not name.startswith("_")
    # A put_if_absent, of which a storage may know more, and puts and a read, of which one may make less work.
    and name not in ("put_new", "put_parts", "put_parts_sync", "put_stream", "get_range_into")
    and name != "forget"  # no request
]


async def use(storage: Storage, operation: str) -> Any:
    """Make one call of an operation, through its synchronous twin where that is named."""
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: storage.get("k/1"),
        "get_ranges": lambda: storage.get_ranges("k/1", [(0, 1), (2, 3)]),
        "put": lambda: storage.put("k/2", b"22"),
        "put_if_absent": lambda: storage.put_if_absent("k/3", b"333"),
        "head": lambda: storage.head("k/1"),
        "delete": lambda: storage.delete(["k/1", "k/none"]),
        "sync": storage.sync,
        "get_source_ranges": lambda: storage.get_source_ranges("k/1", [(0, 1), (2, 3)]),
        "get_source_range_sync": lambda: storage.get_source_range_sync("k/1", 0, 2),
        "get_sync": lambda: storage.get_sync("k/1"),
        "get_range_sync": lambda: storage.get_range_sync("k/1", 0, 2),
        "put_sync": lambda: storage.put_sync("k/2", b"22"),
    }
    if operation == "list":
        return [info.key async for page in storage.list("k/") for info in page]
    result = calls[operation]()
    return await result if inspect.isawaitable(result) else result


def filled() -> MemoryStorage:
    storage = in_memory_storage()
    storage.put_sync("k/1", b"1234")
    return storage


def counted_as(operation: str) -> str:
    ranges = ("get_range_sync", "get_source_ranges", "get_source_range_sync")
    return "get_ranges" if operation in ranges else operation.removesuffix("_sync")


@pytest.mark.parametrize("wrapper", [WrapperStorage, CountingStorage, LatencyStorage, FaultyStorage])
@pytest.mark.parametrize("operation", METHODS)
async def test_a_wrapper_passes_every_method_on_to_the_same_method(
    wrapper: type[WrapperStorage], operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = filled()
    reached: list[str] = []
    original = getattr(inner, operation)

    def spy(*arguments: Any) -> Any:
        reached.append(operation)
        return original(*arguments)

    monkeypatch.setattr(inner, operation, spy)
    expected = await use(filled(), operation)
    assert await use(wrapper(inner), operation) == expected
    assert reached == [operation]


@pytest.mark.parametrize("wrapper", [WrapperStorage, CountingStorage, LatencyStorage, FaultyStorage])
def test_a_wrapper_tells_place_and_probes_of_what_it_wraps(wrapper: type[WrapperStorage], tmp_path: Path) -> None:
    inner = LocalStorage(tmp_path)
    storage = wrapper(inner)
    assert (storage.location, storage.cheap_probes, storage.inner) == (inner.location, True, inner)
    assert pickle.loads(pickle.dumps(storage)).location == inner.location
    assert repr(inner) in repr(storage)


def test_counts_of_storages_add_up() -> None:
    one, other = Counts({"get": 2, "list": 1}, 10, 1), Counts({"get": 1, "put": 4}, 5, 7)
    assert one + other == Counts({"get": 3, "list": 1, "put": 4}, 15, 8)
    assert (one + other) - other == one
    assert sum([one, other], Counts()) == one + other


@pytest.mark.parametrize("operation", METHODS)
async def test_each_call_counts_once(operation: str) -> None:
    storage = CountingStorage(filled())
    await use(storage, operation)
    assert storage.counts.requests == {counted_as(operation): 1}
    assert {name for name, _ in storage.log} == {counted_as(operation)}


def test_a_range_read_into_a_buffer_counts_once() -> None:
    storage = CountingStorage(filled())
    assert bytes(storage.get_range_into("k/1", 1, memoryview(bytearray(2)))) == b"23"
    assert storage.counts.requests == {"get_ranges": 1}


async def test_bytes_and_log_are_kept() -> None:
    storage = CountingStorage(filled())
    await storage.get("k/1")
    storage.get_range_sync("k/1", 0, 2)
    await storage.get_ranges("k/1", [(0, 1), (1, 4)])
    before = storage.counts
    await storage.put("a", b"12345")
    assert not await storage.put_if_absent("a", b"other")
    with pytest.raises(ObjectNotFoundError):
        await storage.get("none")
    assert (before.bytes_read, before.bytes_written, before.total) == (4 + 2 + 4, 0, 3)
    assert storage.counts - before == Counts({"put": 1, "put_if_absent": 1, "get": 1}, 0, 10)
    assert storage.log[-3:] == (("put", "a"), ("put_if_absent", "a"), ("get", "none"))
    storage.reset()
    assert storage.counts == Counts()
    assert storage.log == ()


async def test_each_page_of_a_listing_counts() -> None:
    inner = in_memory_storage()
    for number in range(2500):
        inner.put_sync(f"k/{number:04}", b"")
    storage = CountingStorage(inner)
    assert len([page async for page in storage.list("k/")]) == 3
    assert storage.counts["list"] == 3
    assert [page async for page in storage.list("none/")] == []
    assert storage.counts["list"] == 4


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("operation", "seconds"),
    [
        ("get", 3),
        ("get_ranges", 3),
        ("head", 3),
        ("list", 3),
        ("put", 5),
        ("put_if_absent", 5),
        ("delete", 5),
        ("sync", 0),
    ],
)
def test_requests_take_the_time_told_on_the_clock_of_the_loop(operation: str, seconds: int) -> None:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(use(LatencyStorage(filled(), 3.0, 5.0), operation))
        assert runner.get_loop().time() == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("operation", "pauses"), [("get_sync", [3.0]), ("get_range_sync", [3.0]), ("put_sync", [2.5, 2.5])]
)
async def test_synchronous_requests_take_the_time_told(
    operation: str, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    await use(LatencyStorage(filled(), 3.0, 5.0), operation)
    assert slept == pauses


def test_latencies_are_lognormal_and_repeatable() -> None:
    latency = Latency(0.027, 0.5)
    draws = [latency.draw(random.Random(seed)) for seed in range(4000)]
    assert statistics.median(draws) == pytest.approx(0.027, rel=0.05)
    assert statistics.stdev(math.log(draw) for draw in draws) == pytest.approx(0.5, rel=0.05)
    with pytest.raises(InvalidInputError):
        Latency(-1)


async def test_storages_of_the_same_seed_take_the_same_times(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[list[float]] = []
    for seed in (7, 7, 8):
        slept.append([])
        monkeypatch.setattr(time, "sleep", slept[-1].append)
        storage = LatencyStorage(filled(), Latency(0.027, 0.5), seed=seed)
        for _ in range(5):
            await use(storage, "get_sync")
    assert slept[0] == slept[1] != slept[2]
    assert len(set(slept[0])) == 5


def test_probing_is_not_cheap_where_reading_is_slow() -> None:
    assert LatencyStorage(in_memory_storage()).cheap_probes
    assert not LatencyStorage(in_memory_storage(), 0.02).cheap_probes


async def _contents(storage: Storage) -> dict[str, bytes]:
    return {info.key: bytes(await storage.get(info.key)) async for page in storage.list("") for info in page}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", METHODS)
async def test_every_operation_can_fail_before_and_after_its_effect(operation: str, when: Any) -> None:
    inner = filled()
    storage = FaultyStorage(inner, [Fault(counted_as(operation), when=when)])
    with pytest.raises(InjectedFaultError, match=when):
        await use(storage, operation)
    untouched, touched = filled(), filled()
    await use(touched, operation)
    assert await _contents(inner) == await _contents(untouched if when == "before" else touched)
    await use(storage, operation)  # once only
    assert [(name, at) for name, _, at in storage.injected] == [(counted_as(operation), when)]


async def test_after_a_lost_acknowledgement_a_retry_finds_its_own_object() -> None:
    storage = FaultyStorage(in_memory_storage(), [Fault("put_if_absent", "refs/*", "after")])
    with pytest.raises(StorageError):
        await storage.put_if_absent("refs/1", b"ours")
    assert await storage.put_if_absent("refs/1", b"ours") is True
    assert await storage.put_if_absent("refs/1", b"theirs") is False


async def test_faults_choose_by_key_and_turn() -> None:
    storage = FaultyStorage(in_memory_storage(), [Fault("put", "a/*", first=2, times=2)])

    async def fails(key: str) -> bool:
        try:
            await storage.put(key, b"")
        except InjectedFaultError:
            return True
        return False

    assert [await fails(key) for key in ["a/1", "b/1", "a/2", "b/2", "a/3", "a/4"]] == [
        False,
        False,
        True,
        False,
        True,
        False,
    ]


async def test_seeded_faults_repeat_exactly_and_differ_between_seeds() -> None:
    async def pattern(storage: FaultyStorage) -> list[bool]:
        found = []
        for _ in range(64):
            try:
                await storage.get("k/1")
                found.append(False)
            except InjectedFaultError:
                found.append(True)
        return found

    faults = [Fault("get", times=None, probability=0.3)]
    first = await pattern(FaultyStorage(filled(), faults, seed=1))
    assert first == await pattern(FaultyStorage(filled(), faults, seed=1))
    assert first != await pattern(FaultyStorage(filled(), faults, seed=2))
    assert 5 < sum(first) < 35


@pytest.mark.parametrize("wrong", [{"operation": "putt"}, {"first": 0}, {"probability": 2}, {"when": "during"}])
def test_a_fault_that_could_never_happen_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Fault(**wrong)
