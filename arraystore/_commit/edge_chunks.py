"""Chunks that one side only knows a part of, because the other side made their array longer.

Of a chunk that both wrote a solver may choose a side.  Where one side has let the array grow into the chunk, the other
one has nothing to say about the new part: to choose it would put padding in the place of what was appended.  So the
new part is taken from the side that made it, and the rest from the side that was chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arraystore._chunks.reader import ChunkReader, whole_chunk
from arraystore._commit.prepared import Prepared
from arraystore._commit.solvers import Solution
from arraystore._conflicts import Conflict, ConflictType, VersionSelection
from arraystore._format.ids import NodeId
from arraystore._format.layer import Layer
from arraystore._format.manifest import decode_manifest
from arraystore._format.node import Documents, NodeKind
from arraystore._format.transaction import Operation
from arraystore._format.types import Int64s, Shape
from arraystore._format.zarr_changes import dimension_of, with_length
from arraystore._format.zarr_metadata import array_info
from arraystore._log.state import SnapshotState
from arraystore.storage.protocol import BytesLike


class RefusedError(Exception):
    """A solution that cannot be put into effect; its arguments are the conflict and the reason."""


def longer(documents: Documents, shape: Shape) -> Documents:
    """Return documents of an array that is at least as long as a shape along each dimension."""
    now = array_info(documents).shape
    for axis, (length, other) in enumerate(zip(now, shape, strict=False)):
        if other > length:
            documents = with_length(documents, axis, other)
    return documents


def shape_of_ours(prepared: Prepared, node: NodeId, base: SnapshotState) -> Shape | None:
    """Return the shape that an array has for a transaction: the one that it gives it, or that of its base."""
    known = base.by_id(node)
    if known is None or known.kind != NodeKind.ARRAY:
        return None
    was = array_info(known.documents).shape
    for change in prepared.log.nodes:
        if change.id == node and change.operation == Operation.UPDATED and node not in _kept_by(prepared):
            return array_info(change.applied_to(known.documents)).shape
    return was


def _kept_by(prepared: Prepared) -> frozenset[NodeId]:
    """Return arrays whose documents are those of before an append, which is noted for itself."""
    return frozenset(change.id for change in prepared.log.nodes if change.append is not None)


@dataclass(frozen=True, eq=False)
class _Edge:
    """Part of an array where chunks are merged."""

    conflict: Conflict
    documents: Documents
    """Documents of the array as it will be."""
    chunk: Shape
    """Shape of its chunks."""
    chosen: Shape
    """Shape of the array for the side that was chosen."""
    ours: bool
    """True if that is ours."""

    @property
    def shape(self) -> Shape:
        """Shape that the array will have."""
        return array_info(self.documents).shape


async def merge_edge_chunks(
    prepared: Prepared,
    solved: Sequence[tuple[Conflict, Solution]],
    base: SnapshotState,
    after: SnapshotState,
    reader: ChunkReader,
) -> list[tuple[Conflict, Solution]]:
    """Merge chunks of which the chosen side knows only a part, and return the solutions with these chunks.

    `base` is the snapshot of the session, `after` the newest one. Raises `RefusedError` for chunks that cannot be
    merged.
    """
    return [(each, await _merge_edge(prepared, each, answer, base, after, reader)) for each, answer in solved]


async def _merge_edge(
    prepared: Prepared,
    conflict: Conflict,
    answer: Solution,
    base: SnapshotState,
    after: SnapshotState,
    reader: ChunkReader,
) -> Solution:
    if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
        return answer
    edge = _edge(prepared, conflict, answer, base, after)
    if edge is None:
        return answer
    assert conflict.conflicted_chunks is not None
    cells = _partly_known(conflict.conflicted_chunks, edge)
    wanted = [cell for cell in map(tuple, cells.tolist()) if cell not in answer.chunks]
    merged = {cell: await _merge_chunk(prepared, edge, cell, after, reader) for cell in wanted}
    written = {cell: data for cell, data in merged.items() if data is not None}
    return replace(answer, chunks={**answer.chunks, **written})


def _edge(
    prepared: Prepared, conflict: Conflict, answer: Solution, base: SnapshotState, after: SnapshotState
) -> _Edge | None:
    """Return what has to be merged; None where the side that was chosen knows all of the array."""
    now, mine = after.by_id(NodeId(conflict.node)), shape_of_ours(prepared, NodeId(conflict.node), base)
    if now is None or now.kind != NodeKind.ARRAY or mine is None:
        return None
    theirs = array_info(now.documents).shape
    ours = answer.selection is VersionSelection.UseOurs
    chosen, other = (mine, theirs) if ours else (theirs, mine)
    if len(mine) != len(theirs) or all(a >= b for a, b in zip(chosen, other, strict=True)):
        return None
    documents = longer(now.documents, mine)
    sides = [dimension_of(documents, axis).chunk for axis in range(len(mine))]
    chunk = tuple([side for side in sides if side is not None])
    if len(chunk) != len(mine):
        raise RefusedError(conflict, "the array has grown, and chunks that differ in length cannot be merged")
    return _Edge(conflict, documents, chunk, chosen, ours)


def _partly_known(cells: Int64s, edge: _Edge) -> Int64s:
    """Return the cells that hold items which the chosen side does not know."""
    end = np.minimum((cells + 1) * np.array(edge.chunk), np.array(edge.shape))
    partly: Int64s = cells[(end > np.array(edge.chosen)).any(axis=1)]
    return partly


async def _merge_chunk(
    prepared: Prepared, edge: _Edge, cell: tuple[int, ...], after: SnapshotState, reader: ChunkReader
) -> bytes | None:
    """Return a chunk put together of both sides; None where neither has one."""
    identifier = NodeId(edge.conflict.node)
    node = after.by_id(identifier)
    assert node is not None
    ours = await _read_ours(prepared, identifier, cell, reader)
    theirs = await _read_theirs(node.layers, cell, reader)
    if ours is None and theirs is None:
        return None
    chosen, other = (ours, theirs) if edge.ours else (theirs, ours)
    try:
        return await asyncio.to_thread(_put_together, edge, cell, chosen, other)
    except Exception as error:  # codecs are anybody's code
        reason = f"the array has grown into chunk {cell}, of which both sides wrote a part, and it cannot be merged"
        raise RefusedError(edge.conflict, f"{reason}: {error}") from error


async def _read_ours(prepared: Prepared, node: NodeId, cell: tuple[int, ...], reader: ChunkReader) -> BytesLike | None:
    """Return a chunk as a transaction leaves it; None where it deletes or has cut it off."""
    for change in reversed(prepared.log.chunks):
        if change.node != node or change.appended or not change.layer.box.contains(cell):
            continue
        encoded = prepared.manifest(change)
        if encoded is None:
            manifest = await reader.manifests.load(change.layer)
        else:
            manifest = decode_manifest("manifest of this session", encoded)
        at = manifest.find(cell)
        if at >= 0:
            deleted = manifest.source[at] == manifest.deleted_source
            return None if deleted else await reader.read((manifest, at), whole_chunk)
    return None


async def _read_theirs(layers: Sequence[Layer], cell: tuple[int, ...], reader: ChunkReader) -> BytesLike | None:
    place = await reader.find(layers, cell)
    return None if place is None else await reader.read(place, whole_chunk)


def _put_together(edge: _Edge, cell: tuple[int, ...], chosen: BytesLike | None, other: BytesLike | None) -> bytes:
    """Return a chunk of which the new part is the other side's, and the rest the chosen one's."""
    low = [c * side for c, side in zip(cell, edge.chunk, strict=True)]
    high = [min(start + side, end) for start, side, end in zip(low, edge.chunk, edge.shape, strict=True)]
    known = tuple([slice(0, max(0, end - start)) for start, end in zip(low, edge.chosen, strict=True)])
    where = tuple(map(slice, low, high))
    values = np.array(_decode(edge.documents, cell, where, other))
    values[known] = _decode(edge.documents, cell, where, chosen)[known]
    kept: dict[str, Any] = {}
    open_in_memory(edge.documents, kept)[where] = values
    return only_chunk(edge.documents, kept)


def open_in_memory(documents: Documents, kept: dict[str, Any]) -> Any:
    """Return an array of the same metadata, whose keys and values are those of a dictionary."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    buffer = default_buffer_prototype().buffer
    kept |= {key: buffer.from_bytes(value) for key, value in (kept | documents).items()}
    array = zarr.open_array(MemoryStore(kept), mode="r+", zarr_format=3 if "zarr.json" in documents else 2)._async_array
    # Not by zarr's configuration, which all threads share: who sets it back may set back what another one has set.
    config = array.config if hasattr(array, "config") else array._config  # as older releases of zarr name it
    return zarr.Array(type(array)(array.metadata, array.store_path, replace(config, write_empty_chunks=True)))


def only_chunk(documents: Documents, kept: dict[str, Any]) -> bytes:
    """Return the chunk that was written to an array in memory."""
    (written,) = [value for key, value in kept.items() if key not in documents]
    return bytes(written.to_bytes())


def _decode(documents: Documents, cell: tuple[int, ...], where: tuple[slice, ...], data: BytesLike | None) -> Any:
    kept: dict[str, Any] = {} if data is None else {array_info(documents).key(cell): bytes(data)}
    return np.asarray(open_in_memory(documents, kept)[where])
