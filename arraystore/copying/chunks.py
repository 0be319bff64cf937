"""Copying encoded chunks between repositories: read from packs in order, packed anew, never decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arraystore._changes.change_set import ChangeSet
from arraystore._chunks.checksums import checked
from arraystore._chunks.pack_writer import pack_key
from arraystore._format.ids import PackId
from arraystore._format.node import Node
from arraystore._format.pack import CHECKSUM_BYTES, pack_seed
from arraystore._format.references import DELETED, INLINE, VIRTUAL, References
from arraystore._format.types import Int64s
from arraystore._runtime.concurrency import MiB
from arraystore.copying.report import CopyCounter
from arraystore.errors import ChunkDamagedError
from arraystore.storage.protocol import BytesLike, Storage

__all__ = ["Stretch", "copy_chunks", "read_stretch", "stretches"]


_STRETCH = 4 * MiB
"""Bytes of one pack that are read at a time."""

_WINDOW = 32 * MiB
"""Bytes that are read in parallel and written before the next ones; a larger chunk is copied alone."""

_MOST_STRETCHES = 16


# -- reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Chunks of one pack that are read together."""

    pack: PackId
    """Id of the pack."""
    rows: list[int]
    """Positions of their references."""
    ranges: list[tuple[int, int]]
    """Bytes of the pack, one range for each of `rows`."""

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(stop - start for start, stop in self.ranges)


def stretches(references: References) -> Iterator[Stretch]:
    """Cut the references to packs into stretches, in the order in which the packs hold them."""
    native = np.flatnonzero((references.source >= 0) & (references.source < VIRTUAL))
    order = native[np.lexsort((references.offset[native], references.source[native]))]
    rows: list[int] = []
    ranges: list[tuple[int, int]] = []
    size, current = 0, -1
    columns = (order, references.source[order], references.offset[order], references.length[order])
    for row, source, offset, length in zip(*(column.tolist() for column in columns), strict=True):
        if rows and (source != current or size + length > _STRETCH):
            yield Stretch(references.packs[current], rows, ranges)
            rows, ranges, size = [], [], 0
        current = source
        rows.append(row)
        ranges.append((offset, offset + length))
        size += length
    if rows:
        yield Stretch(references.packs[current], rows, ranges)


async def read_stretch(storage: Storage, stretch: Stretch) -> list[BytesLike]:
    """Read the chunks of a stretch and check them."""
    key, seed = pack_key(stretch.pack), pack_seed(stretch.pack)
    blocks = await storage.get_ranges(key, [(start, stop + CHECKSUM_BYTES) for start, stop in stretch.ranges])
    return [checked(key, seed, start, framed) for (start, _), framed in zip(stretch.ranges, blocks, strict=True)]


async def _read_named(storage: Storage, stretch: Stretch, references: References, path: str) -> list[BytesLike]:
    """Read a stretch of an array; errors name the array and the chunks."""
    try:
        return await read_stretch(storage, stretch)
    except ChunkDamagedError as error:
        starts = [start for start, _ in stretch.ranges]
        row = stretch.rows[starts.index(error.offset)]
        raise error.of_chunk(path, tuple(references.coords[row].tolist())) from None


def _windows(references: References) -> Iterator[list[Stretch]]:
    window: list[Stretch] = []
    size = 0
    for stretch in stretches(references):
        if window and (size + stretch.size > _WINDOW or len(window) == _MOST_STRETCHES):
            yield window
            window, size = [], 0
        window.append(stretch)
        size += stretch.size
    if window:
        yield window


# -- writing ------------------------------------------------------------------------------------------------


async def copy_chunks(
    source: Storage, references: References, changes: ChangeSet, node: Node, counter: CopyCounter
) -> None:
    """Write chunks of another repository to a node of a session."""
    if node.id not in changes.base.keys:  # nothing can be there that would have to be deleted
        references = references.take(references.source != DELETED)
    if not len(references):
        return
    sources, offsets = references.source.copy(), references.offset.copy()
    _place_inline(references, changes, offsets, counter)
    _place_virtual(references, changes, sources, counter)
    for window in _windows(references):
        payloads = await asyncio.gather(*(_read_named(source, stretch, references, node.path) for stretch in window))
        await _pack(changes, window, payloads, sources, offsets)
        counter.copied(sum(stretch.size for stretch in window), sum(len(stretch.rows) for stretch in window))
    with changes.lock:
        changes.check_open()
        changes.array(node).table.put_many(references.coords, sources, offsets, references.length)


def _place_inline(references: References, changes: ChangeSet, offsets: Int64s, counter: CopyCounter) -> None:
    inlined = references.source == INLINE
    if not inlined.any():
        return
    lengths = references.length[inlined]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    total = int(ends[-1])
    places = np.repeat(references.offset[inlined] - starts, lengths) + np.arange(total)
    blob = np.frombuffer(references.inline, dtype=np.uint8)[places]
    offsets[inlined] = starts + changes.put_inline(memoryview(blob))[1]
    counter.copied(total, int(inlined.sum()))


def _place_virtual(references: References, changes: ChangeSet, sources: Int64s, counter: CopyCounter) -> None:
    virtual = references.source >= VIRTUAL
    if not virtual.any():
        return
    used, at = np.unique(references.source[virtual] - VIRTUAL, return_inverse=True)
    sources[virtual] = at.reshape(-1) + changes.put_locations(references.locations.select(used))
    counter.virtual += int(virtual.sum())


async def _pack(
    changes: ChangeSet,
    window: Sequence[Stretch],
    payloads: Sequence[list[BytesLike]],
    sources: Int64s,
    offsets: Int64s,
) -> None:
    """Pack chunks in the order of their packs, and upload those that become objects of their own in parallel."""
    packs = changes.packs
    large: list[tuple[int, memoryview]] = []
    for stretch, values in zip(window, payloads, strict=True):
        for row, value in zip(stretch.rows, values, strict=True):
            view = memoryview(value)
            if len(view) >= packs.settings.own_object:
                large.append((row, view))
            else:
                sources[row], offsets[row], _ = await packs.add_async(view)

    async def upload(row: int, view: memoryview) -> None:
        sources[row], offsets[row], _ = await packs.add_async(view)

    await asyncio.gather(*(upload(row, view) for row, view in large))
