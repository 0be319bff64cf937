"""Reads and writes of regions of arrays."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import zarr

from arraystore._changes.read_tracking import note_document
from arraystore._format.node import NodeKind
from arraystore._format.types import Array
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.keys import join, node_path
from arraystore._session.pipeline.blocks import UnsoundBlockError, for_each_block
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.large_chunks import read_large_chunks
from arraystore._session.pipeline.projection import Projection
from arraystore._session.pipeline.reading import read_selection
from arraystore._session.pipeline.shards import ArrayCodec
from arraystore._session.pipeline.writing import SelectionWriter
from arraystore._session.regions.chunk_pieces import pieces_of
from arraystore._session.regions.few_chunks import are_few, read_few, write_few
from arraystore._session.regions.layout import ArrayLayout, layout_of
from arraystore._session.regions.manifests import load_manifests
from arraystore._session.regions.read_ahead import read_ahead
from arraystore._session.regions.selection import Selected, select
from arraystore._session.regions.shared import are_copied_singly, share_chunks
from arraystore._session.regions.zarr_regions import read_generally, write_generally
from arraystore._session.store import ArrayStore, StoreSession
from arraystore.errors import ArrayStoreError, InvalidInputError, NodeNotFoundError

_INLINE = 1 << 18
"""Bytes below which a local region is done before another thread could have begun it."""

_LOOKED_UP = ("zarr.json", ".zarray", ".zattrs")
"""Documents that zarr looks for when it opens an array."""


class RegionSession(StoreSession, Protocol):
    """A session, as its regions need it."""

    @property
    def store(self) -> ArrayStore:
        """The Zarr store of the session."""
        ...


@dataclass(frozen=True)
class Region:
    """A region of an array, ready to be read or written."""

    session: RegionSession
    path: str
    selection: Any
    handle: ArrayHandle
    layout: ArrayLayout
    selected: Selected | None
    """What is selected; None for a selection that only zarr understands."""
    codec: ArrayCodec | None
    """The codec of its chunks; None if only zarr can read them, or if nothing is selected."""

    @cached_property
    def projection(self) -> Projection | None:
        """Chunks and their items, as a whole."""
        if self.selected is None or self.codec is None:
            return None
        return self.selected.project(self.codec.shape, self.layout.shape)

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy."""
        return self.session.hierarchy

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is selected."""
        return self.selected is not None and 0 in self.selected.shape

    @property
    def is_quick(self) -> bool:
        """Tell whether a thread would cost more than the work."""
        if self.projection is None or self.codec is None:
            return self.is_empty
        size = self.projection.count * self.codec.nbytes
        return self.hierarchy.reader.storage.cheap_probes and size <= _INLINE

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, out: Array | None) -> Any:
        """Return the items of the region, in `out` if it is given."""
        target = None if self.selected is None else self.target(out)
        if target is None or not (self.is_empty or self.read_into(target)):
            return self.read_generally(out)
        return self.result(target) if out is None else target

    def result(self, target: Array) -> Any:
        """Return what zarr would of an array that was read into."""
        return target[()] if self.selected is not None and self.selected.is_scalar else target

    def target(self, out: Array | None) -> Array:
        """Return the array to read into; raises `InvalidInputError` for one of another shape or data type."""
        assert self.selected is not None
        shape = self.selected.shape
        if out is None:
            order: Any = self.layout.order or zarr.config.get("array.order")
            return np.empty(shape, self.layout.dtype, order)
        return self._checked(out, shape)

    def _checked(self, out: Array, shape: tuple[int, ...]) -> Array:
        dtype = self.layout.dtype
        sound = isinstance(out, np.ndarray) and out.flags.writeable
        if not sound or out.shape != shape or out.dtype.newbyteorder("=") != dtype.newbyteorder("="):
            kind = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise InvalidInputError(
                f"out must be a writable numpy array of {dtype} and shape {shape} for this selection of array "
                f"{self.path!r}, not {kind}"
            )
        return out

    def read_into(self, target: Array) -> bool:
        """Read the region without zarr; False if zarr has to."""
        if self.selected is None or self.codec is None:
            return False
        if isinstance(self.codec, ChunkCodec):  # of shards only parts are read
            read_ahead(self.hierarchy, self.handle, self.selected, self.codec)
        out, fill = self.selected.with_all_axes(target), self.layout.fill
        try:
            if isinstance(self.codec, ChunkCodec) and are_few(self.hierarchy, self.selected, self.codec, writing=False):
                pieces = pieces_of(self.selected, self.codec.shape, self.layout.shape)
                return self.accepts(read_few(self.hierarchy, self.handle, self.codec, pieces, out, fill))
            if isinstance(self.codec, ChunkCodec) and are_copied_singly(self.selected, self.codec):
                return self.accepts(self._read_singly(self.selected, self.codec, out))
            assert self.projection is not None
            load_manifests(self.hierarchy, [(self.handle, self.projection.axes)])
            missing = read_selection(self.hierarchy, self.handle, self.codec, self.projection, out, fill)
            return self.accepts(not missing.any())
        except (UndecodableError, UnsoundBlockError, ArrayStoreError):
            return False  # zarr reads it again, and says what is wrong

    def _read_singly(self, selected: Selected, codec: ChunkCodec, out: Array) -> bool:
        """Read chunks out of blocks with a copy for each of them; returns whether all of them exist."""
        load_manifests(self.hierarchy, [(self.handle, selected.chunk_axes(codec.shape))])
        shared = share_chunks(self.hierarchy, self.handle, codec, self.layout.shape, [selected], [out])
        incomplete = shared.fill_missing(self.layout.fill)
        rest = read_large_chunks(self.hierarchy, shared.located, codec, shared.whole_chunks())
        for_each_block(self.hierarchy, rest, shared.use)
        return not incomplete

    def accepts(self, complete: bool) -> bool:
        """Tell whether what was read is the result: chunks may be missing, unless zarr is configured otherwise."""
        return complete or bool(zarr.config.get("array.read_missing_chunks", True))

    def read_generally(self, out: Array | None) -> Any:
        """Read the region through zarr."""
        found = read_generally(self.session.store, self.path, self.layout, self.selection)
        if out is None:
            return found
        self._checked(out, np.shape(found))[...] = found
        return out

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, values: Any) -> None:
        """Write values that `convert` returned."""
        if not self.is_empty and not self._write_directly(values):
            write_generally(self.session.store, self.path, self.layout, self.selection, values)

    def convert(self, data: Any) -> Any:
        """Return values of the data type and shape of the region; raises `InvalidInputError` if they cannot be."""
        return data if self.selected is None else converted(self.path, data, self.layout.dtype, self.selected.shape)

    def _write_directly(self, values: Any) -> bool:
        """Write the region without zarr; False if zarr has to, for it cannot read the chunks that are kept in part."""
        if self.selected is None or self.codec is None:
            return False
        items = self.selected.with_all_axes(values)
        fill = self.layout.fill_value(writes_empty=bool(zarr.config.get("array.write_empty_chunks")))
        measured = self.hierarchy.writable().packs.settings.statistics  # by the writer of whole selections alone
        try:
            if (
                isinstance(self.codec, ChunkCodec)
                and not measured
                and are_few(self.hierarchy, self.selected, self.codec, writing=True)
            ):
                pieces = pieces_of(self.selected, self.codec.shape, self.layout.shape)
                write_few(self.hierarchy, self.handle, self.codec, pieces, items, fill)
            else:
                assert self.projection is not None
                SelectionWriter(self.hierarchy, self.handle, self.codec, fill).write(self.projection, items)
        except (UndecodableError, UnsoundBlockError):
            return False
        return True


def converted(path: str, data: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return data as an array of a data type and shape; raises `InvalidInputError` if they cannot be."""
    try:
        values = np.asarray(data, None if hasattr(data, "dtype") else dtype)
        if values.dtype.name != dtype.name:
            values = values.astype(dtype, order="A")
        return np.broadcast_to(values, shape)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"data must be, or broadcast to, an array of {dtype} and shape {shape} for this selection of array "
            f"{path!r}: {error}"
        ) from error


# -- opening ----------------------------------------------------------------------------------------------------


def open_region(session: RegionSession, path: str, selection: Any) -> Region:
    """Return a region of an array.

    Raises `NodeNotFoundError` if there is no such array, and `SelectionError` for a selection that is not valid.
    """
    return region_of(session, path, open_array(session, path), selection)


def region_of(session: RegionSession, path: str, handle: ArrayHandle, selection: Any) -> Region:
    """Return a region of an array that is open; raises `SelectionError` for a selection that is not valid."""
    layout = layout_of(handle)
    selected = select(path, selection, layout.shape)
    return Region(session, path, selection, handle, layout, selected, _codec(session, handle, layout, selected))


def open_array(session: RegionSession, path: str) -> ArrayHandle:
    """Return the handle of an array, adding its metadata to the read set as zarr does when it opens one.

    Raises `NodeNotFoundError` if there is no such array.
    """
    hierarchy, key = session.hierarchy, node_path(path)
    node = hierarchy.node(key)
    if (noted := hierarchy.noted) is not None:
        for name in _LOOKED_UP:
            note_document(noted, hierarchy.beneath, hierarchy.changes, join(key, name), name, node)
    if node is None or node.kind != NodeKind.ARRAY:
        raise NodeNotFoundError(f"there is no array {path!r} in {session.describe()}: create it first")
    return hierarchy.handle(node)


def _codec(
    session: RegionSession, handle: ArrayHandle, layout: ArrayLayout, selected: Selected | None
) -> ArrayCodec | None:
    """Return the codec of the chunks of a region; None if only zarr can read them."""
    if selected is None or 0 in selected.shape:
        return None
    # files may have the keys of chunks; other encodings of keys, and arrays without dimensions, are rare
    return layout.codec if handle.separator and not session.hierarchy.has_files else None


# -- what sessions offer ----------------------------------------------------------------------------------------


def read(session: RegionSession, path: str, selection: Any, out: Array | None) -> Any:
    """Read a region; see `Session.read`."""
    return open_region(session, path, selection).read(out)


async def read_async(session: RegionSession, path: str, selection: Any, out: Array | None) -> Any:
    """Asynchronous twin of `read`."""
    region = open_region(session, path, selection)
    return region.read(out) if region.is_quick else await asyncio.to_thread(region.read, out)


def write(session: RegionSession, path: str, selection: Any, data: Any) -> None:
    """Write a region; see `Session.write`."""
    session.check_writable()
    region = open_region(session, path, selection)
    region.write(region.convert(data))


async def write_async(session: RegionSession, path: str, selection: Any, data: Any) -> None:
    """Asynchronous twin of `write`."""
    session.check_writable()
    region = open_region(session, path, selection)
    values = region.convert(data)
    if region.is_quick:
        region.write(values)
    else:
        await asyncio.to_thread(region.write, values)
