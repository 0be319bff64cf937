"""Writing an array in parallel, region by region."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import zarr

from arraystore._format.types import Int64s
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, InvalidInputError, NodeNotFoundError
from arraystore.spark.change_set_transfer import is_spilled
from arraystore.spark.cluster import required_session, slots
from arraystore.spark.fork_job import Outcome, merge_outcomes, run_fork_job, task_frame
from arraystore.spark.regions.boxes import (
    Align,
    RegionLike,
    as_bounds,
    as_slices,
    cut_regions,
    deal,
    joined,
    ownership,
    pack_bounds,
    region_text,
    unpack_bounds,
)
from arraystore.spark.report import Progress, WriteReport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["RegionWriteError", "chunk_regions", "write_regions"]

Region = tuple[slice, ...]

TASKS_PER_SLOT = 3
"""Few fat tasks: enough to even out slow ones, not so many that starting them is what takes the time."""
_REGION_BYTES = 32 << 20
"""Size of regions that are cut here, at most: a task holds one of them in memory."""
_REGIONS_PER_TASK = 2
"""At least so many for each task, if there are chunks enough: tasks then differ little."""


class RegionWriteError(ArrayStoreError):
    """The values of a region could not be made, or do not fit; names array and region."""


@dataclass(frozen=True, slots=True)
class _Target:
    """An array that is written to."""

    path: str
    shape: tuple[int, ...]
    unit: tuple[int, ...]
    dims: tuple[str | None, ...] | None
    itemsize: int


def chunk_regions(array: zarr.Array[Any], *, max_bytes: int = _REGION_BYTES) -> list[Region]:
    """Cut an array into regions of whole chunks.

    Parameters
    ----------
    array
        An array of zarr.
    max_bytes
        Size of a region in memory, at most; a chunk that is larger is a region of its own.

    Returns
    -------
    list of tuples of slices
        In row-major order; they index the array.
    """
    target = _described(str(array.path), array)
    if 0 in target.shape:
        return []
    return [as_slices(row) for row in cut_regions(target.shape, target.unit, target.itemsize, max_bytes)]


def write_regions(
    session: Session,
    path: str | Sequence[str],
    regions: Iterable[RegionLike] | Int64s | None,
    func: Callable[[Region], Any],
    *,
    spark: SparkSession | None = None,
    tasks: int | None = None,
    align: Align = "own",
    description: str | None = None,
    progress: Progress | None = None,
) -> WriteReport:
    """Have executors make the values of regions and write them; nothing is committed.

    The changes are in the session afterwards, and so is all that was in it before.  What tasks write lies under keys
    of its own until the caller commits; a task that fails is run again, and does no harm.

    Parameters
    ----------
    session
        A writable session.
    path
        Path of an array that exists, committed or not; or of several of the same shape that are written together.
    regions
        Boxes of cells: tuples of slices, mappings from dimensions to slices, or an array of bounds, shape
        (n, dimensions, 2).  None cuts the array along its chunks.
    func
        ``func(region)`` returns the values of a region, a tuple of slices: an array of its shape, or a scalar.  Where
        there are several paths, a mapping by path, or as many arrays as there are paths.  It runs on executors, and is
        pickled by cloudpickle.
    spark
        Session of Spark; the running one by default.
    tasks
        At most so many tasks; by default three for each slot of the cluster.
    align
        Regions that share a chunk are written by one task, one after the other (``"own"``); or regions that do not
        cover whole chunks are refused (``"error"``).
    description
        For Spark's pages.
    progress
        Told about the tasks done.

    Returns
    -------
    WriteReport
        Of what is in the session now.

    Raises
    ------
    InvalidInputError
        If regions overlap, or lie outside of the array, or workers cannot reach the storage; no task has started then.
    StorageError
        If the storage holds credentials that must not be pickled; no task has started then.
    NodeNotFoundError
        If there is no such array.
    TaskFailedError
        If `func` failed for good; nothing was merged.
    """
    began = time.perf_counter()
    session.check_writable()
    paths = [path] if isinstance(path, str) else list(path)
    targets = _targets(session, paths)
    spark = required_session(spark)
    most = _task_count(tasks, spark)
    bounds = _bounds(regions, targets, most)
    owned = [ownership(bounds, item.shape, item.unit, align, item.dims) for item in targets]
    if not len(bounds):
        return WriteReport(tuple(item.path for item in targets), 0, 0, 0, 0, 0, 0, time.perf_counter() - began)
    weight = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)
    hands = deal(joined([item.group for item in owned]), weight, most)
    work = _RegionWork(tuple(targets), tuple(pack_bounds(bounds[hand]) for hand in hands), func, isinstance(path, str))
    text = description or f"arraystore: write {len(bounds)} regions of {', '.join(paths)}"
    outcomes = run_fork_job(
        session, task_frame(spark, len(hands)), work, description=text, tasks=len(hands), progress=progress,
        take=partial(merge_outcomes, session),
    )  # fmt: skip
    chunks = sum(item.chunks for item in owned)
    return report_of(tuple(item.path for item in targets), outcomes, began, chunks=chunks)


def report_of(
    arrays: tuple[str, ...], outcomes: Sequence[Outcome], began: float, *, chunks: int, rows: int = 0
) -> WriteReport:
    """Add up what tasks report: ``nbytes`` of each."""
    return WriteReport(
        arrays,
        rows,
        chunks,
        sum(int(outcome.report["nbytes"]) for outcome in outcomes),
        len(outcomes),
        sum(outcome.attempt for outcome in outcomes),
        sum(is_spilled(outcome.change_set) for outcome in outcomes),
        time.perf_counter() - began,
    )


def _task_count(tasks: int | None, spark: SparkSession) -> int:
    if tasks is None:
        return TASKS_PER_SLOT * slots(spark)
    if type(tasks) is not int or tasks < 1:
        raise InvalidInputError(f"tasks={tasks!r}: give a number of 1 or more, or None")
    return tasks


def _targets(session: Session, paths: Sequence[str]) -> list[_Target]:
    if not paths:
        raise InvalidInputError("give the path of an array, or of several")
    found = [_opened(session, path) for path in paths]
    if len({item.path for item in found}) < len(found):
        raise InvalidInputError(f"an array is given twice: {', '.join(paths)}")
    for item in found[1:]:
        if item.shape != found[0].shape:
            raise InvalidInputError(
                f"arrays that are written together have one shape: {found[0].path!r} has {found[0].shape}, and "
                f"{item.path!r} {item.shape}"
            )
    return found


def _opened(session: Session, path: str) -> _Target:
    try:
        node = zarr.open(session.store, path=path.strip("/"), mode="r")
    except FileNotFoundError:
        node = None
    if not isinstance(node, zarr.Array):
        raise NodeNotFoundError(
            f"there is no array {path!r} in this session: create it first, it need not be committed"
        )
    return _described(path.strip("/"), node)


def _described(path: str, array: zarr.Array[Any]) -> _Target:
    unit = getattr(array, "shards", None) or array.chunks
    if len(unit) != len(array.shape):
        raise InvalidInputError(f"array {path!r} has chunks of several sizes; write_regions needs a regular grid")
    dims = getattr(array.metadata, "dimension_names", None)
    itemsize = getattr(array.dtype, "itemsize", 8) or 8
    shape = tuple(map(int, array.shape))
    return _Target(path, shape, tuple(map(int, unit)), None if dims is None else tuple(dims), int(itemsize))


def _bounds(regions: Iterable[RegionLike] | Int64s | None, targets: Sequence[_Target], tasks: int) -> Int64s:
    first = targets[0]
    if regions is None:
        if 0 in first.shape:
            return np.empty((0, len(first.shape), 2), dtype=np.int64)
        unit = tuple(math.lcm(*sides) for sides in zip(*(item.unit for item in targets), strict=True))
        itemsize = sum(item.itemsize for item in targets)
        share = math.prod(first.shape) * itemsize // (_REGIONS_PER_TASK * tasks)
        return cut_regions(first.shape, unit, itemsize, min(_REGION_BYTES, share))
    return as_bounds(regions, first.shape, first.dims)


@dataclass(frozen=True, eq=False)
class _RegionWork:
    """Writes the regions of one task.

    Parameters
    ----------
    targets
        The arrays.
    hands
        The regions of each task, packed: all of them travel to all executors.
    func
        Makes values.
    single
        Whether `func` returns the values of one array, and not of several.
    """

    targets: tuple[_Target, ...]
    hands: tuple[bytes, ...]
    func: Callable[[Region], Any]
    single: bool

    def __call__(self, fork: ForkSession, batches: Iterator[pa.RecordBatch]) -> Mapping[str, Any]:
        (task,) = [number for batch in batches for number in batch.column(0).to_pylist()]
        arrays = [zarr.open_array(fork.store, path=item.path, mode="r+") for item in self.targets]
        nbytes = 0
        for bounds in unpack_bounds(self.hands[task], len(self.targets[0].shape)):
            nbytes += self._write(arrays, bounds)
        return {"nbytes": nbytes}

    def _write(self, arrays: Sequence[zarr.Array[Any]], bounds: Int64s) -> int:
        region = as_slices(bounds)
        shape = tuple(part.stop - part.start for part in region)
        nbytes = 0
        try:
            for item, array, values in zip(self.targets, arrays, self._values(region), strict=True):
                fitting = _unmasked(item, values)
                _check_kind(item, fitting, array.dtype)
                if fitting.shape not in ((), shape):
                    raise RegionWriteError(f"values for {item.path!r} have the shape {fitting.shape}, not {shape}")
                array[region] = fitting[()] if fitting.shape == () else fitting
                nbytes += math.prod(shape) * item.itemsize
        except Exception as error:
            names = ", ".join(item.path for item in self.targets)
            if isinstance(error, ArrayStoreError) and not isinstance(error, RegionWriteError):
                raise
            cause = error.message if isinstance(error, ArrayStoreError) else f"{type(error).__name__}: {error}"
            text = f"writing {region_text(bounds, self.targets[0].dims)} of {names} failed: {cause}"
            raise RegionWriteError(text) from error
        return nbytes

    def _values(self, region: Region) -> list[Any]:
        found = self.func(region)
        if self.single:
            return [found]
        if isinstance(found, Mapping):
            by_path = {str(path).strip("/"): values for path, values in found.items()}
            paths = [item.path for item in self.targets]
            lacking = [path for path in paths if path not in by_path]
            if lacking:
                raise RegionWriteError(f"the function returned no values for {lacking[0]!r}")
            if len(by_path) > len(paths):
                raise RegionWriteError(
                    f"nothing is written to {min(set(by_path) - set(paths))!r}, for which there are values"
                )
            return [by_path[path] for path in paths]
        values = list(found)
        if len(values) != len(self.targets):
            raise RegionWriteError(f"the function returned {len(values)} arrays for {len(self.targets)} paths")
        return values


def _check_kind(target: _Target, values: npt.NDArray[Any], dtype: Any) -> None:
    """Check that numbers stay what they are, but for the precision of floats: casting would change them silently."""
    if not isinstance(dtype, np.dtype) or values.dtype.kind not in "biufc" or dtype.kind not in "biufc":
        return
    if values.dtype.kind in "iu" and dtype.kind in "iu":
        held = np.iinfo(dtype)
        fits = not values.size or (int(values.min()) >= held.min and int(values.max()) <= held.max)
    else:
        fits = np.can_cast(values.dtype, dtype, "same_kind")
    if not fits:
        raise RegionWriteError(
            f"values of type {values.dtype} do not fit into {target.path!r}, which holds {dtype}: convert them yourself"
        )


def _unmasked(target: _Target, values: Any) -> Any:
    """Return values as an array; what lies below a mask is none of them, and nothing would be stored as NaN."""
    if values is None:
        raise RegionWriteError(f"the function returned None where values for {target.path!r} are expected")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise RegionWriteError(
            f"values for {target.path!r} are masked in {np.ma.count_masked(values)} places: fill them, with the fill "
            "value of the array for instance (numpy.ma.filled)"
        )
    return np.asarray(values)
