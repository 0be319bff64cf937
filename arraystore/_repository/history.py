"""History of a repository: its snapshots, and the log of operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from arraystore._context.context import Context
from arraystore._format.history import SnapshotRow
from arraystore._history.operations_log import Update, merged, updates_of_log, updates_of_repository
from arraystore._history.pinning import check_kept
from arraystore._log.ancestry import ancestry
from arraystore._log.loading import Tip
from arraystore._repository.snapshots import load_snapshot
from arraystore._runtime import run
from arraystore.errors import ObjectNotFoundError

T = TypeVar("T")


async def read_ancestry(
    context: Context, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> AsyncIterator[list[SnapshotRow]]:
    """Yield a snapshot and those before it, newest first, in pages that are read as far as they are iterated."""
    tip = await load_snapshot(context, branch=branch, tag=tag, snapshot_id=snapshot_id)
    async for rows in rows_before(context, tip, is_newest=branch is not None):
        yield rows


async def rows_before(context: Context, tip: Tip, *, is_newest: bool) -> AsyncIterator[list[SnapshotRow]]:
    """Yield a snapshot, which may be the newest one of its branch, and those before it, as `read_ancestry`.

    Raises `SnapshotExpiredError` if nothing leads to it any more, and what it goes on from was collected.
    """
    newest = None if is_newest else context.newest_state
    try:
        async for rows in ancestry(context.log(tip.state.branch), tip, newest):
            yield rows
    except ObjectNotFoundError:
        await check_kept(context, tip.state)
        raise


async def operations(context: Context) -> AsyncIterator[Update]:
    """Yield the operations on a repository, newest first, from the logs of its branches and the repository log."""
    table = await context.repository_log.table()
    sources = [updates_of_repository(context.repository_log.entries())]
    for name in sorted(table.branches):
        newest = (await context.newest(name)).sequence
        sources.append(updates_of_log(context.log(name), newest))
    async for update in merged(sources):
        yield update


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous iterator from synchronous code, an item at a time; no item is None."""
    while (item := run(_next(items))) is not None:
        yield item


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
