"""One simulated process's way to the bucket: an arraystore storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from arraystore.errors import ObjectNotFoundError, StorageError
from arraystore.simulation.bucket import PAGE, Bucket
from arraystore.simulation.loop import OWNER, SimulatedLoop
from arraystore.simulation.network import Network, Request, Sender
from arraystore.storage.counting import Counts
from arraystore.storage.keys import check_key, check_range
from arraystore.storage.protocol import ByteRange, BytesLike, DeleteFailure, ObjectInfo, Storage

__all__ = ["SimulatedStorage", "Tally"]


class Tally:
    """Counts requests and bytes."""

    __slots__ = ("read", "requests", "written")

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.read = 0
        self.written = 0

    def add(self, operation: str, written: int) -> None:
        """Count a request."""
        self.requests[operation] = self.requests.get(operation, 0) + 1
        self.written += written

    @property
    def counts(self) -> Counts:
        """Counts so far."""
        return Counts(dict(self.requests), self.read, self.written)


class SimulatedStorage(Storage):
    """Sends requests into a simulated network.

    Its synchronous methods fail: everything in a simulation is one thread.

    Parameters
    ----------
    sender
        The process.
    loop
        Where it runs.
    network
        Network that carries its requests.
    bucket
        Bucket that they access.
    total
        Counts the requests of all processes.
    tries
        Attempts for each request.
    parallel
        Most requests at a time; None for no limit.
    listing_lag
        Seconds of writes that a listing may miss.
    """

    cheap_probes = False

    def __init__(
        self,
        sender: Sender,
        loop: SimulatedLoop,
        network: Network,
        bucket: Bucket,
        total: Tally,
        *,
        tries: int = 1,
        parallel: int | None = None,
        listing_lag: float = 0.0,
    ) -> None:
        self._sender = sender
        self._loop = loop
        self._network = network
        self._bucket = bucket
        self._total = total
        self._tally = Tally()
        self._tries = tries
        self.listing_lag = listing_lag
        self._turns = None if parallel is None else asyncio.Semaphore(parallel)

    @property
    def location(self) -> str:
        """That of the bucket."""
        return self._bucket.location

    @property
    def counts(self) -> Counts:
        """Counts of the requests of this process so far."""
        return self._tally.counts

    def __repr__(self) -> str:
        return f"SimulatedStorage({self._sender.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_of_this_process, (self.location,))

    # -- requests -----------------------------------------------------------------------------------------------

    def _send(
        self, operation: str, key: str, size: int, act: Callable[..., Any], args: tuple[Any, ...]
    ) -> asyncio.Future[Any]:
        self._tally.add(operation, size)
        self._total.add(operation, size)
        future = self._loop.create_future()
        self._network.send(Request(self._sender, operation, key, size, act, args, future))
        return future

    async def _ask(self, operation: str, key: str, size: int, act: Callable[..., Any], *args: Any) -> Any:
        """Send a request, and again where it fails, as clients do."""
        for attempt in range(self._tries - 1):
            try:
                return await self._turn(operation, key, size, act, args)
            except ObjectNotFoundError:
                raise
            except StorageError:
                await asyncio.sleep(0.05 * 2**attempt * (0.5 + self._sender.chance.random()))
        return await self._turn(operation, key, size, act, args)

    async def _turn(self, operation: str, key: str, size: int, act: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self._turns is None:
            return await self._send(operation, key, size, act, args)
        async with self._turns:
            return await self._send(operation, key, size, act, args)

    def _received(self, size: int) -> None:
        self._tally.read += size
        self._total.read += size

    async def get(self, key: str) -> BytesLike:
        """Return a whole object."""
        data: bytes = await self._ask("get", key, 0, self._bucket.get, key)
        self._received(len(data))
        return data

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[BytesLike]:
        """Return several byte ranges of one object, in one request."""
        for start, stop in ranges:
            check_range(key, start, stop)
        parts: list[BytesLike] = await self._ask("get_ranges", key, 0, self._bucket.get_ranges, key, tuple(ranges))
        self._received(sum(map(len, parts)))
        return parts

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object."""
        check_key(key)
        await self._ask("put", key, len(data), self._bucket.put, key, bytes(data))

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists."""
        check_key(key)
        effect: str = await self._ask("put_if_absent", key, len(data), self._bucket.put_if_absent, key, bytes(data))
        return effect != "exists"

    async def head(self, key: str) -> ObjectInfo:
        """Tell about one object."""
        info: ObjectInfo = await self._ask("head", key, 0, self._bucket.info, key)
        return info

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects, in one request."""
        for key in keys:
            check_key(key)
        await self._ask("delete", " ".join(keys), 0, self._bucket.delete, tuple(keys))
        return []

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List objects, a request for each page; pages are looked at one after the other."""
        while True:
            page: list[ObjectInfo] = await self._ask("list", prefix, 0, self._bucket.list, prefix, start_after)
            if page:
                yield page
            if len(page) < PAGE:
                return
            start_after = page[-1].key


def _of_this_process(location: str) -> SimulatedStorage:
    """Unpickle: whoever gets a session or a fork works through its own handle."""
    owner = OWNER.get()
    for storage in (getattr(owner, "storage", None), getattr(owner, "sources", None)):
        if isinstance(storage, SimulatedStorage) and storage.location == location:
            return storage
    raise StorageError(f"{location} is simulated, and can be reached from processes of that simulation only")
