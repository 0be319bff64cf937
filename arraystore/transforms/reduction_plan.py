"""Plan of a reduction: boxes of the output, and blocks of the input that are reduced into each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arraystore._format.types import Int64s
from arraystore.errors import InvalidInputError
from arraystore.transforms.arrays import ArrayShape
from arraystore.transforms.boxes import cut_boxes
from arraystore.transforms.rechunking.boxes import best_box

_WORKING_BYTES = 17
"""Bytes for each value beside the stored one: its number, an intermediate result and a mask."""
_PIECES = 64
"""Pieces of work that all inputs are cut into, where there are fewer boxes; not by the count of tasks, so that sums do
not depend on it."""
_SMALLEST_BLOCK = 32 << 20
"""Bytes below which blocks are not made smaller for the sake of more pieces."""
_MOST_PARTS = 64 << 20
"""Bytes of partial results that are combined on the driver."""


@dataclass(frozen=True)
class ReductionPlan:
    """Blocks and the cells into which they are reduced."""

    source: ArrayShape
    reduced: tuple[int, ...]
    kept: tuple[int, ...]
    """Axes of the source."""
    chunks: tuple[int, ...]
    """Chunks of the result."""
    box: tuple[int, ...]
    """Cells of the result that a task holds, whole chunks."""
    block: tuple[int, ...]
    """Sides of blocks along the reduced axes, whole chunks of the source."""
    pieces: int
    """Pieces of the blocks of each box, which are reduced apart; with one, tasks write the result."""

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.source.shape[axis] for axis in self.kept)

    @property
    def boxes(self) -> Int64s:
        """Boxes of the result, shape (n, d, 2)."""
        return cut_boxes(self.kept_shape, self.box)

    @property
    def blocks(self) -> Int64s:
        """Blocks along the reduced axes, shape (n, d, 2)."""
        return cut_boxes([self.source.shape[axis] for axis in self.reduced], self.block)

    def piece(self, number: int) -> Int64s:
        """Return the blocks of a piece."""
        blocks = self.blocks
        return blocks[len(blocks) * number // self.pieces : len(blocks) * (number + 1) // self.pieces]

    def region(self, box: Int64s, block: Int64s) -> tuple[slice, ...]:
        """Return the part of the source of a box and a block."""
        bounds: list[slice] = [slice(0)] * len(self.source.shape)
        for axes, part in ((self.kept, box), (self.reduced, block)):
            for axis, (start, stop) in zip(axes, part.tolist(), strict=True):
                bounds[axis] = slice(start, stop)
        return tuple(bounds)

    def holding_all(self, memory: int) -> ReductionPlan:
        """Return a plan whose boxes have all their values in memory at once; raise `InvalidInputError`."""
        depth = math.prod(self.source.shape[axis] for axis in self.reduced)
        each = max(1, depth) * (self.source.itemsize + _WORKING_BYTES)
        read_unit = tuple(self.source.read_unit[axis] for axis in self.kept)
        chunks = self.chunks
        while math.prod(chunks) > 1 and math.prod(chunks) * each > memory:  # cut the longest side into halves
            axis = chunks.index(max(chunks))
            chunks = (*chunks[:axis], -(-chunks[axis] // 2), *chunks[axis + 1 :])
        # Chunks on their way through codecs are counted here, which are as deep as those of the source only.
        box = best_box(self.kept_shape, each, (1,) * len(read_unit), chunks, memory + 4 * each * math.prod(chunks))
        if math.prod(chunks) * each > memory or box is None:
            raise InvalidInputError(
                f"memory={memory} does not hold the {depth:,} values of a cell of {self.source.path!r}, {each:,} "
                "bytes: raise memory, or compute quantiles along all dimensions"
            )
        return replace(
            self,
            chunks=chunks,
            box=box,
            block=tuple(max(1, self.source.shape[axis]) for axis in self.reduced),
            pieces=1,
        )


def plan_reduction(
    source: ArrayShape, dims: str | Sequence[str] | None, cell_bytes: int, chunks: Mapping[str, int] | None, memory: int
) -> ReductionPlan:
    """Plan a reduction along dimensions in bounded memory; raise `InvalidInputError`."""
    if type(memory) is not int or memory < 1:
        raise InvalidInputError(f"memory={memory!r} must be an integer count of bytes >= 1")
    reduced = _axes(source, dims)
    kept = tuple(axis for axis in range(len(source.shape)) if axis not in reduced)
    sides = _chunks(source, kept, chunks)
    shape = tuple(source.shape[axis] for axis in kept)
    units = [max(1, min(side, size)) for side, size in zip(source.read_unit, source.shape, strict=True)]
    block = [units[axis] for axis in reduced]
    value_bytes = source.itemsize + _WORKING_BYTES
    each = math.prod(block) * value_bytes + cell_bytes
    unit = tuple(units[axis] for axis in kept)
    box = best_box(shape, each, unit, sides, memory) or tuple(
        min(side, max(1, size)) for side, size in zip(sides, shape, strict=True)
    )
    share = math.prod(source.shape) * value_bytes // _PIECES
    room = min(memory, max(_SMALLEST_BLOCK, share))
    for number in reversed(range(len(reduced))):
        longest = room // max(1, math.prod(box) * math.prod(block) // block[number] * value_bytes)
        whole = max(block[number], longest // block[number] * block[number])
        block[number] = min(whole, max(1, source.shape[reduced[number]]))
    plan = ReductionPlan(source, reduced, kept, sides, box, tuple(block), 1)
    return replace(plan, pieces=_pieces(plan, cell_bytes))


def _axes(source: ArrayShape, dims: str | Sequence[str] | None) -> tuple[int, ...]:
    names = source.dims if dims is None else (dims,) if isinstance(dims, str) else tuple(dims)
    axes = [source.axis(name) for name in names]
    if len(set(axes)) < len(axes):
        raise InvalidInputError(f"dims={list(names)} names a dimension twice")
    return tuple(sorted(axes))


def _chunks(source: ArrayShape, kept: Sequence[int], chunks: Mapping[str, int] | None) -> tuple[int, ...]:
    names = [source.dims[axis] for axis in kept]
    for dim, side in (chunks or {}).items():
        if dim not in names:
            raise InvalidInputError(f"chunks names {dim!r}, and the result has dimensions {names}")
        if type(side) is not int or side < 1:
            raise InvalidInputError(f"chunks of {dim!r} must be an integer >= 1, not {side!r}")
    sides = [(chunks or {}).get(source.dims[axis], source.write_unit[axis]) for axis in kept]
    return tuple(max(1, min(side, source.shape[axis])) for side, axis in zip(sides, kept, strict=True))


def _pieces(plan: ReductionPlan, cell_bytes: int) -> int:
    """Return the count of pieces that the blocks of each box are cut into."""
    boxes, blocks = len(plan.boxes), len(plan.blocks)
    fitting = _MOST_PARTS // max(1, math.prod(plan.kept_shape) * cell_bytes)
    return max(1, min(blocks, _PIECES // max(1, boxes), int(np.clip(fitting, 1, _PIECES))))
