"""Methods of `Repository` for branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arraystore._repository.base import RepositoryBase
from arraystore._runtime import lazy_module, run

if TYPE_CHECKING:
    from arraystore._repository import refs
else:
    refs = lazy_module("arraystore._repository.refs")


class RefMethods(RepositoryBase):
    """Creating, moving and deleting branches and tags."""

    # -- branches -------------------------------------------------------------------------------------------

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return run(self.list_branches_async())

    async def list_branches_async(self) -> set[str]:
        """Asynchronous twin of `list_branches`."""
        return await refs.list_branches(self._context)

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the newest snapshot of a branch.

        Raises
        ------
        RefNotFoundError
            If there is no such branch.
        """
        return run(self.lookup_branch_async(branch))

    async def lookup_branch_async(self, branch: str) -> str:
        """Asynchronous twin of `lookup_branch`."""
        return await refs.lookup_branch(self._context, branch)

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch that starts at a snapshot.

        Raises
        ------
        AlreadyExistsError
            If there is a branch of this name.
        SnapshotNotFoundError
            If there is no such snapshot, or it has expired.
        InvalidInputError
            If the name is not valid.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.create_branch_async(branch, snapshot_id))

    async def create_branch_async(self, branch: str, snapshot_id: str) -> None:
        """Asynchronous twin of `create_branch`."""
        await refs.create_branch(self._context, branch, snapshot_id)

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Reset a branch to another snapshot: those that were committed after it leave the history of the branch.

        Sessions that were opened before cannot commit any more.

        Parameters
        ----------
        branch
            Its name.
        snapshot_id
            Snapshot to reset it to: any that has not expired.
        from_snapshot_id
            Snapshot that the branch must be at now; by default any.

        Raises
        ------
        ConflictError
            If it is at another snapshot; nothing was changed.
        RefNotFoundError, SnapshotNotFoundError
            If there is no such branch or snapshot.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.reset_branch_async(branch, snapshot_id, from_snapshot_id=from_snapshot_id))

    async def reset_branch_async(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Asynchronous twin of `reset_branch`."""
        await refs.reset_branch(self._context, branch, snapshot_id, from_snapshot_id=from_snapshot_id)

    def delete_branch(self, branch: str, *, from_snapshot_id: str | None = None) -> None:
        """Delete a branch; garbage collection deletes the snapshots that no other branch or tag leads to.

        Parameters
        ----------
        branch
            Its name.
        from_snapshot_id
            Snapshot that the branch must be at now; by default any.

        Raises
        ------
        ConflictError
            If it is at another snapshot; nothing was changed.
        RefNotFoundError
            If there is no such branch.
        InvalidInputError
            If it is ``main``, which cannot be deleted.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.delete_branch_async(branch, from_snapshot_id=from_snapshot_id))

    async def delete_branch_async(self, branch: str, *, from_snapshot_id: str | None = None) -> None:
        """Asynchronous twin of `delete_branch`."""
        await refs.delete_branch(self._context, branch, from_snapshot_id=from_snapshot_id)

    # -- tags -----------------------------------------------------------------------------------------------

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return run(self.list_tags_async())

    async def list_tags_async(self) -> set[str]:
        """Asynchronous twin of `list_tags`."""
        return await refs.list_tags(self._context)

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names.

        Raises
        ------
        RefNotFoundError
            If there is no such tag.
        """
        return run(self.lookup_tag_async(tag))

    async def lookup_tag_async(self, tag: str) -> str:
        """Asynchronous twin of `lookup_tag`."""
        return await refs.lookup_tag(self._context, tag)

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Create a tag: a name for a snapshot that never changes.

        Raises
        ------
        AlreadyExistsError
            If there is a tag of this name, or there was one: the name of a deleted tag is never used again.
        SnapshotNotFoundError
            If there is no such snapshot, or it has expired.
        InvalidInputError
            If the name is not valid.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.create_tag_async(tag, snapshot_id))

    async def create_tag_async(self, tag: str, snapshot_id: str) -> None:
        """Asynchronous twin of `create_tag`."""
        await refs.create_tag(self._context, tag, snapshot_id)

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name is never used again.

        Raises
        ------
        RefNotFoundError
            If there is no such tag.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.delete_tag_async(tag))

    async def delete_tag_async(self, tag: str) -> None:
        """Asynchronous twin of `delete_tag`."""
        await refs.delete_tag(self._context, tag)
