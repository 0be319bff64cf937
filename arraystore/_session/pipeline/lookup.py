"""Vectorised look-up of all chunks of a selection: own changes first, then the layers of the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._changes.change_set import ChangeSet
from arraystore._changes.read_tracking import speaks_of
from arraystore._chunks.pack_writer import pack_key
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.pack import CHECKSUM_BYTES, pack_seed
from arraystore._format.references import DELETED, INLINE, VIRTUAL
from arraystore._format.types import Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy

MISSING, OTHER = -1, -2
"""Places of chunks that do not exist, and of those that only the general path can read: virtual ones."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Place:
    """Location of chunks: an object of the storage, a pack that waits for upload, or memory."""

    key: str = ""
    seed: int = 0
    extent: int = 0
    """Known size of the object."""
    own: int = -1
    """Number of the pack in this session's writer; -1 for one of the snapshot."""
    data: memoryview | None = None
    """Bytes of inlined chunks, which carry no checksums."""
    framed: bool = True
    """Whether a checksum follows each range that is read: not behind parts of chunks."""

    @property
    def trailer(self) -> int:
        """Bytes of the checksum that follows each range."""
        return CHECKSUM_BYTES if self.framed and self.data is None else 0


@dataclass
class Located:
    """Place, offset and length of chunks, in row-major order of the selection."""

    place: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    places: list[Place] = field(default_factory=list)

    @property
    def missing(self) -> Mask:
        """Chunks that do not exist."""
        missing: Mask = self.place == MISSING
        return missing

    def number_places(self, source: Int64s) -> tuple[list[int], Int64s]:
        """Return the distinct sources of chunks, and for each chunk the place that its source will have."""
        distinct, each = np.unique(source, return_inverse=True)
        return distinct.tolist(), len(self.places) + each

    def put(self, mask: Mask | Int64s, source: Int64s, offset: Int64s, length: Int64s) -> None:
        """Set the references of some chunks."""
        self.place[mask], self.offset[mask], self.length[mask] = source, offset, length


Cells = Sequence[Int64s]
"""Coordinates of cells along each axis, which broadcast: columns of a list, or the open mesh of a product."""


def numbers_of(cells: Cells, strides: Sequence[int]) -> Int64s:
    """Return the numbers of cells, in row-major order."""
    total = np.zeros((), dtype=np.int64)
    for axis, stride in zip(cells, strides, strict=True):
        total = total + axis * stride
    return total.reshape(-1)


def mask_of(inside: Sequence[Mask]) -> Mask:
    """Return the cells that are inside along all axes, in row-major order."""
    total = np.ones((), dtype=bool)
    for axis in inside:
        total = total & axis
    return total.reshape(-1)


def mesh(axes: Sequence[Int64s]) -> Cells:
    """Return the cells of a product of coordinates."""
    return np.ix_(*axes)


def locate(hierarchy: Hierarchy, handle: ArrayHandle, axes: Sequence[Int64s]) -> Located:
    """Look up all chunks of a product of coordinates, and note which of the snapshot were read."""
    return locate_cells(hierarchy, handle, mesh(axes))


def locate_cells(hierarchy: Hierarchy, handle: ArrayHandle, cells: Cells) -> Located:
    """Look up chunks, and note which of the snapshot were read."""
    count = int(np.prod(np.broadcast_shapes(*[axis.shape for axis in cells])))
    found = Located(np.full(count, MISSING), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64))
    open_ = np.ones(count, dtype=bool)
    if handle.changes is not None:
        open_ = _locate_own(hierarchy, handle, cells, found)
    if not open_.any():
        return found
    _note(hierarchy, handle, cells, open_)
    low, high = [int(axis.min()) for axis in cells], [int(axis.max()) + 1 for axis in cells]
    for layer in reversed(handle.node.layers_around(low, high)):
        if not open_.any():
            break
        _locate_in_layer(hierarchy, layer, cells, open_, found)
    return found


# -- own changes ------------------------------------------------------------------------------------------------


def _locate_own(hierarchy: Hierarchy, handle: ArrayHandle, cells: Cells, found: Located) -> Mask:
    """Look up chunks of this session; returns those of which it has nothing to say."""
    written, changes = handle.changes, hierarchy.changes
    assert written is not None
    assert changes is not None
    with changes.lock:  # another thread may resize the array, which renumbers its chunks
        known, values = written.table.get_many(numbers_of(cells, written.table.strides))
        open_ = ~known
        if written.visible is not None:
            open_ &= mask_of([axis < bound for axis, bound in zip(cells, written.visible, strict=True)])
        if known.any():
            _put_own(changes, found, np.flatnonzero(known), values[known].astype(np.int64, copy=False))
    return open_


def _put_own(changes: ChangeSet, found: Located, at: Int64s, values: Int64s) -> None:
    """Set places of chunks of this session; the lock is held."""
    source = values[:, 0]
    place = np.where(source == DELETED, MISSING, OTHER)
    packs = (source >= 0) & (source < VIRTUAL)
    numbers, place[packs] = found.number_places(source[packs])
    for number in numbers:
        pack = changes.packs.packs[number]
        found.places.append(Place(pack_key(pack), pack_seed(pack), own=number))
    inline = source == INLINE
    offset = values[:, 1].copy()
    if inline.any():
        low, high = int(offset[inline].min()), int((offset + values[:, 2])[inline].max())
        place[inline] = len(found.places)
        offset[inline] -= low
        found.places.append(Place(data=memoryview(bytes(changes.inline[low:high]))))
    found.put(at, place, offset, values[:, 2])


# -- the snapshot -----------------------------------------------------------------------------------------------


def _locate_in_layer(hierarchy: Hierarchy, layer: Layer, cells: Cells, open_: Mask, found: Located) -> None:
    """Look up chunks in one layer, and strike those of which it has something to say off the open ones."""
    box = layer.box
    ranges = [(axis >= low) & (axis < high) for axis, low, high in zip(cells, box.low, box.high, strict=True)]
    if not all(inside.any() for inside in ranges):
        return
    wanted = np.flatnonzero(mask_of(ranges) & open_)
    if not len(wanted):
        return
    manifest = hierarchy.reader.manifests.get(layer) or hierarchy.reader.manifests.load_sync(layer)
    shift = layer.shift or (0,) * len(cells)
    local = [axis - (low + by) for axis, low, by in zip(cells, manifest.box.low, shift, strict=True)]
    numbers = numbers_of(local, manifest.box.strides)[wanted]
    if manifest.index is not None:
        at = np.minimum(manifest.index.searchsorted(numbers), len(manifest.index) - 1)
        there = manifest.index[at] == numbers
        wanted, numbers = wanted[there], at[there]
    open_[wanted] = False
    _put_committed(manifest, found, wanted, numbers)


def _put_committed(manifest: Manifest, found: Located, at: Int64s, rows: Int64s) -> None:
    source = manifest.source[rows].astype(np.int64)
    place = np.where(source == manifest.deleted_source, MISSING, OTHER)
    packs = source < manifest.pack_count
    numbers, place[packs] = found.number_places(source[packs])
    for number in numbers:
        extent = int(manifest.extents[number])
        found.places.append(Place(manifest.pack_keys[number], manifest.pack_seeds[number], extent))
    inline = source == manifest.inline_source
    if inline.any():
        place[inline] = len(found.places)
        found.places.append(Place(data=memoryview(manifest.inline)))
    found.put(at, place, manifest.offset[rows].astype(np.int64), manifest.length[rows].astype(np.int64))


# -- tracking reads ---------------------------------------------------------------------------------------------


def _note(hierarchy: Hierarchy, handle: ArrayHandle, cells: Cells, open_: Mask) -> None:
    """Add chunks of the snapshot to the read set, unless this session wrote or placed them."""
    reads = hierarchy.noted
    if reads is None or handle.committed is None:
        return
    inside = [axis < bound for axis, bound in zip(cells, handle.committed_grid, strict=True)]
    coords = _coordinates(cells)[open_ & mask_of(inside)]
    if handle.own_layers:
        own = [speaks_of(handle.own_layers, tuple(row), hierarchy.reader) for row in coords.tolist()]
        coords = coords[~np.array(own, dtype=bool)]
    if len(coords):
        reads.chunks(handle.node.id, coords)


def _coordinates(cells: Cells) -> npt.NDArray[Any]:
    return np.stack(np.broadcast_arrays(*cells), axis=-1).reshape(-1, len(cells))
