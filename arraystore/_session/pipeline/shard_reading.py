"""Reads of sharded arrays: chunks of shards are found in their indices, and read like chunks of packs.

Shards of which at least half is wanted, and small ones, are read as a whole and verified by their checksums in the
pack.  Of others the index is read, once, and ranges of the chunks that are wanted: as zarr does, verified by what their
own codecs check.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from arraystore._chunks.block_cache import BlockCache
from arraystore._chunks.checksums import read_whole
from arraystore._format.types import Array, Int64s
from arraystore._runtime.values import dataclass
from arraystore._session.hierarchy import ArrayHandle, Hierarchy
from arraystore._session.pipeline.axes import select_along
from arraystore._session.pipeline.blocks import Block, for_each_block
from arraystore._session.pipeline.byte_codecs import UndecodableError
from arraystore._session.pipeline.lookup import MISSING, OTHER, Located, locate, mesh, numbers_of
from arraystore._session.pipeline.projection import Group, Projection
from arraystore._session.pipeline.scatter import Scatter
from arraystore._session.pipeline.shards import ShardCodec
from arraystore._session.pipeline.threads import share, thread_count

Use = Callable[[Block], None]

_ROOM = 8 << 20
"""Bytes of indices that are kept for the packs of one repository."""

_PIECE = 1 << 20
"""Bytes of the items of a shard that a thread decodes at a time."""


def read_shards(
    hierarchy: Hierarchy, handle: ArrayHandle, codec: ShardCodec, selection: Projection, out: Array, fill: Any
) -> npt.NDArray[np.bool_]:
    """Read a selection of shards into an array with all axes; returns which of them do not exist.

    Raises `UndecodableError`, `UnsoundBlockError` and the errors of the storage; the general path says more of them.
    """
    located = locate(hierarchy, handle, selection.axes)
    there = located.place >= 0
    if bool((located.place == OTHER).any()) or bool((located.length[there] < codec.index_size).any()):
        raise UndecodableError
    reading = _Reading(hierarchy, codec, located, _InnerSelection(selection, codec), out, fill)
    wanted = located.length * reading.inner.counts() // codec.count
    whole = [
        read_whole(*each) for each in zip(located.length.tolist(), [0] * len(wanted), wanted.tolist(), strict=True)
    ]
    part = there & ~np.array(whole, dtype=bool)
    if located.missing.any():
        reading.fill(np.flatnonzero(located.missing))
    reading.read_whole(np.flatnonzero(there & ~part))
    reading.read_parts(np.flatnonzero(part))
    return located.missing


# -- what is selected of shards ---------------------------------------------------------------------------------


class _InnerSelection:
    """The chunks of shards that a selection has, and the items within them."""

    def __init__(self, selection: Projection, codec: ShardCodec) -> None:
        axes = [
            _inner_axis(len(axis), groups, *sides)
            for axis, groups, sides in zip(
                selection.axes, selection.groups, zip(codec.shape, codec.inner.shape, strict=True), strict=True
            )
        ]
        self.sides = selection.sides
        self.shard_strides = _strides(codec.sides)
        self.axes = axes
        coords = tuple([axis.coords for axis in axes])
        complete = np.broadcast_to(np.True_, tuple(map(len, coords)))
        self.projection = Projection(coords, tuple([axis.groups for axis in axes]), selection.dropped, complete)
        self.strides = _strides(self.projection.sides)

    def counts(self) -> Int64s:
        """Return the number of chunks that are selected of each shard."""
        total = np.ones((), dtype=np.int64)
        for axis in self.axes:
            total = total[..., np.newaxis] * np.diff(axis.bounds)
        return total.reshape(-1)

    def of(self, shard: int) -> tuple[Int64s, Int64s]:
        """Return positions in the selection of the chunks of one shard, and their numbers in the shard."""
        places = [int(place) for place in np.unravel_index(shard, self.sides)]
        spans = [tuple(axis.bounds[place : place + 2]) for axis, place in zip(self.axes, places, strict=True)]
        at = numbers_of(mesh([np.arange(low, high) for low, high in spans]), self.strides)
        local = [axis.coords[low:high] for axis, (low, high) in zip(self.axes, spans, strict=True)]
        return at, numbers_of(mesh(local), self.shard_strides)


@dataclass(frozen=True)
class _InnerAxis:
    """Selection along one axis."""

    coords: Int64s
    """Coordinates of chunks in their shards."""
    bounds: Int64s
    """Positions at which each shard's begin."""
    groups: tuple[Group, ...]


def _inner_axis(count: int, groups: Sequence[Group], outer: int, inner: int) -> _InnerAxis:
    """Cut what is selected of shards along one axis into what is selected of their chunks."""
    coords: list[Int64s] = []
    result: list[Group] = []
    sizes = np.zeros(count, dtype=np.int64)
    done = 0
    for group in groups:
        local = select_along(group.within, inner, outer)
        sizes[group.first : group.first + group.count] = len(local.coords)
        coords.append(np.tile(local.coords, group.count))
        for number in range(group.count):
            start = group.start + number * group.size
            for part in local.groups:
                _append(result, replace(part, first=done + part.first, start=start + part.start))
            done += len(local.coords)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return _InnerAxis(np.concatenate(coords), bounds, tuple(result))


def _append(groups: list[Group], group: Group) -> None:
    """Append a group, to the one before it where the same items are selected."""
    last = groups[-1] if groups else None
    if last is not None and last.within == group.within:
        groups[-1] = replace(last, count=last.count + group.count)
    else:
        groups.append(group)


def _strides(sides: tuple[int, ...]) -> list[int]:
    return [int(np.prod(sides[axis + 1 :], dtype=np.int64)) for axis in range(len(sides))]


# -- reading ----------------------------------------------------------------------------------------------------


class _Reading:
    """Reads chunks of shards that were looked up."""

    def __init__(
        self, hierarchy: Hierarchy, codec: ShardCodec, located: Located, inner: _InnerSelection, out: Array, fill: Any
    ) -> None:
        self.hierarchy = hierarchy
        self.codec = codec
        self.located = located
        self.inner = inner
        self.scatter = Scatter(inner.projection, out)
        self.value = fill

    def fill(self, shards: Int64s) -> None:
        """Set what is selected of shards that do not exist."""
        if len(shards) == len(self.located.place):
            self.scatter.out[...] = self.value
            return
        self.scatter.put_scalar(
            np.sort(np.concatenate([self.inner.of(shard)[0] for shard in shards.tolist()])), self.value
        )

    def _decode(self, block: Block) -> None:
        """Decode a block of chunks of shards into the array."""
        if not self.codec.inner.may_have(block.length):
            raise UndecodableError
        for decoded in self.codec.inner.decode(block):
            self.scatter.put(block.at[decoded.first : decoded.first + len(decoded.chunks)], decoded.chunks)

    # -- whole shards -------------------------------------------------------------------------------------------

    def read_whole(self, shards: Int64s) -> None:
        """Read shards and decode what is selected of them."""
        if not len(shards):
            return
        threads = thread_count()
        each = threads if len(shards) < threads else 1

        def use(block: Block) -> None:
            for shard, offset, length in zip(
                block.at.tolist(), block.offset.tolist(), block.length.tolist(), strict=True
            ):
                self._use_shard(shard, block.data[offset : offset + length], each)

        for_each_block(self.hierarchy, _some_of(self.located, shards), use)

    def _use_shard(self, shard: int, data: npt.NDArray[np.uint8], threads: int) -> None:
        index = self.codec.index_offset(len(data))
        references = self.codec.references(data[index : index + self.codec.index_size], len(data))
        at, numbers = self.inner.of(shard)
        offsets, lengths = references[numbers].T
        missing = offsets < 0
        if missing.any():
            self.scatter.put_scalar(at[missing], self.value)
            at, offsets, lengths = at[~missing], offsets[~missing], lengths[~missing]
        if self.codec.inner.is_raw:  # a run of neighbours in the shard is one strided view
            order = np.argsort(offsets, kind="stable")
            at, offsets, lengths = at[order], offsets[order], lengths[order]
        step = max(1, _PIECE // self.codec.inner.nbytes) if threads > 1 else max(1, len(at))
        pieces = [slice(first, first + step) for first in range(0, len(at), step)]

        def piece(cut: slice) -> None:
            self._decode(Block(data, at[cut], offsets[cut], lengths[cut]))

        share(pieces, lambda: piece, threads)

    # -- parts of shards ----------------------------------------------------------------------------------------

    def read_parts(self, shards: Int64s) -> None:
        """Read chunks of shards."""
        if not len(shards):
            return
        indices = self._indices(shards)
        total = self.inner.projection.count
        part = Located(np.full(total, MISSING), np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64))
        part.places.extend(_unframed(self.located))
        absent = []
        for shard in shards.tolist():
            at, numbers = self.inner.of(shard)
            offsets, lengths = indices[shard][numbers].T
            missing = offsets < 0
            absent.append(at[missing])
            at = at[~missing]
            part.put(at, self.located.place[shard], self.located.offset[shard] + offsets[~missing], lengths[~missing])
        missing_at = np.sort(np.concatenate(absent))
        if len(missing_at):
            self.scatter.put_scalar(missing_at, self.value)
        for_each_block(self.hierarchy, part, self._decode)

    def _indices(self, shards: Int64s) -> dict[int, Int64s]:
        """Return the indices of shards, those that are kept and those that are read now."""
        kept = _kept_indices(self.hierarchy.reader.blocks)
        indices, unread = {}, []
        for shard in shards.tolist():
            index = kept.get(self._name(shard))
            if index is None:
                unread.append(shard)
            else:
                indices[shard] = index

        if not unread:
            return indices

        def use(block: Block) -> None:
            for shard, offset, size in zip(
                block.at.tolist(), block.offset.tolist(), block.length.tolist(), strict=True
            ):
                index = self.codec.references(block.data[offset : offset + size], int(self.located.length[shard]))
                indices[shard] = index
                kept.put(self._name(shard), index)

        part = _some_of(self.located, np.array(unread, dtype=np.int64))
        part.offset = part.offset + self.codec.index_offset(part.length)
        part.length = np.full_like(part.length, self.codec.index_size)
        for_each_block(self.hierarchy, replace(part, places=_unframed(part)), use)
        return indices

    def _name(self, shard: int) -> tuple[str, int, int] | None:
        """Return the name of an index that is kept; None for one of this session, which may be overwritten."""
        place = self.located.places[int(self.located.place[shard])]
        if place.own >= 0 or place.data is not None:
            return None
        return place.key, int(self.located.offset[shard]), int(self.located.length[shard])


def _some_of(located: Located, shards: Int64s) -> Located:
    place = np.full_like(located.place, MISSING)
    place[shards] = located.place[shards]
    return replace(located, place=place)


def _unframed(located: Located) -> list[Any]:
    """Return places of ranges that no checksum follows."""
    return [replace(place, framed=False) for place in located.places]


# -- indices ----------------------------------------------------------------------------------------------------


class _Indices:
    """Indices of shards of packs, which never change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indices: OrderedDict[tuple[str, int, int], Int64s] = OrderedDict()
        self._bytes = 0

    def get(self, name: tuple[str, int, int] | None) -> Int64s | None:
        """Return an index that is kept."""
        if name is None:
            return None
        with self._lock:
            index = self._indices.get(name)
            if index is not None:
                self._indices.move_to_end(name)
            return index

    def put(self, name: tuple[str, int, int] | None, index: Int64s) -> None:
        """Keep an index, and forget those that were used least recently."""
        if name is None or index.nbytes > _ROOM:
            return
        with self._lock:
            if name not in self._indices:
                self._indices[name] = index
                self._bytes += index.nbytes
            while self._bytes > _ROOM:
                self._bytes -= self._indices.popitem(last=False)[1].nbytes


_all_indices: WeakKeyDictionary[BlockCache, _Indices] = WeakKeyDictionary()
_lock = threading.Lock()


def _forget_after_fork() -> None:
    global _all_indices, _lock
    _all_indices, _lock = WeakKeyDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


def _kept_indices(blocks: BlockCache) -> _Indices:
    """Return the indices that are kept beside the blocks of a repository, which a forked child begins anew."""
    with _lock:
        return _all_indices.setdefault(blocks, _Indices())
