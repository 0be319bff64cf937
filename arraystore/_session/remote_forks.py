"""Writing by the workers of an engine: through forks of a session, whose changes this process merges at the end."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from arraystore._runtime.engine import Engine, unexpected
from arraystore._session.change_set_transfer import receive_change_sets_async, send_change_set_async
from arraystore._session.fork import ForkSession, PickledFork
from arraystore._session.session import Session

__all__ = ["ForkWork", "write_on_workers"]

T = TypeVar("T")
ForkWork = Callable[[ForkSession, T], Awaitable[Any]]
"""Picklable function that writes through a fork, and returns plain values."""


@dataclass(frozen=True)
class _Writing:
    """Work of a task: it writes through a fork of its own, so that attempts of it do not meet."""

    fork: PickledFork
    write: ForkWork[Any]

    async def __call__(self, task: Any) -> Any:
        fork = await self.fork.open_async()
        report = await self.write(fork, task)
        return await send_change_set_async(fork), report


async def write_on_workers(
    engine: Engine,
    session: Session,
    write: ForkWork[T],
    tasks: AsyncIterable[T],
    description: str,
    take: Callable[[Any], None],
) -> None:
    """Write tasks through forks of a session, and merge all changes, or none; `take` checks each report."""
    fork = await session.fork_async()
    try:
        changes: list[bytes] = []
        work = _Writing(await fork.parts_async(), write)
        async with aclosing(engine.run(work, tasks, description)) as results:
            async for result in results:
                match result:
                    case (bytes() as change_set, report):
                        take(report)
                        changes.append(change_set)
                    case _:
                        raise unexpected("a change set")
        await session.merge_async(*await receive_change_sets_async(session.context, changes))
    finally:
        session.abandon(fork)
