"""The history of a repository, as its users see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from arraystore._format.history import SnapshotRow
from arraystore._format.ids import id_from_text
from arraystore._log.ancestry import ancestry
from arraystore._repository.base import RepositoryBase, SnapshotInfo, snapshot_info
from arraystore._runtime import run
from arraystore.errors import SnapshotNotFoundError

__all__ = ["HistoryMixin"]


class HistoryMixin(RepositoryBase):
    """Listing snapshots and looking at them."""

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Iterator[SnapshotInfo]:
        """List a snapshot and those before it, newest first; read as far as it is iterated.

        Parameters
        ----------
        branch, tag, snapshot_id
            Where to start; exactly one.
        """
        pages = self._pages(branch, tag, snapshot_id)
        while True:
            rows = run(_next(pages))
            if rows is None:
                return
            yield from map(snapshot_info, rows)

    async def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Asynchronous twin of `ancestry`."""
        async for rows in self._pages(branch, tag, snapshot_id):
            for row in rows:
                yield snapshot_info(row)

    async def _pages(
        self, branch: str | None, tag: str | None, snapshot_id: str | None
    ) -> AsyncIterator[list[SnapshotRow]]:
        tip = await self._tip_of(branch, tag, snapshot_id)
        log = self._context.log(tip.state.branch)
        newest = None if branch is not None else self._context.newest_state
        async for rows in ancestry(log, tip, newest):
            yield rows

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return what the history says of a snapshot.

        Raises
        ------
        SnapshotNotFoundError
            If there is none.
        """
        return run(self.lookup_snapshot_async(snapshot_id))

    async def lookup_snapshot_async(self, snapshot_id: str) -> SnapshotInfo:
        """Asynchronous twin of `lookup_snapshot`."""
        identifier = id_from_text(snapshot_id)
        try:
            return snapshot_info((await self._find(identifier)).row)
        except SnapshotNotFoundError:
            state = await self._found_otherwise(identifier)
            if state is None:
                raise
            return snapshot_info(SnapshotRow(state.sequence, state.snapshot, state.parent, state.time, state.note))


async def _next(pages: AsyncIterator[list[SnapshotRow]]) -> list[SnapshotRow] | None:
    return await anext(pages, None)
