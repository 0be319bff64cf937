"""Writing an array in parallel, region by region."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr

from arraystore._format.types import Int64s, Region
from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.arguments import check_writable_session
from arraystore._session.fork import ForkSession
from arraystore._session.session import Session
from arraystore.errors import ArrayStoreError, InvalidInputError, NodeNotFoundError
from arraystore.spark.argument_checks import check_count
from arraystore.spark.cluster import required_session, slots
from arraystore.spark.fork_job import merge_outcomes, report_of, run_tasks
from arraystore.spark.reading.opening import dimension_names
from arraystore.spark.regions.boxes import (
    Align,
    RegionLike,
    as_bounds,
    as_slices,
    assign_to_tasks,
    cut_regions,
    join_groups,
    ownership,
    pack_bounds,
    region_text,
    unpack_bounds,
)
from arraystore.spark.report import WriteReport
from arraystore.transforms.values import fitting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Blocks = Literal["chunk"] | int

TASKS_PER_SLOT = 3
"""Tasks per slot: enough to even out slow ones, few enough for the cost of starting them not to matter."""
_REGION_BYTES = 32 << 20
"""Largest size of regions that are cut here: a task holds one of them in memory."""
_REGIONS_PER_TASK = 2
"""Least count of regions for each task, if there are enough chunks, so that tasks differ little."""


class RegionWriteError(ArrayStoreError):
    """The values of a region could not be computed, or do not fit; names array and region."""


@dataclass(frozen=True, slots=True)
class _Target:
    """An array that is written to."""

    path: str
    shape: tuple[int, ...]
    unit: tuple[int, ...]
    dims: tuple[str | None, ...]
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
    target = _describe_target(str(array.path), array)
    if 0 in target.shape:
        return []
    return [as_slices(row) for row in cut_regions(target.shape, target.unit, target.itemsize, max_bytes)]


@shows_progress("Writing")
def write_regions(
    session: Session,
    path: str | Sequence[str],
    regions: Iterable[RegionLike] | Int64s | None,
    func: Callable[[Region], Any],
    *,
    spark: SparkSession | None = None,
    tasks: int | None = None,
    blocks: Blocks | None = None,
    align: Align = "own",
    description: str | None = None,
    progress: Progress | bool = False,
) -> WriteReport:
    """Have executors make the values of regions and write them; nothing is committed.

    The changes are in the session afterwards, beside those that were in it before.  Tasks write under keys of their
    own, which nothing references until the caller commits; a failed task is run again, and does no harm.

    Parameters
    ----------
    session
        A writable session.
    path
        Path of an array that exists, committed or not; or of several of the same shape that are written together.
    regions
        Boxes of cells: tuples of slices, mappings from dimensions to slices, or an array of bounds, shape
        (n, dimensions, 2).  None cuts the array along its chunks into blocks, which cover one chunk or several.
    func
        ``func(region)`` returns the values of a region, a tuple of slices: an array of its shape, or a scalar.  Where
        there are several paths, a mapping by path, or as many arrays as there are paths.  It runs on executors, and is
        pickled by cloudpickle.
    spark
        Session of Spark; the running one by default.
    tasks
        Largest count of tasks; by default three for each slot of the cluster.
    blocks
        With ``regions=None``, what a block is: ``"chunk"`` for one chunk (a shard where there are shards; where several
        arrays have different chunks, the smallest box that covers whole chunks of all), or a size: as many chunks, side
        by side, as take at most so many bytes in memory, of all arrays together, and at least one.  By default
        a block has at most 32 MiB, and less if tasks would otherwise get fewer than two.
    align
        Regions that share a chunk are written by one task, one after the other (``"own"``); or regions that do not
        cover whole chunks are refused (``"error"``).
    description
        For Spark's pages.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with the count of finished
        tasks and the count of all.

    Returns
    -------
    WriteReport
        Counts of what was written.

    Raises
    ------
    InvalidInputError
        If regions overlap or exceed the array, or executors cannot reach the storage; no task has started then.
    StorageError
        If the storage holds credentials that must not be pickled; no task has started then.
    NodeNotFoundError
        If there is no such array.
    TaskFailedError
        If `func` failed for good; nothing was merged.
    """
    began = time.perf_counter()
    check_writable_session(session)
    paths = [path] if isinstance(path, str) else list(path)
    targets = _targets(session, paths)
    spark = required_session(spark)
    check_count("tasks", tasks)
    most = TASKS_PER_SLOT * slots(spark) if tasks is None else tasks
    if blocks is not None:
        _check_blocks(blocks, regions)
    bounds = _bounds(regions, targets, most, blocks)
    owned = [ownership(bounds, item.shape, item.unit, align, item.dims) for item in targets]
    weight = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)
    assignments = assign_to_tasks(join_groups([item.group for item in owned]), weight, most)
    text = description or f"arraystore: write {len(bounds)} regions of {', '.join(paths)}"
    outcomes = run_tasks(
        spark, session, [pack_bounds(bounds[assigned]) for assigned in assignments],
        _RegionWork(tuple(targets), func, isinstance(path, str)), description=text, progress=callback_of(progress),
        take=partial(merge_outcomes, session),
    )  # fmt: skip
    chunks = sum(item.chunks for item in owned)
    return report_of(tuple(item.path for item in targets), outcomes, began, chunks=chunks)


def _targets(session: Session, paths: Sequence[str]) -> list[_Target]:
    if not paths:
        raise InvalidInputError("give the path of an array, or of several")
    targets = [_open_target(session, path) for path in paths]
    if len({item.path for item in targets}) < len(targets):
        raise InvalidInputError(f"an array is given twice: {', '.join(paths)}")
    for item in targets[1:]:
        if item.shape != targets[0].shape:
            raise InvalidInputError(
                f"arrays that are written together have one shape: {targets[0].path!r} has {targets[0].shape}, and "
                f"{item.path!r} {item.shape}"
            )
    return targets


def _open_target(session: Session, path: str) -> _Target:
    try:
        node = zarr.open(session.store, path=path.strip("/"), mode="r")
    except FileNotFoundError:
        node = None
    if not isinstance(node, zarr.Array):
        raise NodeNotFoundError(
            f"there is no array {path!r} in this session: create it first, it need not be committed"
        )
    return _describe_target(path.strip("/"), node)


def _describe_target(path: str, array: zarr.Array[Any]) -> _Target:
    unit = getattr(array, "shards", None) or array.chunks
    if len(unit) != len(array.shape):
        raise InvalidInputError(f"array {path!r} has chunks of several sizes; write_regions needs a regular grid")
    itemsize = getattr(array.dtype, "itemsize", 8) or 8
    shape = tuple(map(int, array.shape))
    return _Target(path, shape, tuple(map(int, unit)), dimension_names(array), int(itemsize))


def _check_blocks(blocks: Blocks, regions: object) -> None:
    if regions is not None:
        raise InvalidInputError("blocks says how an array is cut: it needs regions=None")
    if blocks != "chunk" and (type(blocks) is not int or blocks < 1):
        raise InvalidInputError(f"blocks={blocks!r} must be 'chunk', or a size in bytes >= 1")


def _bounds(
    regions: Iterable[RegionLike] | Int64s | None, targets: Sequence[_Target], tasks: int, blocks: Blocks | None
) -> Int64s:
    first = targets[0]
    if regions is None:
        if 0 in first.shape:
            return np.empty((0, len(first.shape), 2), dtype=np.int64)
        unit = tuple(math.lcm(*sides) for sides in zip(*(item.unit for item in targets), strict=True))
        itemsize = sum(item.itemsize for item in targets)
        share = math.prod(first.shape) * itemsize // (_REGIONS_PER_TASK * tasks)
        most = min(_REGION_BYTES, share) if blocks is None else 1 if blocks == "chunk" else blocks
        return cut_regions(first.shape, unit, itemsize, most)
    return as_bounds(regions, first.shape, first.dims)


@dataclass(frozen=True, eq=False)
class _RegionWork:
    """Writes the regions of one task."""

    targets: tuple[_Target, ...]
    """The arrays."""
    func: Callable[[Region], Any]
    """Function that computes values."""
    single: bool
    """Whether `func` returns the values of one array, and not of several."""

    def __call__(self, fork: ForkSession, assigned: bytes) -> Mapping[str, Any]:
        arrays = [zarr.open_array(fork.store, path=item.path, mode="r+") for item in self.targets]
        nbytes = 0
        for bounds in unpack_bounds(assigned, len(self.targets[0].shape)):
            nbytes += self._write(arrays, bounds)
        return {"nbytes": nbytes}

    def _write(self, arrays: Sequence[zarr.Array[Any]], bounds: Int64s) -> int:
        region = as_slices(bounds)
        shape = tuple(part.stop - part.start for part in region)
        nbytes = 0
        try:
            for item, array, values in zip(self.targets, arrays, self._values(region), strict=True):
                fit = fitting(values, np.dtype(array.dtype), item.path, RegionWriteError)
                if fit.shape not in ((), shape):
                    raise RegionWriteError(f"values for {item.path!r} have the shape {fit.shape}, not {shape}")
                array[region] = fit[()] if fit.shape == () else fit
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
        returned = self.func(region)
        if self.single:
            return [returned]
        if isinstance(returned, Mapping):
            by_path = {str(path).strip("/"): values for path, values in returned.items()}
            paths = [item.path for item in self.targets]
            lacking = [path for path in paths if path not in by_path]
            if lacking:
                raise RegionWriteError(f"the function returned no values for {lacking[0]!r}")
            if len(by_path) > len(paths):
                raise RegionWriteError(
                    f"nothing is written to {min(set(by_path) - set(paths))!r}, for which there are values"
                )
            return [by_path[path] for path in paths]
        values = list(returned)
        if len(values) != len(self.targets):
            raise RegionWriteError(f"the function returned {len(values)} arrays for {len(self.targets)} paths")
        return values
