"""Mapping a function over the chunks of arrays on executors: numpy in, columns out, without a row for each position."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arraystore._format.types import Int64s
from arraystore._repository.repository import Repository
from arraystore._session.base import SessionBase
from arraystore.errors import InvalidInputError
from arraystore.spark.cf_time import has_fixed_unit
from arraystore.spark.cluster import slots
from arraystore.spark.reading.arrow_columns import arrow_schema
from arraystore.spark.reading.blocks import Block, blocks_of_task
from arraystore.spark.reading.decoding import filled
from arraystore.spark.reading.frame_plan import FramePlan, plan_frame, read_task_count
from arraystore.spark.snapshots import check_reachable, pinned_session
from arraystore.spark.spark_action import map_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Columns: TypeAlias = "pa.Table | pa.RecordBatch | Mapping[str, Any]"


@dataclass(frozen=True)
class Chunk:
    """Argument of the function of `map_chunks`: one chunk, cut to the selection.

    Attributes
    ----------
    dims : tuple of str
        Names of the dimensions, in the order of those of the arrays.
    index : tuple of int
        Coordinates of the chunk in the grid of the leading array.
    shape : tuple of int
        Of each of the arrays.
    arrays : dict of str to ndarray
        Values by column name; with ``decode=True`` missing ones are NaN, not-a-time or None.  They are not to be
        written to.
    """

    dims: tuple[str, ...]
    index: tuple[int, ...]
    shape: tuple[int, ...]
    arrays: dict[str, npt.NDArray[Any]]
    _positions: tuple[range | Int64s, ...]
    _labels: tuple[npt.NDArray[Any] | None, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slices of the chunk in the leading array, for indexing it or one of its shape.

        Raises
        ------
        InvalidInputError
            If the selected positions have gaps; see `positions`.
        """
        for name, positions in zip(self.dims, self._positions, strict=True):
            if not isinstance(positions, range):
                raise InvalidInputError(
                    f"positions with gaps are selected along {name!r}: use chunk.positions({name!r})"
                )
        return tuple(slice(int(along[0]), int(along[-1]) + 1) for along in self._positions)

    def positions(self, dim: str) -> Int64s:
        """Return the positions along a dimension.

        Raises
        ------
        InvalidInputError
            If there is no such dimension.
        """
        return np.asarray(self._positions[self._axis(dim)], dtype=np.int64)

    def coords(self, dim: str) -> npt.NDArray[Any]:
        """Return the labels along a dimension; positions, where there is no coordinate array.

        Raises
        ------
        InvalidInputError
            If there is no such dimension.
        """
        labels = self._labels[self._axis(dim)]
        return self.positions(dim) if labels is None else labels

    def _axis(self, dim: str) -> int:
        if dim not in self.dims:
            raise InvalidInputError(f"there is no dimension {dim!r}, but {', '.join(map(repr, self.dims))}")
        return self.dims.index(dim)


ChunkFunction: TypeAlias = Callable[[Chunk], "Columns | Iterable[Columns] | None"]


def map_chunks(
    spark: SparkSession,
    repo: Repository | SessionBase | str | os.PathLike[str],
    paths: str | Sequence[str] | Mapping[str, str],
    fn: ChunkFunction,
    schema: StructType | str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    ref: str | None = None,
    as_of: datetime | None = None,
    sel: Mapping[str, Any] | None = None,
    isel: Mapping[str, Any] | None = None,
    decode: bool = False,
    skip_missing: bool = False,
    where: str | None = None,
    dims: Sequence[str] | None = None,
    chunks_per_task: int | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Apply a function to each chunk of arrays, and collect the rows that it returns in a DataFrame.

    Suits statistics, regridding and search over large arrays: executors read values into numpy, and only the results of
    the function pass through Spark.

    Parameters
    ----------
    spark
        A session, classic or Connect.
    repo, paths, branch, tag, snapshot_id, ref, as_of, sel, isel, decode, skip_missing, dims, chunks_per_task, tasks
        As in `read_dataframe`.  The labels that `Chunk.coords` returns are decoded with `decode`.
    where
        Chooses chunks, as with ``layout="chunks"``: the function gets whole chunks, in which there may be values of
        which it does not hold, or none of which it does.
    fn
        Called with a `Chunk`, on executors; returns a mapping of column names to sequences of one length (or to single
        values, for one row), a pyarrow Table or RecordBatch, an iterable of those, or None for no rows.  Arrays of more
        than one dimension are taken in row-major order.
    schema
        Of the DataFrame, as in ``DataFrame.mapInArrow``.

    Returns
    -------
    DataFrame
        In no particular order; computed anew for each action, unless it is cached.

    Raises
    ------
    InvalidInputError, NodeNotFoundError, RefNotFoundError, SnapshotNotFoundError, RepositoryNotFoundError
        As `read_dataframe` does.
    """
    if not callable(fn):  # pyright: ignore[reportUnnecessaryComparison] - callers without types
        raise InvalidInputError(f"fn must be a function of a chunk, not {type(fn).__name__}")
    session = pinned_session(repo, branch=branch, tag=tag, snapshot_id=snapshot_id, ref=ref, as_of=as_of)
    check_reachable(session.context)
    plan = plan_frame(
        session, paths, sel=sel, isel=isel, coords="label", decode=decode, skip_missing=skip_missing, dims=dims,
        name_dims=False, where=where,
    )  # fmt: skip
    count = read_task_count(plan, slots(spark), chunks_per_task, tasks)
    wanted = spark.createDataFrame([], schema).schema
    return map_tasks(spark, count, ChunkMapper(plan, count, fn, arrow_schema(wanted)).rows, wanted)


def chunk_of(plan: FramePlan, block: Block) -> Chunk:
    """Return a block of one chunk as a `Chunk`."""
    labels = (
        None if selected is None else filled(*selected.map(itemgetter(slice(*bounds))))
        for selected, bounds in zip(plan.labels, block.bounds, strict=True)
    )
    arrays = {one.column: filled(*column) for one, column in zip(plan.variables, block.columns, strict=True)}
    for values in arrays.values():
        values.flags.writeable = False
    return Chunk(
        plan.dims,
        tuple(int(axis.touched[at]) for axis, at in zip(plan.axes, block.box[:, 0].tolist(), strict=True)),
        block.shape,
        arrays,
        tuple(axis.positions[start:stop] for axis, (start, stop) in zip(plan.axes, block.bounds, strict=True)),
        tuple(labels),
    )


@dataclass(frozen=True)
class ChunkMapper:
    """Rows that `fn` returns for the chunks of a task."""

    plan: FramePlan
    tasks: int
    fn: ChunkFunction
    schema: pa.Schema

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        for block in blocks_of_task(self.plan, task, self.tasks):
            for part in block.chunks(self.plan):
                chunk = chunk_of(self.plan, part)
                for columns in _each(self.fn(chunk)):
                    yield from self._batches(columns, chunk)

    def _batches(self, columns: Columns, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        try:
            batch = self._batch(columns) if isinstance(columns, Mapping) else columns
            table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
            yield from table.select(self.schema.names).cast(self.schema).to_batches()
        except (pa.ArrowException, KeyError, OverflowError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"what the function returned for the chunk at {chunk.index} does not fit the schema: {error}"
            ) from error

    def _batch(self, columns: Mapping[str, Any]) -> pa.RecordBatch:
        names = self.schema.names
        if set(columns) != set(names):
            raise ValueError(f"it has columns {sorted(columns)}, and the schema has {sorted(names)}")
        return pa.RecordBatch.from_arrays([_column(columns[f.name], f.type) for f in self.schema], schema=self.schema)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    nested = pa.types.is_nested(kind)
    values = _in_unit_of(kind, values)
    if isinstance(values, np.ndarray) and values.ndim and not nested:
        flat = np.ascontiguousarray(values).reshape(-1)
        if flat.dtype.kind == "M" and pa.types.is_timestamp(kind):
            return pa.array(flat).view(pa.int64()).view(kind)
        return pa.array(flat).cast(kind) if flat.dtype.kind in "iufb" else pa.array(flat.tolist(), kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        arrow: Any = values
        return (arrow.combine_chunks() if isinstance(values, pa.ChunkedArray) else arrow).cast(kind)
    if isinstance(values, np.ndarray):  # of nested values, or a single one
        values = values.tolist()
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes | np.generic)
    items: list[Any] = list(values) if several else [values]
    plain = [_plain(kind, item) for item in items]
    if pa.types.is_integer(_leaf(kind)):
        array = pa.array(plain)
        if pa.types.is_floating(_leaf(array.type)):
            return array.cast(kind)  # which refuses what is not whole, where making an array of it cuts it off
    return pa.array(plain, kind)


def _plain(kind: pa.DataType, item: Any) -> Any:
    """Return a value, or nested ones, as Arrow takes it for Python's own."""
    if isinstance(item, list | tuple):
        return [_plain(kind, each) for each in item]
    item = _in_unit_of(kind, item)
    return item.item() if isinstance(item, np.generic) else item


def _in_unit_of(kind: pa.DataType, values: Any) -> Any:
    """Return times of NumPy in the unit of a column, in which Arrow takes their counts; other values as they are."""
    leaf = _leaf(kind)
    unit = "D" if pa.types.is_date(leaf) else "us" if pa.types.is_temporal(leaf) else None
    if unit is None or not isinstance(values, np.ndarray | np.generic) or values.dtype.kind not in "Mm":
        return values
    if values.dtype.kind == "m" and not has_fixed_unit(values.dtype):
        raise TypeError(f"{values.dtype} has no fixed length")
    return values.astype(f"{values.dtype.kind}8[{unit}]")


def _leaf(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, pa.ListType):
        kind = kind.value_type
    return kind


def _each(returned: Any) -> Iterator[Columns]:
    """Yield what the function returned for a chunk, one by one."""
    if returned is None or isinstance(returned, pa.Table | pa.RecordBatch | Mapping):
        returned = () if returned is None else (returned,)
    elif isinstance(returned, str | bytes | np.ndarray) or not isinstance(returned, Iterable):
        raise _not_columns(type(returned).__name__)
    for columns in returned:
        if not isinstance(columns, pa.Table | pa.RecordBatch | Mapping):
            raise _not_columns(f"an iterable of {type(columns).__name__}")
        yield columns


def _not_columns(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the function returned {what}: a mapping of columns, a pyarrow Table or RecordBatch, an iterable of those, or "
        "None is expected (of a DataFrame of pandas: pyarrow.Table.from_pandas)"
    )
