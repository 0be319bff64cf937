"""Cutting arrays into regions of whole chunks, and assigning them to tasks."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from arraystore.ingest.model import ArrayPlan, Box, Origin, Piece, Region
from arraystore.spark.regions.boxes import assign_to_tasks as assign_numbers
from arraystore.spark.regions.boxes import cut_regions

LARGEST_REGION_BYTES = 32 * 2**20
"""Upper bound of a region, which each running task holds in memory."""
SMALLEST_REGION_BYTES = 256 * 2**10
"""Lower bound of a region, below which the overhead of reading and writing outweighs finer sharing."""


def region_bytes(total: int, tasks: int) -> int:
    """Return the maximal size of regions: about four for each task, within bounds."""
    return max(SMALLEST_REGION_BYTES, min(LARGEST_REGION_BYTES, total // (4 * max(1, tasks))))


def cut(box: Box, chunks: Sequence[int], itemsize: int, limit: int) -> list[Box]:
    """Cut a box along chunk boundaries into boxes of at most `limit` bytes, or one chunk if that is larger.

    The box starts on a chunk boundary in every dimension.
    """
    low = np.array([start for start, _ in box], dtype=np.int64)
    bounds = cut_regions([stop - start for start, stop in box], chunks, itemsize, limit) + low[:, None]
    return [tuple((start, stop) for start, stop in region) for region in bounds.tolist()]


def regions_of(plan: ArrayPlan, limit: int) -> list[Region]:
    """Return all regions of one array, in C order."""
    itemsize = plan.variable.itemsize
    return [
        Region(plan.name, box, pieces_of(plan, box), math.prod(stop - start for start, stop in box) * itemsize)
        for box in cut(plan.box, plan.chunks, itemsize, limit)
    ]


def pieces_of(plan: ArrayPlan, box: Box) -> tuple[Piece, ...]:
    """Return the parts of sources that fill a box."""
    if plan.axis is None:
        origin = plan.origins[0]
        return (Piece(origin.source, box, tuple((0, stop - start) for start, stop in box), origin.recode),)
    start, stop = box[plan.axis]
    first = bisect_right(plan.origins, start, key=lambda origin: origin.start) - 1
    end = bisect_left(plan.origins, stop, key=lambda origin: origin.start)
    pieces = (_piece(origin, box, plan.axis) for origin in plan.origins[max(0, first) : end])
    return tuple(piece for piece in pieces if piece is not None)


def _piece(origin: Origin, box: Box, axis: int) -> Piece | None:
    start, stop = max(box[axis][0], origin.start), min(box[axis][1], origin.start + origin.length)
    if start >= stop:
        return None
    take, put = list(box), [(0, high - low) for low, high in box]
    take[axis] = (start - origin.start, stop - origin.start)
    put[axis] = (start - box[axis][0], stop - box[axis][0])
    return Piece(origin.source, tuple(take), tuple(put), origin.recode)


def assign_to_tasks(regions: Sequence[Region], tasks: int) -> list[tuple[Region, ...]]:
    """Divide regions into at most `tasks` runs of neighbours with about the same size in bytes."""
    sizes = np.array([region.nbytes for region in regions], dtype=np.int64)
    assignments = assign_numbers(np.arange(len(regions), dtype=np.int64), sizes, max(1, tasks))
    return [tuple(regions[number] for number in numbers) for numbers in assignments]
