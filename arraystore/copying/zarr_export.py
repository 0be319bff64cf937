"""Exporting a snapshot as a plain Zarr hierarchy: keys and bytes unchanged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arraystore._chunks.reader import ChunkReader
from arraystore._context.context import Context
from arraystore._format.node import Node, NodeKind
from arraystore._format.reference_batches import ReferenceTask, tasks_of
from arraystore._format.references import INLINE, VIRTUAL, References
from arraystore._format.zarr_metadata import DOCUMENT_NAMES, array_info
from arraystore._repository.arguments import check_repository
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore._runtime.concurrency import ByteBudget, MiB, for_each
from arraystore._runtime.engine import Engine, EngineOption, caller_engine
from arraystore._runtime.progress import callback_of, shows_progress
from arraystore._session.keys import join
from arraystore._session.listing import present_chunks, visible_nodes
from arraystore._session.session import Session
from arraystore.copying.chunks import Stretch, read_stretch, stretches
from arraystore.copying.errors import CopyTargetError
from arraystore.copying.report import CopyCounter, CopyProgressCallback, TransferReport
from arraystore.copying.zarr_locations import ZarrLocation, ZarrPlace, open_target, place_for
from arraystore.errors import NodeNotFoundError
from arraystore.storage.protocol import BytesLike
from arraystore.storage.sharing import engine_for

__all__ = ["MARKER", "export_zarr", "export_zarr_async"]

MARKER = "arraystore-export.json"
"""Key that exists while an export is incomplete; its value names the snapshot."""

_AT_A_TIME = 16
_ROOM = 64 * MiB


@shows_progress("Exporting")
def export_zarr(
    repo: Repository,
    target: ZarrPlace,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    group: str = "",
    overwrite: bool = False,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> TransferReport:
    """Write a snapshot, or a part of it, as a plain Zarr hierarchy that any reader of Zarr can open.

    Documents and chunks are written byte for byte as they are encoded; virtual chunks become chunks.  Documents come
    last, so that an interrupted export shows no arrays with holes. Called again for the same snapshot, it resumes:
    chunks that exist in full are not written again.

    Parameters
    ----------
    repo
        The repository.
    target
        A directory, a URL, a storage, or a store or group of zarr's.
    branch, tag, snapshot_id
        The snapshot; exactly one.
    group
        Path of the group or array to write; by default everything.
    overwrite
        Whether an existing Zarr hierarchy is deleted first.
    engine
        Where chunks are copied: ``"threads"`` of this process, ``"spark"`` for the executors of the active session, or
        an engine (`arraystore.spark.engine`).  Documents are written by this process, last.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with a `CopyProgress` after
        each object, or each task of an engine.

    Raises
    ------
    CopyTargetError
        If the target is not empty.
    NodeNotFoundError
        If the snapshot has nothing at the path.
    """
    return run(
        export_zarr_async(
            repo,
            target,
            branch=branch,
            tag=tag,
            snapshot_id=snapshot_id,
            group=group,
            overwrite=overwrite,
            engine=caller_engine(engine),
            progress=progress,
        )
    )


@shows_progress("Exporting")
async def export_zarr_async(
    repo: Repository,
    target: ZarrPlace,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    group: str = "",
    overwrite: bool = False,
    engine: EngineOption = "threads",
    progress: CopyProgressCallback | bool = False,
) -> TransferReport:
    """Asynchronous twin of `export_zarr`."""
    check_repository(repo)
    workers = engine_for(engine, repo.storage)
    place = None if workers is None else place_for(workers, target)
    session = await repo.readonly_session_async(branch, tag=tag, snapshot_id=snapshot_id)
    export = _Export(session, open_target(target), group.strip("/"), CopyCounter(callback_of(progress)))
    if workers is not None and place is not None:
        export.remote = workers, place
    return await export.carry_out(overwrite=overwrite)


@dataclass(frozen=True)
class _Values:
    """Chunks that are read together."""

    references: References
    """References of an array or file."""
    rows: list[int]
    """Positions of the chunks among them."""
    keys: list[str]
    """Key of each."""
    stretch: Stretch | None
    """Location in a pack, for those in one."""

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return int(self.references.length[self.rows].sum())


_EMPTY_GROUP = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'
"""What a repository is exported as in which there is nothing, not even a root group."""


class _Export:
    """Exports one snapshot."""

    def __init__(self, session: Session, place: ZarrLocation, path: str, counter: CopyCounter) -> None:
        self._session = session
        self._location = place
        self._path = path
        self._counter = counter
        self.remote: tuple[Engine, ZarrPlace] | None = None

    async def carry_out(self, *, overwrite: bool) -> TransferReport:
        """Write all chunks and documents."""
        below = join(self._path, "")
        every = visible_nodes(self._session.hierarchy, self._path)
        nodes = [node for node in every if node.path == self._path or node.path.startswith(below)]
        if not nodes and self._path:
            raise NodeNotFoundError(f"there is nothing at {'/' + self._path!r} in snapshot {self._session.snapshot_id}")
        resumed = await self._make_room(overwrite=overwrite)
        self._counter.enter("chunks")
        counts: Counter[NodeKind] = Counter()
        if self.remote is None:
            writer = _ValueWriter(self._location, self._session.context.reader, self._path, resumed, self._counter)
            async for node, references in self._values(nodes, counts):
                await writer.write(node, references)
        else:
            await self._write_remotely(*self.remote, self._values(nodes, counts), resumed=resumed)
        self._counter.enter("documents")
        documents = await self._write_documents(nodes)
        await self._location.finish()
        if self._location.deletes:
            await self._location.delete([MARKER])
        counter = self._counter
        chunks, files = counts[NodeKind.ARRAY], counts[NodeKind.FILE]
        return TransferReport(self._session.snapshot_id, documents, chunks, files, counter.bytes, counter.skipped)

    async def _values(self, nodes: list[Node], counts: Counter[NodeKind]) -> AsyncIterator[tuple[Node, References]]:
        """Yield arrays and files with the references of their chunks, and count these by kind of node."""
        for node in nodes:
            if node.kind != NodeKind.GROUP:
                references = await self._references(node)
                counts[node.kind] += len(references)
                yield node, references

    async def _write_remotely(
        self, engine: Engine, place: ZarrPlace, values: AsyncIterator[tuple[Node, References]], *, resumed: bool
    ) -> None:
        async def without_layers() -> AsyncIterator[tuple[Node, References]]:
            async for node, references in values:
                yield replace(node, layers=()), references

        work = _ExportChunks(self._session.context, place, self._path, resumed)
        async with aclosing(engine.run(work, tasks_of(without_layers()), "exporting chunks")) as results:
            async for result in results:
                self._counter.add_counts(result)

    async def _references(self, node: Node) -> References:
        references = await present_chunks(self._session.hierarchy, node)
        if not len(references):
            return references
        grid = () if node.kind == NodeKind.FILE else array_info(node.documents).grid
        return references.take((references.coords < np.array(grid, dtype=np.int64)).all(axis=1))

    # -- the target -----------------------------------------------------------------------------------------

    async def _make_room(self, *, overwrite: bool) -> bool:
        """Empty the target or refuse to, and return whether an interrupted export is resumed."""
        said = json.dumps({"snapshot": self._session.snapshot_id, "path": self._path}).encode()
        there = await self._location.get(MARKER)
        if there is not None and bytes(there) == said:
            return True
        first = await anext(aiter(self._location.entries()), None) if self._location.listable else None
        if first is not None:
            if not overwrite:
                what = "an export of another snapshot that was interrupted" if there is not None else repr(first[0])
                raise CopyTargetError(
                    f"{self._location.name} is not empty: there is {what}. Export to another place, or pass "
                    "overwrite=True to delete what is there first"
                )
            await self._delete_all(is_export=there is not None)
        if self._location.deletes:
            await self._location.put(MARKER, said)
        return False

    async def _delete_all(self, *, is_export: bool) -> None:
        """Delete the keys at the target if they are those of a Zarr hierarchy."""
        keys = [key async for key, _ in self._location.entries()]
        if not is_export and not set(DOCUMENT_NAMES) & set(keys):
            raise CopyTargetError(
                f"{self._location.name} holds {keys[0]!r}, for instance, and is not a Zarr hierarchy: it is not "
                "deleted. "
                "Delete it yourself, or export to another place"
            )
        await self._location.delete(keys)

    async def _write_documents(self, nodes: list[Node]) -> int:
        """Write documents, those at the top last, so that a hierarchy that can be opened is complete."""
        documents = list(_documents(nodes, len(join(self._path, "")))) or [("zarr.json", _EMPTY_GROUP)]
        for key, data in sorted(documents, key=lambda item: -item[0].count("/")):
            await self._location.put(key, data)
            self._counter.copied(len(data))
        return len(documents)


class _ValueWriter:
    """Writes the chunks of arrays, and files."""

    def __init__(
        self, place: ZarrLocation, reader: ChunkReader, path: str, resumed: bool, counter: CopyCounter
    ) -> None:
        self._location = place
        self._reader = reader
        self._path = path
        self._resumed = resumed
        self._counter = counter

    async def write(self, node: Node, references: References) -> None:
        """Write chunks of a node."""
        room = ByteBudget(_ROOM)

        async def write(values: _Values) -> None:
            async with room.take(values.size):
                await self._write(values)

        await for_each(self._values(node, references), write, _AT_A_TIME)

    async def _values(self, node: Node, references: References) -> AsyncIterator[_Values]:
        """Cut the chunks of a node into groups that are read together, in the order of packs."""
        for stretch in stretches(references):
            yield _Values(references, stretch.rows, self._keys(node, references, stretch.rows), stretch)
        others = np.flatnonzero((references.source < 0) | (references.source >= VIRTUAL))
        for row in others.tolist():
            yield _Values(references, [row], self._keys(node, references, [row]), None)

    def _keys(self, node: Node, references: References, rows: list[int]) -> list[str]:
        path = node.path[len(join(self._path, "")) :]
        if node.kind == NodeKind.FILE:
            return [path]
        info = array_info(node.documents)
        return [join(path, info.key(tuple(coords))) for coords in references.coords[rows].tolist()]

    async def _write(self, values: _Values) -> None:
        if self._resumed:
            lengths = values.references.length[values.rows].tolist()
            sizes = [await self._location.size(key) for key in values.keys]
            left = [at for at, (length, size) in enumerate(zip(lengths, sizes, strict=True)) if length != size]
            for _ in range(len(lengths) - len(left)):
                self._counter.skip()
            values = _select(values, left)
        if not values.rows:
            return
        if values.stretch is not None:
            payloads = await read_stretch(self._reader.storage, values.stretch)
        else:
            payloads = [await _read_other(self._reader, values.references, row) for row in values.rows]

        await self._location.put_many(list(zip(values.keys, payloads, strict=True)))
        self._counter.copied(sum(map(len, payloads)), len(payloads))


@dataclass(frozen=True)
class _ExportChunks:
    """Work of a task: some chunks are written to the target."""

    context: Context
    place: ZarrPlace
    path: str
    resumed: bool

    async def __call__(self, task: ReferenceTask[Node]) -> Any:
        counter = CopyCounter()
        location = open_target(self.place, atomic=True)
        writer = _ValueWriter(location, self.context.reader, self.path, self.resumed, counter)
        for node, manifest in task:
            await writer.write(node, References.from_manifest(manifest))
        await location.finish()
        return counter.counts()


def _documents(nodes: list[Node], skip: int) -> Iterator[tuple[str, bytes]]:
    for node in nodes:
        for name, data in node.documents.items():
            yield join(node.path[skip:], name), data


def _select(values: _Values, at: list[int]) -> _Values:
    """Return a subset of the values."""
    rows = [values.rows[i] for i in at]
    stretch = values.stretch
    if stretch is not None:
        stretch = replace(stretch, rows=rows, ranges=[stretch.ranges[i] for i in at])
    return _Values(values.references, rows, [values.keys[i] for i in at], stretch)


async def _read_other(reader: ChunkReader, references: References, row: int) -> BytesLike:
    """Read a chunk that is inlined or virtual."""
    source = int(references.source[row])
    start = int(references.offset[row])
    stop = start + int(references.length[row])
    if source == INLINE:
        return references.inline[start:stop]
    if start == stop:
        return b""
    return (await reader.virtual_source(references.locations, source - VIRTUAL).read([(start, stop)]))[0]
