"""Importing an Icechunk repository with its history: a commit for each snapshot, branches and tags."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from arraystore._repository.repository import Repository
from arraystore._repository.snapshots import SnapshotInfo
from arraystore._runtime import run
from arraystore._runtime.extras import how_to_install
from arraystore._runtime.progress import callback_of, shows_progress
from arraystore.copying.branch import first_snapshot, tip_of
from arraystore.copying.errors import CopyDivergedError, CopyError, CopyTargetError
from arraystore.copying.icechunk_settings import copy_settings
from arraystore.copying.icechunk_snapshot import SnapshotCopier, check_same_chunks
from arraystore.copying.provenance import copied_from, time_of, time_of_copy, with_origin
from arraystore.copying.report import CopyCounter, CopyProgressCallback, ImportReport
from arraystore.errors import AlreadyExistsError, ConflictError, InvalidInputError, RefNotFoundError
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    import icechunk

__all__ = ["import_icechunk", "import_icechunk_async"]

_HELPER = "import-of-tag/"


@shows_progress("Importing")
def import_icechunk(
    source: icechunk.Repository | icechunk.Storage,
    target: Repository | Storage,
    *,
    branches: Iterable[str] | None = None,
    tags: bool = True,
    files: Storage | None = None,
    progress: CopyProgressCallback | bool = False,
) -> ImportReport:
    """Import an Icechunk repository with its history.

    Each snapshot of a branch or a tag becomes a commit with its message, metadata and time, that of the first snapshot
    included; `lookup_snapshot` and all that takes the id of a snapshot answer to its old id, too. Only chunks that a
    snapshot changed are read. Virtual chunks stay references to the same objects. Deleted tags are deleted here, too;
    the repository's metadata, saved containers of virtual chunks and feature flags that are set are added to those of
    the target. Called again, it resumes, or imports what is new.

    Parameters
    ----------
    source
        The repository, or where it is.
    target
        An empty repository or an earlier import, or a storage: a repository is created there if there is none.
    branches
        Names of those to import; all by default.
    tags
        Whether tags are created, too, with the history that they need.
    files
        The place of the source as a storage of this package. Icechunk does not expose the checksums of virtual chunks:
        they are read from its manifests there. Without it they are imported unchecked.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with a `CopyProgress` after
        each object.

    Raises
    ------
    InvalidInputError
        If the package icechunk is not installed, or `source` is not a repository of it.
    CopyTargetError
        If a branch of the target has content that is not an import.
    CopyDivergedError
        If a branch of the target is an import of snapshots that its source no longer has.
    """
    return run(import_icechunk_async(source, target, branches=branches, tags=tags, files=files, progress=progress))


@shows_progress("Importing")
async def import_icechunk_async(
    source: icechunk.Repository | icechunk.Storage,
    target: Repository | Storage,
    *,
    branches: Iterable[str] | None = None,
    tags: bool = True,
    files: Storage | None = None,
    progress: CopyProgressCallback | bool = False,
) -> ImportReport:
    """Asynchronous twin of `import_icechunk`."""
    icechunk = _package()
    try:
        theirs = await _open_source(source)
        return await _import(theirs, target, branches, CopyCounter(callback_of(progress)), files, tags=tags)
    except icechunk.IcechunkError as error:
        raise CopyError(
            f"Icechunk cannot read its repository: {_first_line(error)}. What was imported stays; import again to "
            "continue"
        ) from error


async def _import(
    theirs: icechunk.Repository,
    target: Repository | Storage,
    branches: Iterable[str] | None,
    counter: CopyCounter,
    files: Storage | None,
    *,
    tags: bool,
) -> ImportReport:
    there = await theirs.list_branches_async()
    wanted = there if branches is None else set(branches)
    missing = wanted - there
    if missing:
        raise InvalidInputError(f"there is no branch {min(missing)!r} in the Icechunk repository")
    repo = target if isinstance(target, Repository) else await Repository.open_or_create_async(target)
    work = _Import(theirs, repo, counter, files)
    await work.learn()
    tips = {branch: await work.branch(branch) for branch in sorted(wanted, key=lambda name: (name != "main", name))}
    made = {tag: await work.tag(tag) for tag in sorted(await theirs.list_tags_async())} if tags else {}
    if tags:
        await work.forget_helpers()
        for tag, snapshot in await _deleted_tags(theirs):
            await work.deleted_tag(tag, snapshot)
    await copy_settings(theirs, repo)
    return ImportReport(
        tips, made, work.commits, work.known, counter.objects, counter.bytes, counter.virtual, counter.unchecked
    )


def _package() -> ModuleType:
    try:
        import icechunk
    except ImportError as error:
        raise InvalidInputError(how_to_install("import_icechunk", "icechunk", "icechunk")) from error
    return icechunk


async def _open_source(source: Any) -> icechunk.Repository:
    import icechunk

    if isinstance(source, icechunk.Repository):
        return source
    if not isinstance(source, icechunk.Storage):
        raise InvalidInputError(
            f"source is an icechunk.Repository or an icechunk.Storage, not a {type(source).__name__}"
        )
    try:
        return await icechunk.Repository.open_async(source)
    except (icechunk.RepositoryNotFoundError, icechunk.FormatError) as error:
        raise InvalidInputError(f"the source is not a repository of Icechunk: {_first_line(error)}") from error


def _first_line(error: icechunk.IcechunkError) -> str:
    """Return what happened, without where in the code."""
    return str(error.args[0] if error.args else error).partition("\n")[0]


async def _deleted_tags(theirs: icechunk.Repository) -> list[tuple[str, str]]:
    """Return the names of deleted tags, each with its snapshot; a repository of version 1 has no log of them."""
    from icechunk import SpecVersion, UpdateType

    if theirs.spec_version == SpecVersion.v1:
        return []
    kinds = [update.kind async for update in theirs.ops_log_async()]
    return [(kind.name, kind.previous_snap_id) for kind in kinds if isinstance(kind, UpdateType.TagDeleted)]


class _Import:
    """Imports one repository, and counts snapshots of this run (`commits`) and of earlier ones (`known`)."""

    def __init__(
        self, theirs: icechunk.Repository, ours: Repository, counter: CopyCounter, files: Storage | None
    ) -> None:
        self._theirs = theirs
        self._ours = ours
        self._copier = SnapshotCopier(theirs, counter, files)
        self._copies: dict[str, str] = {}
        self._first = ""
        self._roots: set[str] = set()
        """Snapshots of the source that have no parent."""
        self.counter = counter
        self.commits = self.known = 0

    async def learn(self) -> None:
        """Read which snapshots earlier runs have imported."""
        self.counter.enter("snapshots")
        self._first = (await first_snapshot(self._ours)).id
        for name in await self._ours.list_branches_async():
            with suppress(RefNotFoundError):  # an earlier run was about to delete it
                await self._learn_from(self._ours.async_ancestry(branch=name))
        for name in await self._ours.list_tags_async():
            await self._learn_from(self._ours.async_ancestry(tag=name))
        self.known = len(self._copies)

    async def _learn_from(self, history: AsyncIterator[SnapshotInfo]) -> None:
        async for info in history:
            origin = copied_from(info)
            if origin is not None:
                self._copies[origin] = info.id
                if info.parent_id == self._first:
                    self._roots.add(origin)

    async def branch(self, branch: str) -> str:
        """Import a branch and return its newest snapshot."""
        missing, base = await self._missing(branch=branch)
        if branch not in await self._ours.list_branches_async():
            await self._ours.create_branch_async(branch, base)
        else:
            await self._check_continues(branch, base)
        return await self._commit_all(branch, missing, base)

    async def tag(self, tag: str) -> str:
        """Import a tag with the history that it needs, and return its snapshot."""
        missing, copy = await self._missing(snapshot_id=await self._theirs.lookup_tag_async(tag))
        if missing:
            helper = _HELPER + tag
            if helper not in await self._ours.list_branches_async():
                await self._ours.create_branch_async(helper, copy)
            else:
                await self._ours.reset_branch_async(helper, copy)
            copy = await self._commit_all(helper, missing, copy)
        if tag not in await self._ours.list_tags_async():
            await self._ours.create_tag_async(tag, copy)
        elif await self._ours.lookup_tag_async(tag) != copy:
            raise CopyTargetError(
                f"tag {tag!r} exists and is not an import; tags never change: import to an empty repository"
            )
        return copy

    async def forget_helpers(self) -> None:
        """Delete the branches that tags were imported on."""
        tags = await self._ours.list_tags_async()
        for branch in await self._ours.list_branches_async():
            if branch.startswith(_HELPER) and branch.removeprefix(_HELPER) in tags:
                with suppress(RefNotFoundError):  # an earlier run had begun to
                    await self._ours.delete_branch_async(branch)

    async def deleted_tag(self, tag: str, snapshot: str) -> None:
        """Delete a tag here, too, so that its name is never used again."""
        copy = self._copies.get(snapshot, self._first)
        with suppress(AlreadyExistsError):  # or it is deleted
            await self._ours.create_tag_async(tag, copy)
        if tag in await self._ours.list_tags_async() and await self._ours.lookup_tag_async(tag) == copy:
            await self._ours.delete_tag_async(tag)

    async def _missing(
        self, *, branch: str | None = None, snapshot_id: str | None = None
    ) -> tuple[list[icechunk.SnapshotInfo], str]:
        """Return the snapshots of a history to import, oldest first, and the copy of the one before them."""
        missing: list[icechunk.SnapshotInfo] = []
        async for info in self._theirs.async_ancestry(branch=branch, snapshot_id=snapshot_id):
            copy = self._copies.get(info.id)
            if copy is not None:
                return missing[::-1], copy
            missing.append(info)
        return missing[::-1], self._first

    async def _check_continues(self, branch: str, base: str) -> None:
        """Check that an existing branch is at the copy of what comes first of what is missing, or empty."""
        tip = await tip_of(self._ours, branch)
        if tip.id == base:
            return
        if copied_from(tip) is not None:
            raise CopyDivergedError(
                f"branch {branch!r} is an import of snapshot {copied_from(tip)}, which is not in its history any more; "
                "delete or reset the branch, and import again"
            )
        if await self._has_nodes(tip.id):
            raise CopyTargetError(
                f"branch {branch!r} of {self._ours.storage.location} has content that is not an import; import to "
                "an empty repository"
            )
        await self._ours.reset_branch_async(branch, base)

    async def _has_nodes(self, snapshot: str) -> bool:
        session = await self._ours.readonly_session_async(snapshot_id=snapshot)
        return bool(session.hierarchy.state.nodes)

    async def _commit_all(self, branch: str, missing: list[icechunk.SnapshotInfo], base: str) -> str:
        """Commit copies of snapshots to a branch that ends at `base`, and check the chunks of the last one."""
        tip, time = base, time_of(await self._ours.lookup_snapshot_async(base))
        self._roots.update(info.id for info in missing if info.parent_id is None)
        for info in missing:
            session = await self._ours.writable_session_async(branch)
            if session.snapshot_id != tip:
                raise _overtaken_error(branch)
            # An expiry lets the oldest snapshot that it leaves follow the first of all: no log says what differs.
            is_unclear = info is missing[-1] or info.parent_id in self._roots
            await self._copier.apply(info.parent_id, info.id, session, documents=is_unclear)
            session.written = time = time_of_copy(info.written_at, time)
            metadata = with_origin(dict(info.metadata), info.id, info.written_at)
            try:
                tip = await session.commit_async(info.message, metadata, allow_empty=True)
            except ConflictError as error:
                raise _overtaken_error(branch) from error
            self._copies[info.id] = tip
            self.commits += 1
        if missing:
            theirs = await self._theirs.readonly_session_async(snapshot_id=missing[-1].id)
            await check_same_chunks(theirs, await self._ours.readonly_session_async(snapshot_id=tip))
        return tip


def _overtaken_error(branch: str) -> CopyError:
    return CopyDivergedError(f"another writer commits to branch {branch!r} while it is imported; import again")
