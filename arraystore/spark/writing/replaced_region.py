"""Regions that rows replace whole: cells of the region without rows become the fill value.

Chunks of the region that exist are erased by a job of their own, and the rows are merged over them; a chunk that rows
fill in part is read without the cells of the region. Nothing changes in the session before all rows are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arraystore._format.types import Array, Bools, Int64s
from arraystore._session.base import SessionBase
from arraystore._session.change_set_transfer import receive_change_sets
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.spark.cluster import slots
from arraystore.spark.fork_job import Outcome, run_tasks
from arraystore.spark.reading.opening import coordinate_of, open_arrays
from arraystore.spark.reading.selection import check_dimension_names, index_positions
from arraystore.spark.writing.chunk_assembler import Chunks
from arraystore.spark.writing.chunk_grid import ChunkGrid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReplaceWhere = Mapping[str, Any]


@dataclass(frozen=True)
class ReplacedRegion:
    """Cells at selected positions along each dimension."""

    grid: ChunkGrid
    masks: tuple[Bools, ...]
    """Mask of the selected positions along each dimension."""

    def contains(self, positions: Int64s) -> Bools:
        """Return the mask of positions of cells in the region."""
        inside = np.ones(len(positions), np.bool_)
        numbers, places = np.divmod(positions, self.grid.cells)
        strides = zip(
            self.masks, self.grid.counts, self.grid.chunk, self.grid.chunk_strides, self.grid.cell_strides, strict=True
        )
        for mask, count, side, chunk_stride, cell_stride in strides:
            if not mask.all():
                inside &= mask[numbers // chunk_stride % count * side + places // cell_stride % side]
        return inside

    def touched(self, coords: Int64s) -> Int64s:
        """Return the numbers of those chunks that have cells in the region; `coords` has shape (n, d)."""
        rows = (coords < np.array(self.grid.counts)).all(axis=1)  # an array that shrank may have others
        coords = coords[rows]
        touched = np.ones(len(coords), np.bool_)
        for axis, (mask, side) in enumerate(zip(self.masks, self.grid.chunk, strict=True)):
            by_chunk = np.logical_or.reduceat(mask, np.arange(0, len(mask), side)) if len(mask) else mask
            touched &= by_chunk[coords[:, axis]]
        return coords[touched] @ np.array(self.grid.chunk_strides, np.int64)

    def erase(self, number: int, block: Array, fill: Any) -> None:
        """Set the cells of a chunk that are in the region to the fill value; the block ends with the array."""
        inside = [np.flatnonzero(mask[part]) for mask, part in zip(self.masks, self.grid.box(number), strict=True)]
        block[np.ix_(*inside)] = fill

    def covers(self, number: int) -> bool:
        """Return whether all cells of a chunk are in the region."""
        return all(mask[part].all() for mask, part in zip(self.masks, self.grid.box(number), strict=True))


def find_region(
    session: SessionBase, path: str, grid: ChunkGrid, by_label: Mapping[str, bool], where: ReplaceWhere
) -> ReplacedRegion:
    """Return the region that a selection by dimension names; dimensions without an entry are replaced whole."""
    if not isinstance(where, Mapping) or not where:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"replace_where={where!r} must select labels or indices by dimension: {{'time': slice('2026-01', None)}}"
        )
    opened = open_arrays(session, path, list(by_label))
    check_dimension_names("replace_where", where, list(by_label))
    masks: list[Bools] = []
    for (name, labelled), size in zip(by_label.items(), grid.shape, strict=True):
        mask = np.ones(size, np.bool_)
        if name in where:
            if labelled:
                coordinate = coordinate_of(opened, name, size, decode=False)
                if coordinate is None:
                    raise InvalidInputError(f"there is no coordinate of dimension {name!r} for replace_where")
                positions = coordinate.positions(where[name])
            else:
                positions = index_positions(f"dimension {name!r}", size, where[name])
            mask = np.zeros(size, np.bool_)
            mask[np.asarray(positions, np.int64)] = True
        masks.append(mask)
    return ReplacedRegion(grid, tuple(masks))


class ErasedChunks:
    """Chunks of arrays, read as if the region held the fill value until they are written."""

    def __init__(self, chunks: Chunks, region: ReplacedRegion, fills: Sequence[Any]) -> None:
        self._chunks = chunks
        self._region = region
        self._fills = fills
        self._written: set[tuple[int, int]] = set()

    def read(self, array: int, number: int) -> Array:
        """Return a chunk, cut off at the end of the array."""
        block = self._chunks.read(array, number)
        if (array, number) not in self._written:
            block = np.array(block)
            self._region.erase(number, block, self._fills[array])
        return block

    def write(self, array: int, number: int, block: Array) -> None:
        """Write a chunk, cut off at the end of the array."""
        self._chunks.write(array, number, block)
        self._written.add((array, number))


@dataclass(frozen=True)
class Erasure:
    """Chunks to erase the region in."""

    region: ReplacedRegion
    paths: tuple[str, ...]
    fills: tuple[Any, ...]
    numbers: tuple[Int64s, ...]
    """Numbers of the existing chunks of each array that the region touches."""

    @classmethod
    def of(cls, session: SessionBase, region: ReplacedRegion, paths: Sequence[str], fills: Sequence[Any]) -> Erasure:
        """Return the erasure of a region in what exists in a session."""
        numbers = tuple(region.touched(session.chunk_coordinates(path)) for path in paths)
        return cls(region, tuple(paths), tuple(fills), numbers)

    def __len__(self) -> int:
        return sum(map(len, self.numbers))

    def run(self, fork: ForkSession, part: slice) -> Mapping[str, Any]:
        """Erase the region in every so many of the chunks."""
        for path, fill, numbers in zip(self.paths, self.fills, self.numbers, strict=True):
            for number in numbers[part].tolist():
                self._erase(fork, path, number, fill)
        return {}

    def _erase(self, fork: ForkSession, path: str, number: int, fill: Any) -> None:
        box = self.region.grid.box(number)
        if self.region.covers(number):
            fork.write(path, box, fill)
            return
        block = np.array(fork.read(path, box))
        self.region.erase(number, block, fill)
        fork.write(path, box, block)


def erase_here(session: Session, erasure: Erasure) -> list[bytes]:
    """Erase a region in this process, and return the change sets for a merge."""
    if not len(erasure):
        return []
    fork = session.fork()
    try:
        erasure.run(fork, slice(None))
        return [fork.changes()]
    except BaseException:
        session.abandon(fork)
        raise


def erase_first(
    spark: SparkSession, session: Session, erasure: Erasure, then: Callable[[list[bytes]], list[Outcome]]
) -> list[Outcome]:
    """Erase a region on executors, and return the outcomes of what follows with the change sets, which it merges."""
    count = min(slots(spark), len(erasure))
    if not count:
        return then([])
    outcomes: list[Outcome] = []

    def follow(erased: list[Outcome]) -> None:
        outcomes.extend(then(receive_change_sets(session.context, [each.change_set for each in erased])))

    parts = [slice(task, None, count) for task in range(count)]
    run_tasks(spark, session, parts, erasure.run, description="erase the region that rows replace", take=follow)
    return outcomes
