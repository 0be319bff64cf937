"""Sets of chunk-grid cells as boxes and sorted numbers, and the cells that two changes have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np

from arraystore._format.box import MAX_VOLUME, Box, bounding_box, hull_of
from arraystore._format.manifest import Manifest, decode_manifest, decode_presence
from arraystore._format.transaction import ChunkChange
from arraystore._format.types import Bools, Int64s
from arraystore._runtime.values import dataclass
from arraystore.errors import FormatError

_PAIRS_AT_ONCE = 1 << 22
"""Most pairs of boxes that are compared in one step; it bounds the memory of the comparison."""

_MASK_PER_NUMBER = 8
"""Most cells of a box for each number for which a mask over the box is faster than sorting."""

_CROWD = 4
"""Overlapping pairs for each part above which filled boxes of moderate size are listed cell by cell too."""

_MOST_LISTED = 1 << 22
"""Most cells in all the filled boxes that are listed cell by cell."""

_PART_COST, _SEARCH_COST = 1000, 3
"""Costs of handling a part, and of searching for one cell, relative to a cell in the bulk comparison."""

_LARGEST_FILTER = 26
"""Binary logarithm of the most buckets of the filter, a byte each."""

_FEW = 512
"""Cells in all parts up to which Python sets are compared: they take microseconds, arrays a millisecond."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Factor that spreads regular numbers over the buckets (Fibonacci hashing)."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of a chunk grid: all cells of a box, or some of them."""

    box: Box
    """Box around the cells, of at most `MAX_VOLUME` cells."""
    numbers: Int64s | None
    """Ascending numbers of the cells within the box, as `Box.numbers` counts; None for all of them."""

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.box.volume if self.numbers is None else len(self.numbers)

    def coords(self) -> Int64s:
        """Return the coordinates of the cells in row-major order, shape (n, d)."""
        return _all_coords(self.box) if self.numbers is None else self.box.coords(self.numbers)

    @cached_property
    def listed(self) -> frozenset[tuple[int, ...]]:
        """The coordinates of the cells, of which there should be few."""
        return frozenset(map(tuple, self.coords().tolist()))

    def shifted(self, shift: tuple[int, ...]) -> Cells:
        """Return the cells moved by a vector."""
        return Cells(self.box.shifted(shift), self.numbers)

    @classmethod
    def of(cls, coords: Int64s) -> Cells:
        """Return a set of cells from at least one coordinate, shape (n, d), in any order; repetitions count once."""
        if not len(coords):
            raise ValueError("a set of cells needs at least one cell")
        box = bounding_box(coords)
        if box.volume > MAX_VOLUME:
            raise ValueError(
                f"cells from {box.low} to {box.high} are too far apart to be numbered; put them into several sets"
            )
        numbers = box.numbers(coords)
        if not bool((numbers[1:] > numbers[:-1]).all()):
            numbers = np.unique(numbers)
        return cls(box, None if len(numbers) == box.volume else numbers)


def cells_of(name: str, change: ChunkChange) -> Cells:
    """Return the cells that a chunk change of a change log writes or deletes, where the change put them."""
    layer = change.layer
    if layer.dense:
        return Cells(layer.box, None)
    if change.presence is not None:
        return Cells(layer.box, decode_presence(name, layer.box, layer.count, *change.presence))
    if layer.inline is None:
        raise FormatError(name, "a sparse layer must list its cells")
    manifest, cells = _inlined(f"{name}: inlined manifest {layer.key}", layer.inline)
    if layer.shift is not None and len(layer.shift) == len(cells.box.low):
        cells = cells.shifted(layer.shift)
    if cells.box != layer.box or manifest.count != layer.count:
        raise FormatError(name, f"inlined manifest {layer.key} is not the one that its layer describes")
    return cells


def inlined_manifest(name: str, data: bytes) -> Manifest:
    """Decode a manifest that is inlined in a layer; raises `FormatError` with its name."""
    return _inlined(name, data)[0]


def _inlined(name: str, data: bytes) -> tuple[Manifest, Cells]:
    try:
        return _decoded(data)
    except FormatError:
        decode_manifest(name, data)
        raise


@lru_cache(maxsize=256)
def _decoded(data: bytes) -> tuple[Manifest, Cells]:
    """Decode an inlined manifest once for each who asks: attempts to commit, as their own or another's, and readers."""
    manifest = decode_manifest("inlined manifest", data)
    return manifest, Cells(manifest.box, manifest.index)


def shared(ours: Sequence[Cells], theirs: Sequence[Cells]) -> Int64s:
    """Return the coordinates of cells in both sets of parts, shape (n, d), in row-major order, each cell once.

    Parts of one set may overlap. The work grows with the listed cells and with the result, never with the volume of a
    filled box.
    """
    dimensions = _dimensions(ours, theirs)
    if _are_few(ours, theirs):
        return _shared_few(ours, theirs, dimensions)
    pieces = list(_pieces(ours, theirs))
    if not pieces:
        return np.empty((0, dimensions), dtype=np.int64)
    if len(pieces) == 1:
        return pieces[0].coords()
    hull = hull_of([piece.box for piece in pieces])
    if hull.volume > MAX_VOLUME:
        return np.unique(np.concatenate([piece.coords() for piece in pieces]), axis=0)
    numbers = _ordered(np.concatenate([_placed(piece, hull) for piece in pieces]), hull.volume)
    return Cells(hull, None if len(numbers) == hull.volume else numbers).coords()


def any_shared(ours: Sequence[Cells], theirs: Sequence[Cells]) -> bool:
    """Tell whether any cell is in both sets of parts; cheaper than `shared`."""
    dimensions = _dimensions(ours, theirs)
    if _are_few(ours, theirs):
        return bool(len(_shared_few(ours, theirs, dimensions)))
    return next(_pieces(ours, theirs), None) is not None


def _are_few(ours: Sequence[Cells], theirs: Sequence[Cells]) -> bool:
    """Tell whether it is faster to compare cell by cell."""
    left = _FEW
    for side in (ours, theirs):
        for cells in side:
            left -= 1 + cells.count
            if left < 0:
                return False
    return True


def _shared_few(ours: Sequence[Cells], theirs: Sequence[Cells], dimensions: int) -> Int64s:
    """Return the coordinates of the cells in both sets of parts, of which there are few."""
    mine: frozenset[tuple[int, ...]] = frozenset().union(*[cells.listed for cells in ours])
    both = sorted({each for cells in theirs for each in mine & cells.listed})
    return np.array(both, dtype=np.int64).reshape(len(both), dimensions)


def _dimensions(ours: Sequence[Cells], theirs: Sequence[Cells]) -> int:
    dimensions = {len(cells.box.low) for side in (ours, theirs) for cells in side}
    if len(dimensions) > 1:
        raise ValueError(
            f"cells of grids with {sorted(dimensions)} dimensions cannot be compared; compare array by array"
        )
    return dimensions.pop() if dimensions else 0


# The shared cells come in pieces: non-empty sets that may overlap, the cheapest first.


def _pieces(ours: Sequence[Cells], theirs: Sequence[Cells]) -> Iterator[Cells]:
    ours, theirs = _distinct(ours), _distinct(theirs)
    if not ours or not theirs:
        return
    pairs = _overlapping(ours, theirs)
    our_filled, their_filled = _filled(ours)[pairs[:, 0]], _filled(theirs)[pairs[:, 1]]
    if len(pairs) > _CROWD * (len(ours) + len(theirs)):
        volume = sum(cells.count for cells in (*ours, *theirs) if cells.numbers is None)
        if volume <= _MOST_LISTED:
            our_filled, their_filled = np.zeros_like(our_filled), np.zeros_like(their_filled)
    for i, j in pairs[our_filled & their_filled].tolist():
        yield Cells(ours[i].box.intersection(theirs[j].box), None)
    for i, j in pairs[our_filled & ~their_filled].tolist():
        yield from _present(_clipped(theirs[j], ours[i].box.intersection(theirs[j].box)))
    for i, j in pairs[~our_filled & their_filled].tolist():
        yield from _present(_clipped(ours[i], ours[i].box.intersection(theirs[j].box)))
    listed: list[tuple[int, int]] = pairs[~(our_filled | their_filled)].tolist()
    if listed:
        yield from _pieces_of_listed(ours, theirs, listed)


def _distinct(parts: Sequence[Cells]) -> list[Cells]:
    """Return the parts that have cells, each filled box once: one place is often written again and again."""
    filled = {cells.box: cells for cells in parts if cells.numbers is None and cells.count}
    return [*filled.values(), *[cells for cells in parts if cells.numbers is not None and cells.count]]


def _filled(parts: list[Cells]) -> Bools:
    return np.array([cells.numbers is None for cells in parts])


def _present(cells: Cells) -> Iterator[Cells]:
    if cells.count:
        yield cells


def _pieces_of_listed(ours: list[Cells], theirs: list[Cells], pairs: list[tuple[int, int]]) -> Iterator[Cells]:
    """Compare pair by pair where one side is small, all at once where each pair would go through many cells."""
    our_parts = [ours[i] for i in {i: None for i, _ in pairs}]
    their_parts = [theirs[j] for j in {j: None for _, j in pairs}]
    search = sum(_PART_COST + _SEARCH_COST * min(ours[i].count, theirs[j].count) for i, j in pairs)
    bulk = sum(_PART_COST + cells.count for cells in (*our_parts, *their_parts))
    if search > bulk:
        hull = hull_of([ours[i].box.intersection(theirs[j].box) for i, j in pairs])
        if hull.volume <= MAX_VOLUME:
            numbers = _common(_numbers_in(hull, our_parts), _numbers_in(hull, their_parts), hull.volume)
            yield from _present(Cells(hull, numbers))
            return
    for i, j in pairs:
        few, many = sorted((ours[i], theirs[j]), key=lambda cells: cells.count)
        yield from _present(_searched(few, many))


def _numbers_in(hull: Box, parts: list[Cells]) -> Int64s:
    """Return the numbers within a box of the cells of all parts: one ascending run a part."""
    return np.concatenate([_placed(_clipped(cells, cells.box.intersection(hull)), hull) for cells in parts])


def _searched(few: Cells, many: Cells) -> Cells:
    """Search for few cells among many others."""
    box = few.box.intersection(many.box)
    piece = _clipped(few, box)
    if many.numbers is None:
        return piece
    wanted = _placed(piece, many.box)
    at = np.minimum(many.numbers.searchsorted(wanted), len(many.numbers) - 1)
    hits = np.flatnonzero(many.numbers[at] == wanted)
    return Cells(box, hits if piece.numbers is None else piece.numbers[hits])


# Boxes.


def _overlapping(ours: list[Cells], theirs: list[Cells]) -> Int64s:
    """Return the pairs of parts with overlapping boxes, as indices, shape (n, 2)."""
    our_lows, our_highs = _bounds(ours)
    their_lows, their_highs = _bounds(theirs)
    step = max(1, _PAIRS_AT_ONCE // len(theirs))
    pairs: list[Int64s] = []
    for start in range(0, len(ours), step):
        rows = slice(start, start + step)
        overlap = np.ones((len(our_lows[rows]), len(theirs)), dtype=bool)
        for axis in range(our_lows.shape[1]):
            overlap &= our_lows[rows, axis, None] < their_highs[:, axis]
            overlap &= their_lows[:, axis] < our_highs[rows, axis, None]
        pairs.append(np.argwhere(overlap) + np.array((start, 0)))
    return np.concatenate(pairs)


def _bounds(parts: list[Cells]) -> tuple[Int64s, Int64s]:
    shape = (len(parts), len(parts[0].box.low))
    lows = np.array([cells.box.low for cells in parts], dtype=np.int64).reshape(shape)
    highs = np.array([cells.box.high for cells in parts], dtype=np.int64).reshape(shape)
    return lows, highs


def _all_coords(box: Box) -> Int64s:
    out = np.empty((box.volume, len(box.low)), dtype=np.int64)
    for axis, (low, high, stride) in enumerate(zip(box.low, box.high, box.strides, strict=True)):
        out.reshape(-1, high - low, stride, len(box.low))[..., axis] = np.arange(low, high, dtype=np.int64)[:, None]
    return out


# Numbers.  They follow row-major order whatever the box is, so that ascending ones stay ascending in another box.


def _clipped(cells: Cells, box: Box) -> Cells:
    """Return the cells that are in a box, which is a part of their own; there may be none."""
    if cells.numbers is None or box == cells.box:
        return Cells(box, cells.numbers)
    own = cells.box
    last = own.number(tuple([high - 1 for high in box.high]))
    start, stop = cells.numbers.searchsorted(np.array([own.number(box.low), last], dtype=np.int64))
    stop += int(stop < len(cells.numbers) and cells.numbers[stop] == last)
    numbers = cells.numbers[start:stop]
    # what is between the first and the last cell is within the bounds along the first axis that is longer than 1
    first = next((axis for axis, size in enumerate(box.shape) if size > 1), len(box.shape))
    for axis in range(first + 1, len(box.shape)):
        side, stride, width = own.shape[axis], own.strides[axis], box.shape[axis]
        if width < side and len(numbers):
            at = numbers // stride - numbers // (stride * side) * side
            # below the lower bound is far above the upper one when the sign counts as a digit
            numbers = numbers[(at - (box.low[axis] - own.low[axis])).view(np.uint64) < np.uint64(width)]
    return Cells(box, _renumbered(numbers, own, box))


def _placed(cells: Cells, box: Box) -> Int64s:
    """Return the numbers of cells within a larger box."""
    if cells.numbers is not None:
        return _renumbered(cells.numbers, cells.box, box)
    numbers = np.array([box.number(cells.box.low)], dtype=np.int64)
    for size, stride in zip(cells.box.shape, box.strides, strict=True):
        numbers = np.add.outer(numbers, np.arange(size, dtype=np.int64) * stride).ravel()
    return numbers


def _renumbered(numbers: Int64s, old: Box, new: Box) -> Int64s:
    """Return the numbers within one box of cells numbered within another; one box is a part of the other."""
    if old == new:
        return numbers
    # A cell's place along an axis is q - side * (q of the axis before), with q = number // stride.  Put into the sum
    # of places times new strides, each q has a factor that is 0 unless the side of the axis after it differs.
    # No term is larger than the larger box; sums on the way may wrap around, and come back.
    out = numbers + new.number(old.low)
    for axis in range(len(old.shape) - 1):
        factor = new.strides[axis + 1] * (new.shape[axis + 1] - old.shape[axis + 1])
        if factor:
            out += numbers // old.strides[axis] * factor
    return out


def _common(ours: Int64s, theirs: Int64s, volume: int) -> Int64s:
    """Return the numbers below `volume` that are on both sides, ascending, each once."""
    if volume <= _MASK_PER_NUMBER * (len(ours) + len(theirs)):
        mask = np.zeros(volume, dtype=bool)
        mask[ours] = True
        return _ordered(theirs[mask[theirs]], volume)
    theirs = _perhaps_among(theirs, ours)
    if 2 * len(theirs) < len(ours):
        ours = _perhaps_among(ours, theirs)
    both = np.concatenate([_ordered(ours, volume), _ordered(theirs, volume)])
    both.sort(kind="stable")
    twice: Int64s = both[1:][both[1:] == both[:-1]]
    return twice


def _perhaps_among(numbers: Int64s, others: Int64s) -> Int64s:
    """Return the numbers that hash as one of the others does: all that are among them, and few more."""
    bits = min((_MASK_PER_NUMBER * len(others) + 1).bit_length(), _LARGEST_FILTER)
    buckets = np.zeros(1 << bits, dtype=bool)
    buckets[_hashed(others, bits)] = True
    return numbers[buckets[_hashed(numbers, bits)]]


def _hashed(numbers: Int64s, bits: int) -> Int64s:
    buckets: Int64s = ((numbers.view(np.uint64) * _SPREAD) >> np.uint64(64 - bits)).view(np.int64)
    return buckets


def _ordered(numbers: Int64s, volume: int) -> Int64s:
    """Return numbers below `volume` ascending, each once."""
    if 0 < volume <= _MASK_PER_NUMBER * len(numbers):
        mask = np.zeros(volume, dtype=bool)
        mask[numbers] = True
        return np.flatnonzero(mask).astype(np.int64, copy=False)
    # the stable sort finds and merges the ascending runs that the numbers come in
    numbers = np.sort(numbers, kind="stable")
    fresh = numbers[1:] != numbers[:-1]
    return numbers if bool(fresh.all()) else numbers[np.concatenate([[True], fresh])]
