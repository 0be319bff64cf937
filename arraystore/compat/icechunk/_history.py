"""Methods of `Repository` for branches, tags, settings and history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Any

import arraystore
from arraystore._repository.history import iterate
from arraystore._runtime import run
from arraystore.compat.icechunk._base import RepositoryBase
from arraystore.compat.icechunk._exceptions import ErrorKind, say
from arraystore.compat.icechunk._forward import forwarded, refining
from arraystore.compat.icechunk._lineage import committed_diff, manifest_files, newest_first
from arraystore.compat.icechunk._metadata import plain
from arraystore.compat.icechunk._opening import check_version
from arraystore.compat.icechunk.config import FeatureFlag
from arraystore.compat.icechunk.ops import FLAG_IDS, RepoStatus, Update, changed_flags, named_before
from arraystore.compat.icechunk.snapshots import FIRST_SNAPSHOT, AncestryGraph, Diff, ManifestFileInfo, SnapshotInfo
from arraystore.errors import ConflictError

_Core = arraystore.Repository


class HistoryMethods(RepositoryBase):
    """Branches, tags, settings, history."""

    # -- branches and tags ----------------------------------------------------------------------------------------

    list_branches = forwarded(_Core.list_branches)
    list_branches_async = forwarded(_Core.list_branches_async)
    create_branch = forwarded(_Core.create_branch)
    create_branch_async = forwarded(_Core.create_branch_async)
    delete_branch = forwarded(_Core.delete_branch)
    delete_branch_async = forwarded(_Core.delete_branch_async)
    list_tags = forwarded(_Core.list_tags)
    list_tags_async = forwarded(_Core.list_tags_async)
    create_tag = forwarded(_Core.create_tag)
    create_tag_async = forwarded(_Core.create_tag_async)
    delete_tag = forwarded(_Core.delete_tag)
    delete_tag_async = forwarded(_Core.delete_tag_async)

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the newest snapshot of a branch."""
        return run(self.lookup_branch_async(branch))

    async def lookup_branch_async(self, branch: str) -> str:
        """Asynchronous twin of `lookup_branch`."""
        with refining():
            found = await self._core.lookup_branch_async(branch)
            state = (await self._core.context.tip(branch)).state
        return FIRST_SNAPSHOT if state.parent is None else found

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names."""
        return run(self.lookup_tag_async(tag))

    async def lookup_tag_async(self, tag: str) -> str:
        """Asynchronous twin of `lookup_tag`."""
        with refining():
            return await self._shown_id(await self._core.lookup_tag_async(tag))

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Reset a branch to another snapshot."""
        run(self.reset_branch_async(branch, snapshot_id, from_snapshot_id=from_snapshot_id))

    async def reset_branch_async(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Asynchronous twin of `reset_branch`."""
        before, after = await self._known_id(from_snapshot_id), await self._known_id(snapshot_id)
        with refining():
            try:
                await self._core.reset_branch_async(branch, after, from_snapshot_id=before)
            except ConflictError as error:
                say(error, ErrorKind.BRANCH_UPDATE_CONFLICT, "branch update conflict")
                raise

    # -- metadata, status, flags ----------------------------------------------------------------------------------

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository."""
        return run(self.get_metadata_async())

    async def get_metadata_async(self) -> dict[str, Any]:
        """Asynchronous twin of `get_metadata`."""
        check_version(self._opened, "metadata of the repository")
        return await self._core.get_metadata_async()

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the repository."""
        return self.get_metadata()

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata of the repository."""
        run(self.set_metadata_async(metadata))

    async def set_metadata_async(self, metadata: dict[str, Any]) -> None:
        """Asynchronous twin of `set_metadata`."""
        check_version(self._opened, "metadata of the repository")
        with refining():
            await self._core.set_metadata_async(plain(metadata))

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Set some of the metadata of the repository, and return all of it."""
        return run(self.update_metadata_async(metadata))

    async def update_metadata_async(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Asynchronous twin of `update_metadata`."""
        check_version(self._opened, "metadata of the repository")
        with refining():
            return await self._core.update_metadata_async(plain(metadata))

    def get_status(self) -> RepoStatus:
        """Return whether the repository may be changed."""
        return run(self.get_status_async())

    @property
    def status(self) -> RepoStatus:
        """Tell whether the repository may be changed."""
        return self.get_status()

    async def get_status_async(self) -> RepoStatus:
        """Asynchronous twin of `get_status`."""
        status = await self._core.get_status_async()
        since = status.set_at
        if since is None:  # nobody ever set it: since the creation
            async for update in self._core.ops_log_async():
                since = update.updated_at or since
        return RepoStatus(status.availability, since, status.limited_availability_reason)

    set_status = forwarded(_Core.set_status)
    set_status_async = forwarded(_Core.set_status_async)
    set_feature_flag = forwarded(_Core.set_feature_flag)
    set_feature_flag_async = forwarded(_Core.set_feature_flag_async)

    def feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that can be switched off."""
        return run(self.feature_flags_async())

    async def feature_flags_async(self) -> list[FeatureFlag]:
        """Asynchronous twin of `feature_flags`."""
        return [FeatureFlag.of(FLAG_IDS[flag.name], flag) for flag in await self._core.feature_flags_async()]

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that are allowed."""
        return run(self.enabled_feature_flags_async())

    async def enabled_feature_flags_async(self) -> list[FeatureFlag]:
        """Asynchronous twin of `enabled_feature_flags`."""
        return [flag for flag in await self.feature_flags_async() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that are switched off."""
        return run(self.disabled_feature_flags_async())

    async def disabled_feature_flags_async(self) -> list[FeatureFlag]:
        """Asynchronous twin of `disabled_feature_flags`."""
        return [flag for flag in await self.feature_flags_async() if not flag.enabled]

    # -- history --------------------------------------------------------------------------------------------------

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Iterator[SnapshotInfo]:
        """List a snapshot and those before it, newest first."""
        rows = iterate(self.async_ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id))
        return chain([next(rows)], rows)  # what does not exist is an error now, not with the first row

    async def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Asynchronous twin of `ancestry`."""
        with refining():
            known = await self._known_id(snapshot_id)
            async for info in newest_first(self._core, branch=branch, tag=tag, snapshot_id=known):
                yield info

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
        limit: int = 100,
    ) -> AncestryGraph:
        """Draw the history."""
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
        with refining():
            known = await self._known_id(snapshot_id)
            drawn = await self._core.ancestry_graph_async(
                branch=branch, tag=tag, snapshot_id=known, plain=plain, limit=limit
            )
            return AncestryGraph.of(drawn, {await self._first_id(): FIRST_SNAPSHOT})

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return what the history says of a snapshot."""
        return run(self.lookup_snapshot_async(snapshot_id))

    async def lookup_snapshot_async(self, snapshot_id: str) -> SnapshotInfo:
        """Asynchronous twin of `lookup_snapshot`."""
        with refining():
            info = await self._core.lookup_snapshot_async(await self._known_id(snapshot_id))
            return SnapshotInfo.of(info, await self._first_id())

    def ops_log(self) -> Iterator[Update]:
        """List what was done to the repository, newest first."""
        return iterate(self.ops_log_async())

    async def ops_log_async(self) -> AsyncIterator[Update]:
        """Asynchronous twin of `ops_log`."""
        first = await self._first_id()
        async for update in changed_flags(named_before(self._core.ops_log_async(), first)):
            shown = Update.of(update, first)
            if shown is not None:
                yield shown

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
        """Return what changed from one snapshot to one that comes after it."""
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
        start = {"branch": from_branch, "tag": from_tag, "snapshot_id": await self._known_id(from_snapshot_id)}
        end = {"branch": to_branch, "tag": to_tag, "snapshot_id": await self._known_id(to_snapshot_id)}
        with refining():
            return await committed_diff(self._core, start, end)

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """List the references of a snapshot, a row for each array that has some."""
        return run(self.list_manifest_files_async(snapshot_id))

    async def list_manifest_files_async(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Asynchronous twin of `list_manifest_files`."""
        with refining():
            return await manifest_files(self._core, await self._known_id(snapshot_id))
