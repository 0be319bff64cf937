"""The operations log of a repository."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from arraystore._history.operations_log import Update, merged, updates_of_log, updates_of_repository
from arraystore._repository.base import RepositoryBase
from arraystore._runtime import run

__all__ = ["OperationsMixin"]


class OperationsMixin(RepositoryBase):
    """What was done, and when."""

    def ops_log(self) -> Iterator[Update]:
        """List what was done to the repository, newest first; read as far as it is iterated.

        It is what the logs of branches and of the repository say, so it reaches back as far as these do: records of
        snapshots that have expired are deleted after a while.
        """
        updates = self.ops_log_async()
        while True:
            update = run(_next(updates))
            if update is None:
                return
            yield update

    async def ops_log_async(self) -> AsyncIterator[Update]:
        """Asynchronous twin of `ops_log`."""
        context = self._context
        table = await context.repository_log.table()
        sources = [updates_of_repository(context.repository_log.entries())]
        for name in sorted(table.branches):
            newest = (await context.newest(name)).sequence
            sources.append(updates_of_log(context.log(name), newest))
        async for update in merged(sources):
            yield update


async def _next(updates: AsyncIterator[Update]) -> Update | None:
    return await anext(updates, None)
