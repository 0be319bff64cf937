"""Bounded concurrency: limits on running tasks and on the bytes that they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

__all__ = ["ByteBudget", "MiB", "bounded", "for_each"]

MiB = 1 << 20

A = TypeVar("A")
T = TypeVar("T")


async def bounded(do: Callable[[A], Awaitable[T]], items: Iterable[A], most: int = 16) -> list[T]:
    """Apply a function to all items, at most `most` at a time, and return the results in the order of the items."""
    gate = asyncio.Semaphore(most)

    async def one(item: A) -> T:
        async with gate:
            return await do(item)

    return list(await asyncio.gather(*map(one, items)))


async def for_each(items: Iterable[A] | AsyncIterator[A], work: Callable[[A], Awaitable[None]], at_a_time: int) -> None:
    """Apply a function to items, drawn as running calls end; the first error cancels the others."""
    running: list[asyncio.Future[None]] = []  # a set of futures has another order in each run

    async def start(item: A) -> None:
        if len(running) >= at_a_time:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            done = [each for each in running if each.done()]
            running[:] = [each for each in running if not each.done()]
            for result in await asyncio.gather(*done, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        running.append(asyncio.ensure_future(work(item)))

    try:
        if isinstance(items, AsyncIterator):
            async for item in items:
                await start(item)
        else:
            for item in items:
                await start(item)
        for each in running:
            await each
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class ByteBudget:
    """A bound on bytes in memory, which a request larger than it waits to have alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Wait for room for some bytes, and release it after the block."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._used or self._used + size <= self._size)
            self._used += size
        try:
            yield
        finally:
            async with self._changed:
                self._used -= size
                self._changed.notify_all()
