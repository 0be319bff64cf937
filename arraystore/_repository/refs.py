"""Branches and tags of a repository."""

from __future__ import annotations

from contextlib import suppress

from arraystore._format.ids import id_from_text, id_to_text
from arraystore._format.lifecycle import Origin
from arraystore._format.record import Body, Reset
from arraystore._format.refs import name_in_key
from arraystore._format.repository_log import FIRST_BRANCH, RepositoryEntry, RepositoryOperation, RepositoryTable
from arraystore._history.pinning import OutdatedAnnouncementError, activated
from arraystore._log.branch_entries import append_when, delete_branch, settle, settle_deletion
from arraystore._log.loading import Tip
from arraystore._log.state import State
from arraystore._log.status import check_allowed, check_open
from arraystore._repository.base import RepositoryBase, check_text
from arraystore._runtime import run
from arraystore.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    RefNotFoundError,
    SnapshotExpiredError,
)

__all__ = ["RefsMixin"]


class RefsMixin(RepositoryBase):
    """Creating, moving and deleting what names snapshots."""

    # -- branches -------------------------------------------------------------------------------------------

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return run(self.list_branches_async())

    async def list_branches_async(self) -> set[str]:
        """Asynchronous twin of `list_branches`."""
        table = await self._context.repository_log.table()
        return {name for name, row in table.branches.items() if not row.deleted}

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
        return id_to_text((await self._context.tip(branch)).state.snapshot)

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch that starts at a snapshot.

        Raises
        ------
        AlreadyExistsError
            If there is a branch of this name.
        SnapshotNotFoundError
            If there is no such snapshot, or it has expired.
        InvalidInputError
            If the name cannot be one.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.create_branch_async(branch, snapshot_id))

    async def create_branch_async(self, branch: str, snapshot_id: str) -> None:
        """Asynchronous twin of `create_branch`."""
        name_in_key(branch)
        log = self._context.repository_log
        await self._check_free_by_now(branch)
        tip = await self._tip_of(None, None, snapshot_id)

        async def activate(origin: Origin) -> None:
            now = self._context.environment.now_us()

            def decide(table: RepositoryTable) -> RepositoryEntry:
                _check_free(table, branch)
                _check_new(origin, table.watermark)
                kind, state = RepositoryOperation.BRANCH_CREATED, tip.state
                return RepositoryEntry(kind, now, branch, state.snapshot, state.parent, origin)

            table = await log.append(decide)
            self._context.seen(await settle(self._context.log(branch), table))

        await activated(self._context, tip, activate)

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Let a branch stand at another snapshot; what was committed since is in its history no more.

        Sessions that were opened before cannot commit any more.

        Parameters
        ----------
        branch
            Its name.
        snapshot_id
            Where it is to stand: any snapshot that is kept.
        from_snapshot_id
            Where it has to stand now; by default wherever it does.

        Raises
        ------
        ConflictError
            If it stands elsewhere; nothing was changed.
        RefNotFoundError, SnapshotNotFoundError
            If there is no such branch or snapshot.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.reset_branch_async(branch, snapshot_id, from_snapshot_id=from_snapshot_id))

    async def reset_branch_async(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Asynchronous twin of `reset_branch`."""
        expected = None if from_snapshot_id is None else id_from_text(from_snapshot_id)
        start = await self._context.tip(branch)
        target = await self._tip_of(None, None, snapshot_id)

        def check_stand(state: State) -> None:
            if expected is not None and state.snapshot != expected:
                raise ConflictError(from_snapshot_id, id_to_text(state.snapshot), branch)

        async def activate(origin: Origin) -> None:
            now = self._context.environment.now_us()

            def decide(tip: Tip) -> Body:
                state = tip.state
                closed = check_open(state)
                if closed is not None:
                    raise closed
                check_stand(state)
                _check_new(origin, state.life.fence)
                return Reset(target.state.snapshot, target.state.parent, now, origin, state.life)

            self._context.seen(await append_when(self._context.log(branch), start, decide))

        check_stand(start.state)
        try:
            await activated(self._context, target, activate)
        except SnapshotExpiredError:  # perhaps because of another reset, which is what there is to say then
            check_stand((await self._context.tip(branch)).state)
            raise

    def delete_branch(self, branch: str, *, from_snapshot_id: str | None = None) -> None:
        """Delete a branch; its snapshots go with the next garbage collection, unless others show them.

        Parameters
        ----------
        branch
            Its name.
        from_snapshot_id
            Where it has to stand now; by default wherever it does.

        Raises
        ------
        ConflictError
            If it stands elsewhere; nothing was changed.
        RefNotFoundError
            If there is no such branch.
        InvalidInputError
            If it is the first one, which cannot be deleted.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.delete_branch_async(branch, from_snapshot_id=from_snapshot_id))

    async def delete_branch_async(self, branch: str, *, from_snapshot_id: str | None = None) -> None:
        """Asynchronous twin of `delete_branch`."""
        check_text(branch)
        if branch == FIRST_BRANCH:
            raise InvalidInputError(f"branch {FIRST_BRANCH!r} cannot be deleted; reset_branch lets it stand elsewhere")
        expected = None if from_snapshot_id is None else id_from_text(from_snapshot_id)
        repository_log, log = self._context.repository_log, self._context.log(branch)
        check_allowed(await repository_log.table(), "delete_branch")

        def check(state: State) -> None:
            if expected is not None and state.snapshot != expected:
                raise ConflictError(from_snapshot_id, id_to_text(state.snapshot), branch)

        tip = await self._settled_tip(branch)
        self._context.seen(await delete_branch(log, repository_log, tip, check))

    async def _settled_tip(self, branch: str) -> Tip:
        """Return the newest record of a branch; of one that is deleted, see that the repository log says so, too."""
        try:
            return await self._context.tip(branch)
        except RefNotFoundError:
            tip = self._context.known_tip(branch)
            if tip is not None:
                await settle_deletion(branch, self._context.repository_log, tip)
            raise

    async def _check_free_by_now(self, branch: str) -> None:
        """Check that a branch may be created; one whose own log ends it is no hindrance."""
        table = await self._context.repository_log.table()
        check_allowed(table, "create_branch")
        if _is_there(table, branch):
            with suppress(RefNotFoundError):
                await self._settled_tip(branch)
        _check_free(self._context.repository_log.known, branch)

    # -- tags -----------------------------------------------------------------------------------------------

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return run(self.list_tags_async())

    async def list_tags_async(self) -> set[str]:
        """Asynchronous twin of `list_tags`."""
        return set((await self._context.repository_log.table()).tags)

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
        return id_to_text((await self._tag(tag)).snapshot)

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Name a snapshot, for ever.

        Raises
        ------
        AlreadyExistsError
            If there is a tag of this name, or was one: a name that was deleted is not given again.
        SnapshotNotFoundError
            If there is no such snapshot, or it has expired.
        InvalidInputError
            If the name cannot be one.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.create_tag_async(tag, snapshot_id))

    async def create_tag_async(self, tag: str, snapshot_id: str) -> None:
        """Asynchronous twin of `create_tag`."""
        name_in_key(tag)
        log = self._context.repository_log
        _check_free_tag(await log.table(), tag)
        tip = await self._tip_of(None, None, snapshot_id)

        async def activate(origin: Origin) -> None:
            now = self._context.environment.now_us()

            def decide(table: RepositoryTable) -> RepositoryEntry:
                _check_free_tag(table, tag)
                _check_new(origin, table.watermark)
                return RepositoryEntry(
                    RepositoryOperation.TAG_CREATED, now, tag, tip.state.snapshot, tip.state.parent, origin
                )

            await log.append(decide)

        await activated(self._context, tip, activate)

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name is never given again.

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
        check_text(tag)
        now = self._context.environment.now_us()

        def decide(table: RepositoryTable) -> RepositoryEntry:
            check_allowed(table, "delete_tag")
            if tag not in table.tags:
                raise RefNotFoundError(f"there is no tag {tag!r}")
            return RepositoryEntry(RepositoryOperation.TAG_DELETED, now, tag)

        await self._context.repository_log.append(decide)


def _check_free(table: RepositoryTable, branch: str) -> None:
    check_allowed(table, "create_branch")
    if _is_there(table, branch):
        raise AlreadyExistsError(f"there is a branch {branch!r} already")


def _is_there(table: RepositoryTable, branch: str) -> bool:
    row = table.branches.get(branch)
    return row is not None and not row.deleted


def _check_free_tag(table: RepositoryTable, tag: str) -> None:
    check_allowed(table, "create_tag")
    if tag in table.tags:
        raise AlreadyExistsError(f"there is a tag {tag!r} already; tags never change")
    if tag in table.burnt:
        raise AlreadyExistsError(f"there was a tag {tag!r}, which was deleted; its name is never given again")


def _check_new(origin: Origin, watermark: bytes) -> None:
    if origin.checkpoint < watermark:
        raise OutdatedAnnouncementError("a garbage collection has begun meanwhile")
