"""Looking at the history of a repository: what changed between two snapshots, what it looked like then, its shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from arraystore._concurrency import bounded
from arraystore._format.ids import id_to_text
from arraystore._format.repository_log import FIRST_BRANCH, Tag
from arraystore._history.compare import compare
from arraystore._history.diff import Diff, diff_of
from arraystore._history.graph import AncestryGraph, History, draw_history, gather_rows
from arraystore._history.time_travel import microseconds_of, nearer, newest_until
from arraystore._log.ancestry import ancestry
from arraystore._log.loading import Tip
from arraystore._repository.history import HistoryMixin
from arraystore._runtime import run
from arraystore.errors import InvalidInputError, RefNotFoundError, SnapshotNotFoundError

__all__ = ["ComparisonMixin"]

_REQUESTS = 16
"""Branches that are looked up at a time."""


class ComparisonMixin(HistoryMixin):
    """Looking at the history from above: differences, moments, a drawing."""

    # -- differences ----------------------------------------------------------------------------------------

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """Return what changes on the way from one snapshot to another.

        The two may stand in any order and on any branches.  They are compared with each other, not by what was
        committed in between: a chunk that was written and then set back to what it referred to has not changed, and
        it does not matter how many commits there are.

        Parameters
        ----------
        from_branch, from_tag, from_snapshot_id
            The snapshot to start from; exactly one.
        to_branch, to_tag, to_snapshot_id
            The snapshot to arrive at; exactly one.

        Raises
        ------
        InvalidInputError
            If one of the two is not given, or more than once.
        RefNotFoundError, SnapshotNotFoundError
            If one of them does not exist.
        """
        return run(
            self.diff_async(
                from_branch=from_branch,
                from_tag=from_tag,
                from_snapshot_id=from_snapshot_id,
                to_branch=to_branch,
                to_tag=to_tag,
                to_snapshot_id=to_snapshot_id,
            )
        )

    async def diff_async(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """Asynchronous twin of `diff`."""
        _check_one("from", from_branch, from_tag, from_snapshot_id)
        _check_one("to", to_branch, to_tag, to_snapshot_id)
        before, after = await asyncio.gather(
            self._tip_of(from_branch, from_tag, from_snapshot_id), self._tip_of(to_branch, to_tag, to_snapshot_id)
        )
        return diff_of(await compare(before.state, after.state, self._context.manifests, self._context.log))

    # -- moments --------------------------------------------------------------------------------------------

    async def _tip_of_reader(
        self, branch: str | None, tag: str | None, snapshot_id: str | None, as_of: datetime | None
    ) -> Tip:
        """Return what a session reads: the newest snapshot, or that of a moment, of a branch, a tag or a snapshot."""
        if as_of is None:
            return await self._tip_of(branch, tag, snapshot_id)
        if branch is None or tag is not None or snapshot_id is not None:
            raise InvalidInputError("as_of goes with a branch, and with no tag or snapshot_id")
        until = microseconds_of(as_of, "as_of")
        log = self._context.log(branch)
        start = await nearer(log, await self._context.tip(branch), until)
        found, last = await newest_until(ancestry(log, start, self._context.newest_state), until)
        if found is None:
            oldest = "" if last is None else f": its first one is of {datetime.fromtimestamp(last.time / 1e6, UTC)}"
            raise SnapshotNotFoundError(f"branch {branch!r} has no snapshot of {as_of} or before{oldest}")
        return await self._tip_of(None, None, id_to_text(found.id))

    # -- its shape ------------------------------------------------------------------------------------------

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
        limit: int = 100,
    ) -> AncestryGraph:
        """Draw the history.

        Parameters
        ----------
        branch, tag, snapshot_id
            Where to start, at most one; by default at all branches and tags.
        plain
            Whether to draw with ASCII only.
        limit
            Most snapshots to draw, the newest ones.

        Returns
        -------
        AncestryGraph
            `str` is the drawing; notebooks show a picture.

        Raises
        ------
        InvalidInputError
            If more than one place to start is given, or the limit is less than one.
        RefNotFoundError, SnapshotNotFoundError
            If it does not exist.
        """
        return run(self.ancestry_graph_async(branch=branch, tag=tag, snapshot_id=snapshot_id, plain=plain, limit=limit))

    async def ancestry_graph_async(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
        limit: int = 100,
    ) -> AncestryGraph:
        """Asynchronous twin of `ancestry_graph`."""
        if limit < 1:
            raise InvalidInputError(f"limit is {limit}, but a drawing has at least one snapshot")
        table = await self._context.repository_log.table()
        branches = await self._newest([name for name, row in table.branches.items() if not row.deleted])
        labels: dict[bytes, list[str]] = {}
        for name, snapshot in branches.items():
            labels.setdefault(snapshot, []).append(name)
        for name, row in sorted(table.tags.items()):
            labels.setdefault(row.snapshot, []).append(f"tag: {name}")
        if (branch, tag, snapshot_id) == (None, None, None):
            found = await gather_rows(self._histories(branches, table.tags), limit)
        else:
            found = await gather_rows([(b"", self._pages(branch, tag, snapshot_id))], limit)
        return draw_history(found, labels, limit, plain=plain)

    async def _newest(self, branches: Iterable[str]) -> dict[str, bytes]:
        """Return the newest snapshot of each branch, the first one's first."""

        async def newest(branch: str) -> bytes | None:
            try:
                return (await self._context.tip(branch)).state.snapshot
            except RefNotFoundError:  # deleted just now
                return None

        ordered = sorted(branches, key=lambda name: (name != FIRST_BRANCH, name))
        found = zip(ordered, await bounded(newest, ordered, _REQUESTS), strict=True)
        return {name: snapshot for name, snapshot in found if snapshot is not None}

    def _histories(self, branches: Mapping[str, bytes], tags: Mapping[str, Tag]) -> Iterable[History]:
        """Yield the histories of all branches, then of all tags."""
        for name, snapshot in branches.items():
            yield snapshot, self._pages(name, None, None)
        for name, row in sorted(tags.items()):
            yield row.snapshot, self._pages(None, name, None)


def _check_one(side: str, branch: str | None, tag: str | None, snapshot_id: str | None) -> None:
    if sum(value is not None for value in (branch, tag, snapshot_id)) != 1:
        raise InvalidInputError(f"give exactly one of {side}_branch, {side}_tag and {side}_snapshot_id")
