"""Sets of references in memory: concatenated, overlaid, split into manifests.

Unlike in a manifest, sources are numbered so that tables can grow: packs from 0, virtual locations from `VIRTUAL`, and
negative values for inlined and deleted chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from arraystore._format.box import Box, bounding_box, hull_of
from arraystore._format.columns import narrow
from arraystore._format.ids import ID_BYTES, PackId
from arraystore._format.locations import NO_LOCATIONS, Locations, concat_locations
from arraystore._format.manifest import Manifest
from arraystore._format.types import Bools, Int64s
from arraystore._runtime.values import dataclass

INLINE = -1
DELETED = -2
VIRTUAL = 1 << 40

_INLINE_PER_MANIFEST = 16 << 20
"""Maximum bytes of inlined chunks in one manifest, which is read as a whole."""

REFERENCES_PER_MANIFEST = 1 << 16
"""Maximum number of references in one manifest: some 200 kB to fetch for the first chunk."""


@dataclass(frozen=True, eq=False)
class References:
    """References of one array, at most one per cell."""

    coords: Int64s
    """Chunk-grid coordinates, shape (n, d), in row-major order."""
    source: Int64s
    offset: Int64s
    length: Int64s
    """Columns as in a manifest, with the numbering of this module."""
    packs: tuple[PackId, ...] = ()
    """Ids of the packs."""
    locations: Locations = NO_LOCATIONS
    """Virtual locations."""
    inline: bytes = b""
    """Bytes of inlined chunks."""

    def __len__(self) -> int:
        return len(self.source)

    def take(self, keep: Bools | Int64s | slice) -> References:
        """Select references by mask, position or slice, with unchanged tables."""
        return replace(
            self, coords=self.coords[keep], source=self.source[keep], offset=self.offset[keep], length=self.length[keep]
        )

    def followed_by(self, other: References) -> References:
        """Return these references and then others, which have the same tables."""
        return replace(
            self,
            coords=np.concatenate([self.coords, other.coords]),
            source=np.concatenate([self.source, other.source]),
            offset=np.concatenate([self.offset, other.offset]),
            length=np.concatenate([self.length, other.length]),
        )

    @classmethod
    def none(cls, dimensions: int) -> References:
        """Return no references."""
        return cls.deletions(np.empty((0, dimensions), dtype=np.int64))

    @classmethod
    def deletions(cls, coords: Int64s) -> References:
        """Return deletions of cells."""
        nothing = np.zeros(len(coords), dtype=np.int64)
        return cls(coords, nothing + DELETED, nothing, nothing)

    @classmethod
    def from_manifest(cls, manifest: Manifest, shift: tuple[int, ...] | None = None) -> References:
        """Expand a manifest, with the shift of its layer applied."""
        coords = manifest.box.coords(manifest.numbers())
        if shift is not None and any(shift):
            coords = coords + np.array(shift, dtype=np.int64)
        source = manifest.source.astype(np.int64)
        packs = manifest.pack_count
        if int(source.max()) >= packs:
            virtual = (source >= packs) & (source < manifest.inline_source)
            inlined = source == manifest.inline_source
            deleted = source == manifest.deleted_source
            source[virtual] += VIRTUAL - packs
            source[inlined] = INLINE
            source[deleted] = DELETED
        return cls(
            coords,
            source,
            manifest.offset.astype(np.int64),
            manifest.length.astype(np.int64),
            tuple(manifest.pack_id(i) for i in range(packs)),
            manifest.locations,
            manifest.inline,
        )


def _concatenate(parts: Sequence[References]) -> References:
    """Concatenate sets, with a common numbering of sources."""
    packs: dict[PackId, int] = {}
    sources: list[Int64s] = []
    offsets: list[Int64s] = []
    locations = 0
    inlined = 0
    for part in parts:
        numbers = np.array([packs.setdefault(pack, len(packs)) for pack in part.packs], dtype=np.int64)
        source = part.source.copy()
        native = (source >= 0) & (source < VIRTUAL)
        source[native] = numbers[source[native]]
        source[part.source >= VIRTUAL] += locations
        offset = part.offset
        if inlined and part.inline:
            offset = np.where(part.source == INLINE, offset + inlined, offset)
        locations += len(part.locations)
        inlined += len(part.inline)
        sources.append(source)
        offsets.append(offset)
    return References(
        np.concatenate([part.coords for part in parts]),
        np.concatenate(sources),
        np.concatenate(offsets),
        np.concatenate([part.length for part in parts]),
        tuple(packs),
        concat_locations([part.locations for part in parts]),
        b"".join(part.inline for part in parts),
    )


def overlay(parts: Sequence[References], *, keep_deleted: bool) -> References:
    """Overlay one or more sets, oldest first, so that the newest reference of each cell wins.

    `keep_deleted` keeps deletions, which hide references of older sets that are not among the parts.
    """
    combined = _concatenate(parts) if len(parts) > 1 else parts[0]
    if not len(combined):
        return combined
    numbers = bounding_box(combined.coords).numbers(combined.coords)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    last = np.ones(len(ordered), dtype=bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    result = combined.take(order[last])
    if not keep_deleted:
        result = result.take(result.source != DELETED)
    return result


def tile_shape(grid: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Return the shape of tiles of at most `limit` cells: trailing dimensions in full, part of one, 1 of the others."""
    shape = [1] * len(grid)
    room = limit
    for axis in range(len(grid) - 1, -1, -1):
        shape[axis] = max(1, min(grid[axis], room))
        room //= shape[axis]
        if shape[axis] < grid[axis]:
            break
    return tuple(shape)


def to_manifests(references: References, limit: int = REFERENCES_PER_MANIFEST) -> Iterator[Manifest]:
    """Split a set into manifests of bounded size along the grid, each with only its own sources.

    Tiles are at fixed positions of the grid, so that compaction can merge later writes to the same region.
    """
    yield from stretches_to_manifests(lambda: [references], limit)


def stretches_to_manifests(
    stretches: Callable[[], Iterable[References]], limit: int = REFERENCES_PER_MANIFEST
) -> Iterator[Manifest]:
    """Split a set that comes in stretches, in row-major order and with the same tables, as `to_manifests` does."""
    few = _at_most(limit, stretches())
    if few is not None:
        if len(few):
            yield from _split_by_inline_bytes(few)
        return
    hull = hull_of([bounding_box(part.coords) for part in stretches() if len(part)])
    shape = np.array(tile_shape(hull.high, limit), dtype=np.int64)
    rest: References | None = None
    for part in stretches():
        if not len(part):
            continue
        rest = part if rest is None else rest.followed_by(part)
        if len(rest) > limit:
            rest = yield from _full_manifests(rest, shape, limit)
    if rest is not None:
        yield from _split_by_inline_bytes(rest)


def _at_most(limit: int, stretches: Iterable[References]) -> References | None:
    """Return all references of a set that fits into one manifest; None if there are more."""
    few: References | None = None
    for part in stretches:
        few = part if few is None else few.followed_by(part)
        if len(few) > limit:
            return None
    return References.none(0) if few is None else few


def _full_manifests(references: References, shape: Int64s, limit: int) -> Generator[Manifest, None, References]:
    """Yield manifests of neighbouring tiles as long as the next tile does not fit; returns what is left."""
    tiles = references.coords // shape
    numbers = bounding_box(tiles).numbers(tiles)
    cuts = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
    start = 0
    for start, stop in _merge_tiles([*cuts, len(numbers)], limit):
        if stop < len(numbers):
            yield from _split_by_inline_bytes(references.take(slice(start, stop)))
    return references.take(slice(start, None))


def _merge_tiles(ends: list[int], limit: int) -> Iterator[tuple[int, int]]:
    """Merge neighbouring tiles of at most `limit` references in total."""
    start = last = 0
    for end in ends:
        if end - start > limit and last > start:
            yield start, last
            start = last
        last = end
    yield start, last


def _split_by_inline_bytes(references: References) -> Iterator[Manifest]:
    """Split references until each manifest has a bounded number of inlined bytes."""
    inlined = references.length[references.source == INLINE]
    if len(references) > 1 and int(inlined.sum()) > _INLINE_PER_MANIFEST:
        half = len(references) // 2
        yield from _split_by_inline_bytes(references.take(slice(0, half)))
        yield from _split_by_inline_bytes(references.take(slice(half, None)))
    else:
        yield _manifest(references, bounding_box(references.coords))


def _manifest(references: References, box: Box) -> Manifest:
    numbers = box.numbers(references.coords)
    source = references.source
    native = (source >= 0) & (source < VIRTUAL)
    virtual = source >= VIRTUAL
    used_packs, pack_of = _used_packs(len(references.packs), source[native])
    used_locations, location_of = _used_locations(references.locations, source[virtual] - VIRTUAL)
    compact = np.empty(len(source), dtype=np.int64)
    compact[native] = pack_of
    compact[virtual] = len(used_packs) + location_of
    inline_source = len(used_packs) + len(used_locations)
    inlined = source == INLINE
    compact[inlined] = inline_source
    compact[source == DELETED] = inline_source + 1
    offset, blob = _gather_inline(references, inlined)
    packs = b"".join(references.packs[i] for i in used_packs.tolist())
    assert len(packs) == len(used_packs) * ID_BYTES
    return Manifest(
        box,
        None if len(numbers) == box.volume else numbers,
        narrow(compact),
        narrow(offset),
        narrow(references.length),
        packs,
        references.locations.select(used_locations) if len(used_locations) else NO_LOCATIONS,
        blob,
    )


def _used_packs(count: int, used: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct packs of references, and the index of the pack of each; nothing needs to be sorted."""
    present = np.zeros(count, dtype=bool)
    present[used] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[used]


def _used_locations(table: Locations, used: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct locations of references, and the index of the location of each."""
    if not len(used):
        return used, used
    needed, inverse = np.unique(used, return_inverse=True)
    firsts = table.select(needed).first_equal() if len(needed) else needed
    kept, of_needed = np.unique(firsts, return_inverse=True)
    return needed[kept], of_needed.reshape(-1)[inverse.reshape(-1)]


def _gather_inline(references: References, inlined: Bools) -> tuple[Int64s, bytes]:
    """Gather the inlined bytes in use, in the order of the cells."""
    offset = references.offset.copy()
    offset[references.source == DELETED] = 0
    if not bool(inlined.any()):
        return offset, b""
    lengths = references.length[inlined]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    places = np.repeat(references.offset[inlined] - starts, lengths) + np.arange(int(ends[-1]))
    offset[inlined] = starts
    return offset, np.frombuffer(references.inline, dtype=np.uint8)[places].tobytes()
