"""A proxy before an S3 server that makes requests take the times of a distant object store.

Each request gets its time from the model.  It is passed on to the server at a random moment within that time, and
answered at its end; what the server and this machine need counts as part of it.  Where they need more than there is,
that is counted: a machine that is too slow for what it simulates must not go unnoticed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.throughput.latencies import Provider

__all__ = ["Delayed", "delayed"]

_HEAD_BYTES = 1 << 16
_BLOCK = 1 << 16


@dataclass
class Delayed:
    """A proxy that runs, and, once it has ended, what it saw.

    Parameters
    ----------
    port
        Where it listens.
    requests
        Passed on, by kind.
    late
        Requests that took longer than the model says.
    lateness
        By how many seconds in total.
    """

    port: int
    requests: Counter[str] = field(default_factory=Counter[str])
    late: int = 0
    lateness: float = 0.0


@dataclass(frozen=True)
class _Head:
    first: str
    headers: dict[str, str]
    raw: bytes

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", 0))

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")


async def _head(reader: asyncio.StreamReader) -> _Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return _Head(first, headers, raw)


async def _body(reader: asyncio.StreamReader, head: _Head) -> bytes:
    """A body as it is on the wire."""
    if not head.chunked:
        return await reader.readexactly(head.length) if head.length else b""
    parts: list[bytes] = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)]
        if not size:
            return b"".join(parts)


class _Proxy:
    def __init__(self, upstream: tuple[str, int], provider: Provider, seed: int) -> None:
        self._upstream = upstream
        self._provider = provider
        self._rng = np.random.default_rng(seed)
        self.seen = Delayed(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                request = await _head(reader)
                arrived = time.monotonic()
                payload = await _body(reader, request)
                if back is None:
                    back = await asyncio.open_connection(*self._upstream, limit=_HEAD_BYTES)
                writer.write(await self._passed_on(request, payload, back, arrived))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # one side has closed
        finally:
            writer.close()
            if back is not None:
                back[1].close()

    async def _passed_on(
        self,
        request: _Head,
        payload: bytes,
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        arrived: float,
    ) -> bytes:
        kind, takes = self._takes(request, len(payload))
        await _until(arrived + takes * self._rng.random())
        reader, writer = back
        writer.write(request.raw + payload)
        await writer.drain()
        answer = await _head(reader)
        status = int(answer.first.split(" ")[1])
        empty = request.first.startswith("HEAD ") or status in (204, 304)
        found = answer.raw if empty else answer.raw + await _body(reader, answer)
        late = time.monotonic() - arrived - takes
        self.seen.requests[kind] += 1
        if late > 0:
            self.seen.late += 1
            self.seen.lateness += late
        await _until(arrived + takes)
        return found

    def _takes(self, request: _Head, size: int) -> tuple[str, float]:
        method, target, _ = request.first.split(" ")
        if method == "PUT":
            conditional = "if-none-match" in request.headers
            timing = self._provider.conditional_put if conditional else self._provider.put
            return ("put_if_absent" if conditional else "put"), float(timing.many(self._rng, size, 1)[0])
        kind = "list" if "list-type" in target else {"POST": "delete"}.get(method, method.lower())
        return kind, float(self._provider.get.many(self._rng, 0, 1)[0])


async def _until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        await asyncio.sleep(left)


async def _run(pipe: Connection, upstream: tuple[str, int], provider: Provider, seed: int) -> None:
    proxy = _Proxy(upstream, provider, seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=_HEAD_BYTES, backlog=512)
    proxy.seen.port = server.sockets[0].getsockname()[1]
    pipe.send(proxy.seen.port)
    while not pipe.poll():  # noqa: ASYNC110 - the other end is another process
        await asyncio.sleep(0.05)
    server.close()
    pipe.send(proxy.seen)


def _main(pipe: Connection, upstream: tuple[str, int], provider: Provider, seed: int) -> None:
    asyncio.run(_run(pipe, upstream, provider, seed))


@contextmanager
def delayed(host: str, port: int, provider: Provider, seed: int) -> Iterator[Delayed]:
    """Put a proxy before a server, in a process of its own; what it saw is known at the end."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    arguments: tuple[Any, ...] = (its, (host, port), provider, seed)
    process = context.Process(target=_main, args=arguments, name="delaying-proxy")
    process.start()
    found = Delayed(0)
    try:
        if not ours.poll(60):
            raise RuntimeError("the delaying proxy has not started within a minute")
        found.port = ours.recv()
        yield found
        ours.send("end")
        if ours.poll(60):
            seen: Delayed = ours.recv()
            found.requests, found.late, found.lateness = seen.requests, seen.late, seen.lateness
    finally:
        process.terminate()
        process.join()
