"""Importing a plain Zarr hierarchy into a repository: keys and bytes unchanged, in one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from arraystore._commit.solvers import ConflictSolver
from arraystore._format.node import ancestors
from arraystore._format.zarr_changes import without_consolidated
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore._runtime.concurrency import ByteBudget, MiB, for_each
from arraystore._runtime.engine import Engine, EngineOption, caller_engine, unexpected
from arraystore._runtime.progress import callback_of, shows_progress
from arraystore._session.fork import ForkSession
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import join
from arraystore._session.listing import visible_nodes
from arraystore._session.remote_forks import write_on_workers
from arraystore._session.session import Session
from arraystore.copying.errors import CopyIncompleteError, CopyTargetError
from arraystore.copying.report import CopyCounter, CopyProgressCallback, TransferReport
from arraystore.copying.zarr_keys import check_hierarchy, read_documents, value_keys
from arraystore.copying.zarr_locations import ZarrLocation, ZarrPlace, open_source, place_for
from arraystore.errors import RepositoryNotFoundError
from arraystore.storage.protocol import Storage
from arraystore.storage.sharing import engine_for

__all__ = ["import_zarr", "import_zarr_async"]

_AT_A_TIME = 32
_ROOM = 64 * MiB
_TASK_BYTES = 256 * MiB
_TASK_VALUES = 2000
_Value = tuple[str, int]
"""Key and size of a value."""

_GROUPS = {"zarr.json": b'{"zarr_format": 3, "node_type": "group", "attributes": {}}', ".zgroup": b'{"zarr_format": 2}'}


@shows_progress("Importing")
def import_zarr(
    source: ZarrPlace,
    repo: Repository | Storage,
    *,
    branch: str = "main",
    group: str = "",
    message: str | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
    rebase_with: ConflictSolver | None = None,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> TransferReport:
    """Import a Zarr hierarchy, version 2 or 3, into a repository, in one commit.

    Metadata documents and chunks are copied byte for byte; nothing is decoded, and shards stay shards. Consolidated
    metadata is left out, as a repository does not keep it. Where keys cannot be listed (over HTTP, for instance), it
    provides the names of nodes, and every chunk that may exist is requested.

    Parameters
    ----------
    source
        A directory, a zip file, a URL, a storage, or a store or group of zarr's.
    repo, branch
        Where to.  In a storage without a repository, one is created if there is a Zarr hierarchy, for branch ``main``.
    group
        Path that the hierarchy gets; missing groups above it are created.
    message, metadata
        Of the commit.
    overwrite
        Whether existing nodes at the path may be replaced.
    rebase_with
        See `Session.commit`.
    engine
        Where chunks are copied: ``"threads"`` of this process, ``"spark"`` for the executors of the active session, or
        an engine (`arraystore.spark.engine`).  The one commit is made by this process.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with a `CopyProgress` after
        each object, or each task of an engine.

    Raises
    ------
    InvalidInputError
        If there is no Zarr hierarchy.
    CopyTargetError
        If there is a node at the path.
    CopyIncompleteError
        If the source is an interrupted export, or changes during the import.
    """
    return run(
        import_zarr_async(
            source,
            repo,
            branch=branch,
            group=group,
            message=message,
            metadata=metadata,
            overwrite=overwrite,
            rebase_with=rebase_with,
            engine=caller_engine(engine),
            progress=progress,
        )
    )


@shows_progress("Importing")
async def import_zarr_async(
    source: ZarrPlace,
    repo: Repository | Storage,
    *,
    branch: str = "main",
    group: str = "",
    message: str | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
    rebase_with: ConflictSolver | None = None,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> TransferReport:
    """Asynchronous twin of `import_zarr`."""
    workers = engine_for(engine, repo.storage if isinstance(repo, Repository) else repo)
    shown = source if workers is None else place_for(workers, source)
    place = open_source(source)
    target = repo if isinstance(repo, Repository) else await _open_target(repo, branch, place)
    session = await target.writable_session_async(branch)
    work = _Import(place, session.hierarchy, group.strip("/"), CopyCounter(callback_of(progress)))
    work.make_room(overwrite=overwrite)
    documents = await work.write_documents()
    work.counter.enter("chunks")
    if workers is None:
        await work.values.take_over(value_keys(work.location, documents))
    else:
        await _import_remotely(workers, session, shown, work, documents)
    said = f"Import {place.name}" if message is None else message
    snapshot = await session.commit_async(said, metadata, rebase_with=rebase_with, allow_empty=True)
    counter = work.counter
    return TransferReport(
        snapshot, work.documents, work.values.chunks, work.values.files, counter.bytes, 0, tuple(counter.left_out)
    )


async def _open_target(storage: Storage, branch: str, source: ZarrLocation) -> Repository:
    """Open a repository, or create one for what there is to import."""
    try:
        return await Repository.open_async(storage)
    except RepositoryNotFoundError:
        if branch != "main":
            raise
    await check_hierarchy(source)
    return await Repository.open_or_create_async(storage)


class _Import:
    """Imports one hierarchy."""

    def __init__(self, place: ZarrLocation, hierarchy: Hierarchy, path: str, counter: CopyCounter) -> None:
        self.location = place
        self._hierarchy = hierarchy
        self.path = path
        self.documents = 0
        self.counter = counter
        self.values = _Values(place, hierarchy, path, counter)

    def make_room(self, *, overwrite: bool) -> None:
        """Delete the node at the path, or refuse to."""
        below = join(self.path, "")
        nodes = visible_nodes(self._hierarchy, self.path)
        there = next((n for n in nodes if n.path == self.path or n.path.startswith(below)), None)
        if there is None:
            return
        if not overwrite:
            raise CopyTargetError(
                f"a node exists at {'/' + self.path!r} already: {'/' + there.path!r}, for instance. Import to "
                "another group, or pass overwrite=True to replace it"
            )
        self._hierarchy.delete_prefix(self.path)

    async def write_documents(self) -> dict[str, bytes]:
        """Write all nodes, and return their documents as the source has them."""
        self.counter.enter("documents")
        documents = await read_documents(self.location)
        self._make_groups_above("zarr.json" if any(key.endswith("zarr.json") for key in documents) else ".zgroup")
        kept = _without_consolidated(documents)
        self.documents = len(kept)
        for key, data in sorted(kept.items(), key=lambda item: _rank(item[0])):
            self._hierarchy.set_sync(join(self.path, key), memoryview(data))
            self.counter.copied(len(data))
        return documents

    def _make_groups_above(self, name: str) -> None:
        for above in reversed(list(ancestors(self.path))):
            if self._hierarchy.node(above) is None:
                self._hierarchy.set_sync(join(above, name), memoryview(_GROUPS[name]))


class _Values:
    """Takes over chunks and other values that are not documents."""

    def __init__(self, place: ZarrLocation, hierarchy: Hierarchy, path: str, counter: CopyCounter) -> None:
        self._location = place
        self._hierarchy = hierarchy
        self._path = path
        self._counter = counter
        self.chunks = self.files = 0

    async def take_over(self, items: Iterable[_Value] | AsyncIterator[_Value]) -> None:
        """Write values to the hierarchy."""
        room = ByteBudget(_ROOM)

        async def take_over(item: _Value) -> None:
            async with room.take(item[1]):
                await self._take_over(*item)

        await for_each(items, take_over, _AT_A_TIME)

    async def _take_over(self, key: str, size: int) -> None:
        full = join(self._path, key)
        chunk = self._hierarchy.chunk(full)
        is_chunk = chunk is not None and chunk[0].info is not None
        if chunk is not None and is_chunk and not chunk[0].inside(chunk[1]):
            self._counter.leave_out(key, f"chunk {chunk[1]} is outside of the grid {chunk[0].grid} of its array")
            return
        data = await self._location.get(key, size)
        if data is None:
            if self._location.listable:
                raise CopyIncompleteError(
                    f"{self._location.name}: {key!r} was deleted while it was imported; import again"
                )
            return
        await self._hierarchy.set(full, memoryview(data))
        self.chunks += is_chunk
        self.files += not is_chunk
        self._counter.copied(len(data))


@dataclass(frozen=True)
class _ImportValues:
    """Work of a task: some values are written through a fork."""

    place: ZarrPlace
    path: str

    async def __call__(self, fork: ForkSession, task: list[_Value]) -> Any:
        counter = CopyCounter()
        values = _Values(open_source(self.place), fork.hierarchy, self.path, counter)
        await values.take_over(task)
        return values.chunks, values.files, counter.counts()


async def _import_remotely(
    engine: Engine, session: Session, place: ZarrPlace, work: _Import, documents: dict[str, bytes]
) -> None:
    async def tasks() -> AsyncIterator[list[_Value]]:
        task: list[_Value] = []
        size = 0
        async for item in value_keys(work.location, documents):
            task.append(item)
            size += item[1]
            if size >= _TASK_BYTES or len(task) == _TASK_VALUES:
                yield task
                task, size = [], 0
        if task:
            yield task

    def take(report: Any) -> None:
        match report:
            case (int() as chunks, int() as files, counts) if min(chunks, files) >= 0:
                work.counter.add_counts(counts)
                work.values.chunks += chunks
                work.values.files += files
            case _:
                raise unexpected("counts of values")

    await write_on_workers(engine, session, _ImportValues(place, work.path), tasks(), "importing chunks", take)


def _rank(key: str) -> tuple[int, str, bool]:
    """Return a sort key that puts parents before children, and documents of nodes before their attributes."""
    path, _, name = key.rpartition("/")
    return path.count("/") + bool(path), path, name == ".zattrs"


def _without_consolidated(documents: dict[str, bytes]) -> dict[str, bytes]:
    parts = {key: without_consolidated(key.rpartition("/")[2], data, None) for key, data in documents.items()}
    return {key: data for key, data in parts.items() if data is not None}
