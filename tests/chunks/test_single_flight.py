"""Manifests and blocks of packs: callers share a request, and neither wait forever nor suffer for one another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from arraystore import in_memory_storage
from arraystore._chunks.block_cache import BlockCache
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.box import Box
from arraystore._format.envelope import bind_object
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._runtime import run
from arraystore.errors import StorageError
from arraystore.storage import Storage, WrapperStorage
from arraystore.storage.protocol import ByteRange, BytesLike

pytestmark = pytest.mark.timeout(20)

LAYER = Layer(b"m" * 12, Box((0,), (3,)), 3)
PACK = "chunks/0000000000000000000A"


class Gated(WrapperStorage):
    """Answers the first request only when told to; the first may fail then."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.requests = 0
        self.begun = threading.Event()
        self.gate = asyncio.Event()
        self.thread_gate = threading.Event()
        self.error: BaseException | None = None

    def _is_first(self) -> bool:
        self.requests += 1
        self.begun.set()
        return self.requests == 1

    async def _pass(self) -> None:
        if self._is_first():
            await self.gate.wait()
            if self.error is not None:
                raise self.error

    def _pass_sync(self) -> None:
        if self._is_first():
            self.thread_gate.wait()
            if self.error is not None:
                raise self.error

    async def get(self, key: str) -> BytesLike:
        await self._pass()
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        await self._pass()
        return await super().get_ranges(key, ranges)

    def get_sync(self, key: str) -> BytesLike:
        self._pass_sync()
        return super().get_sync(key)

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        self._pass_sync()
        return super().get_range_sync(key, start, stop)


@dataclass
class Cache:
    """One thing to load, in both ways; both return how much came."""

    storage: Gated
    load_sync: Callable[[], int]
    load: Callable[[], Awaitable[int]]


def _manifests(storage: Gated) -> Cache:
    column = np.zeros(3, dtype=np.uint8)
    # Three empty chunks, inlined.
    encoded = encode_manifest(Manifest(LAYER.box, None, column, column, column))
    run(storage.inner.put(LAYER.key, bind_object(LAYER.key, encoded)))
    cache = ManifestCache(storage, bytes(12))

    async def load() -> int:
        return (await cache.load(LAYER)).count

    return Cache(storage, lambda: cache.load_sync(LAYER).count, load)


def _blocks(storage: Gated) -> Cache:
    run(storage.inner.put(PACK, b"abc"))
    cache = BlockCache(storage)

    async def load() -> int:
        return len(await cache.read(PACK, 0, 3, 3))

    return Cache(storage, lambda: len(cache.read_sync(PACK, 0, 3, 3)), load)


@pytest.fixture(params=[_manifests, _blocks], ids=["manifests", "blocks"])
def cache(request: pytest.FixtureRequest) -> Cache:
    made: Cache = request.param(Gated(in_memory_storage()))
    return made


async def _started(cache: Cache, count: int) -> list[asyncio.Future[int]]:
    """Start loads, of which the first makes the request."""
    tasks: list[asyncio.Future[int]] = [asyncio.ensure_future(cache.load()) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert cache.storage.requests == 1
    return tasks


async def test_a_synchronous_load_does_not_wait_for_the_event_loop_that_it_holds_up(cache: Cache) -> None:
    (task,) = await _started(cache, 1)
    assert cache.load_sync() == 3
    assert cache.storage.requests == 2
    cache.storage.gate.set()
    assert await task == 3


async def test_one_who_stops_waiting_takes_nothing_from_the_others(cache: Cache) -> None:
    owner, quitter, other = await _started(cache, 3)
    quitter.cancel()
    await asyncio.wait([quitter])
    cache.storage.gate.set()
    assert await asyncio.gather(owner, other) == [3, 3]
    assert quitter.cancelled()
    assert cache.storage.requests == 1


async def test_when_the_one_who_fetches_is_cancelled_another_one_fetches_for_all(cache: Cache) -> None:
    owner, *others = await _started(cache, 4)
    owner.cancel()
    assert await asyncio.gather(*others) == [3, 3, 3]
    assert owner.cancelled()
    assert cache.storage.requests == 2


def test_when_the_thread_that_fetches_is_interrupted_another_one_fetches(cache: Cache) -> None:
    cache.storage.error = KeyboardInterrupt()
    with ThreadPoolExecutor(2) as pool:
        owner = pool.submit(cache.load_sync)
        cache.storage.begun.wait()
        other = pool.submit(cache.load_sync)
        cache.storage.thread_gate.set()
        assert isinstance(owner.exception(), KeyboardInterrupt)
        assert other.result() == 3
    assert cache.storage.requests == 2


async def test_a_coroutine_waits_for_a_thread_that_fetches_already(cache: Cache) -> None:
    with ThreadPoolExecutor(1) as pool:
        owner = pool.submit(cache.load_sync)
        cache.storage.begun.wait()
        tasks = await _started(cache, 2)
        cache.storage.thread_gate.set()
        assert await asyncio.gather(*tasks) == [3, 3]
        assert owner.result() == 3
    assert cache.storage.requests == 1


async def test_a_failure_reaches_all_who_wait_and_the_next_load_tries_again(cache: Cache) -> None:
    tasks = await _started(cache, 3)
    cache.storage.error = StorageError("the storage is away")
    cache.storage.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [(type(error), str(error)) for error in found] == [(StorageError, "the storage is away")] * 3
    assert await cache.load() == 3
    assert cache.storage.requests == 2
