"""Applying the difference between two snapshots of an Icechunk repository to a session.

The states of the snapshots are compared: ids of nodes, manifests, and the references of arrays whose manifests differ.
What a transaction log of Icechunk lists is relative to the snapshot that was the parent when it was written, which an
expiry may have removed since.  So only what states do not tell cheaply is taken from it, and only where the parent is
not the first snapshot, which expiries put in the place of what they remove: moves and changed documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from arraystore._chunks.virtual_checksums import Checksum
from arraystore._format.box import Box
from arraystore._format.node import Node, NodeKind
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._runtime.concurrency import bounded, for_each
from arraystore._session.keys import join
from arraystore._session.listing import present_chunks
from arraystore._session.session import Session
from arraystore._session.virtual_references import write_virtual_references
from arraystore.copying.errors import CopyError, CopyIncompleteError
from arraystore.copying.icechunk_manifest import ChecksumsByCell, read_checksums
from arraystore.copying.icechunk_state import (
    VIRTUAL,
    ChunkBatch,
    Snapshot,
    SourceNode,
    Table,
    batches,
    read_snapshot,
    trim,
)
from arraystore.copying.report import CopyCounter
from arraystore.errors import VirtualReferenceError
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    import icechunk

__all__ = ["SnapshotCopier", "check_same_chunks"]

_DOCUMENT = "zarr.json"
_AT_A_TIME = 16
"""Chunks or documents in memory at a time; their sizes are known only once they are read."""

_BATCH = 1 << 16


@dataclass(frozen=True)
class _Log:
    """Record of a transaction log about the difference between two snapshots; paths have no leading slash."""

    moves: tuple[tuple[str, str], ...] = ()
    documents: frozenset[str] = frozenset()
    chunks: dict[str, Int64s] = field(default_factory=dict)


class SnapshotCopier:
    """Makes sessions of a repository show snapshots of an Icechunk repository, one after the other."""

    def __init__(self, source: icechunk.Repository, counter: CopyCounter, files: Storage | None = None) -> None:
        self._source = source
        self._counter = counter
        self._files = files
        self._last: Snapshot | None = None

    async def apply(self, parent: str | None, snapshot: str, session: Session, *, documents: bool) -> None:
        """Change a session's hierarchy from a copy of the parent into one of the snapshot.

        Documents of all nodes are compared if `documents`, else those that the transaction log has; the log is not
        read where nothing comes before.
        """
        before = await self._at(parent)
        after = await read_snapshot(self._source, snapshot)
        log = await self._read_log(before.id, after.id) if before.nodes else _Log()
        theirs = await self._source.readonly_session_async(snapshot_id=snapshot)
        earlier = await self._source.readonly_session_async(snapshot_id=before.id) if before.nodes else theirs
        work = _Step(earlier, theirs, before, after, session, self._counter, self._files)
        await work.apply(log or _Log(), everywhere=documents or log is None)
        self._last = trim(after)

    async def _at(self, snapshot: str | None) -> Snapshot:
        if self._last is not None and self._last.id == snapshot:
            return self._last
        return Snapshot("", {}) if snapshot is None else await read_snapshot(self._source, snapshot)

    async def _read_log(self, before: str, after: str) -> _Log | None:
        """Read the transaction log of a snapshot; None if it is missing or does not fit."""
        from icechunk import IcechunkError

        try:
            diff = await self._source.diff_async(from_snapshot_id=before, to_snapshot_id=after)
        except IcechunkError:
            return None
        moves = [(old.strip("/"), new.strip("/")) for old, new in diff.moved_nodes]
        chunks = {path.strip("/"): np.array(cells, dtype=np.int64) for path, cells in diff.updated_chunks.items()}
        documents = {path.strip("/") for path in diff.updated_groups | diff.updated_arrays}
        return _Log(tuple(moves), frozenset(documents), chunks)


def _parents_first(paths: Sequence[str]) -> list[str]:
    return sorted(paths, key=lambda path: (path.count("/") + bool(path), path))


def _is_beneath(path: str, top: str) -> bool:
    return path == top or not top or path.startswith(top + "/")


def _chunks_differ(before: SourceNode, after: SourceNode) -> bool:
    return (before.manifests, before.shape) != (after.manifests, after.shape)


class _Step:
    """Writes the difference between two snapshots to a session."""

    def __init__(
        self,
        earlier: icechunk.Session,
        theirs: icechunk.Session,
        before: Snapshot,
        after: Snapshot,
        ours: Session,
        counter: CopyCounter,
        files: Storage | None,
    ) -> None:
        self._earlier = earlier
        self._theirs = theirs
        self._before = before
        self._after = after
        self._ours = ours
        self._hierarchy = ours.hierarchy
        self._counter = counter
        self._files = files
        self._kept = dict(before.nodes)
        """Nodes of the earlier snapshot that the session shows, by their path there."""
        self._read_last: tuple[SourceNode | None, ChecksumsByCell] = (None, {})

    async def apply(self, log: _Log, *, everywhere: bool) -> None:
        """Change nodes and chunks; compare the documents of all nodes, or of those in the log."""
        for old, new in log.moves:
            self._move(old, new)
        self._delete_gone()
        changed = await self._changed_documents(None if everywhere else log.documents)
        for path in _parents_first(list(self._after.nodes)):
            node, kept = self._after.nodes[path], self._kept.get(path)
            table = None
            if kept is not None and node.is_array and (_chunks_differ(kept, node) or path in log.chunks):
                table = await self._table(path, kept.id)  # while the session shows the grid that it is of
            is_new = kept is None
            if is_new or path in changed:
                is_new |= await self._document(path)
            if node.is_array and (is_new or table is not None):
                await self._chunks(path, None if is_new else table, log.chunks.get(path))
            elif kept is not None and kept.id in self._before.tables:
                self._after.tables[node.id] = self._before.tables[kept.id]

    # -- nodes ----------------------------------------------------------------------------------------------

    def _move(self, old: str, new: str) -> None:
        """Move a node as the log has it, if the nodes of the snapshots agree."""
        parent = new.rpartition("/")[0]
        if old not in self._kept or new in self._kept or (parent and parent not in self._kept):
            return
        self._ours.move(old, new)
        self._kept = {
            new + path.removeprefix(old) if _is_beneath(path, old) else path: node for path, node in self._kept.items()
        }

    def _delete_gone(self) -> None:
        """Delete nodes that the snapshot no longer has, or has at another path, with all beneath them."""
        for path in _parents_first(list(self._kept)):
            node, now = self._kept.get(path), self._after.nodes.get(path)
            if node is None or (now is not None and (node.id, node.is_array) == (now.id, now.is_array)):
                continue
            self._hierarchy.delete_prefix(path)
            self._kept = {other: kept for other, kept in self._kept.items() if not _is_beneath(other, path)}

    async def _changed_documents(self, listed: frozenset[str] | None) -> set[str]:
        """Return the nodes that both snapshots have, with different documents; of those listed, if that is not None."""
        before = {node.id: path for path, node in self._before.nodes.items()}
        shapes = {path for path, node in self._kept.items() if node.shape != self._after.nodes[path].shape}
        paths = [path for path in self._kept if listed is None or path in listed or path in shapes]

        async def differs(path: str) -> bool:
            old = await _read(self._earlier, join(before[self._kept[path].id], _DOCUMENT))
            return old != await _read(self._theirs, join(path, _DOCUMENT))

        found = await bounded(differs, paths, _AT_A_TIME)
        return {path for path, is_changed in zip(paths, found, strict=True) if is_changed}

    async def _document(self, path: str) -> bool:
        """Write the document of a node, and return whether it is a different node now, without chunks."""
        key = join(path, _DOCUMENT)
        value = await _read(self._theirs, key)
        if value is None:
            raise CopyIncompleteError(
                f"snapshot {self._theirs.snapshot_id} has no {key!r}: it may have expired; import again"
            )
        before = self._hierarchy.node(path)
        self._hierarchy.set_sync(key, memoryview(value))
        after = self._hierarchy.node(path)
        if after is None:
            raise CopyError(
                f"snapshot {self._theirs.snapshot_id}: {key!r} is not a document that this release can read"
            )
        return before is None or before.id != after.id

    # -- chunks ---------------------------------------------------------------------------------------------

    def _array(self, path: str) -> tuple[Node, Box]:
        """Return an array and its grid."""
        node = self._hierarchy.node(path)
        if node is None or node.kind != NodeKind.ARRAY:
            raise CopyIncompleteError(
                f"snapshot {self._theirs.snapshot_id} has chunks of {path!r}, which is not an array"
            )
        return node, _box(array_info(node.documents).grid)

    async def _table(self, path: str, identifier: str) -> Table:
        """Return the references that an array had in the earlier snapshot."""
        if identifier in self._before.tables:
            return self._before.tables[identifier]
        box = self._array(path)[1]
        old = next(place for place, node in self._before.nodes.items() if node.id == identifier)
        numbers: list[Int64s] = []
        marks: list[Int64s] = []
        async for batch in batches(self._earlier.store, old, box.high):
            numbers.append(box.numbers(batch.coords))
            marks.append(batch.marks())
        return Table.of(box, numbers, marks)

    async def _chunks(self, path: str, before: Table | None, listed: Int64s | None) -> None:
        """Write the chunks of an array that differ from a table, or all; virtual ones that are listed in any case.

        Their checksums may have changed, which no reference shows.
        """
        node, box = self._array(path)
        grid = array_info(node.documents).grid
        old = Table.of(box, [], []) if before is None else before.within(box)
        again = np.empty(0, np.int64) if listed is None else box.numbers(listed.reshape(len(listed), len(grid)))
        numbers: list[Int64s] = []
        marks: list[Int64s] = []
        async for batch in batches(self._theirs.store, path, grid):
            numbers.append(box.numbers(batch.coords))
            marks.append(batch.marks())
            wanted = ~old.same(numbers[-1], marks[-1])
            wanted |= np.isin(numbers[-1], again) & (batch.kinds == VIRTUAL)
            await self._write(node, batch, np.flatnonzero(wanted))
        table = Table.of(box, numbers, marks)
        info = array_info(node.documents)
        gone = box.coords(np.setdiff1d(old.numbers, table.numbers))
        for cell in gone[(gone < np.array(grid, dtype=np.int64)).all(axis=1)].tolist():
            self._hierarchy.delete(join(path, info.key(tuple(cell))))
        self._after.tables[self._after.nodes[path].id] = table

    async def _write(self, node: Node, batch: ChunkBatch, rows: Int64s) -> None:
        """Write some chunks of a batch."""
        info = array_info(node.documents)
        virtual = rows[batch.kinds[rows] == VIRTUAL]

        async def write(row: int) -> None:
            key = join(node.path, info.key(tuple(batch.coords[row].tolist())))
            value = batch.inlined.get(row)
            if value is None:
                value = await _read(self._theirs, key)
            if value is None:
                raise CopyIncompleteError(f"snapshot {self._theirs.snapshot_id}: chunk {key!r} is missing")
            await self._hierarchy.set(key, memoryview(value))
            self._counter.copied(len(value))

        await for_each(np.setdiff1d(rows, virtual).tolist(), write, _AT_A_TIME)
        if len(virtual):
            self._refer(node, batch, virtual, await self._checksums(node.path))

    async def _checksums(self, path: str) -> ChecksumsByCell:
        """Read the checksums of an array's virtual chunks, if there are files to read them from."""
        source = self._after.nodes[path]
        if self._files is None:
            return {}
        if self._read_last[0] != source:
            identifiers = [identifier for identifier, _ in source.manifests]
            self._read_last = source, await read_checksums(self._files, identifiers, source.id)
        return self._read_last[1]

    def _refer(self, node: Node, batch: ChunkBatch, rows: Int64s, checksums: ChecksumsByCell) -> None:
        """Write the virtual references of some rows."""
        each: list[Checksum] = [checksums.get(tuple(cell)) for cell in batch.coords[rows].tolist()]
        self._counter.unchecked += each.count(None)
        try:
            write_virtual_references(
                self._hierarchy,
                self._ours.context.containers,
                node,
                batch.coords[rows],
                [batch.places[row] for row in rows.tolist()],
                batch.offsets[rows],
                batch.lengths[rows],
                validate=False,
                checksums=each,
            )
        except VirtualReferenceError as error:
            raise CopyError(f"array {node.path!r} of snapshot {self._theirs.snapshot_id}: {error.message}") from None
        self._counter.virtual += len(rows)


async def _read(session: icechunk.Session, key: str) -> bytes | None:
    value = await session.store.get(key, default_buffer_prototype())
    return None if value is None else value.to_bytes()


def _box(grid: tuple[int, ...]) -> Box:
    return Box((0,) * len(grid), tuple(max(1, side) for side in grid))


async def check_same_chunks(theirs: icechunk.Session, ours: Session) -> None:
    """Check that two snapshots have chunks at the same coordinates, without reading the chunks."""
    for node in ours.hierarchy.state.nodes.values():
        if node.kind != NodeKind.ARRAY:
            continue
        grid = array_info(node.documents).grid
        box = _box(grid)
        there = await _numbers(theirs, "/" + node.path, grid, box)
        here = np.sort(box.numbers((await present_chunks(ours.hierarchy, node)).coords))
        if not np.array_equal(there, here):
            differ = np.setxor1d(there, here)[:1]
            cell = tuple(box.coords(differ)[0].tolist()) if len(differ) else ()
            raise CopyIncompleteError(
                f"array {node.path!r} differs at chunk {cell} between snapshot {theirs.snapshot_id} of Icechunk and "
                f"its copy {ours.snapshot_id}: delete the branch of the copy, and import again"
            )


async def _numbers(theirs: icechunk.Session, path: str, grid: tuple[int, ...], box: Box) -> Int64s:
    """Return the numbers of all chunks that an array has within its grid, ascending."""
    parts: list[Int64s] = []
    batch: list[tuple[int, ...]] = []

    def take_batch() -> None:
        coords = np.array(batch, dtype=np.int64).reshape(len(batch), len(grid))
        parts.append(box.numbers(coords[(coords < np.array(grid, dtype=np.int64)).all(axis=1)]))
        batch.clear()

    async for cell in theirs.chunk_coordinates(path):
        batch.append(cell)
        if len(batch) == _BATCH:
            take_batch()
    take_batch()
    return np.sort(np.concatenate(parts))
