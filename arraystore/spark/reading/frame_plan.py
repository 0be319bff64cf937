"""Plans of reads: arrays and chunks, and the columns that they become.

Made on the driver, pickled once, and the same on every executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import zarr

from arraystore._format.types import Int64s
from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.spark.argument_checks import check_choice, check_count
from arraystore.spark.reading.coordinates import Coordinate
from arraystore.spark.reading.decoding import Column, Decoder, decoder_of
from arraystore.spark.reading.opening import OpenedArray, OpenedArrays, coordinate_of, open_arrays, sides_of
from arraystore.spark.reading.predicate import Comparison, parse_predicate
from arraystore.spark.reading.pruning import check_comparable, kept_chunks
from arraystore.spark.reading.selection import (
    AxisSelection,
    ChunkRuns,
    Positions,
    check_dimension_names,
    index_positions,
)

DimensionColumns = Literal["index", "label", "none"]

_BYTES_OF_A_TASK = 256 << 20
"""Bytes of values that one task should read at most, where there is a choice."""

_MOST_TASKS = 50_000
"""Most tasks by default: Spark's driver keeps some kilobytes for each, and cannot count beyond 2**31."""

_COUNTABLE = 2**31 - 1

_TASKS_OF_A_SLOT = 2
"""More than one, so that slots that are faster than others do more; few, as starting a task takes time."""


@dataclass(frozen=True)
class FrameVariable:
    """An array that becomes a column."""

    column: str
    """Name of the column."""
    path: str
    """Path of the array."""
    dims: tuple[int, ...]
    """For each of its dimensions the number of the axis in the plan."""
    decoder: Decoder
    """Decoder of its values."""


@dataclass(frozen=True)
class FramePlan:
    """Plan of a read."""

    session: SessionBase
    """Session that is read."""
    variables: tuple[FrameVariable, ...]
    """Arrays that become columns; the first one with all dimensions leads, and is read by its own chunks."""
    axes: tuple[AxisSelection, ...]
    """Selection along each dimension."""
    labels: tuple[Column | None, ...]
    """By axis: labels for the column of the dimension, None for positions."""
    coords: DimensionColumns
    """Kind of the columns for dimensions, if any."""
    chunks: ChunkRuns
    """Chunks of the leading variable that are read."""
    where: tuple[Comparison, ...] = ()
    """Predicate of the rows."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions, in the order of the leading variable."""
        return tuple(axis.name for axis in self.axes)

    @property
    def cell_bytes(self) -> int:
        """Bytes that the values of all variables take at one position."""
        return sum(max(variable.decoder.stored.itemsize, 1) for variable in self.variables)

    @property
    def chunk_cells(self) -> int:
        """Positions in a chunk of the leading variable."""
        return int(np.prod([axis.side for axis in self.axes], dtype=object))


def plan_frame(
    session: SessionBase,
    paths: str | Sequence[str] | Mapping[str, str],
    *,
    sel: Mapping[str, Any] | None = None,
    isel: Mapping[str, Any] | None = None,
    coords: DimensionColumns = "index",
    decode: bool = False,
    skip_missing: bool = False,
    dims: Sequence[str] | None = None,
    name_dims: bool = True,
    where: str | None = None,
) -> FramePlan:
    """Plan a read; the arguments are those of `read_dataframe`."""
    check_choice("coords", coords, get_args(DimensionColumns))
    opened = open_arrays(session, paths, dims)
    lead = opened.lead
    sel, isel = sel or {}, isel or {}
    check_dimension_names("isel", isel, opened.dims)
    check_dimension_names("sel", sel, opened.dims)
    axes: list[AxisSelection] = []
    labels: list[Column | None] = []
    for number, (name, size) in enumerate(zip(opened.dims, lead.array.shape, strict=True)):
        is_read = coords == "label" or name in sel
        coordinate = coordinate_of(opened, name, size, decode=decode) if is_read else None
        positions = _positions(lead, name, size, sel, isel, coordinate)
        axes.append(AxisSelection(name, size, lead.side(number), positions))
        labels.append(None if coordinate is None or coords != "label" else coordinate.column(positions))
    variables = tuple(
        FrameVariable(one.column, one.array.path, one.axes_in(opened.dims), decoder_of(one.array, decode=decode))
        for one in opened.arrays
    )
    if coords != "none" and name_dims:
        _check_columns(opened)
    total = int(np.prod([axis.chunks for axis in axes], dtype=object))
    if total >= 2**62:
        raise InvalidInputError(f"the selection has {total} chunks, more than can be counted: select less")
    chunks = ChunkRuns.up_to(total)
    if skip_missing and total:
        chunks = ChunkRuns.of(_present_numbers(session, opened, axes))
    predicate = () if where is None else _predicate(where, opened, variables)
    if total and predicate:
        chunks = _prune(chunks, predicate, opened, variables, axes)
    return FramePlan(session, variables, tuple(axes), tuple(labels), coords, chunks, predicate)


def _predicate(where: str, opened: OpenedArrays, variables: Sequence[FrameVariable]) -> tuple[Comparison, ...]:
    """Return the comparisons of a predicate, whose columns must be among the variables."""
    predicate = parse_predicate(where)
    decoders = {variable.column: variable.decoder for variable in variables}
    for each in predicate:
        if each.column in opened.dims and each.column not in decoders:
            raise InvalidInputError(f"where compares dimension {each.column!r}: select along it with sel or isel")
        if each.column not in decoders:
            raise InvalidInputError(f"where compares {each.column!r}, and the columns are {', '.join(decoders)}")
        check_comparable(each.column, decoders[each.column])
    return predicate


def _prune(
    chunks: ChunkRuns,
    predicate: Sequence[Comparison],
    opened: OpenedArrays,
    variables: Sequence[FrameVariable],
    axes: Sequence[AxisSelection],
) -> ChunkRuns:
    """Leave out the chunks in which the predicate cannot hold, as far as arrays with all dimensions tell."""
    for one, variable in zip(opened.arrays, variables, strict=True):
        comparisons = [each for each in predicate if each.column == variable.column]
        if not comparisons or len(one.dims) < len(axes):
            continue
        kept = kept_chunks(opened.session, one.array, variable.decoder, comparisons)
        if kept is not None:
            numbers = _overlapped(kept, one.array, one.axes_in(opened.dims), axes)
            chunks = ChunkRuns.of(chunks.among(numbers))
    return chunks


def _positions(
    lead: OpenedArray,
    name: str,
    size: int,
    sel: Mapping[str, Any],
    isel: Mapping[str, Any],
    coordinate: Coordinate | None,
) -> Positions:
    """Return the selected positions along a dimension."""
    if name in sel and name in isel:
        raise InvalidInputError(f"sel and isel both select along {name!r}: give one of them")
    if name in isel:
        return index_positions(f"dimension {name!r}", size, isel[name])
    if name not in sel:
        return range(size)
    if coordinate is None:
        raise InvalidInputError(
            f"sel selects along {name!r} by label, but there is no coordinate array {name!r} of that dimension "
            f"beside {lead.array.path!r}: select by position with isel"
        )
    return coordinate.positions(sel[name])


def _check_columns(opened: OpenedArrays) -> None:
    for one in opened.arrays:
        if one.column in opened.dims:
            raise InvalidInputError(
                f"array {one.array.path!r} and a dimension would both be column {one.column!r}: name the column, as in "
                f"{{'{one.column}_value': {one.array.path!r}}}, or leave the dimensions out with coords='none'"
            )


def read_task_count(plan: FramePlan, slots: int, chunks_per_task: int | None, tasks: int | None) -> int:
    """Return the count of tasks for a plan: few, but at most some 256 MiB of values for each."""
    if chunks_per_task is not None and tasks is not None:
        raise InvalidInputError("chunks_per_task and tasks must not both be given: pass one of them")
    check_count("chunks_per_task", chunks_per_task)
    check_count("tasks", tasks)
    chunks = len(plan.chunks)
    if tasks is not None or chunks_per_task is not None:
        wanted = min(tasks, chunks) if tasks is not None else -(-chunks // (chunks_per_task or 1))
        if wanted > _COUNTABLE:
            raise InvalidInputError(
                f"{wanted:,} tasks are more than Spark can count: select less, or let a task read more chunks"
            )
        return wanted
    cells = int(np.prod([len(axis.positions) for axis in plan.axes], dtype=object))
    total = min(cells, chunks * plan.chunk_cells) * plan.cell_bytes
    return min(chunks, max(_TASKS_OF_A_SLOT * slots, min(-(-total // _BYTES_OF_A_TASK), _MOST_TASKS)))


def _present_numbers(session: SessionBase, opened: OpenedArrays, axes: Sequence[AxisSelection]) -> Int64s:
    """Return the rising numbers of chunks of the leading array in which any array has chunks.

    Arrays that lack a dimension do not count, as they have values for every position along it.
    """
    numbers = [
        _overlapped(session.chunk_coordinates(one.array.path), one.array, one.axes_in(opened.dims), axes)
        for one in opened.arrays
        if len(one.dims) == len(axes)
    ]
    return np.unique(np.concatenate(numbers))


def _overlapped(present: Int64s, array: zarr.Array[Any], dims: Sequence[int], axes: Sequence[AxisSelection]) -> Int64s:
    """Return the numbers of touched chunks that some chunks of an array, which may have another grid, overlap."""
    numbers = np.zeros(len(present), np.int64)
    owners = np.arange(len(present))
    for number, axis in enumerate(axes):
        own = dims.index(number)
        low, high = axis.spans_of(*_stretches(array, own, present[owners, own], axis.size))
        counts = high - low
        owners, numbers, low = (np.repeat(column, counts) for column in (owners, numbers, low))
        # The place of each chunk within the span that it is in.
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers = numbers * axis.chunks + low + within
    return np.unique(numbers)


def _stretches(array: zarr.Array[Any], axis: int, coordinates: Int64s, size: int) -> tuple[Int64s, Int64s]:
    """Return the bounds of stored chunks along a dimension."""
    sides = sides_of(array, axis, stored=True)
    if isinstance(sides, int):
        starts = coordinates * sides
        return starts, np.minimum(starts + sides, size)
    ends = np.cumsum(sides)
    return ends[coordinates] - sides[coordinates], np.minimum(ends[coordinates], size)
