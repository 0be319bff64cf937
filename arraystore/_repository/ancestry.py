"""Histories of snapshots: iterators that read as far as they are iterated, and that can be looked at and indexed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing
from typing import overload

from arraystore._context.context import Context
from arraystore._format.history import SnapshotRow
from arraystore._log.loading import Tip
from arraystore._repository.comparison import read_labels
from arraystore._repository.history import iterate, rows_before
from arraystore._repository.snapshots import SnapshotInfo, load_snapshot, snapshot_info
from arraystore._repository.views import history_view
from arraystore._runtime import run
from arraystore._runtime.display import LOOK_SECONDS, View, view_or_reason

__all__ = ["Ancestry", "AsyncAncestry"]

_SHOWN = 20
"""Snapshots that a view shows."""


class _History:
    """A snapshot and those before it; the first one is looked up once."""

    def __init__(self, context: Context, branch: str | None, tag: str | None, snapshot_id: str | None) -> None:
        self.context = context
        self.start = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id}
        self._tip: Tip | None = None

    async def pages(self) -> AsyncGenerator[list[SnapshotRow], None]:
        """Yield the snapshots, newest first, in pages that are read as far as they are iterated."""
        if self._tip is None:
            self._tip = await load_snapshot(self.context, **self.start)
        async for rows in rows_before(self.context, self._tip, is_newest=self.start["branch"] is not None):
            yield rows

    async def infos(self) -> AsyncGenerator[SnapshotInfo, None]:
        """Yield the snapshots, newest first."""
        async for rows in self.pages():
            for row in rows:
                yield snapshot_info(row)

    async def view(self, *, picture: bool) -> View:
        """Read what it shows of itself, in requests whose count is bounded."""
        newest: list[SnapshotRow] = []
        async with aclosing(self.pages()) as pages:
            async for rows in pages:
                newest += rows
                if len(newest) > _SHOWN:
                    break
        labels = await read_labels(self.context) if picture else {}
        return history_view(str(self), newest[:_SHOWN], labels, more=len(newest) > _SHOWN, picture=picture)

    def look(self, *, picture: bool) -> View:
        """Return what it shows of itself, or why it cannot be read."""
        return view_or_reason(str(self), lambda: run(self.view(picture=picture), seconds=LOOK_SECONDS))

    def __str__(self) -> str:
        starts = [f"{name.removesuffix('_id')} {value!r}" for name, value in self.start.items() if value]
        return f"History of {', '.join(starts)}"


class Ancestry(Iterator[SnapshotInfo]):
    """A snapshot and those before it, newest first: an iterator, which can also be indexed and looked at.

    Iterating reads the history as far as it goes, keeps nothing of it, and gives each snapshot once.  Indices, slices
    and `len` read as far as they need and keep that; they, and views, take nothing away from the iteration.
    """

    def __init__(self, context: Context, branch: str | None, tag: str | None, snapshot_id: str | None) -> None:
        self._history = _History(context, branch, tag, snapshot_id)
        self._kept: list[SnapshotRow] = []
        self._unread: Iterator[list[SnapshotRow]] | None = None
        self._rest = self._iterate()

    # -- iteration ------------------------------------------------------------------------------------------

    def __iter__(self) -> Ancestry:
        return self

    def __next__(self) -> SnapshotInfo:
        return next(self._rest)

    def close(self) -> None:
        """End the iteration."""
        self._rest.close()

    def _iterate(self) -> Generator[SnapshotInfo, None, None]:
        if self._unread is None:
            for rows in iterate(self._history.pages()):
                yield from map(snapshot_info, rows)
            return
        at = 0
        while self._read(at + 1) > at:
            yield snapshot_info(self._kept[at])
            at += 1

    # -- sequence -------------------------------------------------------------------------------------------

    def _read(self, count: int | None) -> int:
        """Read and keep that many snapshots or more, None for all, and return how many are kept."""
        if self._unread is None:
            self._kept, self._unread = [], iterate(self._history.pages())
        try:
            while count is None or len(self._kept) < count:
                rows = next(self._unread, None)
                if rows is None:
                    break
                self._kept += rows
        except BaseException:
            self._unread = None  # and not the end of the history
            raise
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> SnapshotInfo: ...

    @overload
    def __getitem__(self, index: slice) -> list[SnapshotInfo]: ...

    def __getitem__(self, index: int | slice) -> SnapshotInfo | list[SnapshotInfo]:
        if isinstance(index, slice):
            self._read(_end_of(index))
            return list(map(snapshot_info, self._kept[index]))
        self._read(index + 1 if index >= 0 else None)
        try:
            return snapshot_info(self._kept[index])
        except IndexError:
            raise IndexError(f"index {index}: the history has {len(self._kept):,} snapshots") from None

    def __len__(self) -> int:
        return self._read(None)

    def __bool__(self) -> bool:
        return True  # no history is empty

    def __contains__(self, info: object) -> bool:
        at = 0
        while self._read(at + 1) > at:
            if snapshot_info(self._kept[at]) == info:
                return True
            at += 1
        return False

    # -- views ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self._history.look(picture=False).to_text()

    def _repr_html_(self) -> str:
        return self._history.look(picture=True).to_html()


def _end_of(part: slice) -> int | None:
    """Return how many items a slice needs; None for all."""
    ends = [part.start or 0, part.stop]
    return None if part.stop is None or min(ends) < 0 or (part.step or 1) < 0 else part.stop


class AsyncAncestry(AsyncIterator[SnapshotInfo]):
    """A snapshot and those before it, newest first: an asynchronous iterator, read as far as it is iterated."""

    def __init__(self, context: Context, branch: str | None, tag: str | None, snapshot_id: str | None) -> None:
        self._history = _History(context, branch, tag, snapshot_id)
        self._rest = self._history.infos()

    def __aiter__(self) -> AsyncAncestry:
        return self

    async def __anext__(self) -> SnapshotInfo:
        return await anext(self._rest)

    async def aclose(self) -> None:
        """End the iteration."""
        await self._rest.aclose()

    def __repr__(self) -> str:
        return f"<AsyncAncestry: {self._history}; iterate with async for>"
