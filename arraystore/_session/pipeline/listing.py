"""Selections that are no product: a list of chunks, of each of which some items are selected.

Indices and masks select other items of each chunk.  Chunks are looked up, read, decoded and encoded together, and take
one numpy assignment each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Array, Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.blocks import Block, for_each_block
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.large_chunks import read_large_chunks
from arraystore._session.pipeline.lookup import OTHER, locate_cells
from arraystore._session.pipeline.projection import Batch, coordinates
from arraystore._session.pipeline.writing import SelectionWriter
from arraystore.errors import ArrayStoreError

_SLAB = 16 << 20
"""Bytes of chunks that are changed in memory at a time."""


@dataclass(frozen=True)
class Listing:
    """Chunks, and the items of each that are selected, as zarr names them."""

    coords: Int64s
    """Coordinates of chunks, shape (n, d)."""
    within: list[Any]
    """Items of each chunk, for numpy."""
    outside: list[Any]
    """Items of the user's array, for numpy."""
    complete: npt.NDArray[np.bool_]
    """Whether zarr overwrites all items of each chunk that are in the array."""
    drop_axes: tuple[int, ...]
    """Axes of what is selected of a chunk that the user's array does not have."""

    @property
    def count(self) -> int:
        """Number of chunks."""
        return len(self.coords)

    def views(self, out: Array) -> Iterator[tuple[int, Array]]:
        """Yield the positions of chunks of which slices and integers select items, and the user's, with all axes."""
        for number, (within, outside) in enumerate(zip(self.within, self.outside, strict=True)):
            if _are(within, slice | int) and _are(outside, slice):
                axes = tuple([slice(None) if isinstance(item, slice) else None for item in within])
                yield number, out[outside][axes]


def _are(items: Any, kind: Any) -> bool:
    return isinstance(items, tuple) and all(isinstance(item, kind) for item in items)


def list_chunks(
    batch: Batch, drop_axes: tuple[int, ...], prefix: str, separator: str, grid: tuple[int, ...]
) -> Listing | None:
    """Return the chunks of a selection; None for keys that are not each another chunk of an array."""
    coords = coordinates([item[0].path for item in batch], prefix, separator, len(grid))
    if coords is None or (coords < 0).any() or (coords >= np.array(grid)).any():
        return None
    if len(set(map(tuple, coords.tolist()))) != len(coords):
        return None
    complete = np.array([item[4] for item in batch], dtype=bool)
    return Listing(coords, [item[2] for item in batch], [item[3] for item in batch], complete, drop_axes)


def read_listing(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ChunkCodec, listing: Listing, out: Array, fill: Any
) -> npt.NDArray[np.bool_]:
    """Read the items that are selected into the user's array; returns which chunks do not exist.

    Raises `UndecodableError`, `UnsoundBlockError` and the errors of the storage; the general path says more of them.
    """
    located = locate_cells(hierarchy, handle, list(listing.coords.T))
    if bool((located.place == OTHER).any()) or not codec.may_have(located.length[located.place >= 0]):
        raise UndecodableError
    missing = located.missing
    for number in np.flatnonzero(missing).tolist():
        out[listing.outside[number]] = fill
    axes = listing.drop_axes

    def use(block: Block) -> None:
        for decoded in codec.decode(block):
            at = block.at[decoded.first : decoded.first + len(decoded.chunks)].tolist()
            for number, chunk in zip(at, decoded.chunks, strict=True):
                items = chunk[listing.within[number]]
                out[listing.outside[number]] = items.squeeze(axes) if axes else items

    views = () if axes else listing.views(out)
    for_each_block(hierarchy, read_large_chunks(hierarchy, located, codec, views), use)
    return missing


class ListingWriter(SelectionWriter):
    """Writes values to the items that are selected of a list of chunks."""

    def write_listing(self, listing: Listing, values: Array) -> None:
        """Write values; raises `UndecodableError` or `UnsoundBlockError` if a chunk that is changed cannot be read."""
        step = max(1, _SLAB // self.codec.nbytes)
        for first in range(0, listing.count, step):
            numbers = np.arange(first, min(first + step, listing.count))
            chunks = self._changed(listing, numbers, values)
            coords = listing.coords[numbers]
            leading = (len(numbers), *[1] * (coords.shape[1] - 1))
            self._put_numbered(coords.__getitem__, chunks.reshape(*leading, *self.codec.shape))

    def _changed(self, listing: Listing, numbers: Int64s, values: Array) -> Array:
        """Return whole chunks, with values put over what they have."""
        chunks = np.empty((len(numbers), *self.codec.shape), dtype=values.dtype)
        kept = ~listing.complete[numbers]
        if not kept.all():
            chunks[~kept] = self.fill.value
        if kept.any():
            self._read_kept(listing, numbers[kept], chunks, np.flatnonzero(kept))
        item = tuple([None if axis in listing.drop_axes else slice(None) for axis in range(len(self.codec.shape))])
        for chunk, number in zip(chunks, numbers.tolist(), strict=True):
            value = values if values.shape == () else values[listing.outside[number]]
            chunk[listing.within[number]] = value[item] if listing.drop_axes and values.shape != () else value
        return chunks

    def _read_kept(self, listing: Listing, numbers: Int64s, chunks: Array, at: Int64s) -> None:
        assert isinstance(self.codec, ChunkCodec)
        whole = Listing(listing.coords[numbers], [...] * len(at), at.tolist(), listing.complete[numbers], ())
        try:
            read_listing(self.hierarchy, self.handle, self.codec, whole, chunks, self.fill.value)
        except ArrayStoreError as error:
            raise UndecodableError from error
