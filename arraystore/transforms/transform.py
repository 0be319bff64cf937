"""Functions of chunks: an array computed box by box from arrays that are aligned with it, with halos."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.types import Bools, Int64s
from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.arguments import check_writable_session
from arraystore._session.base import SessionBase
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, InvalidInputError
from arraystore.transforms.arrays import ArrayShape, describe_array
from arraystore.transforms.boxes import as_slices, box_text, cells, cut_boxes, share_out
from arraystore.transforms.engines import TASKS_PER_SLOT, EngineOption, transform_engine
from arraystore.transforms.report import TransformError, TransformReport
from arraystore.transforms.values import fitting
from arraystore.transforms.windows import Boundary, Edge, Halo, Window, parse_halo, read_window, window

DEFAULT_MEMORY = 256 << 20
_BOXES_PER_SLOT = 2 * TASKS_PER_SLOT


@shows_progress("Transforming")
def transform_chunks(
    session: Session,
    sources: str | Sequence[str],
    target: str,
    function: Callable[..., Any],
    *,
    halo: Halo | None = None,
    boundary: Boundary = "cut",
    factors: Mapping[str, int] | None = None,
    with_region: bool = False,
    skip_missing: bool = False,
    memory: int = DEFAULT_MEMORY,
    engine: EngineOption = "threads",
    tasks: int | None = None,
    description: str | None = None,
    progress: Progress | bool = False,
) -> TransformReport:
    """Compute an array from others, box by box; nothing is committed.

    The target is cut into boxes of whole chunks.  For each box the function gets the cells of the sources that belong
    to it, and returns the values of the box.  Dimensions are matched by name.  All boxes are computed from the session
    as it was before, the target included; the changes are in the session afterwards, or none if a task failed for good.

    Parameters
    ----------
    session
        A writable session.
    sources
        Path of an array, or of several.
    target
        Path of an array that exists, committed or not.  Its chunks need not be those of the sources.
    function
        ``function(*arrays)`` returns an array of the shape of the box, or a scalar, or, where there is a halo, an array
        that includes it, which is cut off.  An array has the dimensions of the target, of length 1 where its source
        lacks one, so that arrays broadcast; one with dimensions that the target lacks has those of its source, and is
        whole along the others.  For Spark it is pickled by cloudpickle.
    halo
        Cells around the box that the function gets as well: a count, a pair (before, after), or these by dimension.
    boundary
        Cells beyond the ends of the sources: ``"cut"`` leaves them out, ``"nearest"`` repeats the last one,
        ``"reflect"`` mirrors about it, ``"wrap"`` continues at the other end, and a number stands for itself; or these
        by dimension.
    factors
        Cells of the sources for each cell of the target, by dimension; 1 by default.
    with_region
        Whether the function gets the box as well, ``function(*arrays, region=slices)``.
    skip_missing
        Whether boxes are left out for which no source has a chunk.
    memory
        Bytes of values that a task may hold, as far as a chunk of the target is not larger.
    engine
        ``"threads"`` of this process, ``"spark"``, or an engine.
    tasks
        Largest count of tasks; by default three for each that can run at once.
    description
        For Spark's pages.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with the count of finished
        tasks and the count of all.

    Returns
    -------
    TransformReport
        Counts of what was computed.

    Raises
    ------
    InvalidInputError
        If sizes, dimensions, halo or factors do not fit; no task has started then.
    NodeNotFoundError
        If there is no such array.
    TransformError, TaskFailedError
        If the function failed for good, or its values do not fit.
    """
    began = time.perf_counter()
    check_writable_session(session)
    _check_counts(memory=memory, tasks=tasks)
    paths = [sources] if isinstance(sources, str) else list(sources)
    plan = align(session, paths, target, parse_factors(factors), halo, boundary)
    runner = transform_engine(engine)
    most = tasks or TASKS_PER_SLOT * runner.slots
    boxes = cut_boxes(plan.target.shape, plan.box(memory, _BOXES_PER_SLOT * runner.slots))
    wanted = boxes[plan.touched(session, boxes)] if skip_missing else boxes
    shares = [wanted[part] for part in share_out(cells(wanted), most)]
    text = description or f"transform {', '.join(paths)} to {target}, {len(wanted)} boxes"
    work, report = BoxTransform(plan, function, with_region), callback_of(progress)
    results = runner.run_forks(session, work, shares, description=text, progress=report)
    return TransformReport(
        plan.target.path, len(wanted), len(boxes) - len(wanted),
        sum(result.read_bytes for result in results),
        sum(result.nbytes for result in results),
        len(results), sum(result.attempt for result in results), time.perf_counter() - began,
    )  # fmt: skip


def _check_counts(**counts: Any) -> None:
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidInputError(f"{name}={count!r} must be an integer >= 1")


def parse_factors(factors: Mapping[str, int] | None) -> dict[str, int]:
    """Check factors of dimensions; raise `InvalidInputError`."""
    if not isinstance(factors, Mapping | None):
        raise InvalidInputError(f"factors must be a mapping of dimensions to integers, not {type(factors).__name__}")
    for dim, factor in (factors or {}).items():
        if type(factor) is not int or factor < 1:
            raise InvalidInputError(f"the factor of {dim!r} must be an integer >= 1, not {factor!r}")
    return dict(factors or {})


@dataclass(frozen=True)
class Alignment:
    """A target, and which cells of sources belong to a box of it."""

    target: ArrayShape
    sources: tuple[ArrayShape, ...]
    factors: dict[str, int]
    edges: dict[str, Edge]

    def box(self, memory: int, fewest: int) -> tuple[int, ...]:
        """Return the sides of boxes: whole chunks of the target that fit into memory, and enough of them."""
        shape = self.target.shape
        box = [max(1, min(side, size)) for side, size in zip(self.target.write_unit, shape, strict=True)]
        room = min(memory, max(1, self._bytes(list(shape)) // fewest))
        for axis in reversed(range(len(box))):
            unit = box[axis]
            while (
                box[axis] < shape[axis]
                and self._bytes(grown := [*box[:axis], box[axis] + unit, *box[axis + 1 :]]) <= room
            ):
                doubled = [*box[:axis], 2 * box[axis], *box[axis + 1 :]]
                box = doubled if self._bytes(doubled) <= room else grown
        return tuple(
            min(side, max(1, -(-size // unit) * unit))
            for side, size, unit in zip(box, shape, self.target.write_unit, strict=True)
        )

    def _bytes(self, box: Sequence[int]) -> int:
        """Return the bytes of values that a task holds for a box."""
        total = math.prod(box) * self.target.itemsize
        for source in self.sources:
            sides = [self._side(source, axis, box) for axis in range(len(source.shape))]
            total += math.prod(sides) * source.itemsize
        return total

    def _side(self, source: ArrayShape, axis: int, box: Sequence[int]) -> int:
        dim, size = source.dims[axis], source.shape[axis]
        if dim not in self.target.dims:
            return size
        edge = self.edges[dim]
        side = box[self.target.axis(dim)] * self.factors.get(dim, 1) + edge.before + edge.after
        return side if edge.mode != "cut" else min(side, size)

    def windows(self, source: ArrayShape, bounds: Int64s) -> list[Window]:
        """Return what a box of the target needs of a source, along each dimension of the source."""
        wanted: list[Window] = []
        for dim, size in zip(source.dims, source.shape, strict=True):
            if dim not in self.target.dims:
                wanted.append(Window(np.arange(size, dtype=np.int64)))
                continue
            start, stop = bounds[self.target.axis(dim)].tolist()
            factor = self.factors.get(dim, 1)
            wanted.append(window(start * factor, min(stop * factor, size), size, self.edges[dim], dim))
        return wanted

    def constants(self, source: ArrayShape) -> list[Any]:
        """Return the constants beyond the ends of a source."""
        modes = (self.edges[dim].mode if dim in self.edges else 0 for dim in source.dims)
        return [0 if isinstance(mode, str) else mode for mode in modes]

    def arrange(self, source: ArrayShape, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values with the dimensions of the target, if the source has no others."""
        dims = self.target.dims
        if not set(source.dims) <= set(dims):
            return values
        order = sorted(range(len(source.dims)), key=lambda axis: dims.index(source.dims[axis]))
        lengths = dict(zip(source.dims, values.shape, strict=True))
        return values.transpose(order).reshape([lengths.get(dim, 1) for dim in dims])

    def touched(self, session: SessionBase, boxes: Int64s) -> Bools:
        """Tell for which boxes of the target a source has chunks, those of halos included."""
        found = np.zeros(len(boxes), dtype=bool)
        for source in self.sources:
            coords = session.chunk_coordinates(source.path)
            sides = np.array(source.write_unit, dtype=np.int64)
            present = np.zeros(
                tuple(-(-size // side) for size, side in zip(source.shape, sides.tolist(), strict=True)), dtype=bool
            )
            present[tuple(coords.T)] = True
            for number in np.flatnonzero(~found).tolist():
                chunks = [
                    np.unique(each.positions // side)
                    for each, side in zip(self.windows(source, boxes[number]), sides, strict=True)
                ]
                found[number] = bool(present[np.ix_(*chunks)].any()) if chunks else bool(len(coords))
        return found

    def kept(self, bounds: Int64s) -> tuple[tuple[int, ...], tuple[slice, ...]]:
        """Return the shape of a result with its halo, and the part of it that is the box."""
        shape: list[int] = []
        part: list[slice] = []
        for dim, size, (start, stop) in zip(self.target.dims, self.target.shape, bounds.tolist(), strict=True):
            edge = self.edges[dim]
            before, after = edge.before, edge.after
            if edge.mode == "cut":
                before, after = min(before, start), min(after, size - stop)
            shape.append(before + stop - start + after)
            part.append(slice(before, before + stop - start))
        return tuple(shape), tuple(part)


def align(
    session: SessionBase,
    sources: Sequence[str],
    target: str,
    factors: dict[str, int],
    halo: Halo | None,
    boundary: Boundary,
) -> Alignment:
    """Match the dimensions of sources with those of a target; raise `InvalidInputError` if their sizes do not fit."""
    if not sources:
        raise InvalidInputError("sources must name at least one array")
    to = describe_array(session, target)
    arrays = tuple(describe_array(session, path) for path in sources)
    for dim in factors:
        to.axis(dim)
    for source in arrays:
        for dim, size in zip(source.dims, source.shape, strict=True):
            if dim in to.dims:
                _check_size(to, source, dim, size, factors.get(dim, 1))
    return Alignment(to, arrays, factors, parse_halo(halo, boundary, to.dims))


def _check_size(target: ArrayShape, source: ArrayShape, dim: str, size: int, factor: int) -> None:
    cells_of_target = target.shape[target.axis(dim)]
    if cells_of_target not in (size // factor, -(-size // factor)):
        times = f" by {factor}" if factor > 1 else ""
        raise InvalidInputError(
            f"dimension {dim!r} has {size} cells in {source.path!r} and {cells_of_target} in {target.path!r}: they do "
            f"not match{times}; name dimensions apart that are different, or give factors={{{dim!r}: ...}}"
        )


@dataclass(frozen=True)
class BoxTransform:
    """Computes the boxes of one task."""

    plan: Alignment
    function: Callable[..., Any]
    with_region: bool = False

    def __call__(self, fork: ForkSession, share: Int64s) -> Mapping[str, Any]:
        """Compute boxes, shape (n, d, 2)."""
        reader = fork.fork()  # the function must not see what other boxes have written
        read = written = 0
        for bounds in share:
            try:
                taken, made = self._compute(reader, fork, bounds)
            except TransformError as error:
                raise TransformError(f"{self._name(bounds)} failed: {error.message}") from error
            except ArrayStoreError:
                raise
            except Exception as error:
                raise TransformError(f"{self._name(bounds)} failed: {type(error).__name__}: {error}") from error
            read, written = read + taken, written + made
        keep_reads(fork, reader)
        return {"read_bytes": read, "nbytes": written}

    def _name(self, bounds: Int64s) -> str:
        return f"computing {box_text(bounds, self.plan.target.dims)} of {self.plan.target.path!r}"

    def _compute(self, reader: SessionBase, fork: ForkSession, bounds: Int64s) -> tuple[int, int]:
        """Compute and write one box, and return the bytes that were read and written."""
        plan, target = self.plan, self.plan.target
        arrays = [read_window(reader, each, plan.windows(each, bounds), plan.constants(each)) for each in plan.sources]
        given = [plan.arrange(source, values) for source, values in zip(plan.sources, arrays, strict=True)]
        region = as_slices(bounds)
        options = {"region": region} if self.with_region else {}
        values = fitting(self.function(*given, **options), target.dtype, target.path)
        fork.write(target.path, (*region, ...), self._cut(values, bounds))
        return sum(int(each.nbytes) for each in arrays), int(cells(bounds)) * target.itemsize

    def _cut(self, values: npt.NDArray[Any], bounds: Int64s) -> npt.NDArray[Any]:
        """Return the values of the box, without the halo."""
        shape = tuple((bounds[:, 1] - bounds[:, 0]).tolist())
        if values.shape in ((), shape):
            return values
        wide, part = self.plan.kept(bounds)
        if values.shape == wide:
            return values[part]
        either = f"{shape}" if wide == shape else f"{shape}, or {wide} with its halo"
        raise TransformError(f"the function returned values of shape {values.shape}, not {either}")


def keep_reads(fork: ForkSession, reader: ForkSession) -> None:
    """Let a fork account for what a fork of it has read, where the isolation of the session needs that."""
    if fork.isolation == "serializable":
        fork.merge(reader)
    else:
        fork.abandon(reader)
