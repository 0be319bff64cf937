"""Commits made of other commits: what undoes one, and what repeats one elsewhere."""

from __future__ import annotations

from typing import Any

from arraystore._commit.solvers import ConflictDetector
from arraystore._format.ids import id_to_text
from arraystore._format.record import decode_note
from arraystore._history.pinning import announce
from arraystore._history.three_way_merge import transplant
from arraystore._log.state import State
from arraystore._repository.base import RepositoryBase
from arraystore._runtime import run
from arraystore._session.session import Session
from arraystore.errors import (
    InvalidInputError,
    RebaseFailedError,
    SessionExpiredError,
    SnapshotNotFoundError,
    StorageError,
)

__all__ = ["ChangesMixin"]

_TRIES = 20
"""Garbage collections that may begin while one commit is made."""


class ChangesMixin(RepositoryBase):
    """Undoing and repeating what a snapshot has changed."""

    def revert(self, snapshot_id: str, *, branch: str = "main", message: str | None = None) -> str:
        """Commit what undoes a snapshot; what came after it stays.

        Nodes, metadata and chunks that the snapshot changed become what they were before it.  No chunk is read or
        written.  A node that is deleted and comes back is a new one: sessions that wrote to the old one collide.

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
        snapshot, before = await self._with_parent(snapshot_id, "reverted")
        if message is None:
            message = f"Revert {_message(snapshot)!r}"
        return await self._transplanted(snapshot, before, branch, message, {"reverts": snapshot_id})

    def cherry_pick(self, snapshot_id: str, *, branch: str = "main", message: str | None = None) -> str:
        """Commit what a snapshot has changed to another branch.

        No chunk is read or written.

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
        snapshot, before = await self._with_parent(snapshot_id, "cherry-picked")
        if message is None:
            message = _message(snapshot)
        return await self._transplanted(before, snapshot, branch, message, {"cherry_picked_from": snapshot_id})

    async def _with_parent(self, snapshot_id: str, verb: str) -> tuple[State, State]:
        """Return a snapshot and the one before it."""
        state = (await self._tip_of(None, None, snapshot_id)).state
        if state.parent is None:
            raise InvalidInputError(
                f"snapshot {snapshot_id} cannot be {verb}: it is the first one, and changes nothing"
            )
        try:
            return state, (await self._tip_of(None, None, id_to_text(state.parent))).state
        except SnapshotNotFoundError as error:
            raise SnapshotNotFoundError(
                f"snapshot {snapshot_id} cannot be {verb}: the one before it, {id_to_text(state.parent)}, is not kept "
                "any more, so that nobody can tell what it changed"
            ) from error

    async def _transplanted(self, base: State, ours: State, branch: str, message: str, metadata: dict[str, Any]) -> str:
        """Commit the way from one snapshot to another on top of a branch."""
        for _ in range(_TRIES):
            try:
                return await self._transplanted_once(base, ours, branch, message, metadata)
            except SessionExpiredError:  # a collection has begun since the snapshot was announced
                continue
        raise StorageError(f"{self.storage.location}: {_TRIES} garbage collections began meanwhile; try again")

    async def _transplanted_once(
        self, base: State, ours: State, branch: str, message: str, metadata: dict[str, Any]
    ) -> str:
        session = Session(self._context, await self._context.tip(branch), branch)
        session.default_metadata = dict(self._default_metadata)
        tip = session.base_tip.state
        found = await transplant(base, ours, tip, self._context)
        if found.conflicts:
            raise RebaseFailedError(id_to_text(tip.snapshot), found.conflicts, id_to_text(base.snapshot), branch)
        if found.empty:
            (way,) = metadata
            left = "has nothing left that snapshot" if way == "reverts" else "has already all that snapshot"
            raise InvalidInputError(f"branch {branch!r} {left} {metadata[way]} changed; nothing was committed")
        changes = session.hierarchy.writable()
        if found.borrows:
            changes.borrowed.append(await announce(self._context, ours))
        found.put_into(changes)
        return await session.commit_async(message, metadata, rebase_with=ConflictDetector())


def _message(state: State) -> str:
    message, _ = decode_note(f"note of snapshot {id_to_text(state.snapshot)}", state.note)
    return message
