"""Regions of one array whose chunks are looked up, read and decoded once, and copied into each region that wants them.

400 crops of 32³ items out of 125 uncompressed chunks of 1 MiB, of which each is wanted by some ten: 0.45 of the time of
a pass over runs for each region, and 0.2 where chunks are compressed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from arraystore._format.box import MAX_VOLUME, bounding_box
from arraystore._format.types import Array, Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.blocks import Block
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.lookup import OTHER, Located, locate_cells
from arraystore._session.regions.chunk_pieces import pieces_of
from arraystore._session.regions.selection import Selected

_MOST = 64
"""Chunks of a region up to which a copy of each costs less than finding runs of them."""

_Copy = tuple[int, tuple[slice, ...], tuple[slice, ...]]
"""Number of a region, its items, and the items of the chunk that they are copied from."""


@dataclass(frozen=True)
class SharedChunks:
    """The chunks of some regions, each once, and the copies that are made of them."""

    located: Located
    copies: list[list[_Copy]]
    """Copies of each chunk."""
    outs: Sequence[Array]
    """Arrays with all axes that are read into, one for each region."""
    codec: ChunkCodec

    def use(self, block: Block) -> None:
        """Decode the chunks of a block and copy them."""
        for decoded in self.codec.decode(block):
            numbers = block.at[decoded.first : decoded.first + len(decoded.chunks)].tolist()
            for number, chunk in zip(numbers, decoded.chunks, strict=True):
                for region, outside, within in self.copies[number]:
                    self.outs[region][outside] = chunk[within]

    def whole_chunks(self) -> Iterator[tuple[int, Array]]:
        """Yield the positions of chunks that are copied once, and the items that they are copied to."""
        for number, copies in enumerate(self.copies):
            if len(copies) == 1:
                region, outside, _ = copies[0]
                yield number, self.outs[region][outside]

    def fill_missing(self, fill: Any) -> set[int]:
        """Set the items of chunks that do not exist; returns the numbers of the regions that have any."""
        incomplete = set()
        for number in np.flatnonzero(self.located.missing).tolist():
            for region, outside, _ in self.copies[number]:
                self.outs[region][outside] = fill
                incomplete.add(region)
        return incomplete


def are_copied_singly(selected: Selected, codec: ChunkCodec) -> bool:
    """Tell whether a region has so few chunks that a copy of each costs less than finding runs."""
    return math.prod(map(len, selected.chunk_ranges(codec.shape))) <= _MOST


def share_chunks(
    hierarchy: Hierarchy,
    handle: ArrayHandle,
    codec: ChunkCodec,
    shape: tuple[int, ...],
    selections: Sequence[Selected],
    outs: Sequence[Array],
) -> SharedChunks:
    """Look up the chunks of regions of an array of some shape.

    Raises `UndecodableError` for chunks that only the general path can read, before a byte is read.
    """
    coords: list[tuple[int, ...]] = []
    wanted: list[_Copy] = []
    for number, selected in enumerate(selections):
        for at, parts in pieces_of(selected, codec.shape, shape):
            coords.append(at)
            wanted.append((number, tuple([part.outside for part in parts]), tuple([part.within for part in parts])))
    cells, owner = _distinct(np.array(coords, dtype=np.int64), handle.grid)
    copies: list[list[_Copy]] = [[] for _ in range(len(cells[0]))]
    for at_cell, copy in zip(owner.tolist(), wanted, strict=True):
        copies[at_cell].append(copy)
    located = locate_cells(hierarchy, handle, cells)
    if bool((located.place == OTHER).any()) or not codec.may_have(located.length[located.place >= 0]):
        raise UndecodableError
    return SharedChunks(located, copies, outs, codec)


def _distinct(coords: Int64s, grid: tuple[int, ...]) -> tuple[tuple[Int64s, ...], Int64s]:
    """Return distinct cells of a list of coordinates, as columns, and the number of the one of each row."""
    box = bounding_box(coords)  # of which the cells can be numbered where those of the grid are too many
    if box.volume > MAX_VOLUME:
        rows, owner = np.unique(coords, axis=0, return_inverse=True)
        return tuple(rows.T), owner.ravel()
    numbers, owner = np.unique(box.numbers(coords), return_inverse=True)
    return tuple(box.coords(numbers).T), owner
