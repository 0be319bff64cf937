"""Applying the changes of one snapshot of an Icechunk repository to a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from arraystore._concurrency import for_each
from arraystore._format.box import Box
from arraystore._format.node import Node, NodeKind
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._session.hierarchy import join
from arraystore._session.listing import present_chunks
from arraystore._session.session import Session
from arraystore._session.virtual_references import write_virtual_references
from arraystore.copying.errors import CopyError, CopyIncompleteError
from arraystore.copying.report import CopyCounter
from arraystore.errors import VirtualReferenceError

if TYPE_CHECKING:
    import icechunk

__all__ = ["apply_snapshot", "check_same_chunks"]


_DOCUMENT = "zarr.json"
_AT_A_TIME = 16
"""Chunks in memory at a time; their sizes are known only once they are read."""

_BATCH = 1 << 16


async def apply_snapshot(
    source: icechunk.Repository, parent: str, snapshot: str, session: Session, counter: CopyCounter
) -> None:
    """Apply the changes between a snapshot and its parent to a session's hierarchy."""
    theirs = await source.readonly_session_async(snapshot_id=snapshot)
    diff = await source.diff_async(from_snapshot_id=parent, to_snapshot_id=snapshot)
    work = _Snapshot(theirs, session, counter)
    for before, after in getattr(diff, "moved_nodes", ()):  # older releases of Icechunk move nothing
        session.move(before, after)
    for path in sorted(diff.deleted_arrays) + sorted(diff.deleted_groups):
        session.hierarchy.delete_prefix(path)
    for path in _parents_first(diff.new_groups | diff.new_arrays):
        work.make_room(path)
        await work.document(path)
    whole = [path for path in _parents_first(diff.updated_groups | diff.updated_arrays) if await work.document(path)]
    for path in whole:
        await work.chunks(path, await work.coordinates(path))
    for path, cells in sorted(diff.updated_chunks.items()):
        if path not in whole:
            ndim = len(work.grid(path))
            await work.chunks(path, np.array(cells, dtype=np.int64).reshape(len(cells), ndim))


def _parents_first(paths: set[str]) -> list[str]:
    return sorted(paths, key=lambda path: (len(path.strip("/").split("/")) if path.strip("/") else 0, path))


class _Snapshot:
    """Writes nodes and chunks of one snapshot."""

    def __init__(self, theirs: icechunk.Session, ours: Session, counter: CopyCounter) -> None:
        self._theirs = theirs
        self._ours = ours
        self._hierarchy = ours.hierarchy
        self._counter = counter

    def make_room(self, path: str) -> None:
        """Delete the node at the path of a new one."""
        node = self._hierarchy.node(path.strip("/"))
        if node is not None:
            self._hierarchy.delete_prefix(path)

    async def document(self, path: str) -> bool:
        """Write the document of a node, and return whether it is a different array now, without chunks."""
        key = join(path.strip("/"), _DOCUMENT)
        value = await self._theirs.store.get(key, default_buffer_prototype())
        if value is None:
            raise CopyIncompleteError(
                f"snapshot {self._theirs.snapshot_id} has no {key!r}: it may have expired; import again"
            )
        before = self._hierarchy.node(path.strip("/"))
        self._hierarchy.set_sync(key, memoryview(value.to_bytes()))
        after = self._hierarchy.node(path.strip("/"))
        if after is None:
            raise CopyError(
                f"snapshot {self._theirs.snapshot_id}: {key!r} is not a document that this release can read"
            )
        return before is not None and before.id != after.id

    def _array(self, path: str) -> Node:
        node = self._hierarchy.node(path.strip("/"))
        if node is None:
            raise CopyIncompleteError(
                f"snapshot {self._theirs.snapshot_id} has chunks of {path!r}, which is not an array"
            )
        return node

    def grid(self, path: str) -> tuple[int, ...]:
        """Return the shape of an array's chunk grid."""
        return array_info(self._array(path).documents).grid

    async def coordinates(self, path: str) -> Int64s:
        """Return the coordinates of all chunks of an array."""
        cells = [cell async for cell in self._theirs.chunk_coordinates(path)]
        return np.array(cells, dtype=np.int64).reshape(len(cells), len(self.grid(path)))

    async def chunks(self, path: str, coords: Int64s) -> None:
        """Write chunks, and delete those that the snapshot no longer has."""
        is_virtual, is_absent = _chunk_type("virtual"), _chunk_type("uninitialized")
        node = self._array(path)
        info = array_info(node.documents)
        inside = coords[(coords < np.array(info.grid, dtype=np.int64)).all(axis=1)]  # a shrink has cut off the others
        virtual: list[tuple[int, ...]] = []

        async def write(cell: Sequence[int]) -> None:
            kind = await self._theirs.chunk_type_async(path, list(cell))
            key = join(node.path, info.key(tuple(cell)))
            if kind == is_virtual:
                virtual.append(tuple(cell))
            elif kind == is_absent:
                self._hierarchy.delete(key)
            else:
                value = await self._theirs.store.get(key, default_buffer_prototype())
                if value is None:
                    raise CopyIncompleteError(f"snapshot {self._theirs.snapshot_id}: chunk {key!r} is missing")
                data = memoryview(value.to_bytes())
                await self._hierarchy.set(key, data)
                self._counter.copied(len(data))

        await for_each(inside.tolist(), write, _AT_A_TIME)
        if virtual:
            await self._refer(path, node, np.array(sorted(virtual), dtype=np.int64).reshape(len(virtual), -1))

    async def _refer(self, path: str, node: Node, coords: Int64s) -> None:
        """Write the virtual references of some cells, in the order of the cells."""
        iterate = getattr(self._theirs.store, "array_chunk_iterator", None)
        if iterate is None:
            raise CopyError(
                f"array {path!r} has virtual chunks, and this release of icechunk does not expose their locations; "
                "install release 2.3 or later"
            )
        grid = self.grid(path)
        box = Box((0,) * len(grid), grid)
        wanted = box.numbers(coords)
        places: dict[int, tuple[str, int, int]] = {}
        async for cells, _, urls, offsets, lengths, _ in iterate(path):
            numbers = box.numbers(np.asarray(cells, dtype=np.int64))
            for i in np.flatnonzero(np.isin(numbers, wanted)).tolist():
                places[int(numbers[i])] = urls[i], int(offsets[i]), int(lengths[i])
        rows = [places[number] for number in wanted.tolist()]
        try:
            write_virtual_references(
                self._ours.hierarchy,
                self._ours.context.containers,
                node,
                coords,
                [url for url, _, _ in rows],
                np.array([offset for _, offset, _ in rows], dtype=np.int64),
                np.array([length for _, _, length in rows], dtype=np.int64),
                validate=False,
                checksums=None,  # Icechunk checks them, yet tells nobody what they are
            )
        except VirtualReferenceError as error:
            raise CopyError(f"array {path!r} of snapshot {self._theirs.snapshot_id}: {error.message}") from None
        self._counter.virtual += len(rows)


async def check_same_chunks(theirs: icechunk.Session, ours: Session) -> None:
    """Check that two snapshots have chunks at the same coordinates, without reading the chunks."""
    for node in ours.hierarchy.state.nodes.values():
        if node.kind != NodeKind.ARRAY:
            continue
        grid = array_info(node.documents).grid
        box = Box((0,) * len(grid), tuple(max(1, side) for side in grid))
        there = await _numbers(theirs, "/" + node.path, grid, box)
        here = np.sort(box.numbers((await present_chunks(ours.hierarchy, node)).coords))
        if not np.array_equal(there, here):
            differ = np.setxor1d(there, here)[:1]
            cell = tuple(box.coords(differ)[0].tolist()) if len(differ) else ()
            raise CopyIncompleteError(
                f"array {node.path!r} differs at chunk {cell} between snapshot {theirs.snapshot_id} of Icechunk and "
                f"its copy {ours.snapshot_id}: the diffs in Icechunk's history are incomplete"
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


def _chunk_type(name: str) -> Any:
    """Return a type of chunks under the name that the installed release of icechunk gives it."""
    from icechunk import ChunkType

    return getattr(ChunkType, name, None) or getattr(ChunkType, name.upper())
