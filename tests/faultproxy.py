"""An HTTP proxy in front of a real S3 server that loses, doubles, delays and truncates, by seeded chance.

    python -m tests.faultproxy --upstream 127.0.0.1:8333 --seed 7 --rate 0.05

It prints its address and lives until its standard input ends.  The Host header is passed on as it is, since clients
have signed it.  What the server has applied stays applied: only answers are lost, replaced or cut off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["FAULTS", "LATEST", "FaultProxy", "running_proxy"]

FAULTS = (
    "lose request",
    "lose answer",
    "send twice",
    "send again later",
    "delay request",
    "delay answer",
    "truncate answer",
    "refuse before",
    "refuse after",
)
"""Everything that can go wrong with a request.

*Lose* closes the connection, before or after the server has seen the request.  *Send twice* returns the second answer,
so that a conditional PUT that was applied is answered 412; *send again later* returns the first one, and repeats the
request once more after a while.  *Refuse* answers 503, before or after the server has applied the request.
"""

LATEST = 5.0
"""Seconds after which nothing comes any more of what the proxy has kept back."""

_NO_BODY = (204, 304)


@dataclass(frozen=True)
class _Message:
    """A request or an answer: its first line, its headers as they came, and its whole body."""

    first: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    def encoded(self, *, length: int | None = None) -> bytes:
        """Return the bytes to send, with a Content-Length in place of any transfer encoding."""
        told = len(self.body) if length is None else length
        kept = [(k, v) for k, v in self.headers if k.lower() not in (b"content-length", b"transfer-encoding")]
        lines = [self.first, *[k + b": " + v for k, v in kept], b"Content-Length: %d" % told]
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


@dataclass
class FaultProxy:
    """A proxy that is running in an event loop.

    Parameters
    ----------
    upstream
        Host and port of the server.
    seed
        Of all chance.
    rate
        Share of requests that something happens to.
    faults
        What may happen.
    chosen
        Decides about one request, by its method and path, in place of chance; None for nothing.
    longest_delay
        Seconds for which a request or an answer is kept back, at most; a repetition comes after twice as long.
    """

    upstream: tuple[str, int]
    seed: int = 0
    rate: float = 0.05
    faults: tuple[str, ...] = FAULTS
    chosen: Callable[[str, str], str | None] | None = None
    longest_delay: float = 2.0
    counts: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._later: set[asyncio.Task[None]] = set()

    async def serve(self) -> tuple[asyncio.Server, str]:
        """Begin to listen; returns the server and the URL."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 20)
        return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await _read(reader, None)) is not None:
                if not await self._answer(request, writer):
                    break
        writer.close()

    async def _answer(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        """Treat one request; returns whether the connection goes on."""
        fault = self._fault(request)
        self.counts[fault or "passed on"] += 1
        if fault == "lose request":
            return False
        if fault == "refuse before":
            return await _send(writer, _refusal().encoded())
        if fault == "delay request":
            await asyncio.sleep(self._random.random() * self.longest_delay)
        answer = await self._forward(request)
        if fault == "send twice":
            answer = await self._forward(request)
        if fault == "send again later":
            self._repeat_later(request)
        if fault == "delay answer":
            await asyncio.sleep(self._random.random() * self.longest_delay)
        if fault == "lose answer":
            return False
        if fault == "refuse after":
            return await _send(writer, _refusal().encoded())
        if fault == "truncate answer":
            await _send(writer, _truncated(answer))
            return False
        return await _send(writer, _as_told(request, answer))

    def _fault(self, request: _Message) -> str | None:
        method, path, _ = request.first.decode("latin-1").split(" ", 2)
        if self.chosen is not None:
            return self.chosen(method, path)
        return self._random.choice(self.faults) if self._random.random() < self.rate else None

    def _repeat_later(self, request: _Message) -> None:
        async def repeat() -> None:
            await asyncio.sleep(self._random.random() * 2 * self.longest_delay)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._forward(request)

        task = asyncio.create_task(repeat())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _forward(self, request: _Message) -> _Message:
        """Send a request to the server, over a connection of its own, and return the whole answer."""
        reader, writer = await asyncio.open_connection(*self.upstream, limit=1 << 20)
        try:
            writer.write(request.encoded())
            await writer.drain()
            answer = await _read(reader, request)
        finally:
            writer.close()
        if answer is None:
            raise ConnectionResetError("the server has closed the connection")
        return answer


async def _read(reader: asyncio.StreamReader, request: _Message | None) -> _Message | None:
    """Read a request, or the answer to one; None where the other side has ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head[:-4].split(b"\r\n")
    headers = tuple((key.strip(), value.strip()) for key, _, value in (line.partition(b":") for line in lines))
    message = _Message(first, headers, b"")
    if request is not None and first.split()[1] == b"100":  # go on, said before the answer
        return await _read(reader, request)
    if request is not None and (request.first.startswith(b"HEAD") or int(first.split()[1]) in _NO_BODY):
        return message
    return replace(message, body=await _read_body(reader, message, answer=request is not None))


async def _read_body(reader: asyncio.StreamReader, message: _Message, *, answer: bool) -> bytes:
    if message.header(b"transfer-encoding") == b"chunked":
        parts: list[bytes] = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readline()
        return b"".join(parts)
    length = message.header(b"content-length")
    if length is None:
        return await reader.read() if answer else b""
    return await reader.readexactly(int(length))


async def _send(writer: asyncio.StreamWriter, data: bytes) -> bool:
    writer.write(data)
    await writer.drain()
    return True


def _as_told(request: _Message, answer: _Message) -> bytes:
    """Return an answer with the length that the server told, which for HEAD is not that of its body."""
    told = answer.header(b"content-length")
    return answer.encoded(length=int(told) if request.first.startswith(b"HEAD") and told else None)


def _truncated(answer: _Message) -> bytes:
    """Return an answer that promises its whole body, and ends in the middle."""
    half = replace(answer, body=answer.body[: len(answer.body) // 2])
    return half.encoded(length=max(len(answer.body), 1))


def _refusal() -> _Message:
    body = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
    return _Message(b"HTTP/1.1 503 Service Unavailable", ((b"Content-Type", b"application/xml"),), body)


@dataclass(frozen=True)
class RunningProxy:
    """A proxy in a process of its own."""

    url: str
    process: subprocess.Popen[str]

    def stop(self) -> Counter[str]:
        """End it; returns how often what happened."""
        told, _ = self.process.communicate(timeout=30)
        return Counter(json.loads(told))


@contextlib.contextmanager
def running_proxy(upstream: str, seed: int, rate: float = 0.05) -> Iterator[RunningProxy]:
    """Run a proxy in front of a server, given by its URL, for the length of a ``with`` block."""
    command = [sys.executable, "-m", "tests.faultproxy", "--upstream", upstream.removeprefix("http://")]
    command += ["--seed", str(seed), "--rate", str(rate)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield RunningProxy(process.stdout.readline().strip(), process)
        finally:
            process.kill()


async def _run(proxy: FaultProxy) -> None:
    _, url = await proxy.serve()  # left open at the end: closing it would wait for the clients' connections
    _tell(url)
    await asyncio.to_thread(sys.stdin.read)
    _tell(json.dumps(dict(proxy.counts)))


def _tell(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="A proxy that loses, doubles, delays and truncates.")
    parser.add_argument("--upstream", required=True, help="host:port")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.05, help="share of requests that something happens to")
    options = parser.parse_args()
    host, _, port = options.upstream.rpartition(":")
    asyncio.run(_run(FaultProxy((host, int(port)), options.seed, options.rate)))


if __name__ == "__main__":
    main()
