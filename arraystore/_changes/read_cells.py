"""Chunks of one array that were read, in bounded memory: exact at first, then in blocks that grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from arraystore._chunks.cells import Cells, shared
from arraystore._format.box import MAX_VOLUME, Box, bounding_box, hull_of
from arraystore._format.manifest import decode_presence, encode_presence
from arraystore._format.types import Bools, Int64s
from arraystore._format.wire import read_tuple
from arraystore.errors import FormatError

MAX_CELLS = 1 << 16
"""Most blocks of one array; where there were more, blocks twice as long along each axis take their place."""

MAX_BOXES = 256
"""Most boxes of one array that were read at once; where there were more, the box around all takes their place."""

_MASK_PER_NUMBER = 8
"""A mask over a box is quicker than a search where the box has at most this many cells for each number."""

_COARSEST = 63
"""Above it every coordinate is in the same block."""


class ReadCells:
    """Chunks of one array that were read, or more than these, but never fewer.

    `whole` tells that all of the array counts as read.  `blocks`, by their place among the blocks of their level, have
    ``2**level`` chunks along each axis.  `boxes` are of chunks, whatever the level.
    """

    __slots__ = ("blocks", "boxes", "level", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.level = 0
        self.blocks: Cells | None = None
        self.boxes: list[Box] = []

    @property
    def weight(self) -> int:
        """Count of the numbers that are kept."""
        return 0 if self.blocks is None or self.blocks.numbers is None else len(self.blocks.numbers)

    @property
    def side(self) -> int:
        """Chunks along each axis of a block."""
        return 1 << self.level

    # -- taking in ------------------------------------------------------------------------------------------

    def add(self, coords: Int64s, level: int = 0) -> None:
        """Add chunks, shape (n, d) with n > 0, or the blocks of a level."""
        if self.whole or not self._fits(coords.shape[1]):
            return
        while self.level < level:
            self.widen()
        self._add(coords >> (self.level - level))

    def _add(self, coords: Int64s) -> None:
        """Add blocks of this level."""
        blocks = self.blocks
        if self.whole:
            return
        if blocks is None:
            self._put(coords)
        elif bool(_inside(blocks.box, coords).all()):
            if blocks.numbers is not None:
                self.blocks = _cells(blocks.box, np.concatenate([blocks.numbers, blocks.box.numbers(coords)]))
                if self.weight > MAX_CELLS:
                    self._put(self.blocks.coords())
        elif blocks.numbers is None and blocks.count > MAX_CELLS:  # too many to list
            self.blocks = None
            self.add_box(_scaled(blocks.box, self.level))
            self._add(coords)
        else:
            self._put(np.concatenate([blocks.coords(), coords]))

    def add_cells(self, cells: Cells) -> None:
        """Add cells; a box of them stays a box."""
        if cells.numbers is None:
            self.add_box(cells.box)
        elif len(cells.numbers):
            self.add(cells.coords())

    def add_box(self, box: Box) -> None:
        """Add a box."""
        if self.whole or not self._fits(len(box.low)) or any(known.encloses(box) for known in self.boxes):
            return
        self.boxes = [known for known in self.boxes if not box.encloses(known)]
        self.boxes.append(box)
        if len(self.boxes) > MAX_BOXES:
            self.boxes = [hull_of(self.boxes)]
        if self.boxes[-1].volume > MAX_VOLUME:
            self.add_all()

    def add_all(self) -> None:
        """Add all of the array, whatever its grid."""
        self.whole = True
        self.level, self.blocks, self.boxes = 0, None, []

    def update(self, other: ReadCells) -> None:
        """Add what another one has."""
        if other.whole:
            self.add_all()
        for box in other.boxes:
            self.add_box(box)
        blocks = other.blocks
        if blocks is not None and blocks.numbers is None and blocks.count > MAX_CELLS:
            self.add_box(_scaled(blocks.box, other.level))
        elif blocks is not None:
            self.add(blocks.coords(), other.level)

    def widen(self) -> None:
        """Make the blocks twice as long along each axis."""
        blocks, self.blocks = self.blocks, None
        self.level += 1
        if self.level > _COARSEST:
            self.add_all()
        elif blocks is not None and blocks.numbers is None:
            low = tuple([start >> 1 for start in blocks.box.low])
            self.blocks = Cells(Box(low, tuple([(end + 1) >> 1 for end in blocks.box.high])), None)
        elif blocks is not None:
            self._put(blocks.coords() >> 1)

    def _put(self, coords: Int64s) -> None:
        while True:
            box = bounding_box(coords)
            if box.volume <= MAX_VOLUME:
                self.blocks = _cells(box, box.numbers(coords))
                if self.weight <= MAX_CELLS:
                    return
                coords = self.blocks.coords()
            coords = coords >> 1
            self.level += 1

    def _fits(self, dimensions: int) -> bool:
        """Tell whether there were as many dimensions before; all of the array counts as read where not."""
        known = self._dimensions()
        if known is not None and known != dimensions:
            self.add_all()
        return not self.whole

    def _dimensions(self) -> int | None:
        if self.boxes:
            return len(self.boxes[0].low)
        return None if self.blocks is None else len(self.blocks.box.low)

    # -- comparing ------------------------------------------------------------------------------------------

    def hits(self, theirs: Sequence[Cells]) -> Int64s:
        """Return which cells of others count as read, shape (n, d), in row-major order."""
        known = self._dimensions()
        if self.whole or any(known not in (None, len(cells.box.low)) for cells in theirs):
            return shared(theirs, theirs)
        parts = [Cells(box, None) for box in self.boxes]
        if self.blocks is not None:
            parts += [self.blocks] if self.level == 0 else self._within_blocks(self.blocks, theirs)
        return shared(parts, theirs)

    def _within_blocks(self, blocks: Cells, theirs: Sequence[Cells]) -> Iterator[Cells]:
        around = _scaled(blocks.box, self.level)
        for cells in theirs:
            if not around.intersects(cells.box):
                continue
            if cells.numbers is None:  # such a box may be large, but what both have is not larger than what was written
                cells = Cells(around.intersection(cells.box), None)  # noqa: PLW2901
            coords = cells.coords()
            numbers = np.arange(len(coords), dtype=np.int64) if cells.numbers is None else cells.numbers
            coords >>= self.level
            inside = _inside(blocks.box, coords)
            hit = numbers[inside][_among(blocks, coords[inside])]
            if len(hit):
                yield Cells(cells.box, hit)

    # -- the wire -------------------------------------------------------------------------------------------

    def to_wire(self) -> tuple[Any, ...]:
        """Return what goes into a body."""
        boxes = tuple([box.to_wire() for box in self.boxes])
        blocks = self.blocks
        if blocks is None:
            return (self.whole, self.level, boxes, None)
        presence = encode_presence(blocks.box, blocks.numbers, blocks.count)
        return (self.whole, self.level, boxes, (blocks.box.to_wire(), blocks.count, *presence))

    @classmethod
    def from_wire(cls, name: str, value: Any) -> ReadCells:
        """Read what `to_wire` gave; raises `FormatError`."""
        whole, level, boxes, wire = read_tuple(name, value, bool, int, tuple, (tuple, type(None)))
        if not 0 <= level <= _COARSEST or len(boxes) > MAX_BOXES:
            raise FormatError(name, f"blocks of level {level}, {len(boxes)} boxes: more than any session keeps")
        if whole and (boxes or wire is not None):
            raise FormatError(name, "chunks besides all of the array")
        cells = cls()
        cells.whole, cells.level = whole, level
        cells.boxes = [Box.from_wire(name, box) for box in boxes]
        if wire is not None:
            cells.blocks = _read_blocks(name, wire)
            if any(end - 1 > MAX_VOLUME >> level for end in cells.blocks.box.high):
                raise FormatError(name, "blocks beyond every chunk that there can be")
        sides = {len(box.low) for box in cells.boxes} | {cells._dimensions()}
        if cells.blocks is not None:
            sides.add(len(cells.blocks.box.low))
        if len(sides) > 1:
            raise FormatError(name, f"chunks of one array with {sorted(map(str, sides))} dimensions")
        return cells


def _read_blocks(name: str, value: tuple[Any, ...]) -> Cells:
    wire, count, presence, data = read_tuple(name, value, tuple, int, int, bytes)
    box = Box.from_wire(name, wire)
    if not 0 < count <= (box.volume if count == box.volume else min(MAX_CELLS, box.volume)):
        raise FormatError(name, f"{count} blocks in a box of {box.volume}; at most {MAX_CELLS} are kept")
    if count == box.volume and (presence or data):
        raise FormatError(name, "blocks that fill their box must be written as the box")
    return Cells(box, decode_presence(name, box, count, presence, data))


def _cells(box: Box, numbers: Int64s) -> Cells:
    """Return the cells of a box with these numbers, in any order; sorting is quicker here than numpy's hashing."""
    numbers.sort()
    fresh = np.ones(len(numbers), dtype=bool)
    fresh[1:] = numbers[1:] != numbers[:-1]
    numbers = numbers[fresh]
    return Cells(box, None if len(numbers) == box.volume else numbers)


def _among(blocks: Cells, coords: Int64s) -> Bools:
    """Tell which of these, all in the box of the blocks, are blocks."""
    if blocks.numbers is None:
        return np.ones(len(coords), dtype=bool)
    wanted = blocks.box.numbers(coords)
    if blocks.box.volume <= _MASK_PER_NUMBER * (len(wanted) + len(blocks.numbers)):
        mask = np.zeros(blocks.box.volume, dtype=bool)
        mask[blocks.numbers] = True
        return mask[wanted]
    at = np.minimum(blocks.numbers.searchsorted(wanted), len(blocks.numbers) - 1)
    present: Bools = blocks.numbers[at] == wanted
    return present


def _inside(box: Box, coords: Int64s) -> Bools:
    inside = np.ones(len(coords), dtype=bool)
    for axis, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
        inside &= (coords[:, axis] >= low) & (coords[:, axis] < high)
    return inside


def _scaled(box: Box, level: int) -> Box:
    """Return the chunks in a box of blocks."""
    low = tuple([start << level for start in box.low])
    return Box(low, tuple([min(end << level, MAX_VOLUME) for end in box.high]))
