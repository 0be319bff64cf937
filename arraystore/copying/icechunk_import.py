"""Importing an Icechunk repository with its history: a commit for each snapshot, branches and tags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore.copying.branch import first_snapshot, tip_of
from arraystore.copying.errors import CopyDivergedError, CopyError, CopyTargetError
from arraystore.copying.icechunk_snapshot import apply_snapshot, check_same_chunks
from arraystore.copying.provenance import copied_from, with_origin
from arraystore.copying.report import CopyCounter, ImportReport, Progress
from arraystore.errors import ConflictError, InvalidInputError
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    import icechunk

__all__ = ["import_icechunk", "import_icechunk_async"]

_HELPER = "import-of-tag/"


def import_icechunk(
    source: icechunk.Repository | icechunk.Storage,
    target: Repository | Storage,
    *,
    branches: Iterable[str] | None = None,
    tags: bool = True,
    progress: Progress | None = None,
) -> ImportReport:
    """Import an Icechunk repository with its history.

    Each snapshot becomes a commit with its message and metadata, which also name the original snapshot and its time.
    Only what a snapshot changed is read.  Virtual chunks stay references to the same objects; their checksums are not
    imported, because Icechunk does not expose them. Called again, it resumes, or imports what is new.

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
    progress
        Called with a `CopyProgress` after each object.

    Raises
    ------
    InvalidInputError
        If the package icechunk is not installed, or `source` is not a repository of it.
    CopyTargetError
        If a branch of the target has content that is not an import.
    CopyDivergedError
        If a branch of the target is an import of snapshots that its source no longer has.
    """
    return run(import_icechunk_async(source, target, branches=branches, tags=tags, progress=progress))


async def import_icechunk_async(
    source: icechunk.Repository | icechunk.Storage,
    target: Repository | Storage,
    *,
    branches: Iterable[str] | None = None,
    tags: bool = True,
    progress: Progress | None = None,
) -> ImportReport:
    """Asynchronous twin of `import_icechunk`."""
    theirs = await _open_source(source)
    repo = target if isinstance(target, Repository) else await Repository.open_or_create_async(target)
    there = await theirs.list_branches_async()
    wanted = there if branches is None else set(branches)
    missing = wanted - there
    if missing:
        raise InvalidInputError(f"there is no branch {min(missing)!r} in the Icechunk repository")
    work = _Import(theirs, repo, CopyCounter(progress))
    await work.learn()
    tips = {branch: await work.branch(branch) for branch in sorted(wanted, key=lambda name: (name != "main", name))}
    made = {tag: await work.tag(tag) for tag in sorted(await theirs.list_tags_async())} if tags else {}
    counter = work.counter
    return ImportReport(tips, made, work.commits, work.known, counter.objects, counter.bytes, counter.virtual)


async def _open_source(source: Any) -> icechunk.Repository:
    try:
        import icechunk
    except ImportError as error:
        raise InvalidInputError(
            "an Icechunk repository is read with the package icechunk, which is not installed: pip install icechunk"
        ) from error
    if isinstance(source, icechunk.Repository):
        return source
    if isinstance(source, icechunk.Storage):
        return await icechunk.Repository.open_async(source)
    raise InvalidInputError(f"source is an icechunk.Repository or an icechunk.Storage, not a {type(source).__name__}")


class _Import:
    """Imports one repository, and counts snapshots of this run (`commits`) and of earlier ones (`known`)."""

    def __init__(self, theirs: icechunk.Repository, ours: Repository, counter: CopyCounter) -> None:
        self._theirs = theirs
        self._ours = ours
        self._copies: dict[str, str] = {}
        self._first = ""
        self.counter = counter
        self.commits = self.known = 0

    async def learn(self) -> None:
        """Read which snapshots earlier runs have imported."""
        self.counter.enter("snapshots")
        histories = [self._ours.async_ancestry(branch=name) for name in await self._ours.list_branches_async()]
        histories += [self._ours.async_ancestry(tag=name) for name in await self._ours.list_tags_async()]
        for history in histories:
            async for info in history:
                origin = copied_from(info)
                if origin is not None:
                    self._copies[origin] = info.id
        self.known = len(self._copies)
        self._first = (await first_snapshot(self._ours)).id

    async def branch(self, branch: str) -> str:
        """Import a branch and return its newest snapshot."""
        if branch in await self._ours.list_branches_async():
            missing = await self._check_continues(branch)
        else:
            missing, base = await self._missing(branch=branch)
            await self._ours.create_branch_async(branch, base)
        return await self._commit_all(branch, missing)

    async def tag(self, tag: str) -> str:
        """Import a tag with the history that it needs, and return its snapshot."""
        snapshot = await self._theirs.lookup_tag_async(tag)
        copy = self._copies.get(snapshot)
        helper = None
        if copy is None:
            missing, base = await self._missing(snapshot_id=snapshot)
            copy = base
            if missing:
                helper = _HELPER + tag
                if helper not in await self._ours.list_branches_async():
                    await self._ours.create_branch_async(helper, base)
                copy = await self._commit_all(helper, missing)
        if tag not in await self._ours.list_tags_async():
            await self._ours.create_tag_async(tag, copy)
        elif await self._ours.lookup_tag_async(tag) != copy:
            raise CopyTargetError(
                f"tag {tag!r} exists and is not an import; tags never change: import to an empty repository"
            )
        if helper is not None:
            await self._ours.delete_branch_async(helper)
        return copy

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
        missing.pop()  # the empty snapshot that a repository begins with, as ours does
        return missing[::-1], self._first

    async def _check_continues(self, branch: str) -> list[icechunk.SnapshotInfo]:
        """Return the snapshots that an existing branch lacks; raise if it is neither an import nor empty."""
        tip = await tip_of(self._ours, branch)
        origin = copied_from(tip)
        history = [info async for info in self._theirs.async_ancestry(branch=branch)]
        if origin is None:
            if await self._has_nodes(tip.id):
                raise CopyTargetError(
                    f"branch {branch!r} of {self._ours.storage.location} has content that is not an import; import to "
                    "an empty repository"
                )
            return history[-2::-1]
        ids = [info.id for info in history]
        if origin not in ids:
            raise CopyDivergedError(
                f"branch {branch!r} is an import of snapshot {origin}, which is not in its history any more; delete or "
                "reset the branch, and import again"
            )
        return history[: ids.index(origin)][::-1]

    async def _has_nodes(self, snapshot: str) -> bool:
        session = await self._ours.readonly_session_async(snapshot_id=snapshot)
        return bool(session.hierarchy.state.nodes)

    async def _commit_all(self, branch: str, missing: list[icechunk.SnapshotInfo]) -> str:
        """Commit copies of snapshots to a branch, and check the chunks of the last one."""
        tip = await self._ours.lookup_branch_async(branch)
        for info in missing:
            session = await self._ours.writable_session_async(branch)
            if session.snapshot_id != tip:
                raise _overtaken_error(branch)
            assert info.parent_id is not None  # only the first snapshot has none
            await apply_snapshot(self._theirs, info.parent_id, info.id, session, self.counter)
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
