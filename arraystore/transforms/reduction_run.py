"""Running a reduction: tasks reduce blocks, and write results, or return partial ones that the driver combines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Int64s
from arraystore._runtime.progress import Progress
from arraystore._session.base import SessionBase
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, FormatError
from arraystore.transforms.boxes import as_slices, box_text, share_out
from arraystore.transforms.decoding import NumberDecoder
from arraystore.transforms.engines import TASKS_PER_SLOT, TaskResult, TransformEngine
from arraystore.transforms.reducers import Parts, Reducer
from arraystore.transforms.reduction_plan import ReductionPlan
from arraystore.transforms.report import TransformError, TransformReport
from arraystore.transforms.transform import keep_reads

_PART = "partial result of a task"


@dataclass(frozen=True)
class ReductionResults:
    """Results of all tasks of a reduction."""

    boxes: int
    tasks: Sequence[TaskResult]
    nbytes: int
    parts: Sequence[Parts] = ()
    """Combined partial results of boxes that the driver has finished."""

    def report(self, target: str, seconds: float) -> TransformReport:
        """Return the report of the reduction."""
        read = sum(task.read_bytes for task in self.tasks)
        wasted = sum(task.attempt for task in self.tasks)
        return TransformReport(target.strip("/"), self.boxes, 0, read, self.nbytes, len(self.tasks), wasted, seconds)


@dataclass(frozen=True)
class BlockReduction:
    """Reduces pieces of boxes in one task."""

    plan: ReductionPlan
    decoder: NumberDecoder
    reducer: Reducer
    target: str
    skipna: bool
    leading: int | None = None
    """Length of a first dimension of the result that the source does not have."""
    returned: bool = False
    """Whether partial results are returned, and not finished by the task."""

    def __call__(self, fork: ForkSession, share: Int64s) -> Mapping[str, Any]:
        """Reduce pieces, shape (n, 2): number of the box, and of the piece."""
        reader = fork.fork()
        parts: list[Any] = []
        read = 0
        for number, piece in share.tolist():
            box, blocks = self.plan.boxes[number], self.plan.piece(piece)
            part = self._reduce(reader, box, blocks)
            if self.returned:
                parts.append([number, piece, [_packed(each) for each in part]])
            else:
                write_box(fork, self.target, box, self.reducer.finish(part), self.leading)
            read += _cells(box) * sum(map(_cells, blocks)) * self.plan.source.itemsize
        keep_reads(fork, reader)
        return {"read_bytes": read, "parts": parts}

    def _reduce(self, reader: SessionBase, box: Int64s, blocks: Int64s) -> Parts:
        """Return the partial result of blocks; of a source without cells, that of none."""
        if not len(blocks):
            return self.empty(box)
        return reduce(self.reducer.combine, (self._reduce_block(reader, box, block) for block in blocks))

    def empty(self, box: Int64s) -> Parts:
        """Return the partial result of no cells."""
        region = self.plan.region(box, np.zeros((len(self.plan.reduced), 2), dtype=np.int64))
        return self._reduce_cells(_no_cells(self.plan, region))

    def _reduce_cells(self, cells: npt.NDArray[Any]) -> Parts:
        values, valid = self.decoder.decode(cells, skipna=self.skipna)
        return self.reducer.reduce(values, valid, self.plan.reduced)

    def _reduce_block(self, reader: SessionBase, box: Int64s, block: Int64s) -> Parts:
        region = self.plan.region(box, block)
        try:
            return self._reduce_cells(read_cells(reader, self.plan, region))
        except ArrayStoreError:
            raise
        except Exception as error:
            bounds = np.array([(part.start or 0, part.stop) for part in region], dtype=np.int64).reshape(-1, 2)
            place = f"{box_text(bounds, self.plan.source.dims)} of {self.plan.source.path!r}"
            raise TransformError(f"reducing {place} failed: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class ExactQuantile:
    """Computes quantiles of boxes whose values are all in memory."""

    plan: ReductionPlan
    decoder: NumberDecoder
    target: str
    skipna: bool
    quantiles: tuple[float, ...]
    several: bool

    def __call__(self, fork: ForkSession, share: Int64s) -> Mapping[str, Any]:
        """Compute boxes, shape (n, d, 2)."""
        reader = fork.fork()
        read = 0
        for box in share:
            region = self.plan.region(box, np.array([(0, self.plan.source.shape[axis]) for axis in self.plan.reduced]))
            values = self._values(read_cells(reader, self.plan, region))
            write_box(fork, self.target, box, self._quantiles(values), len(self.quantiles) if self.several else None)
            read += values.size * self.plan.source.itemsize
        keep_reads(fork, reader)
        return {"read_bytes": read}

    def _values(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers with the reduced axes last, as one, and NaN where they are missing."""
        values, valid = self.decoder.decode(stored, skipna=False)
        numbers = values.astype(np.float64)
        if valid is not None:
            numbers[~valid] = np.nan
        if valid is not None and not self.skipna:
            raise TransformError("missing values need skipna=True")
        moved = numbers.transpose(*self.plan.kept, *self.plan.reduced)
        return moved.reshape(*moved.shape[: len(self.plan.kept)], -1)

    def _quantiles(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return quantiles along the last axis; NaN are sorted to the end and not counted."""
        ordered = np.sort(values, axis=-1)
        count = np.sum(~np.isnan(ordered), axis=-1)
        bad = (count == 0) if self.skipna else (count < ordered.shape[-1]) | (count == 0)
        found = [_at(ordered, mark * np.maximum(count - 1, 0), bad) for mark in self.quantiles]
        return np.stack(found) if self.several else found[0]


def _at(ordered: npt.NDArray[Any], place: npt.NDArray[Any], bad: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Interpolate between the values around a place."""
    if not ordered.shape[-1]:
        return np.full(ordered.shape[:-1], np.nan)
    low, high = (
        np.take_along_axis(ordered, rank.astype(np.int64)[..., None], -1)[..., 0]
        for rank in (np.floor(place), np.ceil(place))
    )
    with np.errstate(invalid="ignore"):
        between = np.where(low == high, low, low + (high - low) * (place - np.floor(place)))
    return np.where(bad, np.nan, between)


def read_cells(reader: SessionBase, plan: ReductionPlan, region: tuple[slice, ...]) -> npt.NDArray[Any]:
    """Read a region of the source of a plan."""
    if any(part.stop in (part.start, 0) for part in region):
        return _no_cells(plan, region)
    return np.asarray(reader.read(plan.source.path, (*region, ...)))


def _no_cells(plan: ReductionPlan, region: tuple[slice, ...]) -> npt.NDArray[Any]:
    return np.empty([part.stop - (part.start or 0) for part in region], plan.source.dtype)


def write_box(session: SessionBase, target: str, box: Int64s, values: npt.NDArray[Any], leading: int | None) -> None:
    """Write the results of a box, which may have a leading dimension."""
    front = () if leading is None else (slice(0, leading),)
    session.write(target, (*front, *as_slices(box), ...), values)


def _cells(bounds: Int64s) -> int:
    return math.prod((bounds[..., 1] - bounds[..., 0]).tolist())


# -- on the driver ----------------------------------------------------------------------------------------------


def run_reduction(
    session: Session,
    plan: ReductionPlan,
    decoder: NumberDecoder,
    reducer: Reducer,
    target: str,
    engine: TransformEngine,
    skipna: bool,
    progress: Progress | None,
    leading: int | None = None,
    returned: bool = False,
) -> ReductionResults:
    """Reduce all boxes, and write the results into the session."""
    boxes, pieces = len(plan.boxes), plan.pieces
    returned = returned or pieces > 1
    work = BlockReduction(plan, decoder, reducer, target.strip("/"), skipna, leading, returned)
    units = np.stack(np.divmod(np.arange(boxes * pieces, dtype=np.int64), pieces), axis=1)
    tasks = _run(session, engine, work, units, f"reduce {plan.source.path} to {target}", progress)
    nbytes = math.prod(plan.kept_shape) * reducer.dtype.itemsize * (leading or 1)
    if not returned:
        return ReductionResults(boxes, tasks, nbytes)
    combined = [reduce(reducer.combine, parts) for parts in _parts(tasks, work, pieces)]
    for box, parts in zip(plan.boxes, combined, strict=True):
        write_box(session, target.strip("/"), box, reducer.finish(parts), leading)
    return ReductionResults(boxes, tasks, nbytes, combined)


def run_quantiles(
    session: Session, work: ExactQuantile, engine: TransformEngine, progress: Progress | None
) -> ReductionResults:
    """Compute quantiles of all boxes, and write them into the session."""
    plan = work.plan
    tasks = _run(session, engine, work, plan.boxes, f"quantiles of {plan.source.path} to {work.target}", progress)
    return ReductionResults(len(plan.boxes), tasks, math.prod(plan.kept_shape) * 8 * len(work.quantiles))


def _run(
    session: Session, engine: TransformEngine, work: Any, units: Int64s, text: str, progress: Progress | None
) -> list[TaskResult]:
    parts = share_out(np.ones(len(units), dtype=np.int64), TASKS_PER_SLOT * engine.slots)
    return engine.run_forks(session, work, [units[part] for part in parts], description=text, progress=progress)


def _packed(part: npt.NDArray[Any]) -> list[Any]:
    array = np.ascontiguousarray(part)
    return [array.dtype.str, list(np.shape(part)), array.tobytes()]


def _unpacked(part: Any) -> npt.NDArray[Any]:
    """Decode a partial result of a worker; raise `FormatError`."""
    match part:
        case [str() as kind, list() as shape, bytes() as data] if kind[:1] in "<|" and kind[1:2] in "biuf":
            try:
                return np.frombuffer(data, np.dtype(kind)).reshape([int(side) for side in shape])
            except (TypeError, ValueError, OverflowError):
                pass
    raise FormatError(_PART, "is not an array")


def _parts(tasks: Sequence[TaskResult], work: BlockReduction, pieces: int) -> Iterator[list[Parts]]:
    """Yield the partial results of each box, in the order of its pieces; raise `FormatError` if any is missing."""
    boxes = len(work.plan.boxes)
    entries = [_entry(entry) for task in tasks for entry in task.parts]
    found = {(box, piece): parts for box, piece, parts in entries}
    if sorted(found) != [(box, piece) for box in range(boxes) for piece in range(pieces)] or len(entries) > len(found):
        raise FormatError(_PART, "does not belong to this job, is there twice, or is missing")
    for box in range(boxes):
        empty = work.empty(work.plan.boxes[box])
        parts = [found[box, piece] for piece in range(pieces)]
        if not all(work.reducer.accepts(part, empty) for part in parts):
            raise FormatError(_PART, "is not one of this reduction")
        yield parts


def _entry(entry: Any) -> tuple[int, int, Parts]:
    match entry:
        case [int() as box, int() as piece, list() as arrays]:
            return box, piece, tuple(map(_unpacked, arrays))
        case _:
            raise FormatError(_PART, "has not the parts of one")
