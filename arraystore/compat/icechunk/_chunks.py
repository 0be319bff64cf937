"""Chunks of an array as columns: where each of them is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arraystore._format.ids import id_to_text
from arraystore._format.node import Node, NodeKind
from arraystore._format.references import INLINE, VIRTUAL, References
from arraystore._format.types import Int64s
from arraystore._session.base import SessionBase
from arraystore._session.listing import all_nodes, present_chunks
from arraystore.compat.icechunk._exceptions import ErrorKind
from arraystore.compat.icechunk.types import ChunkType
from arraystore.errors import InvalidInputError, NodeNotFoundError

__all__ = ["Batch", "batches", "chunk_type", "load_references", "virtual_locations"]

Batch = tuple[
    npt.NDArray[np.uint32],
    npt.NDArray[np.uint8],
    list[str],
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint64],
    dict[int, bytes],
]
"""Coordinates, kinds, URLs or ids of objects, offsets, lengths, and inlined bytes by row."""


def _array(session: SessionBase, path: str) -> Node:
    node = session.hierarchy.node(path.strip("/"))
    if node is not None and node.kind == NodeKind.GROUP:
        raise InvalidInputError(f"there is not an array at {path!r}, but a group", ErrorKind.NOT_AN_ARRAY)
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"node not found at {path!r}: there is no array in snapshot {session.snapshot_id}")
    return node


async def load_references(session: SessionBase, path: str) -> References:
    """Return the references of an array, those not committed included."""
    return await present_chunks(session.hierarchy, _array(session, path))


async def chunk_type(session: SessionBase, path: str, coordinates: tuple[int, ...]) -> ChunkType:
    """Return where the bytes of a chunk are."""
    handle = session.hierarchy.handle(_array(session, path))
    if len(coordinates) != len(handle.grid) or any(number < 0 for number in coordinates):
        return ChunkType.uninitialized
    found = await session.hierarchy.reference(handle, coordinates)
    return ChunkType.uninitialized if found is None else ChunkType(_kinds(np.array([found.source]))[0])


async def virtual_locations(session: SessionBase) -> list[str]:
    """Return the URLs of the virtual chunks of all arrays, each as often as it is referenced."""
    urls: list[str] = []
    for node in list(all_nodes(session.hierarchy)):
        if node.kind == NodeKind.ARRAY:
            references = await present_chunks(session.hierarchy, node)
            numbers = references.source[references.source >= VIRTUAL] - VIRTUAL
            named = {number: references.locations.url(number) for number in np.unique(numbers).tolist()}
            urls += [named[number] for number in numbers.tolist()]
    return urls


def _kinds(source: Int64s) -> npt.NDArray[np.uint8]:
    kinds = np.full(len(source), ChunkType.native, dtype=np.uint8)
    kinds[source >= VIRTUAL] = ChunkType.virtual
    kinds[source == INLINE] = ChunkType.inline
    return kinds


@dataclass(frozen=True)
class _Names:
    """Names of the sources of references, made once each."""

    references: References
    known: dict[int, str]

    def of(self, source: int) -> str:
        if source not in self.known:
            self.known[source] = self._name(source)
        return self.known[source]

    def _name(self, source: int) -> str:
        if source == INLINE:
            return ""
        if source >= VIRTUAL:
            return self.references.locations.url(source - VIRTUAL)
        return id_to_text(self.references.packs[source])


def batches(references: References, batch_size: int) -> list[Batch]:
    """Return references as columns, at most so many rows in each batch."""
    names = _Names(references, {})
    starts = range(0, len(references), max(1, batch_size))
    return [_batch(references, names, slice(start, start + batch_size)) for start in starts]


def _batch(references: References, names: _Names, rows: slice) -> Batch:
    part = references.take(rows)
    kinds = _kinds(part.source)
    inlined = {
        row: bytes(part.inline[part.offset[row] : part.offset[row] + part.length[row]])
        for row in np.flatnonzero(kinds == ChunkType.inline).tolist()
    }
    offsets = np.where(kinds == ChunkType.inline, 0, part.offset)
    return (
        part.coords.astype(np.uint32),
        kinds,
        [names.of(source) for source in part.source.tolist()],
        offsets.astype(np.uint64),
        part.length.astype(np.uint64),
        inlined,
    )
