"""Plan of a rechunking: one copy if memory allows, or two with an intermediate array between them.

The intermediate plan follows the idea of Rechunker (https://rechunker.readthedocs.io/en/latest/algorithm.html) and of
dask's ``rechunk``: consolidate reads into boxes of whole source chunks, consolidate writes into boxes of whole target
chunks, and take the elementwise minimum of the two boxes as chunks of the intermediate array.  Unlike there, several
pairs of boxes are compared by the bytes and the chunks that they read and write, chunks that are read more than once
included, and the intermediate array is left out wherever a direct copy costs less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from hashlib import sha256

from arraystore._format.types import Shape
from arraystore._runtime.formatting import bytes_text
from arraystore.errors import InvalidInputError
from arraystore.transforms.rechunking.boxes import (
    CopyCost,
    best_box,
    clip,
    copy_cost,
    grown_boxes,
    task_memory,
)

DEFAULT_MEMORY = 512 << 20
_MEMORY_PARTS = (1, 2, 4)
"""Parts of the memory that candidates of boxes take: beside smaller ones there is room for larger chunks."""

FEWEST_BOXES = 8
_BOXES_PER_TASK = 4
"""Boxes for each task that runs at once, which are enough to even out slow ones."""
_SMALLEST_BOX = 64 << 20
"""Bytes below which boxes are not made smaller for the sake of more tasks."""
_STAGE_BYTES = 256 << 20
"""Cost of a stage beside its copies: its tasks are started, and its result is committed."""


@dataclass(frozen=True)
class Stage:
    """A copy from one chunk grid to another, in boxes that tasks copy independently.

    Parameters
    ----------
    source, target
        ``"source"``, ``"intermediate"`` or ``"target"``.
    read_unit, write_unit
        Cells that are decoded together in the source, and those that are written together in the target.
    box
        Cells that a task holds at a time: whole units of writing.
    memory
        Bytes of values that a task holds.
    cost
        Boxes, chunks and bytes; what is read more than once is counted more than once.
    """

    source: str
    target: str
    read_unit: Shape
    write_unit: Shape
    box: Shape
    memory: int
    cost: CopyCost

    def __str__(self) -> str:
        cost = self.cost
        again = cost.read_bytes / max(1, cost.write_bytes)
        return (
            f"{self.source} {_sides(self.read_unit)} to {self.target} {_sides(self.write_unit)}: {cost.boxes:,} boxes "
            f"of {_sides(self.box)}, {cost.reads:,} reads, {cost.writes:,} writes, {bytes_text(cost.read_bytes)} read "
            f"({again:.2f} times), {bytes_text(cost.write_bytes)} written, {bytes_text(self.memory)} of memory a task"
        )


@dataclass(frozen=True)
class RechunkPlan:
    """Plan of a rechunking; its text lists the stages.

    Parameters
    ----------
    shape
        Shape of the array.
    itemsize
        Bytes of an item in memory.
    memory
        Bytes of values that a task may hold.
    intermediate
        Chunks of the intermediate array; None for a direct copy.
    stages
        One copy, or two.
    """

    shape: Shape
    itemsize: int
    memory: int
    intermediate: Shape | None
    stages: tuple[Stage, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the values of the array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def cost(self) -> int:
        """Estimate for comparing plans, in bytes that are read in the same time."""
        return sum(_STAGE_BYTES + stage.cost.total for stage in self.stages)

    @property
    def digest(self) -> str:
        """Text that identifies the boxes and their order: counts of copied ones hold for no other plan."""
        return sha256(repr((self.shape, self.intermediate, [stage.box for stage in self.stages])).encode()).hexdigest()

    def __str__(self) -> str:
        how = "directly" if self.intermediate is None else f"with an intermediate array in {_sides(self.intermediate)}"
        lines = [f"rechunk {_sides(self.shape)}, {bytes_text(self.nbytes)}, {how}"]
        return "\n".join([*lines, *(f"  {number}. {stage}" for number, stage in enumerate(self.stages, 1))])


def plan_copies(
    shape: Shape,
    itemsize: int,
    read_unit: Shape,
    write_unit: Shape,
    memory: int = DEFAULT_MEMORY,
    parallel: int = FEWEST_BOXES,
) -> RechunkPlan:
    """Plan copies from one chunk grid to another in bounded memory.

    Parameters
    ----------
    shape
        Shape of the array.
    itemsize
        Bytes of an item.
    read_unit
        Cells of the source that are decoded together.
    write_unit
        Cells of the target that are written together.
    memory
        Bytes of values that a task may hold.
    parallel
        Tasks that may run at once; a plan with fewer boxes is taken to be that much slower.

    Raises
    ------
    InvalidInputError
        If memory does not hold the chunks.
    """
    if 0 in shape:
        return RechunkPlan(shape, itemsize, memory, None, ())
    units = clip(read_unit, shape), clip(write_unit, shape)
    smaller = max(_SMALLEST_BOX, math.prod(shape) * itemsize // (_BOXES_PER_TASK * parallel))
    plans = [plan for most in {memory, min(memory, smaller)} for plan in _plans(shape, itemsize, *units, most)]
    if not plans:
        needed = task_memory(itemsize, units[1], *units)
        raise InvalidInputError(
            f"memory={memory} does not hold the chunks: a task needs {needed} bytes for chunks of {_sides(units[0])} "
            f"at the source and {_sides(units[1])} at the target, of {itemsize} bytes an item"
        )
    return replace(min(plans, key=lambda plan: _seconds(plan, parallel)), memory=memory)


def _seconds(plan: RechunkPlan, parallel: int) -> float:
    """Return a figure that is in proportion to the duration of a plan."""
    return sum(_STAGE_BYTES + stage.cost.total * max(1.0, parallel / stage.cost.boxes) for stage in plan.stages)


def _plans(shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int) -> list[RechunkPlan]:
    direct = _stage("source", "target", shape, itemsize, read_unit, write_unit, memory)
    plans = [] if direct is None else [RechunkPlan(shape, itemsize, memory, None, (direct,))]
    if direct is None or direct.cost.read_bytes > direct.cost.write_bytes:
        plans += _with_intermediate(shape, itemsize, read_unit, write_unit, memory)
    return plans


def _stage(
    source: str, target: str, shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int
) -> Stage | None:
    box = best_box(shape, itemsize, read_unit, write_unit, memory)
    if box is None:
        return None
    held = task_memory(itemsize, box, read_unit, write_unit)
    cost = copy_cost(shape, itemsize, box, read_unit, write_unit)
    return Stage(source, target, read_unit, write_unit, box, held, cost)


def _with_intermediate(
    shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int
) -> list[RechunkPlan]:
    """Return plans with an intermediate array, one for each candidate of its chunks."""
    plans: list[RechunkPlan] = []
    for chunks in sorted(_intermediates(shape, itemsize, read_unit, write_unit, memory)):
        first = _stage("source", "intermediate", shape, itemsize, read_unit, chunks, memory)
        second = _stage("intermediate", "target", shape, itemsize, chunks, write_unit, memory)
        if first is not None and second is not None:
            plans.append(RechunkPlan(shape, itemsize, memory, chunks, (first, second)))
    return plans


def _intermediates(shape: Shape, itemsize: int, read_unit: Shape, write_unit: Shape, memory: int) -> set[Shape]:
    """Return candidates of intermediate chunks: minima of boxes of whole source chunks and of whole target chunks."""
    shares = [memory // part for part in _MEMORY_PARTS]
    reads = {box for most in shares for box in grown_boxes(shape, itemsize, read_unit, read_unit, most)}
    writes = {box for most in shares for box in grown_boxes(shape, itemsize, write_unit, write_unit, most)}
    return {tuple(map(min, read, write)) for read in reads for write in writes}


def _sides(sides: Shape) -> str:
    return "×".join(map(str, sides)) or "one item"
