"""Methods of `Repository` for looking at its history, and for repeating or undoing parts of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from arraystore._repository.base import RepositoryBase
from arraystore._runtime import lazy_module, run
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from arraystore._history.diff import Diff
    from arraystore._history.graph import AncestryGraph
    from arraystore._history.operations_log import Update
    from arraystore._history.plotting import history_graph
    from arraystore._repository import ancestry, comparison, history, revert, snapshots
    from arraystore._repository.ancestry import Ancestry, AsyncAncestry
    from arraystore._repository.snapshots import SnapshotInfo
else:
    ancestry = lazy_module("arraystore._repository.ancestry")
    comparison = lazy_module("arraystore._repository.comparison")
    history = lazy_module("arraystore._repository.history")
    history_graph = lazy_module("arraystore._history.plotting.history_graph")
    revert = lazy_module("arraystore._repository.revert")
    snapshots = lazy_module("arraystore._repository.snapshots")

_MOST_DRAWN = 10_000
"""Snapshots that a picture may have."""


class HistoryMethods(RepositoryBase):
    """Listing, comparing, reverting and repeating snapshots."""

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Ancestry:
        """List a snapshot and those before it, newest first; read as far as it is iterated.

        Parameters
        ----------
        branch, tag, snapshot_id
            Where to start; exactly one.

        Returns
        -------
        Ancestry
            An iterator, which can also be indexed; notebooks show a table and a graph of the newest snapshots.
        """
        return ancestry.Ancestry(self._context, branch, tag, snapshot_id)

    def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> AsyncAncestry:
        """Asynchronous twin of `ancestry`."""
        return ancestry.AsyncAncestry(self._context, branch, tag, snapshot_id)

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
        return await snapshots.lookup_snapshot(self._context, snapshot_id)

    def ops_log(self) -> Iterator[Update]:
        """List what was done to the repository, newest first; read as far as it is iterated.

        It is what the logs of branches and of the repository say, so it reaches back as far as these do: records of
        snapshots that have expired are deleted after a while.
        """
        yield from history.iterate(self.ops_log_async())

    async def ops_log_async(self) -> AsyncIterator[Update]:
        """Asynchronous twin of `ops_log`."""
        async for update in history.operations(self._context):
            yield update

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

        The two may be in any order and on any branches.  They are compared with each other, not by what was
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
        return await comparison.diff(
            self._context,
            from_branch=from_branch,
            from_tag=from_tag,
            from_snapshot_id=from_snapshot_id,
            to_branch=to_branch,
            to_tag=to_tag,
            to_snapshot_id=to_snapshot_id,
        )

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
        return await comparison.draw_graph(
            self._context, branch=branch, tag=tag, snapshot_id=snapshot_id, plain=plain, limit=limit
        )

    def plot_history(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        limit: int = 60,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the history by matplotlib (extra ``plot``): newest snapshots on top, with names and messages.

        Parameters
        ----------
        branch, tag, snapshot_id
            Where to start, at most one; by default at all branches and tags.
        limit
            Most snapshots to draw, the newest ones, from 1 to 10,000.
        ax
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            What was drawn on.

        Raises
        ------
        InvalidInputError
            If more than one place to start is given, or the limit is out of range.
        RefNotFoundError, SnapshotNotFoundError
            If it does not exist.
        ModuleNotFoundError
            If matplotlib is not installed.
        """
        if type(limit) is not int or not 1 <= limit <= _MOST_DRAWN:
            raise InvalidInputError(f"limit={limit!r} must be an integer from 1 to {_MOST_DRAWN:,}")
        graph = self.ancestry_graph(branch=branch, tag=tag, snapshot_id=snapshot_id, limit=limit)
        return history_graph.draw_graph(graph, ax=ax, what="Repository.plot_history")

    def revert(self, snapshot_id: str, *, branch: str = "main", message: str | None = None) -> str:
        """Undo a snapshot in a new commit; later snapshots stay.

        Nodes, metadata and chunks that the snapshot changed become what they were before it.  No chunk is written,
        and chunks are read only where later snapshots wrote them as well, to tell whether they differ.  A node that is
        deleted and comes back is a new one: sessions that wrote to the old one collide.

        Parameters
        ----------
        snapshot_id
            The snapshot, on any branch.
        branch
            To commit to.
        message
            For the history; by default it names the message of the snapshot.

        Returns
        -------
        str
            Id of the new snapshot; its metadata tells ``reverts``.

        Raises
        ------
        RebaseFailedError
            If the branch has other changes of what is to be undone; nothing was committed.
        InvalidInputError
            If the branch has nothing that is to be undone, or it is the first snapshot of all.
        SnapshotNotFoundError, RefNotFoundError
            If there is no such snapshot, the one before it has expired, or there is no such branch.
        """
        return run(self.revert_async(snapshot_id, branch=branch, message=message))

    async def revert_async(self, snapshot_id: str, *, branch: str = "main", message: str | None = None) -> str:
        """Asynchronous twin of `revert`."""
        return await revert.revert(self._context, snapshot_id, branch, message, self._default_metadata)

    def cherry_pick(self, snapshot_id: str, *, branch: str = "main", message: str | None = None) -> str:
        """Repeat the changes of a snapshot in a new commit on another branch.

        No chunk is written, and chunks are read only where the branch wrote them as well, to tell whether they differ.

        Parameters
        ----------
        snapshot_id
            The snapshot, on any branch.
        branch
            To commit to.
        message
            For the history; that of the snapshot by default.

        Returns
        -------
        str
            Id of the new snapshot; its metadata tells ``cherry_picked_from``.

        Raises
        ------
        RebaseFailedError
            If the branch has other changes of what the snapshot changed; nothing was committed.
        InvalidInputError
            If the branch has all of its changes, or it is the first snapshot of all.
        SnapshotNotFoundError, RefNotFoundError
            If there is no such snapshot, the one before it has expired, or there is no such branch.
        """
        return run(self.cherry_pick_async(snapshot_id, branch=branch, message=message))

    async def cherry_pick_async(self, snapshot_id: str, *, branch: str = "main", message: str | None = None) -> str:
        """Asynchronous twin of `cherry_pick`."""
        return await revert.cherry_pick(self._context, snapshot_id, branch, message, self._default_metadata)
