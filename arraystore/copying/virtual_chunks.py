"""Copying virtual chunks into the repository, as they are encoded, in batches of one commit each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arraystore._chunks.virtual_source import VirtualSource
from arraystore._commit.solvers import ConflictDetector
from arraystore._format.node import Node, NodeKind
from arraystore._format.reference_batches import ReferenceTask, tasks_of
from arraystore._format.references import VIRTUAL, References
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._repository.arguments import check_repository
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore._runtime.concurrency import MiB, bounded
from arraystore._runtime.engine import Engine, EngineOption, caller_engine
from arraystore._runtime.progress import callback_of, shows_progress
from arraystore._session.fork import ForkSession
from arraystore._session.keys import join, node_path
from arraystore._session.listing import present_chunks, visible_nodes
from arraystore._session.remote_forks import write_on_workers
from arraystore._session.session import Session
from arraystore.copying.report import CopyCounter, CopyProgressCallback
from arraystore.errors import InvalidInputError, NodeNotFoundError, RebaseFailedError, SourceChangedError
from arraystore.storage.sharing import engine_for

__all__ = ["MaterializeReport", "materialize", "materialize_async"]

_AT_ONCE = 16
_STRETCH = 8 * MiB
"""Bytes of one source that are read at a time."""
_TASK_BYTES = 64 * MiB
_TRIES = 5

AnySession = Session | ForkSession
Batch = AsyncIterator[tuple[Node, References]]
"""Arrays, and references to virtual chunks of each."""


@dataclass(frozen=True)
class MaterializeReport:
    """Result of copying virtual chunks into the repository.

    Parameters
    ----------
    snapshot_id
        The last commit; None if nothing was virtual.
    commits
        Commits that were made.
    chunks, bytes
        Chunks that were copied; in a dry run, that would be.
    """

    snapshot_id: str | None = None
    commits: int = 0
    chunks: int = 0
    bytes: int = 0


@shows_progress("Copying")
def materialize(
    repository: Repository,
    *,
    branch: str = "main",
    group: str = "",
    batch_bytes: int = 1024 * MiB,
    message: str | None = None,
    dry_run: bool = False,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> MaterializeReport:
    """Copy the virtual chunks of a branch into the repository, so that it needs their sources no longer.

    Chunks are copied as they are encoded, and sources must be in the state of their references.  Each batch is a
    commit, so that an interrupted run continues where it was when called again; what others commit meanwhile is kept.
    Older snapshots keep their references.

    Parameters
    ----------
    repository
        Repository, opened with access to the containers of the sources.
    branch
        Branch to commit to.
    group
        Group or array whose chunks are copied; all by default.
    batch_bytes
        Bytes of a batch.
    message
        Message of the commits.
    dry_run
        Whether to count what would be copied, without reading sources.
    engine
        Where chunks are copied: ``"threads"`` of this process, ``"spark"`` for the executors of the active session, or
        an engine (`arraystore.spark.engine`).  Batches are committed by this process.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with a `CopyProgress` after
        each chunk, or each task of an engine.

    Raises
    ------
    SourceChangedError
        If a source is in another state than when the reference was written.
    VirtualReferenceError
        If a source is in no container that is authorised.
    """
    return run(
        materialize_async(
            repository,
            branch=branch,
            group=group,
            batch_bytes=batch_bytes,
            message=message,
            dry_run=dry_run,
            engine=caller_engine(engine),
            progress=progress,
        )
    )


@shows_progress("Copying")
async def materialize_async(
    repository: Repository,
    *,
    branch: str = "main",
    group: str = "",
    batch_bytes: int = 1024 * MiB,
    message: str | None = None,
    dry_run: bool = False,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> MaterializeReport:
    """Asynchronous twin of `materialize`."""
    if batch_bytes <= 0:
        raise InvalidInputError(f"batch_bytes={batch_bytes} must be > 0")
    check_repository(repository)
    workers = engine_for(engine, repository.storage)
    path = node_path(group)
    if dry_run:
        return await _count(await repository.readonly_session_async(branch), path)
    counter, report, failures = CopyCounter(callback_of(progress)), MaterializeReport(), 0
    while True:
        session = await repository.writable_session_async(branch)
        before = counter.objects, counter.bytes
        if not await _copy_batch(session, _batch(session, path, batch_bytes), workers, counter):
            return replace(report, chunks=counter.objects, bytes=counter.bytes)
        try:
            text = message or f"Copy {counter.objects - before[0]} virtual chunks of /{path}"
            snapshot = await session.commit_async(text, rebase_with=ConflictDetector())
        except RebaseFailedError:  # others have changed some of these chunks
            failures += 1
            if failures == _TRIES:
                raise
            counter.objects, counter.bytes = before
            continue
        report, failures = replace(report, snapshot_id=snapshot, commits=report.commits + 1), 0


async def _count(session: Session, path: str) -> MaterializeReport:
    chunks = size = 0
    for node in _arrays(session, path):
        references = await present_chunks(session.hierarchy, node)
        virtual = references.source >= VIRTUAL
        chunks, size = chunks + int(virtual.sum()), size + int(references.length[virtual].sum())
    return MaterializeReport(chunks=chunks, bytes=size)


def _arrays(session: Session, path: str) -> Iterator[Node]:
    """Iterate over the arrays at or below a path."""
    if path and session.hierarchy.node(path) is None:
        raise NodeNotFoundError(f"there is no group or array {path!r} on branch {session.branch!r}")
    below = join(path, "")
    for node in visible_nodes(session.hierarchy, path):
        if node.kind == NodeKind.ARRAY and (not path or node.path == path or node.path.startswith(below)):
            yield node


async def _copy_batch(session: Session, batch: Batch, engine: Engine | None, counter: CopyCounter) -> bool:
    """Copy virtual chunks of a batch; return whether there was any."""
    before = counter.objects
    if engine is not None:
        await _copy_remotely(engine, session, batch, counter)
    else:
        async for node, references in batch:
            await _copy(session, node, references, counter)
    return counter.objects > before


async def _batch(session: Session, path: str, batch_bytes: int) -> Batch:
    """Yield arrays with virtual chunks, and references to these, up to the size of a batch."""
    size = 0
    for node in list(_arrays(session, path)):
        if size >= batch_bytes:
            break
        references = await present_chunks(session.hierarchy, node)
        rows = _within(references, batch_bytes - size)
        if len(rows):
            size += int(references.length[rows].sum())
            yield node, references.take(np.sort(rows))


def _within(references: References, room: int) -> Int64s:
    """Return the rows of virtual chunks in the order of their sources, as many as have room and at least one."""
    virtual = np.flatnonzero(references.source >= VIRTUAL)
    rows = virtual[np.lexsort((references.offset[virtual], references.source[virtual]))]
    ends = np.cumsum(references.length[rows])
    return rows[: max(1, int(np.searchsorted(ends, room, side="right")))]


async def _copy(session: AnySession, node: Node, references: References, counter: CopyCounter) -> None:
    """Copy virtual chunks of an array."""
    reader = session.context.reader
    info = array_info(node.documents)

    async def copy(stretch: Int64s) -> None:
        location = int(references.source[stretch[0]]) - VIRTUAL
        cells = [tuple(cell) for cell in references.coords[stretch].tolist()]
        starts, lengths = references.offset[stretch].tolist(), references.length[stretch].tolist()
        with _naming(node, cells[0]):
            source: VirtualSource = reader.virtual_source(references.locations, location)
            values = await source.read([(at, at + size) for at, size in zip(starts, lengths, strict=True)])
        for cell, value in zip(cells, values, strict=True):
            await session.hierarchy.set(join(node.path, info.key(cell)), memoryview(value))
            counter.copied(len(value))

    await bounded(copy, _stretches(references), _AT_ONCE)


async def _copy_chunks(fork: ForkSession, task: ReferenceTask[Node]) -> Any:
    """Copy the chunks of a task; the work of a worker."""
    counter = CopyCounter()
    for node, manifest in task:
        await _copy(fork, node, References.from_manifest(manifest), counter)
    return counter.counts()


async def _copy_remotely(engine: Engine, session: Session, batch: Batch, counter: CopyCounter) -> None:
    async def without_layers() -> Batch:
        async for node, references in batch:
            yield replace(node, layers=()), references

    tasks = tasks_of(without_layers(), _TASK_BYTES)
    await write_on_workers(engine, session, _copy_chunks, tasks, "copying virtual chunks", counter.add_counts)


@contextlib.contextmanager
def _naming(node: Node, cell: tuple[int, ...]) -> Iterator[None]:
    """Let errors name the array and the first chunk of what was read."""
    try:
        yield
    except SourceChangedError as error:
        raise error.of_chunk(node.path, cell) from None


def _stretches(references: References) -> Iterator[Int64s]:
    """Cut references into those that are read together: of one source, and of so many bytes."""
    rows = np.lexsort((references.offset, references.source))
    lengths, sources = references.length[rows], references.source[rows]
    place = (np.cumsum(lengths) - lengths) // _STRETCH
    cuts = np.flatnonzero((sources[1:] != sources[:-1]) | (place[1:] != place[:-1])) + 1
    yield from np.split(rows, cuts)
