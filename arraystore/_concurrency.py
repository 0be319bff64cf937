"""Doing many things at the same time, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

__all__ = ["bounded"]

A = TypeVar("A")
T = TypeVar("T")


async def bounded(do: Callable[[A], Awaitable[T]], items: Iterable[A], most: int = 16) -> list[T]:
    """Do something with many items, so many of them at the same time; returns what came of each, in their order."""
    gate = asyncio.Semaphore(most)

    async def one(item: A) -> T:
        async with gate:
            return await do(item)

    return list(await asyncio.gather(*map(one, items)))
